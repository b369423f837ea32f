"""MEANTIME's attention: every head owns one temporal kernel (paper, section 3.3).

B batch, R query rows, T slots, H hidden, n heads, d = H/n.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from recbole_ext.model.layers import Dropout, FeedForward, take
from recbole_ext.model.meantime.kernels import GapTable, SinPhases


@dataclass
class Temporal:
    """What the heads know of time, for the slots of a batch and for those that ask.

    Attributes:
        slots: embeddings of each absolute kernel for all slots, each [B, T, H] or [1, 1, H].
        rows: the same for the query rows, [B, R, H] or [1, 1, H].
        sin: sines and cosines for (rows, slots), or `None` without a sin kernel.
        gaps: cells and weights of `GapTable.locate`, or `None` without a tabulated kernel.
        real: which slots are no padding, [B, T].
    """

    slots: list[Tensor]
    rows: list[Tensor]
    sin: Any
    gaps: Any
    real: Tensor


class MixedAttention(nn.Module):
    """Self-attention with one absolute or relative kernel per head; the values are the items' alone.

    absolute: (x_i W_Q + p_i P_Q)(x_j W_K + p_j P_K)^T / sqrt d
    relative: ((x_i W_Q + b_I)(x_j W_K)^T + (x_i W_Q + b_R)(r_ij W_R)^T) / sqrt d = (q_i k_j + a_i . phi_ij) / sqrt d
    with a_i = (q_i + b_R) W_R^T: neither r nor its projection is formed. A bias in W_R's projection would add the same
    to all logits of a row, so there is none.

    Args:
        hidden: H.
        absolute: number of absolute kernels.
        relative: names of the relative kernels.
        dropout: probability on the attention weights and on a_i.
        content_bias: whether the relative heads have b_I.
        table: shared `GapTable`, or `None`.
    """

    def __init__(
        self,
        hidden: int,
        absolute: int,
        relative: list[str],
        dropout: float,
        content_bias: bool,
        table: GapTable | None,
    ):
        super().__init__()
        self.heads, self.relative, self.absolute = absolute + len(relative), list(relative), absolute
        self.d = hidden // self.heads
        self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))
        self.output = nn.Linear(hidden, hidden)
        self.position_query = nn.ModuleList(nn.Linear(hidden, self.d) for _ in range(absolute))
        self.position_key = nn.ModuleList(nn.Linear(hidden, self.d) for _ in range(absolute))
        self.gap_key = nn.ModuleList(nn.Linear(hidden, self.d, bias=False) for _ in relative)  # W_R
        count = len(relative)
        self.gap_bias: Any = nn.Parameter(torch.empty(count, self.d)) if count else None  # b_R
        self.content_bias = nn.Parameter(torch.empty(count, self.d)) if count and content_bias else None  # b_I
        self.dropout = Dropout(dropout)
        self.table: list[Any] = [table]  # shared by the layers: in a list, so that it is no submodule of each

    def forward(self, rows: Tensor, slots: Tensor, when: Temporal, weights: list[Tensor] | None = None) -> Tensor:
        """Attend from query rows [B, R, H] to slots [B, T, H]; returns [B, R, H].

        Args:
            weights: a list that receives the attention [B, R, T] of each head.
        """
        query = self._heads(self.query(rows) * self.d**-0.5)
        key, value = self._heads(self.key(slots)), self._heads(self.value(slots))
        padding = ~when.real.unsqueeze(1)  # [B, 1, T]
        mixed = []
        for head in range(self.heads):
            logits = self._logits(head, query[head], key[head], when)
            logits = logits.masked_fill_(padding, torch.finfo(logits.dtype).min)
            attention = logits.softmax(-1).to(value[head].dtype)
            if weights is not None:
                weights.append(attention)
            mixed.append(self.dropout(attention) @ value[head])
        return self.output(torch.cat(mixed, dim=-1))

    def _heads(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.split(self.d, dim=-1)

    def _logits(self, head: int, query: Tensor, key: Tensor, when: Temporal) -> Tensor:
        if head < self.absolute:
            query = query + self.position_query[head](when.rows[head]) * self.d**-0.5
            key = key + self.position_key[head](when.slots[head])
            return query @ key.transpose(1, 2)
        index = head - self.absolute
        scale = self.d**-0.5
        content = query if self.content_bias is None else query + self.content_bias[index] * scale
        a = self.dropout((query + self.gap_bias[index] * scale) @ self.gap_key[index].weight)  # [B, R, H]
        name = self.relative[index]
        if name == "sin":
            (row_sin, row_cos), (sin, cos) = when.sin
            wide_query = torch.cat([content, SinPhases.rotate(a, row_sin, row_cos)], dim=-1)
            wide_key = torch.cat([key, cos.to(key.dtype), sin.to(key.dtype)], dim=-1)
            return wide_query @ wide_key.transpose(1, 2)
        return content @ key.transpose(1, 2) + self.table[0](name, a, *when.gaps)


class MixedBlock(nn.Module):
    """x + drop(attention(LN x)), then x + drop(FFN(LN x)), then dropout; no norm at the end.

    Args:
        inner: features inside the feed-forward layer.
        dropout: on sublayers and the block's output.
        attn_dropout: on the attention weights.
        eps: of the layer norms.
        The others are `MixedAttention`'s.
    """

    def __init__(
        self, hidden: int, inner: int, absolute: int, relative: list[str], dropout: float, attn_dropout: float,
        content_bias: bool, eps: float, table: GapTable | None,
    ):  # fmt: skip
        super().__init__()
        self.attention = MixedAttention(hidden, absolute, relative, attn_dropout, content_bias, table)
        self.feed_forward = FeedForward(hidden, inner, dropout, "gelu_tanh")
        self.attention_norm = nn.LayerNorm(hidden, eps=eps)
        self.feed_forward_norm = nn.LayerNorm(hidden, eps=eps)
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Tensor, when: Temporal, rows: Tensor | None = None, weights: list[Tensor] | None = None
    ) -> Tensor:
        """x [B, T, H] -> [B, R, H], for the slots that `rows` [B, R] names, or for all of them."""
        normed = self.attention_norm(x)
        if rows is None:
            asking = normed
        else:
            x, asking = take(x, rows), take(normed, rows)
        x = x + self.dropout(self.attention(asking, normed, when, weights))
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return self.dropout(x)
