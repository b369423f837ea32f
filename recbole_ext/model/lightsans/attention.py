"""LightSANs' block: attention among items through latent interests, and attention among positions (section 3).

All attention among items has one interface: queries [B, R, H] attend to states x [B, T, H] where `mask` [B, T] is True,
with the block's `value` projection; the result is [B, R, H].

B batch, T positions of a batch, L positions at most, R query positions, H hidden size, n heads, d = H/n, K interests.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from recbole_ext.model.layers import Dropout, FeedForward, gather_positions, join_heads, split_heads

MAX_LOGIT_RANGE = 60.0  # within a row of logits that all histories share: float32 reaches exp(-87)


class Attention(nn.Module):
    """The projected sum of attention among items and, unless `None`, among positions (eq. 7).

    Args:
        hidden: H.
        items: attention among items, from here or `efficient_attention.py`.
        position: a `PositionAttention`, or `None`.
    """

    def __init__(self, hidden: int, items: nn.Module, position: nn.Module | None):
        super().__init__()
        self.items: Any = items
        self.position: Any = position
        self.value, self.output = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)

    def forward(self, x: Tensor, mask: Tensor, positions: Tensor | None = None) -> Tensor:
        """x [B, T, H] -> [B, T, H], or [B, R, H] at `positions` [B, R]; `mask` [B, T] says what is no padding."""
        queries = x if positions is None else gather_positions(x, positions)
        context = self.items(queries, x, mask, self.value)
        if self.position is not None:
            context = context + self.position(x, mask, self.value, positions)
        return self.output(context)


class Block(nn.Module):
    """LN(x + drop(attention(x))), then LN(x + drop(FFN(x))).

    Args:
        attention: an `Attention`.
        hidden: H.
        inner: inner features of the feed-forward layer.
        dropout: probability on the two sublayers.
        activation: of the feed-forward layer, one of `ACTIVATIONS`.
        eps: of the layer norms.
    """

    def __init__(self, attention: nn.Module, hidden: int, inner: int, dropout: float, activation: str, eps: float):
        super().__init__()
        self.attention = attention
        self.feed_forward = FeedForward(hidden, inner, 0.0, activation)
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(hidden, eps=eps), nn.LayerNorm(hidden, eps=eps)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor, positions: Tensor | None = None) -> Tensor:
        """x [B, T, H] -> [B, T, H], or [B, R, H] at `positions` [B, R]; `mask` [B, T] says what is no padding."""
        queries = x if positions is None else gather_positions(x, positions)
        x = self.attention_norm(queries + self.dropout(self.attention(x, mask, positions)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


# ---------------------------------------------------------------- among items


class LowRankAttention(nn.Module):
    """Items attend to K latent interests, which are weighted means of the items (section 3.2).

    With theta [H, K], D = softmax over the items of (X W_K) theta, and the keys of the interests are D^T (X W_K + b);
    their values are the same with W_V and another theta. Three identities make this cheap. A bias in (X W_K + b) theta
    is the same for all items and leaves the softmax unchanged. D^T (X W_K + b) = (D^T X) W_K + b because D sums to 1,
    so K vectors are projected instead of T. And (x W_Q) k = x (W_Q k), so W_Q is applied to the keys of the interests
    instead of all queries. Weights have the items in the last dimension, where softmax is fast.

    Args:
        hidden: H.
        heads: n.
        interests: K.
        dropout: probability on the weights of the interests.
    """

    blocks: Tensor

    def __init__(self, hidden: int, heads: int, interests: int, dropout: float):
        super().__init__()
        self.heads, self.interests = heads, interests
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.key_interests = nn.Parameter(torch.randn(hidden, interests))
        self.value_interests = nn.Parameter(torch.randn(hidden, interests))
        self.dropout = Dropout(dropout)
        block = torch.ones(interests, hidden // heads)
        self.register_buffer("blocks", torch.block_diag(*[block] * heads), persistent=False)  # [nK, H]

    def forward(
        self, queries: Tensor, x: Tensor, mask: Tensor, value: nn.Linear, weights: list[Tensor] | None = None
    ) -> Tensor:
        """Context of the queries; `weights` receives those of the items [B, 2K, T] and the interests [B, n, K, R]."""
        logits, values, aggregation = self.interact(queries, x, mask, value)
        interaction = logits.softmax(2)
        if weights is not None:
            weights += [aggregation, interaction]
        return self.context(interaction, values)

    def interact(self, queries: Tensor, x: Tensor, mask: Tensor, value: nn.Linear) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of the queries [B, n, K, R], values of the interests [B, K, H], weights of the items [B, 2K, T]."""
        theta = torch.cat([self.key_interests.T @ self.key.weight, self.value_interests.T @ value.weight])  # [2K, H]
        relevance = theta @ x.transpose(1, 2)  # [B, 2K, T]
        aggregation = relevance.masked_fill(~mask.unsqueeze(1), -torch.inf).softmax(-1)
        means = aggregation @ x  # [B, 2K, H]
        keys, values = self.key(means[:, : self.interests]), value(means[:, self.interests :])  # [B, K, H]

        d = keys.shape[-1] // self.heads
        keys = keys * d**-0.5
        projected = zip(keys.split(d, dim=-1), self.query.weight.split(d), strict=True)
        projected_keys = torch.cat([key @ query for key, query in projected], dim=1)  # [B, nK, H]
        bias = (keys * self.query.bias).unflatten(-1, (self.heads, d)).sum(-1).transpose(1, 2).flatten(1)  # [B, nK]
        logits = projected_keys @ queries.transpose(1, 2) + bias.unsqueeze(-1)  # [B, nK, R]
        return logits.unflatten(1, (self.heads, self.interests)), values, aggregation

    def context(self, interaction: Tensor, values: Tensor) -> Tensor:
        """Means [B, R, H] of the interests' values [B, K, H] by weights [B, n, K, R], after dropout."""
        blocks = values.repeat(1, self.heads, 1) * self.blocks  # [B, nK, H], each head's values in its own columns
        return self.dropout(interaction.flatten(1, 2)).transpose(1, 2) @ blocks


