"""One transformer block of LightSANs. B batch, T slots, R query rows, H hidden."""

from typing import Any

from torch import Tensor, nn

from recbole_ext.model.layers import Dropout, FeedForward, take


class Attention(nn.Module):
    """Attention among items and, if there is one, among positions: their sum, projected (paper, eq. 7).

    Args:
        hidden: H.
        items: one of `attention.py` or `efficient_attention.py`.
        position: one of `position_attention.py`, or `None`.
    """

    def __init__(self, hidden: int, items: nn.Module, position: nn.Module | None):
        super().__init__()
        self.items: Any = items
        self.position: Any = position
        self.value, self.output = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)

    def forward(self, x: Tensor, real: Tensor, rows: Tensor | None = None) -> Tensor:
        """x [B, T, H] -> [B, T, H], or [B, R, H] for the slots that `rows` [B, R] names; `real` [B, T]: no padding."""
        context = self.items(x if rows is None else take(x, rows), x, real, self.value)
        if self.position is not None:
            context = context + self.position(x, real, self.value, rows)
        return self.output(context)


class Block(nn.Module):
    """LN(x + drop(attention(x))), then LN(x + drop(FFN(x))).

    Args:
        attention: an `Attention`.
        hidden: H.
        inner: features inside the feed-forward layer.
        dropout: on the two sublayers.
        activation: name of the feed-forward layer's function.
        eps: of the layer norms.
    """

    def __init__(self, attention: nn.Module, hidden: int, inner: int, dropout: float, activation: str, eps: float):
        super().__init__()
        self.attention = attention
        self.feed_forward = FeedForward(hidden, inner, 0.0, activation)
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(hidden, eps=eps), nn.LayerNorm(hidden, eps=eps)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, real: Tensor, rows: Tensor | None = None) -> Tensor:
        """x [B, T, H] -> [B, T, H], or [B, R, H] for the slots that `rows` [B, R] names; `real` [B, T]: no padding."""
        asking = x if rows is None else take(x, rows)
        x = self.attention_norm(asking + self.dropout(self.attention(x, real, rows)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
