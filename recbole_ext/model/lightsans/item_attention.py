"""Attention among the items of a history: the ways that LightSANs can be built with.

All share one interface: query rows [B, R, H] attend to the slots [B, T, H] of which `real` [B, T] are no padding, with
the block's `value` projection, and give a context [B, R, H] of n heads side by side, d = H/n features each.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from recbole_ext.model.layers import Dropout


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, T, H] -> [B, n, T, d]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """[B, n, T, d] -> [B, T, H]."""
    return x.transpose(1, 2).flatten(2)


class LowRankAttention(nn.Module):
    """Items attend to K latent interests, which are weighted means of the items (LightSANs, section 3.2).

    With X the slots and theta [H, K], D = softmax over the slots of (X W_K) theta; the keys of the interests are
    D^T (X W_K + b), their values the same with W_V and a theta of its own. Three identities make this cheap:
    a bias in (X W_K + b) theta is the same for all slots and falls out of the softmax; D^T (X W_K + b) =
    (D^T X) W_K + b because D sums to 1, so that K vectors are projected instead of T; and (x W_Q) k = x (W_Q k), so
    that the keys of the interests are multiplied with W_Q instead of all rows. Weights are kept with the slots last,
    where softmax is fast.

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
        self, rows: Tensor, slots: Tensor, real: Tensor, value: nn.Linear, weights: list[Tensor] | None = None
    ) -> Tensor:
        """Context of the rows; `weights` receives those of the slots [B, 2K, T] and of the interests [B, n, K, R]."""
        theta = torch.cat([self.key_interests.T @ self.key.weight, self.value_interests.T @ value.weight])  # [2K, H]
        relevance = theta @ slots.transpose(1, 2)  # [B, 2K, T]
        aggregation = relevance.masked_fill(~real.unsqueeze(1), -torch.inf).softmax(-1)
        means = aggregation @ slots  # [B, 2K, H]
        keys, values = self.key(means[:, : self.interests]), value(means[:, self.interests :])  # [B, K, H]

        d = keys.shape[-1] // self.heads
        keys = keys * d**-0.5
        projected = zip(keys.split(d, dim=-1), self.query.weight.split(d), strict=True)
        asked = torch.cat([key @ query for key, query in projected], dim=1)  # [B, nK, H]
        bias = (keys * self.query.bias).unflatten(-1, (self.heads, d)).sum(-1).transpose(1, 2).flatten(1)  # [B, nK]
        logits = asked @ rows.transpose(1, 2) + bias.unsqueeze(-1)  # [B, nK, R]
        interaction = logits.unflatten(1, (self.heads, self.interests)).softmax(2)
        if weights is not None:
            weights += [aggregation, interaction]
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

    def forward(self, rows: Tensor, slots: Tensor, real: Tensor, value: nn.Linear) -> Tensor:
        query, key, values = (
            split_heads(part, self.heads) for part in (self.query(rows), self.key(slots), value(slots))
        )
        mask = real[:, None, None, :]
        chance = self.dropout if self.training else 0.0
        return join_heads(F.scaled_dot_product_attention(query, key, values, attn_mask=mask, dropout_p=chance))
