"""Layers that the models share: feed-forward, dropout, heads. The fast forms for CPUs are at the end.

B batch, T positions, R query positions, H hidden size, n heads, d = H/n, V items.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from recbole_ext.errors import InputError

INNER_AT_ONCE = 2**18  # inner features for each thread: 1 MiB in float32
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "swish": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


def check_heads(hidden_size: int, n_heads: int) -> None:
    """Raise `InputError` if the heads cannot share the hidden features equally."""
    if hidden_size % n_heads:
        raise InputError(f"hidden_size is {hidden_size}, which n_heads {n_heads} does not divide.")


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, T, H] -> [B, n, T, d]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """[B, n, T, d] -> [B, T, H]."""
    return x.transpose(1, 2).flatten(2)


def gather_positions(x: Tensor, positions: Tensor) -> Tensor:
    """x [B, T, ...] at positions [B, R] -> [B, R, ...]; an x that is the same at all positions stays as it is."""
    if x.shape[0] != positions.shape[0] or x.shape[1] == 1:
        return x
    index = positions.view(*positions.shape, *[1] * (x.dim() - 2)).expand(*positions.shape, *x.shape[2:])
    return x.gather(1, index)


class Dropout(nn.Module):
    """Zero numbers with probability p and divide the others by 1 - p.

    Args:
        p: probability, in [0, 1). On CPUs it is rounded to a multiple of 2^-16.

    Raises:
        ValueError: p is out of range.
    """

    def __init__(self, p: float):
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout probability is {p}; it should lie in [0, 1).")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        return F.dropout(x, self.p) if x.device.type != "cpu" else _dropout_on_cpu(x, self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class FeedForward(nn.Module):
    """Linear - activation - dropout - Linear, on the last dimension.

    Args:
        hidden: H, input and output features.
        inner: I, inner features.
        dropout: probability, on the inner features.
        activation: one of `ACTIVATIONS`.
    """

    def __init__(self, hidden: int, inner: int, dropout: float, activation: str = "gelu"):
        super().__init__()
        self.inner, self.outer = nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        self.dropout, self.activation = Dropout(dropout), ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        if not self._in_chunks(x):
            return self.outer(self.dropout(self.activation(self.inner(x))))
        weights = self.inner.weight, self.inner.bias, self.outer.weight, self.outer.bias
        rows: Tensor = _InChunks.apply(self.activation, torch.is_grad_enabled(), x.reshape(-1, x.shape[-1]), *weights)
        return rows.view_as(x)

    def _in_chunks(self, x: Tensor) -> bool:
        exact = x.dtype in (torch.float32, torch.float64)  # others would lose digits when chunk gradients are added
        plain = exact and x.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
        return plain and not (self.training and self.dropout.p > 0) and not torch.compiler.is_compiling()


def load_item_vectors(table: nn.Embedding, size_key: str, config, dataset) -> None:
    """Initialise an item table with the pretrained vectors of `preload_weight`, if that key is set.

    Items without a vector, or with a vector of zeros, keep their initial values.

    Args:
        table: of items, [V or more, D]; row 0 is the padding.
        size_key: the key that sets D, for the message.
        config: of the run.
        dataset: RecBole's, which has the vectors, [V, D].

    Raises:
        InputError: the vectors have another size.
    """
    for column in (config["preload_weight"] or ()) if "preload_weight" in config else ():
        vectors = torch.as_tensor(dataset.get_preload_weight(column), dtype=table.weight.dtype)
        if vectors.shape[1:] != table.weight.shape[1:]:
            size = vectors[0].numel()
            raise InputError(
                f"{size_key} is {table.embedding_dim}, but the vectors that preload_weight names have {size} numbers; "
                f"set {size_key} to {size}."
            )
        items = vectors.any(dim=1).nonzero().flatten()
        items = items[items > 0]
        with torch.no_grad():
            table.weight[items] = vectors[items].to(table.weight.device)


@contextlib.contextmanager
def recorded_inputs(modules: Iterable[nn.Module]) -> Iterator[list[tuple[Any, tuple]]]:
    """Record the calls of some modules: pairs of the module and its positional arguments, in order."""
    calls: list[tuple[Any, tuple]] = []
    handles = [module.register_forward_pre_hook(lambda *call: calls.append(call)) for module in modules]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def check_times(dataset: Any, name: str, model: str) -> None:
    """Raise `InputError` if the histories of a data set have no times, as in files with histories of their own."""
    exact = hasattr(dataset, "time_origin")  # RecBole's own data sets do not list history columns here
    if exact and name not in getattr(dataset, "field2type", {name: ...}):
        raise InputError(f"{model} needs the times of histories, but no column '{name}' is loaded; add it.")


# -------------------------------------------------------------------- fast forms for CPUs


def _dropout_on_cpu(x: Tensor, p: float) -> Tensor:
    """Dropout with 16 random bits for each number: 7 times faster than one random draw for each."""
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)
    dropped = min(round(p * 2**16), 2**16 - 1)  # of the 2^16 values of 16 bits
    keep = (bits >= dropped - 2**15).to(x.dtype)
    return x * keep.mul_(1 / (1 - p))


class _InChunks(torch.autograd.Function):
    """`FeedForward` without dropout on rows [N, H], in chunks of rows.

    A chunk passes through both products before the next one, forward and backward: 1.2 to 2 times faster than whole
    products, whose inner features do not stay in the cache. Only the features before the activation are stored, [N, I].
    Second derivatives are not supported.
    """

    @staticmethod
    def forward(
        ctx: Any, activation: Callable, keep: bool, x: Tensor,
        inner: Tensor, inner_bias: Tensor, outer: Tensor, outer_bias: Tensor,
    ) -> Tensor:  # fmt: skip
        before = x.new_empty(len(x) if keep else 0, len(inner))
        y = torch.empty_like(x)
        for chunk in _chunks(len(x), len(inner)):
            features = torch.addmm(inner_bias, x[chunk], inner.T)
            if keep:
                before[chunk] = features
            torch.addmm(outer_bias, activation(features), outer.T, out=y[chunk])
        ctx.activation = activation
        ctx.save_for_backward(x, before, inner, outer)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, before, inner, outer = ctx.saved_tensors
        (grad_y,) = gradients
        grad_x, grad_inner, grad_outer = torch.empty_like(x), torch.zeros_like(inner), torch.zeros_like(outer)
        grad_inner_bias = x.new_zeros(len(inner))
        for chunk in _chunks(len(x), len(inner)):
            features = before[chunk].detach().requires_grad_()
            with torch.enable_grad():
                activated = ctx.activation(features)
            (grad_features,) = torch.autograd.grad(activated, features, grad_y[chunk] @ outer)
            grad_outer.addmm_(grad_y[chunk].T, activated.detach())
            grad_inner.addmm_(grad_features.T, x[chunk])
            grad_inner_bias += grad_features.sum(0)
            torch.mm(grad_features, inner, out=grad_x[chunk])
        return None, None, grad_x, grad_inner, grad_inner_bias, grad_outer, grad_y.sum(0)


def _chunks(rows: int, inner: int) -> Iterator[slice]:
    size = max(1, INNER_AT_ONCE // inner) * torch.get_num_threads()
    return (slice(begin, begin + size) for begin in range(0, rows, size))
