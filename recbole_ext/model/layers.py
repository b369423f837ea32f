"""Layers that the models share. B batch, L length, H hidden, V items."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from recbole_ext.errors import InputError

LOGITS_AT_ONCE = 2**27  # numbers; 512 MiB in float32


class Dropout(nn.Module):
    """Dropout with its mask from 16 random bits per number: on CPUs 7 times faster than one draw per number.

    Args:
        p: probability of zeroing a number, in [0, 1); rounded to a multiple of 2^-16.
    """

    def __init__(self, p: float):
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout probability is {p}; it should lie in [0, 1).")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        bits = words.view(torch.int16)[: x.numel()].view(x.shape)
        dropped = min(round(self.p * 2**16), 2**16 - 1)  # of the 2^16 values of 16 bits
        keep = (bits >= dropped - 2**15).to(x.dtype)
        return x * keep.mul_(1 / (1 - self.p))

    def extra_repr(self) -> str:
        return f"p={self.p}"


def cross_entropy_over_items(hidden: Tensor, table: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    """Mean cross entropy of a softmax over all items, without ever holding more than `LOGITS_AT_ONCE` logits.

    With more, the rows are taken in chunks whose logits are computed again for the gradient: the same value, memory
    that does not grow with the number of rows, for catalogues of millions.

    Args:
        hidden: [M, H].
        table: item vectors [V, H].
        bias: [V], or `None`.
        target: index of the right item, [M].

    Returns:
        The loss, a scalar in float32 or better.
    """

    def summed(rows: Tensor, answer: Tensor, table: Tensor, bias: Tensor | None) -> Tensor:
        return F.cross_entropy(F.linear(rows, table, bias), answer, reduction="sum")

    rows = max(1, LOGITS_AT_ONCE // len(table))
    if len(hidden) <= rows:
        return F.cross_entropy(F.linear(hidden, table, bias), target)
    parts = zip(hidden.split(rows), target.split(rows), strict=True)
    losses = [checkpoint(summed, part, answer, table, bias, use_reentrant=False) for part, answer in parts]
    return torch.stack(losses).sum() / len(hidden)


def load_item_vectors(table: nn.Embedding, size_key: str, config, dataset) -> None:
    """Begin with the pretrained item vectors that `preload_weight` names, if it names any.

    Items without a vector, or with one of zeros, and the rows behind those of items keep what they have.

    Args:
        table: of items, [V or more, D]; row 0 is the padding.
        size_key: the key that sets D, for the message.
        config: of the run.
        dataset: RecBole's, which has the vectors, [V, D].

    Raises:
        InputError: the vectors are of another size.
    """
    for column in (config["preload_weight"] or ()) if "preload_weight" in config else ():
        vectors = torch.as_tensor(dataset.get_preload_weight(column), dtype=table.weight.dtype)
        if vectors.shape[1:] != table.weight.shape[1:]:
            size = vectors[0].numel()
            raise InputError(
                f"{size_key} is {table.embedding_dim}, but the vectors that preload_weight names have {size} numbers; "
                f"set {size_key} to {size}."
            )
        given = vectors.any(dim=1).nonzero().flatten()
        given = given[given > 0]
        with torch.no_grad():
            table.weight[given] = vectors[given].to(table.weight.device)


@contextlib.contextmanager
def recorded_inputs(modules: Iterable[nn.Module]) -> Iterator[list[tuple[Any, tuple]]]:
    """Record each call of some modules: pairs of the module and its arguments, in order."""
    calls: list[tuple[Any, tuple]] = []
    handles = [module.register_forward_pre_hook(lambda *call: calls.append(call)) for module in modules]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def take(x: Tensor, rows: Tensor) -> Tensor:
    """The slots [B, R] of x [B, T, ...] -> [B, R, ...]; an x that is the same for all slots stays as it is."""
    if x.shape[0] != rows.shape[0] or x.shape[1] == 1:
        return x
    index = rows.view(*rows.shape, *[1] * (x.dim() - 2)).expand(*rows.shape, *x.shape[2:])
    return x.gather(1, index)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "swish": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}
INNER_AT_ONCE = 2**18  # inner features for each thread: 1 MiB in float32


class FeedForward(nn.Module):
    """Linear - activation - dropout - Linear, on the last dimension.

    On CPUs, without dropout, a part of the rows passes through both products before the next one does, forward and
    backward: 1.2 to 2 times faster than whole products, whose inner features leave the cache in between. The gradient
    of a gradient cannot be taken there.

    Args:
        hidden: H, features in and out.
        inner: I, features in between.
        dropout: probability, on the inner features.
        activation: one of `ACTIVATIONS`.
    """

    def __init__(self, hidden: int, inner: int, dropout: float, activation: str = "gelu"):
        super().__init__()
        self.inner, self.outer = nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        self.dropout, self.activation = Dropout(dropout), ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        if not self._in_parts(x):
            return self.outer(self.dropout(self.activation(self.inner(x))))
        weights = self.inner.weight, self.inner.bias, self.outer.weight, self.outer.bias
        rows: Tensor = _InParts.apply(self.activation, torch.is_grad_enabled(), x.reshape(-1, x.shape[-1]), *weights)
        return rows.view_as(x)

    def _in_parts(self, x: Tensor) -> bool:
        exact = x.dtype in (torch.float32, torch.float64)  # others would lose digits where gradients of parts are added
        plain = exact and x.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
        return plain and not (self.training and self.dropout.p > 0) and not torch.compiler.is_compiling()


class _InParts(torch.autograd.Function):
    """The layer on rows [N, H]; of the inner features, only those before the activation are kept, [N, I]."""

    @staticmethod
    def forward(
        ctx: Any, activation: Callable, keep: bool, x: Tensor,
        inner: Tensor, inner_bias: Tensor, outer: Tensor, outer_bias: Tensor,
    ) -> Tensor:  # fmt: skip
        before = x.new_empty(len(x) if keep else 0, len(inner))
        y = torch.empty_like(x)
        for part in _parts(len(x), len(inner)):
            features = torch.addmm(inner_bias, x[part], inner.T)
            if keep:
                before[part] = features
            torch.addmm(outer_bias, activation(features), outer.T, out=y[part])
        ctx.activation = activation
        ctx.save_for_backward(x, before, inner, outer)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, before, inner, outer = ctx.saved_tensors
        (of_y,) = gradients
        of_x, of_inner, of_outer = torch.empty_like(x), torch.zeros_like(inner), torch.zeros_like(outer)
        of_inner_bias = x.new_zeros(len(inner))
        for part in _parts(len(x), len(inner)):
            features = before[part].detach().requires_grad_()
            with torch.enable_grad():
                activated = ctx.activation(features)
            (of_features,) = torch.autograd.grad(activated, features, of_y[part] @ outer)
            of_outer.addmm_(of_y[part].T, activated.detach())
            of_inner.addmm_(of_features.T, x[part])
            of_inner_bias += of_features.sum(0)
            torch.mm(of_features, inner, out=of_x[part])
        return None, None, of_x, of_inner, of_inner_bias, of_outer, of_y.sum(0)


def _parts(rows: int, inner: int) -> Iterator[slice]:
    size = max(1, INNER_AT_ONCE // inner) * torch.get_num_threads()
    return (slice(begin, begin + size) for begin in range(0, rows, size))
