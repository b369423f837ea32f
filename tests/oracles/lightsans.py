"""LightSANs for one history at a time, without padding, from the paper's equations: slow, and plain to read.

`weights` are the model's, by name; a history is a list of T item ids. Everything is float64.
"""

import math

import torch
from torch import Tensor

from tests.oracles.parts import linear, norm


def softmax(logits: Tensor) -> Tensor:
    """Over the last dimension: what each row attends to."""
    return logits.exp() / logits.exp().sum(-1, keepdim=True)


def interests(projected: Tensor, theta: Tensor) -> Tensor:
    """K weighted means [K, H] of projected items [T, H] (section 3.2, item-to-interest aggregation)."""
    relevance = projected @ theta  # [T, K]
    return softmax(relevance.T) @ projected


def state(weights: dict[str, Tensor], history: list[int], heads: int, layers: int, position: str, eps: float) -> Tensor:
    """State [H] of the last item, for `attention: low_rank`."""
    x = weights["item_embedding.weight"][history]
    if position == "absolute":
        x = x + weights["position_embedding.weight"][: len(history)]
    x = norm(weights, "norm", x, eps)
    for layer in range(layers):
        x = block(weights, f"blocks.{layer}", x, heads, position, eps)
    return x[-1]


def block(weights: dict[str, Tensor], name: str, x: Tensor, heads: int, position: str, eps: float) -> Tensor:
    inside = f"{name}.attention"
    query, key = linear(weights, f"{inside}.items.query", x), linear(weights, f"{inside}.items.key", x)
    value = linear(weights, f"{inside}.value", x)
    key_pool = interests(key, weights[f"{inside}.items.key_interests"])
    value_pool = interests(value, weights[f"{inside}.items.value_interests"])
    shape = position_logits(weights, f"{inside}.position", len(x), heads, position, eps)
    d = x.shape[1] // heads
    context = []
    for head in range(heads):
        own = slice(head * d, (head + 1) * d)
        mixed = softmax(query[:, own] @ key_pool[:, own].T / math.sqrt(d)) @ value_pool[:, own]
        if shape is not None:
            mixed = mixed + softmax(shape[head]) @ value[:, own]
        context.append(mixed)
    x = norm(weights, f"{name}.attention_norm", x + linear(weights, f"{inside}.output", torch.cat(context, 1)), eps)
    inner = linear(weights, f"{name}.feed_forward.inner", x)
    inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
    return norm(weights, f"{name}.feed_forward_norm", x + linear(weights, f"{name}.feed_forward.outer", inner), eps)


def position_logits(
    weights: dict[str, Tensor], name: str, slots: int, heads: int, position: str, eps: float
) -> list[Tensor] | None:
    """Logits [T, T] of each head, or `None` where positions have no attention of their own."""
    if position == "decoupled":
        place = norm(weights, f"{name}.norm", weights["position_embedding.weight"][:slots], eps)
        query, key = linear(weights, f"{name}.query", place), linear(weights, f"{name}.key", place)
        d = query.shape[1] // heads
        own = [slice(head * d, (head + 1) * d) for head in range(heads)]
        return [query[:, part] @ key[:, part].T / math.sqrt(d) for part in own]
    if position == "relative":
        bias = weights[f"{name}.bias"]
        length = (bias.shape[1] + 1) // 2
        return [
            torch.stack([torch.stack([row[i - j + length - 1] for j in range(slots)]) for i in range(slots)])
            for row in bias
        ]
    return None
