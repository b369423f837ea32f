"""Small tensors on a device whose values the CPU knows, too.

The shapes of a training step follow from the lengths of its histories. Reading these from a GPU waits until it has done
everything before, and nothing new is queued in the meantime. The lengths come from the CPU, so they can have a copy
there, and what is computed from them as well. Tensors on the CPU have none and need none.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

COPY = "on_host"  # an attribute of a tensor


def with_copy(values: Tensor, copy: Tensor) -> Tensor:
    """A tensor on a device, with its copy on the CPU."""
    setattr(values, COPY, copy)
    return values


def on_host(values: Tensor) -> Tensor:
    """The values on the CPU. This waits for the device where they have no copy yet; then they have one."""
    if values.device.type == "cpu":
        return values
    if getattr(values, COPY, None) is None:
        with_copy(values, values.cpu())
    copy: Tensor = getattr(values, COPY)
    return copy


def with_copies(change: Callable[..., Tensor], *values: Tensor) -> Tensor:
    """`change` of some tensors and, where they have copies, of these; the results must be equal on both devices."""
    result = change(*values)
    copies: list[Any] = [getattr(value, COPY, None) for value in values]
    if any(copy is None for copy in copies):
        return result
    return with_copy(result, change(*copies))
