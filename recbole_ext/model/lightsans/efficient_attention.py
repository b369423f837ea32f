"""Efficient attentions that the LightSANs paper compares with its own in its table of efficiency.

The interface is that of `attention.py`: B batch, R query positions, T positions (at most L), H hidden
size, n heads, d = H/n.
"""

import math

import torch
from torch import Tensor, nn

from recbole_ext.model.layers import Dropout, join_heads, split_heads


class Linformer(nn.Module):
    """softmax(Q (E K)^T / sqrt d) F V with learnt projections E, F [K, L] of the positions (Wang et al., 2020, eq. 7).

    The keys and values of padding are zero.

    Args:
        hidden: H.
        heads: n.
        length: L.
        rank: K.
        dropout: probability on the attention weights.
    """

    def __init__(self, hidden: int, heads: int, length: int, rank: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.key_slots = nn.Parameter(torch.randn(rank, length) * rank**-0.5)  # E
        self.value_slots = nn.Parameter(torch.randn(rank, length) * rank**-0.5)  # F
        self.dropout = Dropout(dropout)

    def forward(self, queries: Tensor, x: Tensor, mask: Tensor, value: nn.Linear) -> Tensor:
        count, mask = x.shape[1], mask.unsqueeze(-1)
        keys = self.key_slots[:, :count] @ (self.key(x) * mask)  # [B, K, H]
        values = self.value_slots[:, :count] @ (value(x) * mask)
        query, keys, values = (split_heads(tensor, self.heads) for tensor in (self.query(queries), keys, values))
        logits = query @ keys.transpose(2, 3) * query.shape[-1] ** -0.5
        return join_heads(self.dropout(logits.softmax(-1)) @ values)


class KernelAttention(nn.Module):
    """phi(Q) (phi(K)^T V) / phi(Q) (phi(K)^T 1) with positive features phi of the subclass: linear in T."""

    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)

    def features(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """phi of queries [B, n, R, d] and keys [B, n, T, d]: [B, n, R or T, m].

        Factors that cancel in the attention may be missing: one for all features of a query, or one of a feature that
        its queries multiply and its keys divide by.
        """
        raise NotImplementedError

    def forward(self, queries: Tensor, x: Tensor, mask: Tensor, value: nn.Linear) -> Tensor:
        projections = (split_heads(tensor, self.heads) for tensor in (self.query(queries), self.key(x), value(x)))
        with torch.autocast(x.device.type, enabled=False):  # exponentials and long sums
            query, key, values = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in projections)
            mask = mask[:, None, :, None]
            query, key = self.features(query, torch.where(mask, key, key[:, :, :1]))
            key = key * mask
            total = query @ key.sum(2).unsqueeze(-1)  # [B, n, R, 1]
            context = query @ (key.transpose(2, 3) @ values) / total
        return join_heads(context).to(x.dtype)


class LinearAttention(KernelAttention):
    """phi(x) = elu(x) + 1 (Katharopoulos et al., 2020, eq. 7)."""

    def features(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        query, key = (torch.where(x > 0, x + 1, x.clamp(max=0).exp()) for x in (query, key))  # elu(x) + 1 rounds to 0
        return query, key


class Performer(KernelAttention):
    """Softmax attention by positive orthogonal random features (Choromanski et al., 2021, FAVOR+, lemma 1).

    phi(x) = exp(W x' - |x'|^2 / 2) / sqrt m with x' = x / d^(1/4); E[phi(q) phi(k)] = exp(q k / sqrt d). The rows of W
    are drawn once, orthogonal in blocks of d, with the lengths of Gaussian vectors, and stored with the weights.

    Args:
        hidden: H.
        heads: n.
        features: m.
    """

    directions: Tensor

    def __init__(self, hidden: int, heads: int, features: int):
        super().__init__(hidden, heads)
        d = hidden // heads
        q, r = torch.linalg.qr(torch.randn(math.ceil(features / d), d, d))
        blocks = q * r.diagonal(dim1=1, dim2=2).sign().unsqueeze(1)  # makes q uniformly distributed
        lengths = torch.randn(features, d).norm(dim=1, keepdim=True)
        self.register_buffer("directions", blocks.flatten(0, 1)[:features] * lengths)  # [m, d]

    def features(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        query, key = self._exponents(query), self._exponents(key)
        largest = key.detach().amax(-2, keepdim=True)  # over the keys; cancels out
        query = query + largest
        return (query - query.detach().amax(-1, keepdim=True)).exp(), (key - largest).exp()

    def _exponents(self, x: Tensor) -> Tensor:
        x = x * x.shape[-1] ** -0.25
        return x @ self.directions.T.to(x.dtype) - x.square().sum(-1, keepdim=True) / 2


class Synthesizer(nn.Module):
    """Attention weights from each query alone: softmax(relu(X W_1) W_2) V, W_2 [d, L] (dense; Tay et al., 2021, eq. 1).

    Args:
        hidden: H.
        heads: n.
        length: L.
        dropout: probability on the attention weights.
    """

    def __init__(self, hidden: int, heads: int, length: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.inner = nn.Linear(hidden, hidden)  # W_1
        self.slots = nn.Parameter(torch.randn(heads, hidden // heads, length) * hidden**-0.5)  # W_2
        self.bias = nn.Parameter(torch.zeros(heads, 1, length))
        self.dropout = Dropout(dropout)

    def forward(self, queries: Tensor, x: Tensor, mask: Tensor, value: nn.Linear) -> Tensor:
        count = x.shape[1]
        inner = split_heads(torch.relu(self.inner(queries)), self.heads)
        logits = inner @ self.slots[..., :count] + self.bias[..., :count]  # [B, n, R, T]
        attention = logits.masked_fill(~mask[:, None, None, :], -torch.inf).softmax(-1)
        return join_heads(self.dropout(attention) @ split_heads(value(x), self.heads))
