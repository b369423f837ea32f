"""MEANTIME: Mixture of Attention Mechanisms with Multi-temporal Embeddings for Sequential Recommendation.

Sung Min Cho, Eunhyeok Park, Sungjoo Yoo, RecSys 2020 (arXiv 2008.08273).

How this differs from the paper and its public code:
- Relative kernels are never materialised as [B, T, T, H]. Their attention logits are the same to float32 rounding (sin
  by angle addition; exp and log by interpolation in a table). The authors' dropout on single entries of that tensor is
  a dropout on the coefficients that multiply them.
- `content_bias: False`: the code drops the paper's b_I; True brings it back.
- `pad_class: False`: the softmax runs over the items. The code counts the padding id as one more class.
- At least one item of every training window is masked.
- Days after the last training day use the last one's embedding; the code's are untrained there.
- The time of the event to predict is known to the model (`query_time: target`), as in the paper. `query_time: last` is
  for requests whose time is not: it stands the time of the last event in its place, in scoring and, for the newest
  slot of each window, in training.

B batch, T slots of a batch (longest history and the one to predict), N slots of a full window, H hidden, V items.
"""

import torch
from recbole.model.abstract_recommender import SequentialRecommender
from torch import Tensor, nn
from torch.nn import functional as F

from recbole_ext.model.batching import alike, distinct, in_parts, longest
from recbole_ext.model.contract import AttentionWeights, Head
from recbole_ext.model.layers import Dropout, cross_entropy_over_items, load_item_vectors, recorded_inputs, take
from recbole_ext.model.meantime.attention import MixedBlock, Temporal
from recbole_ext.model.meantime.kernels import TABULATED, GapTable, SinPhases
from recbole_ext.model.meantime.options import DAY, Options, known_days
from recbole_ext.model.options import check_times


