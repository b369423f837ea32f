"""Attention that looks at positions alone, beside the attention among items (LightSANs, section 3.3).

B batch, T slots of a batch, L slots at most, R query rows, H hidden, n heads, d = H/n.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from recbole_ext.model.lightsans.item_attention import join_heads, split_heads

FARTHEST = 60.0  # between the logits of a row that all histories share: float32 reaches exp(-87)


class PositionAttention(nn.Module):
    """Weights softmax_j(A_ij) over the slots j of a history, with logits A [n, L, L] that no history changes.

    Subclasses give the logits.

    Args:
        heads: n.
    """

    def __init__(self, heads: int):
        super().__init__()
        self.heads = heads

    def logits(self, slots: int) -> Tensor:
        """A [n, T, T] of the first T positions."""
        raise NotImplementedError

    def forward(
        self, slots: Tensor, real: Tensor, value: nn.Linear, rows: Tensor | None = None, weights: list | None = None
    ) -> Tensor:
        """Context [B, T, H], or [B, R, H] of the slots that `rows` [B, R] names.

        Args:
            slots: [B, T, H].
            real: which of them are no padding, [B, T].
            value: the projection that makes values of slots.
            weights: a list that receives the attention of `rows`, [B, n, R, T].
        """
        logits = self.logits(slots.shape[1])
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if rows is None:
            return self._of_all(logits, slots, real, value)
        padding = ~real[:, None, None, :]
        attention = logits[:, rows].transpose(0, 1).masked_fill(padding, -torch.inf).softmax(-1)  # [B, n, R, T]
        if weights is not None:
            weights.append(attention)
        # of few rows: first the means of the slots, then their values, instead of the values of all slots
        means = (attention.flatten(1, 2).to(slots.dtype) @ slots).unflatten(1, (self.heads, -1)).unbind(1)
        parts = zip(means, self._split(value.weight), self._split(value.bias), strict=True)
        return torch.cat([F.linear(*part) for part in parts], dim=-1)

    def _of_all(self, logits: Tensor, slots: Tensor, real: Tensor, value: nn.Linear) -> Tensor:
        """exp(A) once for the whole batch, times the values of all histories in one product per head.

        Where padding is left out of values and counts, that is the softmax over each history's own slots; the bias of
        the values stays out of it, since weights sum to 1. Logits too far apart for that are taken history by history.
        """
        most = logits.amax(-1, keepdim=True)
        # the largest may be one that a history lacks; a graph that is traced has no branches
        if torch.compiler.is_compiling() or (most - logits.amin(-1, keepdim=True)).max() > FARTHEST:
            attention = logits.masked_fill(~real[:, None, None, :], -torch.inf).softmax(-1)  # [B, n, T, T]
            return join_heads(attention @ split_heads(value(slots).to(attention.dtype), self.heads)).to(slots.dtype)
        share, kept, padded = (logits - most).exp(), real.T, not real.all()
        first = slots.transpose(0, 1)  # slots first: one matrix for all histories
        first = first * kept.unsqueeze(-1) if padded else first.contiguous()
        width = value.out_features // self.heads
        values = [F.linear(first, weight).flatten(1).to(share.dtype) for weight in self._split(value.weight)]
        with torch.autocast(slots.device.type, enabled=False):  # float16 does not reach as far down as these weights
            counts = share @ kept.to(share.dtype) if padded else share.sum(-1, keepdim=True)  # [n, T, B or 1]
            mixed = [
                (one @ columns).view(len(one), len(real), width) / count.unsqueeze(-1)
                for one, columns, count in zip(share, values, counts, strict=True)
            ]  # n of [T, B, d]
            return (torch.cat(mixed, dim=-1) + value.bias).transpose(0, 1).to(slots.dtype)

    def _split(self, x: Tensor) -> Sequence[Tensor]:
        """The share of each head in the features of a projection, n of [d, ...]."""
        return x.split(len(x) // self.heads)


class DecoupledPositions(PositionAttention):
    """A = (LN(P) W_Q + b_Q) (LN(P) W_K + b_K)^T / sqrt d, of the position embeddings P.

    The norm is the authors' code's, not the paper's: without it, A is too small at first to learn anything.

    Args:
        positions: the model's embeddings of positions, [L, H].
        heads: n.
        eps: of the norm.
    """

    def __init__(self, positions: nn.Embedding, heads: int, eps: float):
        super().__init__(heads)
        hidden = positions.embedding_dim
        self.positions = [positions]  # shared by the layers: in a list, so that it is no submodule of each
        self.norm = nn.LayerNorm(hidden, eps=eps)
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)

    def logits(self, slots: int) -> Tensor:
        place = self.norm(self.positions[0].weight[:slots])
        query, key = (layer(place).unflatten(-1, (self.heads, -1)).transpose(0, 1) for layer in (self.query, self.key))
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

    def logits(self, slots: int) -> Tensor:
        place = torch.arange(slots, device=self.bias.device)
        return self.bias[:, place.unsqueeze(1) - place + self.length - 1]
