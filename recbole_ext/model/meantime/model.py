"""MEANTIME: Mixture of Attention Mechanisms with Multi-temporal Embeddings for Sequential Recommendation.

Sung Min Cho, Eunhyeok Park, Sungjoo Yoo, RecSys 2020 (arXiv 2008.08273).

How this differs from the paper and its public code:
- The features of relative kernels are never stored as a [B, T, T, H] tensor; attention logits are the same to float32
  rounding (see `kernels.py`). The authors' dropout on entries of that tensor is a dropout on their coefficients.
- `content_bias: False`: the code drops the paper's b_I; True brings it back.
- `pad_class: False`: the softmax runs over the items. The code counts the padding id as one more class.
- At least one item of every training window is masked.
- Days after the last day of the data use the embedding of the last day; the code's embeddings are untrained there.
- `query_time: target`: the model knows the time of the event to predict, as in the paper. `query_time: last` is for
  requests without a time: the time of the last event replaces it, in scoring and for the newest event of a window.
- `architecture: bert4rec` is the paper's. `architecture: sasrec` is that of SASRec (Kang and McAuley, ICDM 2018) around
  MEANTIME's attention: embeddings times sqrt(H), `SASRecBlock`, a last layer norm, and scores without a bias.
- `objective: cloze` is the paper's. With `objective: next`, attention is causal and every event of a window predicts
  the next one, as in SASRec. An event's query is at the position, day and time of the event it
  predicts (`query_time: last`: at the day and time of its own event); its key is at its own.

B batch, R query positions, T positions of a batch (longest history and the target), N positions of a full window,
H hidden size, V items.
"""

import torch
from recbole.model.abstract_recommender import SequentialRecommender
from torch import Tensor, nn
from torch.nn import functional as F

from recbole_ext.distributed.share import common_draws, count_terms, own_rows
from recbole_ext.model.batching import (
    length_buckets,
    map_length_buckets,
    map_used_positions,
    newest_events,
    take_first,
    unique_consecutive_rows,
)
from recbole_ext.model.contract import AttentionWeights, Head
from recbole_ext.model.cross_entropy import cross_entropy_over_items
from recbole_ext.model.host_copies import on_host, with_copies
from recbole_ext.model.layers import Dropout, check_times, load_item_vectors, recorded_inputs
from recbole_ext.model.losses import choose_loss, item_loss
from recbole_ext.model.meantime.attention import MixedBlock, SASRecBlock, TemporalPositions
from recbole_ext.model.meantime.kernels import DAY, TABULATED, GapTable, SinPhases, day_range
from recbole_ext.model.meantime.masking import mask_items
from recbole_ext.model.meantime.options import VALIDATORS, MeantimeOptions