class FullAttention(nn.Module):
    """Every item attends to every item (Vaswani et al., 2017): the paper's ablation.

    Args:
        hidden: H.
        heads: n.
        dropout: probability on the attention weights.
    """

    def __init__(self, hidden: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)

    def forward(self, queries: Tensor, x: Tensor, mask: Tensor, value: nn.Linear) -> Tensor:
        query, key, values = (split_heads(part, self.heads) for part in (self.query(queries), self.key(x), value(x)))
        mask, p = mask[:, None, None, :], self.dropout if self.training else 0.0
        return join_heads(F.scaled_dot_product_attention(query, key, values, attn_mask=mask, dropout_p=p))


# ---------------------------------------------------------------- among positions


class PositionAttention(nn.Module):
    """Weights softmax_j(A_ij) over the positions j of a history (section 3.3).

    The logits A [n, L, L], which subclasses compute, are the same for all histories.

    Args:
        heads: n.
    """

    def __init__(self, heads: int):
        super().__init__()
        self.heads = heads

    def logits(self, length: int) -> Tensor:
        """A [n, T, T] of the first T positions."""
        raise NotImplementedError

    def forward(
        self, x: Tensor, mask: Tensor, value: nn.Linear, positions: Tensor | None = None, weights: list | None = None
    ) -> Tensor:
        """Context [B, T, H], or [B, R, H] at some positions.

        Args:
            x: states, [B, T, H].
            mask: which positions are no padding, bool [B, T].
            value: the projection of states to values.
            positions: query positions, [B, R]; `None` means all.
            weights: a list that receives the attention at `positions`, [B, n, R, T].
        """
        logits = self.logits(x.shape[1])
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if positions is None:
            return self._at_all_positions(logits, x, mask, value)
        padding = ~mask[:, None, None, :]
        attention = logits[:, positions].transpose(0, 1).masked_fill(padding, -torch.inf).softmax(-1)  # [B, n, R, T]
        if weights is not None:
            weights.append(attention)
        # for few queries, project the means of the states instead of all states
        means = (attention.flatten(1, 2).to(x.dtype) @ x).unflatten(1, (self.heads, -1)).unbind(1)
        parts = zip(means, self._split(value.weight), self._split(value.bias), strict=True)
        return torch.cat([F.linear(*part) for part in parts], dim=-1)

    def _at_all_positions(self, logits: Tensor, x: Tensor, mask: Tensor, value: nn.Linear) -> Tensor:
        """exp(A) once for the batch, times the values of all histories in one product for each head.

        Without padding in numerator and denominator, that is the softmax over each history's events. The bias of the
        values is added at the end, since weights sum to 1. Logits too far apart for float32 take a softmax for each
        history; so do all on a GPU, where looking at them would wait.
        """
        largest = logits.amax(-1, keepdim=True)
        in_general = torch.compiler.is_compiling() or logits.device.type != "cpu"  # a traced graph has no branches
        # the largest may be at a position that a history lacks
        if in_general or (largest - logits.amin(-1, keepdim=True)).max() > MAX_LOGIT_RANGE:
            attention = logits.masked_fill(~mask[:, None, None, :], -torch.inf).softmax(-1)  # [B, n, T, T]
            return join_heads(attention @ split_heads(value(x).to(attention.dtype), self.heads)).to(x.dtype)
        exponentials, kept, padded = (logits - largest).exp(), mask.T, not mask.all()
        x_by_position = x.transpose(0, 1)  # positions first: one matrix for all histories
        x_by_position = x_by_position * kept.unsqueeze(-1) if padded else x_by_position.contiguous()
        width = value.out_features // self.heads
        weights = self._split(value.weight)
        values = [F.linear(x_by_position, weight).flatten(1).to(exponentials.dtype) for weight in weights]
        with torch.autocast(x.device.type, enabled=False):  # exponentials may be too small for float16
            sums = exponentials @ kept.to(exponentials.dtype) if padded else exponentials.sum(-1, keepdim=True)
            contexts = [
                (head @ columns).view(len(head), len(mask), width) / total.unsqueeze(-1)
                for head, columns, total in zip(exponentials, values, sums, strict=True)  # totals [T, B or 1]
            ]  # n of [T, B, d]
            return (torch.cat(contexts, dim=-1) + value.bias).transpose(0, 1).to(x.dtype)

    def _split(self, x: Tensor) -> Sequence[Tensor]:
        """The features of each head in a projection, n of [d, ...]."""
        return x.split(len(x) // self.heads)


class DecoupledPositions(PositionAttention):
    """A = (LN(P) W_Q + b_Q) (LN(P) W_K + b_K)^T / sqrt d, of the position embeddings P.

    The layer norm is in the authors' code but not in the paper; without it, A is too small at first to be learnt.

    Args:
        positions: the model's position embeddings, [L, H].
        heads: n.
        eps: of the norm.
    """

    def __init__(self, positions: nn.Embedding, heads: int, eps: float):
        super().__init__(heads)
        hidden = positions.embedding_dim
        self.positions = [positions]  # shared by the layers: in a list, so that it is no submodule of each
        self.norm = nn.LayerNorm(hidden, eps=eps)
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)

    def logits(self, length: int) -> Tensor:
        position = self.norm(self.positions[0].weight[:length])
        query, key = (
            layer(position).unflatten(-1, (self.heads, -1)).transpose(0, 1) for layer in (self.query, self.key)
        )
        return query @ key.transpose(1, 2) * query.shape[-1] ** -0.5


class RelativePositions(PositionAttention):
    """A_ij = one learnt number for each head and each i - j.

    Args:
        length: L.
        heads: n.
    """

    def __init__(self, length: int, heads: int):
        super().__init__(heads)
        self.length = length
        self.bias = nn.Parameter(torch.zeros(heads, 2 * length - 1))

    def logits(self, length: int) -> Tensor:
        position = torch.arange(length, device=self.bias.device)
        return self.bias[:, position.unsqueeze(1) - position + self.length - 1]
