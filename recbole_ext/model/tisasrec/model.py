"""TiSASRec: Time Interval Aware Self-Attention for Sequential Recommendation.

Jiacheng Li, Yujie Wang, Julian McAuley, WSDM 2020 (doi 10.1145/3336191.3371786).

How this differs from the paper:
- Embeddings of intervals are never stored for all pairs of events; attention and scores are the same (see
  `intervals.py`). Dropout on them is a dropout on the query and on the weighted sum, for all events of a row.
- Item embeddings are multiplied by sqrt(H) where they enter the network, and a layer norm follows the last block. The
  paper states neither; both are in the public code.
- A negative of BCE is an item that is not in the window; in the paper, one that is not in the user's whole sequence.
- BCE is the mean of a target and its negatives, the paper's the sum: half of it, and half the weight of `reg_weight`.
- Any `loss_type` of MEANTIME trains it, too.
- `time_interval: global` divides by the same unit for all users.

How the public TensorFlow code differs from the paper, which decides here:
- The times of a user are divided by the smallest gap and rounded; intervals are differences of these. In the paper and
  here, intervals are divided by the smallest gap and rounded down.
- The smallest gap comes from all events of the user, including those of validation and test. Here it comes from the
  events of the window that the network reads. (In training, these are later than some of its positions, as in the
  paper.)
- Only queries pass the layer norm before the attention, and residuals add the normed states. Here it is
  x + drop(f(LN x)), the paper's form for both sublayers.
- Projections of queries, keys and values have a bias, here not.
- Adam has beta_2 = 0.98, here the default.

B batch, R query positions, T positions of a batch (longest history), N positions of a full window with the event to
predict, H hidden size, K negatives, k largest interval, V items.
"""

from collections.abc import Sequence

import torch
from recbole.model.abstract_recommender import SequentialRecommender
from torch import Tensor, nn
from torch.nn import functional as F

from recbole_ext.distributed.share import common_draws, count_terms, own_rows
from recbole_ext.model.batching import (
    map_length_buckets,
    map_used_positions,
    newest_events,
    unique_consecutive_rows,
)
from recbole_ext.model.contract import AttentionWeights, Head
from recbole_ext.model.layers import Dropout, check_times, load_item_vectors, recorded_inputs
from recbole_ext.model.losses import UNSEEN, item_loss, unseen_negatives
from recbole_ext.model.tisasrec.attention import IntervalBlock, Relations
from recbole_ext.model.tisasrec.intervals import count_intervals, used_intervals
from recbole_ext.model.tisasrec.options import VALIDATORS, TiSASRecOptions


