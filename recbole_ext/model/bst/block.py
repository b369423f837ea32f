"""BST's transformer block, with a form for many targets on one history (section 2.2).

B batch, T slots of a history, C candidates, W features of a slot, n heads, d = W/n.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from recbole_ext.model.layers import Dropout
from recbole_ext.model.lightsans.item_attention import join_heads, split_heads


class TargetBlock(nn.Module):
    """S = LN(x + drop(MH(x))); LN(S + drop(LeakyReLU(S W_1) W_2)) (eq. 4 to 7; the slope is LeakyReLU's usual 0.01).

    Args:
        width: W.
        heads: n.
        inner: features inside the feed-forward layer.
        dropout: on both sublayers.
        eps: of the layer norms.
    """

    def __init__(self, width: int, heads: int, inner: int, dropout: float, eps: float):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.inner, self.outer = nn.Linear(width, inner), nn.Linear(inner, width)
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(width, eps=eps), nn.LayerNorm(width, eps=eps)
        self.dropout = Dropout(dropout)

    def forward(self, rows: Tensor, slots: Tensor, real: Tensor) -> Tensor:
        """Rows [B, R, W] attend to slots [B, T, W], of which `real` [B, T] are no padding; [B, R, W]."""
        parts = (self.query(rows), self.key(slots), self.value(slots))
        query, key, value = (split_heads(part, self.heads) for part in parts)
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=real[:, None, None, :])
        return self._after(rows, join_heads(context))

    def _after(self, rows: Tensor, context: Tensor) -> Tensor:
        x = self.attention_norm(rows + self.dropout(self.output(context)))
        inner = self.outer(F.leaky_relu(self.inner(x)))
        return self.feed_forward_norm(x + self.dropout(inner))

    def attention_weights(self, rows: Tensor, slots: Tensor, real: Tensor) -> Tensor:
        """The softmax weights that `forward` uses, [B, n, R, T]."""
        query, key = split_heads(self.query(rows), self.heads), split_heads(self.key(slots), self.heads)
        logits = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
        return logits.masked_fill(~real[:, None, None, :], -torch.inf).softmax(-1)

    def of_candidates(self, candidates: Tensor, history: Tensor, real: Tensor) -> Tensor:
        """Each candidate, alone behind a history: [B, C, W].

        A candidate's attention runs over the history, whose keys and values its candidates share, and itself.

        Args:
            candidates: of every history, [C, W], or of each, [B, C, W].
            history: [B, T, W].
            real: [B, T].
        """
        n, candidates = self.heads, candidates.unsqueeze(0) if candidates.dim() == 2 else candidates
        parts = (self.query(candidates), self.key(candidates), self.value(candidates))
        query, own_key, own_value = (split_heads(part, n) for part in parts)  # [B or 1, n, C, d]
        query = query * query.shape[-1] ** -0.5
        key, value = split_heads(self.key(history), n), split_heads(self.value(history), n)  # [B, n, T, d]
        logits = (query @ key.transpose(2, 3)).masked_fill(~real[:, None, None, :], -torch.inf)  # [B, n, C, T]
        own = (query * own_key).sum(-1, keepdim=True).expand(history.shape[0], -1, -1, -1)  # [B, n, C, 1]
        weights = torch.cat([logits, own], dim=-1).softmax(-1)
        context = weights[..., :-1] @ value + weights[..., -1:] * own_value
        return self._after(candidates.expand(history.shape[0], -1, -1), join_heads(context))
