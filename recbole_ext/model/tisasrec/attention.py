"""TiSASRec's attention (paper, section 3.4) and its block.

B batch, R query positions, T positions, H hidden size, n heads, d = H/n, S intervals with an embedding.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from recbole_ext.model.layers import Dropout, FeedForward, gather_positions, join_heads, split_heads
from recbole_ext.model.tisasrec.intervals import interval_logits, sum_of_intervals


@dataclass
class Relations:
    """Positions and time intervals of one batch, shared by all layers.

    Attributes:
        position_key, position_value: embeddings of the positions of the events, [B, T, H].
        interval_key, interval_value: embeddings of the intervals, [S, H].
        interval: rows of these two for each query and event, int64 [B, R, T].
        mask: which events a query may attend to, bool [1 or B, R, T].
    """

    position_key: Tensor
    position_value: Tensor
    interval_key: Tensor
    interval_value: Tensor
    interval: Tensor
    mask: Tensor

    def at(self, positions: Tensor) -> "Relations":
        """The same with other query positions, [B, R], of relations whose queries are all positions."""
        mask = torch.arange(self.interval.shape[-1], device=positions.device) <= positions.unsqueeze(-1)
        return replace(self, interval=gather_positions(self.interval, positions), mask=mask)


class IntervalAttention(nn.Module):
    """Self-attention whose keys and values include embeddings of positions and of time intervals.

    With the interval r_ij and positions p_j:
    logit_ij = x_i W_Q (x_j W_K + E^R_K[r_ij] + E^P_K[p_j])^T / sqrt d
    z_i = sum_j softmax_j(logit_ij) (x_j W_V + E^R_V[r_ij] + E^P_V[p_j])

    Args:
        hidden: H.
        heads: n; each head has its part of the features of all embeddings.
        dropout: probability on the products with interval embeddings.
        attn_dropout: probability on the attention weights.
    """

    def __init__(self, hidden: int, heads: int, dropout: float, attn_dropout: float):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(hidden, hidden, bias=False) for _ in range(3))
        self.dropout, self.attention_dropout = Dropout(dropout), Dropout(attn_dropout)

    def forward(self, queries: Tensor, x: Tensor, relations: Relations, weights: list[Tensor] | None = None) -> Tensor:
        """Attend from states of the query positions [B, R, H] to states x [B, T, H]; returns [B, R, H].

        Args:
            weights: a list that receives the attention, [B, n, R, T].
        """
        query = self._split(self.query(queries))
        query = query * query.shape[-1] ** -0.5
        key = self._split(self.key(x) + relations.position_key)
        value = self._split(self.value(x) + relations.position_value)
        interval_key, interval_value = (
            table.unflatten(-1, (self.heads, -1)).transpose(0, 1)  # [n, S, d]
            for table in (relations.interval_key, relations.interval_value)
        )
        logits = query @ key.mT + interval_logits(self.dropout(query), interval_key, relations.interval)
        logits = logits.masked_fill_(~relations.mask.unsqueeze(1), torch.finfo(logits.dtype).min)
        attention = logits.softmax(-1).to(value.dtype)
        if weights is not None:
            weights.append(attention)
        attention = self.attention_dropout(attention)
        by_interval = sum_of_intervals(attention, interval_value, relations.interval)
        return join_heads(attention @ value + self.dropout(by_interval))

    def _split(self, x: Tensor) -> Tensor:
        return split_heads(x, self.heads)


class IntervalBlock(nn.Module):
    """x + drop(attention(LN x)), then x + drop(FFN(LN x)); the feed-forward layer has H inner features and ReLU.

    Args:
        hidden, heads: as for `IntervalAttention`.
        dropout: probability on sublayers and embeddings.
        attn_dropout: probability on the attention weights.
        eps: of the layer norms.
    """

    def __init__(self, hidden: int, heads: int, dropout: float, attn_dropout: float, eps: float):
        super().__init__()
        self.attention = IntervalAttention(hidden, heads, dropout, attn_dropout)
        self.feed_forward = FeedForward(hidden, hidden, dropout, "relu")
        self.attention_norm = nn.LayerNorm(hidden, eps=eps)
        self.feed_forward_norm = nn.LayerNorm(hidden, eps=eps)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, relations: Relations, positions: Tensor | None = None) -> Tensor:
        """x [B, T, H] -> [B, T, H], or [B, R, H] at `positions` [B, R]."""
        normed = self.attention_norm(x)
        queries = normed
        if positions is not None:
            x, queries = gather_positions(x, positions), gather_positions(normed, positions)
        x = x + self.dropout(self.attention(queries, normed, relations))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
