"""MEANTIME written down plainly: every [B, T, T, H] tensor is made; nothing is folded, tabulated or left out.

B batch, T slots, N slots of a full window, H hidden, d = H / number of kernels, V items.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DAY = 86400.0


class PlainMeantime(nn.Module):
    """The model of the paper with one head per kernel. Parameters bear the names of `recbole_ext.MEANTIME`'s.

    Args:
        items: V + 1, items and the padding id 0; the id V + 1 is [MASK].
        slots: N.
        days: rows of the table of days.
        first_second: time 0 of the data, in seconds after the first day began.
    """

    def __init__(
        self, items: int, slots: int, days: int, absolute: list[str], relative: list[str], hidden: int, inner: int,
        layers: int, first_second: float = 0.0, content_bias: bool = False, pad_class: bool = False,
        freq: float = 10000.0, tau: float = 1.0, eps: float = 1e-5, dropout: float = 0.0, attn_dropout: float = 0.0,
        sasrec: bool = False,
    ):  # fmt: skip
        super().__init__()
        self.items, self.slots, self.first_second, self.pad_class = items, slots, first_second, pad_class
        self.absolute, self.relative, self.freq, self.tau, self.p = absolute, relative, freq, tau, dropout
        sizes = {"position": slots, "day": days, "constant": 1}
        self.item_embedding = nn.Embedding(items + 1, hidden)
        self.kernel_embeddings = nn.ModuleDict({name: nn.Embedding(sizes[name], hidden) for name in absolute})
        heads = (len(absolute), len(relative))
        block = PlainSASRecBlock if sasrec else PlainBlock
        self.blocks = nn.ModuleList(
            block(hidden, inner, *heads, content_bias, eps, dropout, attn_dropout) for _ in range(layers)
        )
        self.sasrec, self.head_norm = sasrec, nn.LayerNorm(hidden, eps=eps)
        if not sasrec:
            self.head = nn.Linear(hidden, hidden)
            self.item_bias = nn.Parameter(torch.zeros(items))

    def encode(self, items: Tensor, time: Tensor, real: Tensor) -> Tensor:
        """States [B, T, H] of all slots; `real` [B, T] says which are no padding, on whichever side that is."""
        x = self._drop(self._input(items))
        absolute = [self._drop(self._slot_features(name, time, real)) for name in self.absolute]
        gap = (time.double().unsqueeze(2) - time.double().unsqueeze(1)) / self.tau  # [B, T, T]
        relative = [self._drop(self._gap_features(name, gap.to(x.dtype))) for name in self.relative]
        for block in self.blocks:
            x = block(x, (absolute, absolute), relative, real.unsqueeze(1))
        return x

    def encode_next(self, items: Tensor, time: Tensor, query_time: Tensor) -> Tensor:
        """`objective: next`: states [T, H] of events without padding; each predicts the event after it.

        Args:
            items, time: of the events, [T].
            query_time: the time at which each event asks for the next one, [T].
        """
        items, time, query_time = items.unsqueeze(0), time.unsqueeze(0), query_time.unsqueeze(0)
        with_next = torch.ones(1, items.shape[1] + 1, dtype=torch.bool)  # the event to predict is the last slot
        keys = [self._slot_features(name, F.pad(time, (0, 1)), with_next)[:, :-1] for name in self.absolute]
        queries = [self._slot_features(name, F.pad(query_time, (1, 0)), with_next)[:, 1:] for name in self.absolute]
        gap = (query_time.double().unsqueeze(2) - time.double().unsqueeze(1)) / self.tau
        x = self._input(items)
        relative = [self._gap_features(name, gap.to(x.dtype)) for name in self.relative]
        earlier = torch.ones(gap.shape, dtype=torch.bool).tril()
        for block in self.blocks:
            x = block(x, (queries, keys), relative, earlier)
        return x[0]

    def _input(self, items: Tensor) -> Tensor:
        x = self.item_embedding(items)
        return x * math.sqrt(x.shape[-1]) if self.sasrec else x

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training)

    def _slot_features(self, name: str, time: Tensor, real: Tensor) -> Tensor:
        """[B, T, H]"""
        if name == "constant":
            index = torch.zeros_like(real, dtype=torch.int64)
        elif name == "day":
            index = torch.floor((time.double() + self.first_second) / DAY).long()
        else:  # the last real slot is N - 1
            still_to_come = real.flip(1).cumsum(1).flip(1)
            index = self.slots - still_to_come
        table = self.kernel_embeddings[name]
        return table(index.clamp(0, table.num_embeddings - 1))

    def _gap_features(self, name: str, gap: Tensor) -> Tensor:
        """Gaps [B, T, T] -> features [B, T, T, H] (paper, equations 5 to 7); sin is exact in float64 only."""
        hidden = self.item_embedding.embedding_dim
        w = self.freq ** (-torch.arange(hidden, dtype=gap.dtype, device=gap.device) / hidden)
        gap = gap.unsqueeze(-1)
        if name == "sin":
            return torch.cat([torch.sin(gap * w[::2]), torch.cos(gap * w[::2])], dim=-1)
        return {"exp": torch.exp(-gap.abs() * w), "log": torch.log(1 + gap.abs() * w)}[name]

    def represent(self, states: Tensor) -> Tensor:
        return self.head_norm(states if self.sasrec else F.gelu(self.head(states), approximate="tanh"))

    def scores(self, states: Tensor) -> Tensor:
        """[..., H] -> [..., V + 1]"""
        scores = self.represent(states) @ self.item_embedding.weight[: self.items].T
        return scores if self.sasrec else scores + self.item_bias

    def loss(self, tokens: Tensor, time: Tensor, real: Tensor, answers: Tensor, chosen: Tensor) -> Tensor:
        """Mean cross entropy at the chosen slots, bool [B, T]."""
        scores, answers = self.scores(self.encode(tokens, time, real)[chosen]), answers[chosen]
        if not self.pad_class:
            scores, answers = scores[:, 1:], answers - 1
        return F.cross_entropy(scores, answers)


class PlainBlock(nn.Module):
    def __init__(self, hidden, inner, absolute, relative, content_bias, eps, dropout, attn_dropout):
        super().__init__()
        self.attention = PlainAttention(hidden, absolute, relative, content_bias, attn_dropout)
        self.feed_forward = nn.ModuleDict({"inner": nn.Linear(hidden, inner), "outer": nn.Linear(inner, hidden)})
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(hidden, eps=eps), nn.LayerNorm(hidden, eps=eps)
        self.p = dropout

    def forward(self, x, absolute, relative, real):
        def drop(values):
            return F.dropout(values, self.p, self.training)

        x = x + drop(self.attention(self.attention_norm(x), absolute, relative, real))
        inner = drop(F.gelu(self.feed_forward["inner"](self.feed_forward_norm(x)), approximate="tanh"))
        return drop(x + drop(self.feed_forward["outer"](inner)))


class PlainSASRecBlock(PlainBlock):
    def forward(self, x, absolute, relative, real):
        normed = self.attention_norm(x)
        x = self.feed_forward_norm(normed + self.attention(x, absolute, relative, real, normed))
        inner = F.dropout(F.relu(self.feed_forward["inner"](x)), self.p, self.training)
        return x + F.dropout(self.feed_forward["outer"](inner), self.p, self.training)


class PlainAttention(nn.Module):
    def __init__(self, hidden, absolute, relative, content_bias, dropout):
        super().__init__()
        self.d = d = hidden // (absolute + relative)
        self.query, self.key, self.value, self.output = (nn.Linear(hidden, hidden) for _ in range(4))
        self.position_query = nn.ModuleList(nn.Linear(hidden, d) for _ in range(absolute))
        self.position_key = nn.ModuleList(nn.Linear(hidden, d) for _ in range(absolute))
        self.gap_key = nn.ModuleList(nn.Linear(hidden, d, bias=False) for _ in range(relative))
        self.gap_bias = nn.Parameter(torch.zeros(relative, d)) if relative else None
        self.content_bias = nn.Parameter(torch.zeros(relative, d)) if relative and content_bias else None
        self.p = dropout

    def forward(self, x, absolute, relative, real, queries=None):
        query = self.query(x if queries is None else queries).split(self.d, dim=-1)
        key, value = (layer(x).split(self.d, dim=-1) for layer in (self.key, self.value))
        mixed = []
        for head in range(len(query)):
            logits = self._logits(head, query[head], key[head], absolute, relative) / math.sqrt(self.d)
            weights = logits.masked_fill(~real, -math.inf).softmax(dim=-1)  # [B, T, T]
            mixed.append(F.dropout(weights, self.p, self.training) @ value[head])
        return self.output(torch.cat(mixed, dim=-1))

    def _logits(self, head, query, key, absolute, relative):
        if head < len(absolute[0]):
            query = query + self.position_query[head](absolute[0][head])
            key = key + self.position_key[head](absolute[1][head])
            return query @ key.transpose(1, 2)
        index = head - len(absolute[0])
        projected = self.gap_key[index](relative[index])  # [B, T, T, d]
        content = query if self.content_bias is None else query + self.content_bias[index]
        by_gap = torch.einsum("bid,bijd->bij", query + self.gap_bias[index], projected)
        return content @ key.transpose(1, 2) + by_gap
