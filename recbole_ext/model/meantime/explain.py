"""MEANTIME's attention from the [MASK] slot to the events, one kernel a head."""

from typing import Any

from torch import Tensor

from recbole_ext.model.attention_weights import Attention, Head, inputs_of
from recbole_ext.model.meantime.model import MEANTIME


def attention(model: MEANTIME, request: Any) -> Attention:
    """Weights of every layer and kernel for a request of one row; the [MASK] stands behind the events."""
    names = [*model.absolute, *model.relative]
    heads = []
    with inputs_of(block.attention for block in model.blocks) as calls:
        model.prepare(request)
    for layer, (module, inputs) in enumerate(calls, 1):
        found: list[Tensor] = []  # [1, R, T + 1] of each head; the last row is the [MASK]'s
        module(*inputs[:3], found)
        heads += [Head(layer, name, weights[0, -1]) for name, weights in zip(names, found, strict=True)]
    return Attention("request", heads)
