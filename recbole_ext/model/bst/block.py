"""BST's transformer block (section 2.2), with a fast form for many candidates of one history.

B batch, T positions, R query positions, C candidates, W size of a position's vector, n heads, d = W/n.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from recbole_ext.model.layers import Dropout, join_heads, split_heads


class TargetBlock(nn.Module):
    """S = LN(x + drop(MH(x))); LN(S + drop(LeakyReLU(S W_1) W_2)) (eq. 4 to 7; the slope is LeakyReLU's usual 0.01).

    Args:
        width: W.
        heads: n.
        inner: inner features of the feed-forward layer.
        dropout: probability on both sublayers.
        eps: of the layer norms.
    """

    def __init__(self, width: int, heads: int, inner: int, dropout: float, eps: float):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.inner, self.outer = nn.Linear(width, inner), nn.Linear(inner, width)
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(width, eps=eps), nn.LayerNorm(width, eps=eps)
        self.dropout = Dropout(dropout)

    def forward(self, queries: Tensor, x: Tensor, mask: Tensor) -> Tensor:
        """queries [B, R, W] attend to x [B, T, W]; `mask` [B, T] is False for padding. Returns [B, R, W]."""
        parts = (self.query(queries), self.key(x), self.value(x))
        query, key, value = (split_heads(part, self.heads) for part in parts)
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :])
        return self._add_and_feed_forward(queries, join_heads(context))

    def _add_and_feed_forward(self, queries: Tensor, context: Tensor) -> Tensor:
        x = self.attention_norm(queries + self.dropout(self.output(context)))
        inner = self.outer(F.leaky_relu(self.inner(x)))
        return self.feed_forward_norm(x + self.dropout(inner))

    def attention_weights(self, queries: Tensor, x: Tensor, mask: Tensor) -> Tensor:
        """The softmax weights that `forward` uses, [B, n, R, T]."""
        query, key = split_heads(self.query(queries), self.heads), split_heads(self.key(x), self.heads)
        logits = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
        return logits.masked_fill(~mask[:, None, None, :], -torch.inf).softmax(-1)

    def attend_candidates(self, candidates: Tensor, history: Tensor, mask: Tensor) -> Tensor:
        """`forward` for each candidate as the last position of a history: [B, C, W].

        A candidate attends to the history and to itself. The keys and values of the history are computed once.

        Args:
            candidates: shared by all histories, [C, W], or of each history, [B, C, W].
            history: [B, T, W].
            mask: True for events, False for padding, bool [B, T].
        """
        n, candidates = self.heads, candidates.unsqueeze(0) if candidates.dim() == 2 else candidates
        parts = (self.query(candidates), self.key(candidates), self.value(candidates))
        query, self_key, self_value = (split_heads(part, n) for part in parts)  # [B or 1, n, C, d]
        query = query * query.shape[-1] ** -0.5
        key, value = split_heads(self.key(history), n), split_heads(self.value(history), n)  # [B, n, T, d]
        logits = (query @ key.transpose(2, 3)).masked_fill(~mask[:, None, None, :], -torch.inf)  # [B, n, C, T]
        self_logits = (query * self_key).sum(-1, keepdim=True).expand(history.shape[0], -1, -1, -1)  # [B, n, C, 1]
        weights = torch.cat([logits, self_logits], dim=-1).softmax(-1)
        context = weights[..., :-1] @ value + weights[..., -1:] * self_value
        return self._add_and_feed_forward(candidates.expand(history.shape[0], -1, -1), join_heads(context))


def flatten_positions(x: Tensor, mask: Tensor, length: int) -> Tensor:
    """All positions in one vector, [B, (length + 1) W]: padding first, then the events, then the target.

    Args:
        x: positions of histories, each followed by its target, [B, T + 1, W].
        mask: True for events and targets, False for padding, bool [B, T + 1].
        length: maximum number of events.
    """
    width, used = x.shape[1] - 1, mask[:, :-1].sum(1)
    position = torch.arange(length, device=x.device) - (length - used.unsqueeze(1))
    index = position.clamp(0, width - 1).unsqueeze(-1).expand(-1, -1, x.shape[-1])
    aligned = x[:, :-1].gather(1, index) * (position >= 0).unsqueeze(-1)
    return torch.cat([aligned, x[:, -1:]], dim=1).flatten(1)
