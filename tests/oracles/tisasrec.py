"""TiSASRec for one history at a time, without padding, from the paper's equations: every [T, T, H] tensor is made.

T events, n positions of a full history, H hidden size, k largest interval, V items. `weights` are the model's, by name.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from tests.oracles.parts import linear, norm


def intervals(time: list[float], limit: int, unit: float | None = None) -> Tensor:
    """The time between each two events in whole units, [T, T]; by default in the smallest positive time."""
    between = [[abs(first - second) for second in time] for first in time]
    smallest = min((gap for row in between for gap in row if gap > 0), default=1.0)
    return torch.tensor([[min(limit, math.floor(gap / (unit or smallest))) for gap in row] for row in between])


def encode(
    weights: dict[str, Tensor], items: Tensor, interval: Tensor, positions: int, layers: int, heads: int, eps: float
) -> Tensor:
    """States [T, H] of events, items [T], with these intervals [T, T]; `positions` is n."""
    count, hidden = len(items), weights["item_embedding.weight"].shape[1]
    x = weights["item_embedding.weight"][items] * math.sqrt(hidden)
    position = torch.arange(positions - count, positions)  # the newest event has the last position
    for layer in range(layers):
        block = f"blocks.{layer}"
        normed = norm(weights, f"{block}.attention_norm", x, eps)
        x = x + attention(weights, f"{block}.attention", normed, position, interval, heads)
        normed = norm(weights, f"{block}.feed_forward_norm", x, eps)
        inner = linear(weights, f"{block}.feed_forward.inner", normed).clamp(min=0)
        x = x + linear(weights, f"{block}.feed_forward.outer", inner)
    return norm(weights, "norm", x, eps)


def attention(
    weights: dict[str, Tensor], name: str, x: Tensor, position: Tensor, interval: Tensor, heads: int
) -> Tensor:
    query, key, value = (x @ weights[f"{name}.{part}.weight"].T for part in ("query", "key", "value"))
    keys = key + weights["position_key.weight"][position] + weights["interval_key.weight"][interval]  # [T, T, H]
    values = value + weights["position_value.weight"][position] + weights["interval_value.weight"][interval]
    is_later = torch.ones(interval.shape, dtype=torch.bool).triu(1)
    mixed = []
    for q, k, v in zip(*(part.chunk(heads, dim=-1) for part in (query, keys, values)), strict=True):
        logits = torch.einsum("id,ijd->ij", q, k) / math.sqrt(q.shape[-1])
        mixed.append(torch.einsum("ij,ijd->id", logits.masked_fill(is_later, -math.inf).softmax(-1), v))
    return torch.cat(mixed, dim=-1)


def bce(weights: dict[str, Tensor], states: Tensor, targets: Tensor, negatives: Tensor) -> Tensor:
    """The loss of each target, [M]: states [M, H], targets [M], a negative of each [M]."""
    table = weights["item_embedding.weight"]
    right, wrong = ((states * table[items]).sum(-1) for items in (targets, negatives))
    return -(F.logsigmoid(right) + F.logsigmoid(-wrong)) / 2


def squared_norm(weights: dict[str, Tensor]) -> Tensor:
    """The sum of the squares of all embeddings."""
    tables = ("item_embedding", "position_key", "position_value", "interval_key", "interval_value")
    return sum((weights[f"{table}.weight"] ** 2).sum() for table in tables)
