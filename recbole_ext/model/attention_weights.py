"""What the slot that a score is read from attends to: the weights that the fast layers do not keep.

A model is scored as always while the inputs of its attentions are recorded; then each of these is asked once more, for
its weights. Nothing here runs when nothing is explained.

T events that the model reads, T' = T or T + 1 with a slot of its own behind them, n heads, K interests.
"""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True)
class Head:
    """One head of one layer.

    Attributes:
        layer: from 1.
        name: e.g. the kernel.
        weights: softmax weights of the events, oldest first, and of the slot behind them, which sum to 1. [T']
    """

    layer: int
    name: str
    weights: Tensor


@dataclass(frozen=True)
class Interests:
    """The latent interests of one layer of LightSANs.

    Attributes:
        layer: from 1.
        keys: what of each event an interest is found by, [K, T], rows sum to 1.
        values: what of each event it hands on, [K, T], rows sum to 1.
        use: how much the last event's query takes of each, [n, K], rows sum to 1.
    """

    layer: int
    keys: Tensor
    values: Tensor
    use: Tensor


@dataclass(frozen=True)
class Attention:
    """Where a score comes from, as far as attention tells.

    Attributes:
        behind: what stands behind the events: `request` (MEANTIME's [MASK]), `target` (BST's item), or nothing.
        heads: of all layers, from the first.
        interests: of all layers, from the first.
    """

    behind: str
    heads: list[Head]
    interests: list[Interests] = field(default_factory=list)


@contextlib.contextmanager
def inputs_of(modules: Iterable[nn.Module]) -> Iterator[list[tuple[Any, tuple]]]:
    """Record what modules are called with while this lasts: pairs of module and arguments, in order."""
    calls: list[tuple[Any, tuple]] = []
    handles = [module.register_forward_pre_hook(lambda *call: calls.append(call)) for module in modules]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
