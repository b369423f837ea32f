"""LightSANs' attention from the last event: to events through interests, and to positions.

T events, H hidden, n heads, d = H/n, K interests.
"""

from typing import Any

import torch
from torch import Tensor

from recbole_ext.model.contract import AttentionWeights, Head, Interests
from recbole_ext.model.layers import recorded_inputs, take
from recbole_ext.model.lightsans.efficient_attention import Linformer
from recbole_ext.model.lightsans.item_attention import LowRankAttention


def attention_weights(model: Any, interaction: Any) -> AttentionWeights | None:
    """Weights of every layer for a request of one row.

    The context of the last event is a sum over interests of means of events, hence a mean of events: the weight of an
    event is its share of each interest's values times the query's weight of that interest.

    Returns:
        None for `recbole_compat`, whose weights do not sum to 1 over the events. The weights that Linformer learns for
        places are no attention to events; of it there are those of the positions alone.
    """
    if model.compat:
        return None
    heads: list[Head] = []
    interests: list[Interests] = []
    with recorded_inputs(block.attention for block in model.blocks) as calls:
        model.prepare(interaction)
    for layer, (module, (x, real, *_)) in enumerate(calls, 1):
        last = torch.full((1, 1), x.shape[1] - 1, device=x.device)
        if isinstance(module.items, LowRankAttention):
            interests.append(_interests(layer, module, x, real, last))
            values, use = interests[-1].values, interests[-1].use
            heads += _heads(layer, "items", use @ values)
        elif not isinstance(module.items, Linformer):
            heads += _heads(layer, "items", _by_gradient(module, x, real, last))
        if module.position is not None:
            found: list[Tensor] = []
            module.position(x, real, module.value, last, found)
            heads += _heads(layer, "positions", found[0][0, :, 0])
    return AttentionWeights("", heads, interests) if heads else None


def _heads(layer: int, name: str, weights: Tensor) -> list[Head]:
    return [Head(layer, f"{name}_{number}", row) for number, row in enumerate(weights, 1)]


def _interests(layer: int, module: Any, x: Tensor, real: Tensor, last: Tensor) -> Interests:
    found: list[Tensor] = []
    module.items(take(x, last), x, real, module.value, found)
    aggregation, interaction = found  # [1, 2K, T] and [1, n, K, 1]
    keys, values = aggregation[0].chunk(2)
    return Interests(layer, keys, values, interaction[0, :, :, 0])


def _by_gradient(module: Any, x: Tensor, real: Tensor, last: Tensor) -> Tensor:
    """Weights [n, T] of an attention that makes no matrix of them: its context is linear in the values.

    A feature of the context is the mean of that feature of the values, so its derivative by them is their weights; the
    first feature of each head has values that no other head reads.
    """
    with torch.enable_grad():
        values = torch.zeros_like(x, requires_grad=True)
        context = module.items(take(x, last), x, real, lambda _: values)  # [1, 1, H]
        width = x.shape[-1] // module.items.heads
        (gradient,) = torch.autograd.grad(context[..., ::width].sum(), values)
    return gradient[0, :, ::width].T
