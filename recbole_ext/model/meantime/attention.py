"""MEANTIME's attention: each head has its own temporal kernel (paper, section 3.3).

B batch, R query positions, K key positions, T positions, H hidden size, n heads, d = H/n.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from recbole_ext.model.layers import Dropout, FeedForward, gather_positions
from recbole_ext.model.meantime.kernels import GapTable, SinPhases

CAUSAL_CHUNK = 64  # queries that share their keys on CPUs: with few, less is computed for later events


@dataclass
class TemporalContext:
    """The temporal kernels' inputs for pairs of R query positions and K key positions, shared by all layers.

    Attributes:
        keys: embeddings of each absolute kernel at the key positions, each [B, K, H] or [1, 1, H].
        queries: the same at the query positions, each [B, R, H] or [1, 1, H].
        sin: sines and cosines for (queries, keys), or `None` without a sin kernel.
        gaps: cells and weights of `GapTable.locate`, or `None` without a tabulated kernel.
        mask: 0 where a query may attend to a key, else minus infinity, [B, 1, K], [B, R, K] or [R, K].
        query_count, key_count: R and K.
    """

    keys: list[Tensor]
    queries: list[Tensor]
    sin: Any
    gaps: Any
    mask: Tensor
    query_count: int
    key_count: int


@dataclass
class TemporalPositions:
    """The temporal kernels' inputs for each position of a batch; `contexts` makes those for pairs.

    Attributes:
        keys, queries: embeddings of each absolute kernel, each [B, T, H] or [1, 1, H].
        key_time, query_time: in units of tau, float64 [B, T].
        key_waves, query_waves: sines and cosines, or `None` without a sin kernel.
        table: or `None` without a tabulated kernel.
        length: positions in use, [B].
        causal: whether a query attends to no later position.
        dtype: of the states.
    """

    keys: list[Tensor]
    queries: list[Tensor]
    key_time: Tensor
    query_time: Tensor
    key_waves: Any
    query_waves: Any
    table: GapTable | None
    length: Tensor
    causal: bool
    dtype: torch.dtype

    def contexts(self, positions: Tensor | None = None) -> list[TemporalContext]:
        """Contexts that have all query positions between them, in order, or one with the positions [B, R]."""
        width = self.key_time.shape[1]
        slot = torch.arange(width, device=self.length.device)
        if positions is not None:
            query_slot = positions.unsqueeze(2)
            return [self._context(lambda x: gather_positions(x, positions), positions.shape[1], slot, query_slot)]
        in_chunks = self.causal and slot.device.type == "cpu" and not torch.compiler.is_compiling()
        size = CAUSAL_CHUNK if in_chunks else max(width, 1)
        contexts = []
        for begin in range(0, width, size) if in_chunks else [0]:
            rows = slice(begin, min(begin + size, width) if in_chunks else width)
            keys = slot[: rows.stop] if self.causal else slot
            contexts.append(
                self._context(partial(_rows, rows=rows), rows.stop - rows.start, keys, slot[rows].unsqueeze(1))
            )
        return contexts

    def _context(
        self, select: Callable[[Tensor], Tensor], query_count: int, key_slot: Tensor, query_slot: Tensor
    ) -> TemporalContext:
        """The context of the queries that `select` takes out of [B, T, ...], and of the first keys."""
        count = key_slot.shape[0]
        keys = [_rows(table, slice(0, count)) for table in self.keys]
        sin = gaps = None
        if self.key_waves is not None:
            sin = (tuple(map(select, self.query_waves)), tuple(wave[:, :count] for wave in self.key_waves))
        if self.table is not None:
            gaps = self.table.locate(select(self.query_time), self.key_time[:, :count], self.dtype)
        is_seen = key_slot <= query_slot if self.causal else (key_slot < self.length.unsqueeze(1)).unsqueeze(1)
        mask = torch.zeros(is_seen.shape, dtype=self.dtype, device=is_seen.device).masked_fill_(~is_seen, -torch.inf)
        queries = [select(table) for table in self.queries]
        return TemporalContext(keys, queries, sin, gaps, mask, query_count, count)


def _rows(x: Tensor, rows: slice) -> Tensor:
    """Some positions of x [B, T, ...]; an x that is the same at all positions stays as it is."""
    return x if x.shape[1] == 1 else x[:, rows]


class MixedAttention(nn.Module):
    """Self-attention with one absolute or relative kernel per head; values depend on the items alone.

    Logit of query position i and key position j, with q = x W_Q and k = x W_K:
    absolute: (q_i + p_i P_Q)(k_j + p_j P_K)^T / sqrt d
    relative: ((q_i + b_I) k_j^T + (q_i + b_R)(phi_ij W_R)^T) / sqrt d = ((q_i + b_I) k_j^T + a_i . phi_ij) / sqrt d
    with a_i = (q_i + b_R) W_R^T, so that phi_ij is not projected. That projection has no bias: it would add the same
    number to all logits of a row and leave the softmax unchanged.

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
        self.heads, self.relative, self.n_absolute = absolute + len(relative), list(relative), absolute
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

    def forward(
        self, queries: Tensor, x: Tensor, temporal: Sequence[TemporalContext], weights: list[Tensor] | None = None
    ) -> Tensor:
        """Attend from states of the query positions [B, R, H] to states x [B, T, H]; returns [B, R, H].

        Args:
            temporal: contexts that have the query positions between them, in order.
            weights: a list that receives the attention of each head [B, query_count, key_count], for each context.
        """
        query = self._heads(self.query(queries) * self.d**-0.5)
        key, value = self._heads(self.key(x)), self._heads(self.value(x))
        chunks, begin = [], 0
        for context in temporal:
            rows, keys = slice(begin, begin + context.query_count), slice(0, context.key_count)
            mixed = []
            for head in range(self.heads):
                logits = self._logits(head, query[head][:, rows], key[head][:, keys], context)
                attention = logits.add_(context.mask).softmax(-1).to(value[head].dtype)
                if weights is not None:
                    weights.append(attention)
                mixed.append(self.dropout(attention) @ value[head][:, keys])
            chunks.append(torch.cat(mixed, dim=-1))
            begin = rows.stop
        return self.output(chunks[0] if len(chunks) == 1 else torch.cat(chunks, dim=1))

    def _heads(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.split(self.d, dim=-1)

    def _logits(self, head: int, query: Tensor, key: Tensor, temporal: TemporalContext) -> Tensor:
        if head < self.n_absolute:
            query = query + self.position_query[head](temporal.queries[head]) * self.d**-0.5
            key = key + self.position_key[head](temporal.keys[head])
            return query @ key.transpose(1, 2)
        index = head - self.n_absolute
        scale = self.d**-0.5
        content = query if self.content_bias is None else query + self.content_bias[index] * scale
        a = self.dropout((query + self.gap_bias[index] * scale) @ self.gap_key[index].weight)  # [B, R, H]
        name = self.relative[index]
        if name == "sin":
            (query_sin, query_cos), (sin, cos) = temporal.sin
            wide_query = torch.cat([content, SinPhases.rotate(a, query_sin, query_cos)], dim=-1)
            wide_key = torch.cat([key, cos.to(key.dtype), sin.to(key.dtype)], dim=-1)
            return wide_query @ wide_key.transpose(1, 2)
        return content @ key.transpose(1, 2) + self.table[0](name, a, *temporal.gaps)


class MixedBlock(nn.Module):
    """x + drop(attention(LN x)), then x + drop(FFN(LN x)), then dropout; no norm at the end.

    Args:
        hidden, absolute, relative, content_bias, table: as for `MixedAttention`.
        inner: inner features of the feed-forward layer.
        dropout: probability on sublayers and the block's output.
        attn_dropout: probability on the attention weights and on a_i.
        eps: of the layer norms.
    """

    activation = "gelu_tanh"

    def __init__(
        self, hidden: int, inner: int, absolute: int, relative: list[str], dropout: float, attn_dropout: float,
        content_bias: bool, eps: float, table: GapTable | None,
    ):  # fmt: skip
        super().__init__()
        self.attention = MixedAttention(hidden, absolute, relative, attn_dropout, content_bias, table)
        self.feed_forward = FeedForward(hidden, inner, dropout, self.activation)
        self.attention_norm = nn.LayerNorm(hidden, eps=eps)
        self.feed_forward_norm = nn.LayerNorm(hidden, eps=eps)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        temporal: Sequence[TemporalContext],
        positions: Tensor | None = None,
        weights: list | None = None,
    ) -> Tensor:
        """x [B, T, H] -> [B, T, H], or [B, R, H] at `positions` [B, R]; `weights` is that of `MixedAttention`."""
        normed = self.attention_norm(x)
        queries = normed
        if positions is not None:
            x, queries = gather_positions(x, positions), gather_positions(normed, positions)
        x = x + self.dropout(self.attention(queries, normed, temporal, weights))
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return self.dropout(x)


class SASRecBlock(MixedBlock):
    """y = LN(LN x + attention(LN x, x)), then y + drop(FFN(y)): queries are normed, keys and values are not.

    As in the public code of SASRec (Kang and McAuley, ICDM 2018); the arguments are those of `MixedBlock`.
    """

    activation = "relu"

    def forward(
        self,
        x: Tensor,
        temporal: Sequence[TemporalContext],
        positions: Tensor | None = None,
        weights: list | None = None,
    ) -> Tensor:
        """x [B, T, H] -> [B, T, H], or [B, R, H] at `positions` [B, R]; `weights` is that of `MixedAttention`."""
        queries = self.attention_norm(x if positions is None else gather_positions(x, positions))
        y = self.feed_forward_norm(queries + self.attention(queries, x, temporal, weights))
        return y + self.dropout(self.feed_forward(y))
