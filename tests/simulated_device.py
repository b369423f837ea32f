"""A device that is not there, to test the code for accelerators on machines without one.

Its tensors compute on the CPU but say that they are on the device `meta`, the one accelerator that every build of torch
knows. As on a GPU, they cannot be mixed with tensors on the CPU, and have no NumPy form. Each operation for which the
CPU would wait for a GPU is counted:

    with simulated_device() as waits:
        model.to(DEVICE).calculate_loss(batch.to(DEVICE)).backward()
    assert not waits.of_results

Limits: `inference_mode` is `no_grad`, autocast has no effect on these tensors, sparse tensors cannot be on this device,
and its random numbers come from the generator of the CPU.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")

# operations whose result has a size or a value that the CPU must know first
READ = {
    "_local_scalar_dense", "nonzero", "masked_select", "equal", "bincount", "histc", "unique_dim", "_unique",
    "_unique2", "unique_consecutive", "unique_dim_consecutive", "_linalg_check_errors",
}  # fmt: skip
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
JOINING = {"cat", "stack"}  # where even a single number must be on the device of the others
COPYING = {"_to_copy", "copy_"}


@dataclass
class Waits:
    """How often the CPU has waited, by operation.

    Attributes:
        of_results: for a value, or a size that depends on values.
        of_copies: for a copy to the device without `non_blocking`.
    """

    of_results: Counter[str] = field(default_factory=Counter)
    of_copies: Counter[str] = field(default_factory=Counter)

    def clear(self) -> None:
        self.of_results.clear()
        self.of_copies.clear()


class SimulatedTensor(Tensor):
    """A tensor on the simulated device; `on_cpu` has its values."""

    on_cpu: Tensor
    is_meta = False  # they have values

    @staticmethod
    def __new__(cls, on_cpu: Tensor) -> "SimulatedTensor":
        tensor = Tensor._make_wrapper_subclass(
            cls, on_cpu.size(), strides=on_cpu.stride(), storage_offset=on_cpu.storage_offset(), dtype=on_cpu.dtype,
            device=DEVICE,
        )  # fmt: skip
        tensor.on_cpu = on_cpu
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func} on a simulated tensor outside of simulated_device()")

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert a tensor on a device to numpy. Use Tensor.cpu() first.")

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        return self.numpy()

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(torch.tensor(index) if isinstance(index, list) else index)

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(torch.tensor(index) if isinstance(index, list) else index, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> "SimulatedTensor":
        copy = self.detach().clone().requires_grad_(self.requires_grad)
        copy = torch.nn.Parameter(copy, self.requires_grad) if isinstance(self, torch.nn.Parameter) else copy
        memo[id(self)] = copy
        return copy

    def __reduce_ex__(self, protocol: Any) -> Any:  # files have no device; `torch.load` is told where to
        return self.on_cpu.detach().__reduce_ex__(protocol)

    def __repr__(self) -> str:  # type: ignore[override]
        return f"simulated({self.on_cpu!r})"


class SimulatedDevice(TorchDispatchMode):
    """Every operation of torch passes through here."""

    def __init__(self, waits: Waits):
        super().__init__()
        self.waits = waits

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        device = None if kwargs.get("device") is None else torch.device(kwargs["device"])
        is_ours = any(isinstance(tensor, SimulatedTensor) for tensor in tensors)
        if not is_ours and device != DEVICE:
            return func(*args, **kwargs)
        if any(tensor.device == DEVICE and not isinstance(tensor, SimulatedTensor) for tensor in tensors):
            raise RuntimeError(f"{name}: a tensor of the real device meta, which has no values")
        _refuse_mixed(name, args, tensors, kwargs)
        self._count(name, args, kwargs, tensors, device)
        plain = {**tree_map(_to_cpu, kwargs), **({} if device is None else {"device": torch.device("cpu")})}
        plain.pop("generator", None)
        result = func(*tree_map(_to_cpu, args), **plain)
        if name == "copy_":
            return args[0]
        if device is not None and device.type == "cpu":  # a copy also where the CPU's tensor would be the same one
            return tree_map(lambda value: value.clone() if isinstance(value, Tensor) else value, result)
        return return_and_correct_aliasing(func, args, kwargs, tree_map(_to_device, result))

    def _count(self, name: str, args: Any, kwargs: Any, tensors: list[Tensor], device: torch.device | None) -> None:
        if name in READ or (name == "repeat_interleave" and kwargs.get("output_size") is None and len(args) < 3):
            self.waits.of_results[name] += 1
        if name in INDEXING:
            indices = [index for index in args[1] if index is not None]
            masks = [index for index in indices if index.dtype in (torch.bool, torch.uint8)]
            if masks and not (name.startswith(("index_put", "_index_put")) and args[2].numel() == 1):  # masked_fill
                self.waits.of_results["index by a mask"] += 1
            if any(not isinstance(index, SimulatedTensor) for index in indices):
                self.waits.of_copies["indices"] += 1
        if name in COPYING:
            source, target = (args[1], args[0]) if name == "copy_" else (args[0], None)
            to_cpu = device == torch.device("cpu") if target is None else not isinstance(target, SimulatedTensor)
            if to_cpu:
                self.waits.of_results["copy to the CPU"] += 1
            elif not isinstance(source, SimulatedTensor):
                at_once = kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2])
                self.waits.of_copies["to the device"] += not at_once


def _refuse_mixed(name: str, args: Any, tensors: list[Tensor], kwargs: Any) -> None:
    """RuntimeError where a GPU would refuse tensors of two devices, or a generator of another device."""
    if kwargs.get("generator") is not None:
        raise RuntimeError(f"{name}: expected a generator of the device, but found one of the CPU")
    if name in COPYING:
        return
    others = [tensor for tensor in tensors if not isinstance(tensor, SimulatedTensor)]
    if name in INDEXING:
        if not isinstance(args[0], SimulatedTensor):
            raise RuntimeError(f"{name}: indices should be on the CPU, as the indexed tensor is")
        others = [args[2]] if len(args) > 2 and not isinstance(args[2], SimulatedTensor) else []  # values to put
    wrong = [tensor for tensor in others if tensor.dim() > 0 or name in JOINING]
    if wrong and len(others) < len(tensors):
        shape = tuple(wrong[0].shape)
        raise RuntimeError(f"{name}: expected all tensors on the same device, but that of shape {shape} is on the CPU")


def _to_cpu(value: Any) -> Any:
    return value.on_cpu if isinstance(value, SimulatedTensor) else value


def _to_device(value: Any) -> Any:
    return SimulatedTensor(value) if isinstance(value, Tensor) and not isinstance(value, SimulatedTensor) else value


@contextlib.contextmanager
def simulated_device() -> Iterator[Waits]:
    """The device `DEVICE` exists in this block; yields what the CPU has waited for."""
    waits, load, make = Waits(), torch.load, torch.tensor

    def load_to(*args: Any, map_location: Any = None, **kwargs: Any) -> Any:
        if map_location is None or torch.device(map_location) != DEVICE:
            return load(*args, map_location=map_location, **kwargs)
        loaded = load(*args, map_location="cpu", **kwargs)
        return tree_map(lambda value: value.to(DEVICE) if isinstance(value, Tensor) else value, loaded)

    class Autocast(torch.autocast):
        def __init__(self, device_type: str, *args: Any, **kwargs: Any):
            super().__init__(_known(device_type), *args, **kwargs)

    def tensor_on(data: Any, *, device: Any = None, **kwargs: Any) -> Tensor:
        made = make(data, device="cpu" if device == DEVICE or device == DEVICE.type else device, **kwargs)
        return made.to(device) if device is not None else made

    of_device = {name: getattr(torch, name) for name in ("is_autocast_enabled", "get_autocast_dtype")}
    with contextlib.ExitStack() as stack:
        for name, function in of_device.items():
            stack.enter_context(mock.patch.object(torch, name, lambda kind, of=function: of(_known(kind))))
        stack.enter_context(mock.patch.object(torch, "load", load_to))
        stack.enter_context(mock.patch.object(torch, "tensor", tensor_on))
        stack.enter_context(mock.patch.object(torch, "autocast", Autocast))
        stack.enter_context(mock.patch.object(torch.inference_mode, "__enter__", _enter_no_grad))
        stack.enter_context(mock.patch.object(torch.inference_mode, "__exit__", _leave_no_grad))
        stack.enter_context(SimulatedDevice(waits))
        yield waits


def _enter_no_grad(context: Any) -> None:
    context.no_grad = torch.no_grad()
    context.no_grad.__enter__()


def _leave_no_grad(context: Any, *error: Any) -> None:
    context.no_grad.__exit__(*error)


def _known(device_type: str) -> str:
    """A type of device that autocast knows."""
    return "cpu" if device_type == DEVICE.type else device_type