class MEANTIME(SequentialRecommender):
    """Self-attention over the history, with a temporal kernel for each head.

    `objective: cloze` attends in both directions and reads scores from a [MASK] at the time of the request;
    `objective: next` attends causally and reads them from the last event.

    Interactions need `item_id_list` [B, L], `item_length` [B] and `timestamp_list` [B, L] in seconds since the first
    event of the data (float64); the time of the request is `timestamp` [B].

    Raises:
        InputError: a key is out of range, or the data spans more days than a table of days should hold.
    """

    example_kind = "window"
    reads_times = True
    structural_keys = (
        "absolute_kernels", "relative_kernels", "kernel_freq", "kernel_time_unit", "content_bias", "pad_class",
        "objective", "architecture",
    )  # fmt: skip
    validators = VALIDATORS
    check_config = MeantimeOptions

    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        choose_loss(config, self.n_items)
        options = MeantimeOptions(config)
        self.TIME = config["TIME_FIELD"]
        self.TIME_SEQ = self.TIME + config["LIST_SUFFIX"]
        check_times(dataset, self.TIME_SEQ, "MEANTIME")
        self.reads_request_time = options.query_time == "target"
        self.query_time_mode, self.mask_ratio = options.query_time, options.mask_ratio
        self.causal = options.objective == "next"
        self.takes_whole_batches = not self.causal  # masks are drawn for all of their rows
        self.pad_class, self.tau = bool(config["pad_class"]), options.tau
        self.mask_id = self.n_items
        self.is_sasrec = options.architecture == "sasrec"
        hidden, eps = config["hidden_size"], config["layer_norm_eps"]
        dropout, attn_dropout = config["hidden_dropout_prob"], config["attn_dropout_prob"]

        sparse = bool(config["sparse_updates"])
        self.item_embedding = nn.Embedding(self.n_items + 1, hidden, padding_idx=0, sparse=sparse)  # the last: [MASK]
        self.absolute, self.relative = options.absolute, options.relative
        sizes = {"position": self.max_seq_length, "constant": 1}
        if "day" in self.absolute:
            self.first_second, sizes["day"] = day_range(dataset, self.TIME)
        self.kernel_embeddings = nn.ModuleDict({name: nn.Embedding(sizes[name], hidden) for name in self.absolute})
        self.sin = SinPhases(hidden, options.freq) if "sin" in self.relative else None
        tabulated = [name for name in self.relative if name in TABULATED]
        self.table = GapTable(tabulated, hidden, options.freq, self.tau, options.in_triton) if tabulated else None
        block = SASRecBlock if self.is_sasrec else MixedBlock
        self.blocks = nn.ModuleList(
            block(
                hidden, config["inner_size"], len(self.absolute), self.relative, dropout, attn_dropout,
                bool(config["content_bias"]), eps, self.table,
            )
            for _ in range(config["n_layers"])
        )  # fmt: skip
        self.dropout = Dropout(dropout)
        # stored optimizers know parameters by their order: the head comes before its norm
        self.head = None if self.is_sasrec else nn.Linear(hidden, hidden)
        self.head_norm = nn.LayerNorm(hidden, eps=eps)
        if self.is_sasrec:
            self.register_buffer("item_bias", torch.zeros(self.n_items), persistent=False)
        else:
            self.item_bias = nn.Parameter(torch.zeros(self.n_items))
        self.loss = item_loss(config, dataset, self.n_items)
        self._initialise(config["initializer_range"])
        load_item_vectors(self.item_embedding, "hidden_size", config, dataset)

    def _initialise(self, deviation: float) -> None:
        for name, weights in self.named_parameters():
            if name.endswith("bias") and "gap_bias" not in name and "content_bias" not in name:
                nn.init.zeros_(weights)
            elif "norm" not in name:
                nn.init.normal_(weights, std=deviation)
        with torch.no_grad():
            self.item_embedding.weight[0] = 0

    # ---------------------------------------------------------------- the network

    def encode(
        self,
        items: Tensor,
        time: Tensor,
        length: Tensor,
        positions: Tensor | None = None,
        weights: list | None = None,
        query_time: Tensor | None = None,
    ) -> Tensor:
        """States after the last block.

        Args:
            items: ids, `mask_id` at masked positions, 0 in the padding on the right. [B, T]
            time: seconds, float64 [B, T].
            length: positions in use, [B].
            positions: those to return, [B, R]; the last block is computed for these alone. `None` returns all.
            weights: a list that receives the attention of the first block, as from `MixedAttention`.
            query_time: of `objective: next`, when the event after each position is expected, seconds [B, T].

        Returns:
            [B, R, H], or [B, T, H].
        """
        x = self.item_embedding(items)
        x = self.dropout(x * x.shape[-1] ** 0.5 if self.is_sasrec else x)
        temporal = self._temporal_positions(time, length, x.dtype, query_time)
        contexts = [] if positions is not None and len(self.blocks) == 1 else temporal.contexts()
        *blocks, last_block = self.blocks
        for block in blocks:
            x = block(x, contexts, None, weights)
            weights = None
        return last_block(x, contexts if positions is None else temporal.contexts(positions), positions, weights)

    def _temporal_positions(
        self, time: Tensor, length: Tensor, dtype: torch.dtype, query_time: Tensor | None
    ) -> TemporalPositions:
        # positions count from the end: that of the request or target is always N - 1
        slot = torch.arange(time.shape[1], device=time.device)
        position = slot + (self.max_seq_length - length.unsqueeze(1)) - int(self.causal)
        keys = [self.dropout(self._absolute(name, position, time)) for name in self.absolute]
        # kernels depend on differences only: times in units of tau, relative to each row's last query
        newest = (time if query_time is None else query_time).gather(1, length.unsqueeze(1) - 1)
        key_time = (time.to(torch.float64) - newest) / self.tau
        key_waves = None if self.sin is None else self.sin(key_time, dtype)
        queries, request_time, query_waves = keys, key_time, key_waves
        if query_time is not None:
            queries = [self.dropout(self._absolute(name, position + 1, query_time)) for name in self.absolute]
            request_time = (query_time.to(torch.float64) - newest) / self.tau
            query_waves = None if self.sin is None else self.sin(request_time, dtype)
        return TemporalPositions(
            keys, queries, key_time, request_time, key_waves, query_waves, self.table, length, self.causal, dtype
        )

    def _absolute(self, name: str, position: Tensor, time: Tensor) -> Tensor:
        """Embeddings of an absolute kernel: [B, T, H], or [1, 1, H] where all positions have the same."""
        table = self.kernel_embeddings[name]
        if name == "constant":
            return table.weight.unsqueeze(0)
        index = position
        if name == "day":
            index = torch.floor((time + self.first_second) / DAY).to(torch.int64)
        return table(index.clamp(0, table.num_embeddings - 1))

    def represent(self, states: Tensor) -> Tensor:
        """States [..., H] -> vectors [..., H] whose products with the item table, plus a bias, are scores."""
        return self.head_norm(states if self.head is None else F.gelu(self.head(states), approximate="tanh"))

    # ---------------------------------------------------------------- training

    def calculate_loss(self, interaction) -> Tensor:
        """The mean loss over a window of history and target: its masked events, or all that follow another."""
        items, time, length = self.training_window(interaction)
        if self.causal:
            return self.next_loss(items, time, length)
        with common_draws():
            tokens, chosen = mask_items(items, length, self.mask_ratio, self.mask_id)
        return self.cloze_loss(*own_rows(tokens, time, length, items, chosen))

    def next_loss(self, items: Tensor, time: Tensor, length: Tensor) -> Tensor:
        """The mean loss of predicting each event of windows but the first from those before it.

        Args:
            items, time: of the events, oldest first, [B, T].
            length: events of each window, two or more, [B].
        """
        events, answers, time, query_time, length = self._shifted(items, time, length)

        def encode(rows: Tensor, width: int) -> Tensor:
            query = query_time[rows, :width]
            return self.encode(events[rows, :width], time[rows, :width], length[rows], query_time=query)

        return self._loss(*map_used_positions(length, encode, answers))

    def _shifted(self, items: Tensor, time: Tensor, length: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Windows [B, T] as events, what each predicts, their times, those of their queries, and events in use [B]."""
        query_time = time[:, 1:] if self.query_time_mode == "target" else time[:, :-1]
        return items[:, :-1], items[:, 1:], time[:, :-1], query_time, with_copies(lambda length: length - 1, length)

    def cloze_loss(self, tokens: Tensor, time: Tensor, length: Tensor, answers: Tensor, chosen: Tensor) -> Tensor:
        """The mean loss of `answers` [B, T] at the `chosen` positions, bool [B, T], given `tokens` [B, T]."""
        parts = []
        on_host(chosen)
        for rows, width in length_buckets(length):
            count = with_copies(lambda chosen, rows: chosen[rows].sum(1), chosen, rows)  # noqa: B023
            order = chosen[rows, :width].to(torch.int8).sort(dim=1, descending=True, stable=True).indices
            positions = order[:, : int(on_host(count).max())]  # [B, R], the chosen ones first
            encoded = self.encode(tokens[rows, :width], time[rows, :width], length[rows], positions)
            parts.append(take_first(count, encoded, answers[rows, :width].gather(1, positions)))
        return self._loss(*map(torch.cat, zip(*parts, strict=True)))

    def _loss(self, states: Tensor, target: Tensor) -> Tensor:
        """The mean loss of states [M, H] whose items should be `target` [M]."""
        vectors = self.represent(states)
        count_terms(len(target))
        if self.pad_class:
            return cross_entropy_over_items(vectors, *self.item_table(), target)
        # the whole table: the gradient of a slice is never sparse
        return self.loss(vectors, self.item_embedding.weight, self.item_bias, target)

    # ---------------------------------------------------------------- scoring

    def training_window(self, interaction) -> tuple[Tensor, Tensor, Tensor]:
        """The newest N - 1 events and the target: items [B, T], seconds [B, T], positions in use [B]."""
        items, time, length = self._window(interaction, interaction[self.ITEM_ID], self._event_time(interaction))
        if self.query_time_mode == "last" and not self.causal:  # as in scoring: that of the event before
            target = (length - 1).unsqueeze(1)
            time = time.scatter(1, target, time.gather(1, (target - 1).clamp(min=0)))
        return items, time, length

    def request_window(self, interaction) -> tuple[Tensor, Tensor, Tensor]:
        """The newest N - 1 events and [MASK] at the time of the request: items, seconds, positions in use."""
        mask = torch.full_like(interaction[self.ITEM_SEQ_LEN], self.mask_id)
        time = self._event_time(interaction) if self.query_time_mode == "target" else None
        return self._window(interaction, mask, time)

    def _event_time(self, interaction) -> Tensor | None:
        """Seconds of the target or the request, [B], if the interaction has them."""
        return interaction[self.TIME].to(torch.float64) if self.TIME in interaction else None

    def _window(self, interaction, item: Tensor, time: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """The newest N - 1 events, then an item [B] at a time [B], which defaults to that of the last event."""
        history, times, length = (interaction[name] for name in (self.ITEM_SEQ, self.TIME_SEQ, self.ITEM_SEQ_LEN))
        items, times, used = newest_events(history, times, length, self.max_seq_length - 1, free=1)
        last = used.unsqueeze(1)
        items = items.scatter(1, last, item.unsqueeze(1))
        if time is not None:
            is_event = torch.arange(items.shape[1], device=items.device) < last
            times = torch.where(is_event, times, time.unsqueeze(1))
        return items, times, with_copies(lambda used: used + 1, used)

    def forward(self, interaction) -> Tensor:
        """Vectors [B, H] of the users at the time of the request; scores are products with the item table."""
        items, time, length = self.request_window(interaction)
        first, run = unique_consecutive_rows(items, time, length)
        items, time, length = items[first], time[first], length[first]
        query_time = None
        if self.causal:  # no [MASK]: its time is that of the last event's query
            items, _, time, query_time, length = self._shifted(items, time, length)
        last = (length - 1).unsqueeze(1)

        def encode(rows: Tensor, width: int | None) -> Tensor:
            query = None if query_time is None else query_time[rows, :width]
            return self.encode(items[rows, :width], time[rows, :width], length[rows], last[rows], query_time=query)

        return self.represent(map_length_buckets(length, encode).squeeze(1))[run]

    def predict(self, interaction) -> Tensor:
        """Scores of the items of the interaction, [B]."""
        item = interaction[self.ITEM_ID]
        return (self.forward(interaction) * self.item_embedding(item)).sum(-1) + self.item_bias[item]

    def full_sort_predict(self, interaction) -> Tensor:
        """Scores of all items, [B, V + 1]; ignore column 0, the padding item."""
        return self.score_items(self.prepare(interaction), slice(self.n_items))

    def prepare(self, interaction) -> Tensor:
        """The item-independent part of scores: user vectors, [B, H]."""
        return self.forward(interaction)

    def score_items(self, prepared: Tensor, items: Tensor | slice) -> Tensor:
        """Scores of items, ids [C], for each prepared request: [B, C]."""
        table, bias = self.item_table()
        return F.linear(prepared, table[items], bias[items])

    def attention_weights(self, interaction, item: Tensor, user_features: dict[str, Tensor]) -> AttentionWeights:
        """Attention of the [MASK] or the last event, one head for each layer and kernel; the same for every item."""
        heads = []
        with recorded_inputs(block.attention for block in self.blocks) as calls:
            self.prepare(interaction)
        for layer, (attention, inputs) in enumerate(calls, 1):
            weights: list[Tensor] = []
            attention(*inputs[:3], weights)
            names = [*self.absolute, *self.relative]
            last = weights[-len(names) :]  # of the last queries, whose last row is that of the request
            heads += [Head(layer, name, rows[0, -1]) for name, rows in zip(names, last, strict=True)]
        return AttentionWeights("" if self.causal else "request", heads)

    def item_table(self) -> tuple[Tensor, Tensor]:
        """Item vectors [V + 1, H] and biases [V + 1]: a score is `prepare`'s vector times the item's, plus its bias."""
        return self.item_embedding.weight[: self.n_items], self.item_bias