class TiSASRec(SequentialRecommender):
    """Causal self-attention over the history, with embeddings of positions and of the time between events.

    Each event of a training window predicts the next one. Scores come from the last event.

    Interactions need `item_id_list` [B, L], `item_length` [B] and `timestamp_list` [B, L] in seconds (float64).

    Raises:
        InputError: a key is out of range, or the data has no times.
    """

    example_kind = "window"
    reads_times = True
    reads_request_time = False
    structural_keys = ("n_heads", "time_interval", "interval_unit")
    validators = VALIDATORS
    check_config = TiSASRecOptions

    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        self.unit = TiSASRecOptions(config).unit
        self.TIME_SEQ = config["TIME_FIELD"] + config["LIST_SUFFIX"]
        check_times(dataset, self.TIME_SEQ, "TiSASRec")
        hidden, eps, dropout = config["hidden_size"], config["layer_norm_eps"], config["hidden_dropout_prob"]
        self.time_span, self.reg_weight = config["time_span"], float(config["reg_weight"])
        draws_unseen = config["loss_type"] != "CE" and config["negative_distribution"] == UNSEEN
        self.num_unseen: int = config["num_negatives"] if draws_unseen else 0  # negatives of each target
        self.takes_whole_batches = draws_unseen  # for all of whose rows they are drawn

        sparse = bool(config["sparse_updates"])
        self.item_embedding = nn.Embedding(self.n_items, hidden, padding_idx=0, sparse=sparse)
        # position 0 is that of the oldest event of a full window
        self.position_key, self.position_value = (nn.Embedding(self.max_seq_length - 1, hidden) for _ in range(2))
        self.interval_key, self.interval_value = (nn.Embedding(self.time_span + 1, hidden) for _ in range(2))
        self.blocks = nn.ModuleList(
            IntervalBlock(hidden, config["n_heads"], dropout, config["attn_dropout_prob"], eps)
            for _ in range(config["n_layers"])
        )
        self.norm, self.dropout = nn.LayerNorm(hidden, eps=eps), Dropout(dropout)
        self.loss = item_loss(config, dataset, self.n_items)
        self._initialise(config["initializer_range"])
        load_item_vectors(self.item_embedding, "hidden_size", config, dataset)

    def _initialise(self, deviation: float) -> None:
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=deviation)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        with torch.no_grad():
            self.item_embedding.weight[0] = 0

    # ---------------------------------------------------------------- the network

    def encode(self, items: Tensor, time: Tensor, length: Tensor, positions: Tensor | None = None) -> Tensor:
        """States after the last block and its norm.

        Args:
            items: ids, oldest first, 0 in the padding on the right. [B, T]
            time: seconds, that of the last event in the padding, float64 [B, T].
            length: events of each row, [B].
            positions: those to return, [B, R]; the last block is computed for these alone. `None` returns all.

        Returns:
            [B, R, H], or [B, T, H].
        """
        x = self.dropout(self.item_embedding(items) * self.item_embedding.embedding_dim**0.5)
        relations = self._relations(time, length)
        *blocks, last_block = self.blocks
        for block in blocks:
            x = block(x, relations)
        return self.norm(last_block(x, relations if positions is None else relations.at(positions), positions))

    def _relations(self, time: Tensor, length: Tensor) -> Relations:
        slot = torch.arange(time.shape[1], device=time.device)
        # positions count from the end: that of the newest event is always the last
        positions = self.position_key.num_embeddings
        position = (slot + (positions - length.unsqueeze(1))).clamp(max=positions - 1)
        interval = count_intervals(time, self.unit, self.time_span).tril()  # of later events: not needed
        used, interval = used_intervals(interval, self.time_span + 1, may_wait=not self.training)
        return Relations(
            self.dropout(self.position_key(position)), self.dropout(self.position_value(position)),
            self.interval_key(used), self.interval_value(used), interval, slot <= slot.unsqueeze(1).unsqueeze(0),
        )  # fmt: skip

    # ---------------------------------------------------------------- training

    def calculate_loss(self, interaction) -> Tensor:
        """The mean loss of predicting each event of windows but the first, and the L2 penalty on embeddings."""
        items, time, length = self._history(interaction)
        last = (length - 1).unsqueeze(1)
        answers = F.pad(items[:, 1:], (0, 1)).scatter(1, last, interaction[self.ITEM_ID].unsqueeze(1))
        columns: Sequence[Tensor] = (answers,)
        if self.num_unseen:
            window = torch.cat([items[:, :1], answers], dim=1)
            with common_draws():
                negatives = unseen_negatives(window, self.num_unseen, self.n_items)
            columns = (answers, *(column[:, 1:] for column in negatives))
            items, time, length, *columns = own_rows(items, time, length, *columns)
        states, targets, *drawn = map_used_positions(
            length,
            lambda rows, width: self.encode(items[rows, :width], time[rows, :width], length[rows]),
            *columns,
            table_width=self.time_span + 1,
        )
        count_terms(len(targets))
        loss = self.loss(states, self.item_embedding.weight, None, targets, tuple(drawn) or None)
        return loss + self.reg_weight * self._squared_norm() if self.reg_weight else loss

    def _squared_norm(self) -> Tensor:
        """The sum of the squares of all embeddings, the paper's Theta."""
        tables = (
            self.item_embedding, self.position_key, self.position_value, self.interval_key, self.interval_value,
        )  # fmt: skip
        return torch.stack([table.weight.square().sum() for table in tables]).sum()

    # ---------------------------------------------------------------- scoring

    def _history(self, interaction) -> tuple[Tensor, Tensor, Tensor]:
        """The newest N - 1 events: items [B, T], seconds [B, T], events in use [B]; as for `encode`."""
        history, times, length = (interaction[name] for name in (self.ITEM_SEQ, self.TIME_SEQ, self.ITEM_SEQ_LEN))
        return newest_events(history, times, length, self.max_seq_length - 1)

    def forward(self, interaction) -> Tensor:
        """Vectors [B, H] of the users after their last event; scores are products with the item table."""
        items, time, length = self._history(interaction)
        first, run = unique_consecutive_rows(items, time, length)
        items, time, length = items[first], time[first], length[first]
        last = (length - 1).unsqueeze(1)

        def encode(rows: Tensor, width: int | None) -> Tensor:
            return self.encode(items[rows, :width], time[rows, :width], length[rows], last[rows])

        return map_length_buckets(length, encode, table_width=self.time_span + 1).squeeze(1)[run]

    def predict(self, interaction) -> Tensor:
        """Scores of the items of the interaction, [B]."""
        return (self.forward(interaction) * self.item_embedding(interaction[self.ITEM_ID])).sum(-1)

    def full_sort_predict(self, interaction) -> Tensor:
        """Scores of all items, [B, V + 1]; ignore column 0, the padding item."""
        return self.score_items(self.prepare(interaction), slice(self.n_items))

    def prepare(self, interaction) -> Tensor:
        """The item-independent part of scores: user vectors, [B, H]."""
        return self.forward(interaction)

    def score_items(self, prepared: Tensor, items: Tensor | slice) -> Tensor:
        """Scores of items, ids [C], for each prepared request: [B, C]."""
        return F.linear(prepared, self.item_embedding.weight[items])

    def attention_weights(self, interaction, item: Tensor, user_features: dict[str, Tensor]) -> AttentionWeights:
        """Attention of the last event, in every layer and head; the same for every item."""
        heads = []
        with recorded_inputs(block.attention for block in self.blocks) as calls:
            self.prepare(interaction)
        for layer, (attention, inputs) in enumerate(calls, 1):
            weights: list[Tensor] = []  # [1, n, R, T]; the last row is that of the last event
            attention(*inputs, weights)
            heads += [Head(layer, f"items_{number}", rows[-1]) for number, rows in enumerate(weights[0][0], 1)]
        return AttentionWeights("", heads)

    def item_table(self) -> tuple[Tensor, None]:
        """Item vectors [V + 1, H], and None for biases: a score is `prepare`'s vector times the item's."""
        return self.item_embedding.weight, None