class MEANTIME(SequentialRecommender):
    """Bidirectional self-attention over the history and a [MASK] slot at the time of the request.

    Interactions need `item_id_list` [B, L], `item_length` [B] and `timestamp_list` [B, L] in seconds since the first
    event of the data (float64); the time of the request is `timestamp` [B].

    Raises:
        InputError: a key is out of range, or the data spans more days than a table of days should hold.
    """

    example_kind = "window"
    reads_times = True
    structural_keys = (  # what no shape of a weight tells
        "absolute_kernels", "relative_kernels", "kernel_freq", "kernel_time_unit", "content_bias", "pad_class",
    )  # fmt: skip
    check_config = Options  # `Config` calls it, so that a contradiction is found before any data is read

    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        options = Options(config)
        self.TIME = config["TIME_FIELD"]
        self.TIME_SEQ = self.TIME + config["LIST_SUFFIX"]
        check_times(dataset, self.TIME_SEQ, "MEANTIME")
        self.reads_request_time = options.query_time == "target"
        self.query_time, self.mask_ratio = options.query_time, options.mask_ratio
        self.pad_class, self.tau = bool(config["pad_class"]), options.tau
        self.mask_id = self.n_items
        hidden, eps = config["hidden_size"], config["layer_norm_eps"]
        dropout, attn_dropout = config["hidden_dropout_prob"], config["attn_dropout_prob"]

        self.item_embedding = nn.Embedding(self.n_items + 1, hidden, padding_idx=0)  # the last one is [MASK]
        self.absolute, self.relative = options.absolute, options.relative
        sizes = {"position": self.max_seq_length, "constant": 1}
        if "day" in self.absolute:
            self.first_second, sizes["day"] = known_days(dataset, self.TIME)
        self.kernel_embeddings = nn.ModuleDict({name: nn.Embedding(sizes[name], hidden) for name in self.absolute})
        self.sin = SinPhases(hidden, options.freq) if "sin" in self.relative else None
        tabulated = [name for name in self.relative if name in TABULATED]
        self.table = GapTable(tabulated, hidden, options.freq, self.tau) if tabulated else None
        self.blocks = nn.ModuleList(
            MixedBlock(
                hidden, config["inner_size"], len(self.absolute), self.relative, dropout, attn_dropout,
                bool(config["content_bias"]), eps, self.table,
            )
            for _ in range(config["n_layers"])
        )  # fmt: skip
        self.dropout = Dropout(dropout)
        self.head, self.head_norm = nn.Linear(hidden, hidden), nn.LayerNorm(hidden, eps=eps)
        self.item_bias = nn.Parameter(torch.zeros(self.n_items))
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
        self, items: Tensor, time: Tensor, length: Tensor, rows: Tensor | None = None, weights: list | None = None
    ) -> Tensor:
        """States of the slots after the last block.

        Args:
            items: ids, 0 in the padding on the right, `mask_id` where an item is to be guessed. [B, T]
            time: seconds, float64 [B, T].
            length: slots in use, [B].
            rows: slots to return, [B, R]; the last block is computed for these alone. `None` returns all.
            weights: a list that receives the attention of the first block, [B, R or T, T] per head.

        Returns:
            [B, R, H], or [B, T, H].
        """
        x = self.dropout(self.item_embedding(items))
        everything = self._temporal(time, length, x.dtype)
        last = everything if rows is None else self._of_rows(everything, time, rows)
        for number, block in enumerate(self.blocks, 1):
            final = number == len(self.blocks)
            kept = weights if number == 1 else None
            x = block(x, last if final else everything, rows if final else None, kept)
        return x

    def _temporal(self, time: Tensor, length: Tensor, dtype: torch.dtype) -> Temporal:
        slot = torch.arange(time.shape[1], device=time.device)
        real = slot < length.unsqueeze(1)
        absolute = [self.dropout(self._embed(name, slot, time, length)) for name in self.absolute]
        time = self._centred(time, length)
        sin = gaps = None
        if self.sin is not None:
            phases = self.sin(time, dtype)
            sin = (phases, phases)
        if self.table is not None:
            gaps = self.table.locate(time, time, dtype)
        return Temporal(absolute, absolute, sin, gaps, real)

    def _embed(self, name: str, slot: Tensor, time: Tensor, length: Tensor) -> Tensor:
        """Embeddings of an absolute kernel: [B, T, H], or [1, 1, H] where all slots have the same."""
        table = self.kernel_embeddings[name]
        if name == "constant":
            return table.weight.unsqueeze(0)
        if name == "position":  # counted from the end: the last slot is always N - 1
            index = slot + (self.max_seq_length - length.unsqueeze(1))
        else:
            index = torch.floor((time + self.first_second) / DAY).to(torch.int64)
        return table(index.clamp(0, table.num_embeddings - 1))

    def _centred(self, time: Tensor, length: Tensor) -> Tensor:
        """Times in units of tau before each row's last slot: the kernels see differences only."""
        newest = time.gather(1, length.unsqueeze(1) - 1)
        return (time.to(torch.float64) - newest) / self.tau

    def _of_rows(self, when: Temporal, time: Tensor, rows: Tensor) -> Temporal:
        sin, gaps = when.sin, when.gaps
        if sin is not None:
            sin = ((take(sin[0][0], rows), take(sin[0][1], rows)), sin[1])
        if gaps is not None:
            gaps = (take(gaps[0], rows), torch.stack([take(weight, rows) for weight in gaps[1]]))
        return Temporal(when.slots, [take(table, rows) for table in when.slots], sin, gaps, when.real)

    def represent(self, states: Tensor) -> Tensor:
        """States [..., H] -> vectors [..., H] whose products with the item table, plus a bias, are scores."""
        return self.head_norm(F.gelu(self.head(states), approximate="tanh"))

    # ---------------------------------------------------------------- training

    def calculate_loss(self, interaction) -> Tensor:
        """Cross entropy at randomly masked slots of the window that history and target make together."""
        items, time, length = self._window(interaction, interaction[self.ITEM_ID])
        if self.query_time == "last":  # as in scoring: the newest slot stands at the time of the one before
            newest = (length - 1).unsqueeze(1)
            time = time.scatter(1, newest, time.gather(1, (newest - 1).clamp(min=0)))
        tokens, chosen = self.mask_items(items, length)
        return self.loss_at(tokens, time, length, items, chosen)

    def loss_at(self, tokens: Tensor, time: Tensor, length: Tensor, answers: Tensor, chosen: Tensor) -> Tensor:
        """Mean cross entropy of `answers` [B, T] at the `chosen` slots, bool [B, T], given `tokens` [B, T]."""
        states, answer = [], []
        for part, slots in alike(length):
            picked = chosen[part, :slots]
            most = int(picked.sum(1).max())
            rows = picked.to(torch.int8).sort(dim=1, descending=True, stable=True).indices[:, :most]  # [B, R]
            wanted = picked.gather(1, rows)
            states.append(self.encode(tokens[part, :slots], time[part, :slots], length[part], rows)[wanted])
            answer.append(answers[part, :slots].gather(1, rows)[wanted])
        vectors, wished = self.represent(torch.cat(states)), torch.cat(answer)  # [M, H], [M]
        table, bias = self.item_embedding.weight[: self.n_items], self.item_bias
        if not self.pad_class:
            table, bias, wished = table[1:], bias[1:], wished - 1
        return cross_entropy_over_items(vectors, table, bias, wished)

    def mask_items(self, items: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        """Choose slots to guess, each with probability `mask_ratio` and at least one per row.

        Of the chosen, 80 % become [MASK], 10 % a random item, 10 % stay.

        Returns:
            tokens [B, T] and the chosen slots, bool [B, T].
        """
        slot = torch.arange(items.shape[1], device=items.device)
        draw = torch.rand(items.shape, device=items.device).masked_fill(slot >= length.unsqueeze(1), 2.0)
        chosen = (draw < self.mask_ratio) | (draw == draw.amin(dim=1, keepdim=True))
        fate = torch.rand(items.shape, device=items.device)
        random_items = torch.randint(1, self.n_items, items.shape, device=items.device)
        tokens = torch.where(chosen & (fate < 0.8), self.mask_id, items)
        return torch.where(chosen & (fate >= 0.8) & (fate < 0.9), random_items, tokens), chosen

    # ---------------------------------------------------------------- scoring

    def _window(self, interaction, newest: Tensor | int) -> tuple[Tensor, Tensor, Tensor]:
        """The newest N - 1 events of each history and one more slot: items [B, T], time [B, T], length [B]."""
        history, length = interaction[self.ITEM_SEQ], interaction[self.ITEM_SEQ_LEN]
        kept = length.clamp(max=self.max_seq_length - 1)
        slots = longest(kept, history.shape[1]) + 1
        slot = torch.arange(slots, device=history.device).expand(history.shape[0], -1)
        source = (slot + (length - kept).unsqueeze(1)).clamp(max=history.shape[1] - 1)
        past, last = slot < kept.unsqueeze(1), kept.unsqueeze(1)
        items = torch.where(past, history.gather(1, source), 0)
        times = interaction[self.TIME_SEQ].gather(1, source).to(torch.float64)
        newest_time = times.gather(1, (last - 1).clamp(min=0))
        if self.TIME in interaction and (self.query_time == "target" or isinstance(newest, Tensor)):
            newest_time = interaction[self.TIME].to(torch.float64).unsqueeze(1)
        newest_item = newest.unsqueeze(1) if isinstance(newest, Tensor) else torch.full_like(last, newest)
        items = items.scatter(1, last, newest_item)
        times = torch.where(past, times, newest_time)
        return items, times, kept + 1

    def forward(self, interaction) -> Tensor:
        """Vectors [B, H] of the users at the time of the request; scores are products with the item table."""
        items, time, length = self._window(interaction, self.mask_id)
        first, run = distinct(items, time, length)
        items, time, length = items[first], time[first], length[first]
        last = (length - 1).unsqueeze(1)
        states = in_parts(
            length,
            lambda part, slots: self.encode(items[part, :slots], time[part, :slots], length[part], last[part]),
        )
        return self.represent(states.squeeze(1))[run]

    def predict(self, interaction) -> Tensor:
        """Scores of the items of the interaction, [B]."""
        item = interaction[self.ITEM_ID]
        return (self.forward(interaction) * self.item_embedding(item)).sum(-1) + self.item_bias[item]

    def full_sort_predict(self, interaction) -> Tensor:
        """Scores of all items, [B, V + 1]; the column of the padding item means nothing."""
        return self.score_items(self.prepare(interaction), slice(self.n_items))

    def prepare(self, interaction) -> Tensor:
        """What scores of any items start from: the users' vectors, [B, H]."""
        return self.forward(interaction)

    def score_items(self, prepared: Tensor, items: Tensor | slice) -> Tensor:
        """Scores of some items, ids [C], for each of the users that were prepared: [B, C]."""
        table, bias = self.item_table()
        return F.linear(prepared, table[items], bias[items])

    def attention_weights(self, interaction, item: Tensor, user_features: dict[str, Tensor]) -> AttentionWeights:
        """Attention of the [MASK] slot, one head for each layer and kernel; the same for every item."""
        heads = []
        with recorded_inputs(block.attention for block in self.blocks) as calls:
            self.prepare(interaction)
        for layer, (attention, inputs) in enumerate(calls, 1):
            weights: list[Tensor] = []  # [1, R, T + 1] of each head; the last row is the [MASK]'s
            attention(*inputs[:3], weights)
            names = [*self.absolute, *self.relative]
            heads += [Head(layer, name, rows[0, -1]) for name, rows in zip(names, weights, strict=True)]
        return AttentionWeights("request", heads)

    def item_table(self) -> tuple[Tensor, Tensor]:
        """Item vectors [V + 1, H] and biases [V + 1]: a score is `prepare`'s vector times the item's, plus its bias."""
        return self.item_embedding.weight[: self.n_items], self.item_bias
