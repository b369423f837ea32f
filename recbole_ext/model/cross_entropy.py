"""The cross entropy of a softmax over all items, without the matrix of all scores.

The scores of M targets and V items are M V numbers, often more than everything else that a training step stores. Here a
few targets at a time are scored, and their gradients follow at once, while the scores are still in the cache. On a CPU
this also takes less than half the time.

M targets, H hidden, V items.
"""

from typing import Any

import torch
from torch import Tensor

CACHED_SCORES = 2**18  # scores computed at once for each CPU thread: 1 MiB in float32
LEAST_TARGETS = 32  # computed at once, however many items there are: fewer would not keep a CPU busy
GPU_SCORES = 2**27  # scores computed at once on a GPU: 512 MiB in float32


def cross_entropy_over_items(hidden: Tensor, table: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    """Mean cross entropy of a softmax over all rows of a table. Gradients of gradients are not supported.

    Args:
        hidden: [M, H].
        table: item vectors [V, H].
        bias: [V], or `None`.
        target: index of the right row, [M].

    Returns:
        a scalar, in float32 or better.
    """
    device = hidden.device.type
    if torch.is_autocast_enabled(device) and hidden.dtype != torch.float64:  # which autocast leaves as it is
        dtype = torch.get_autocast_dtype(device)
        hidden, table = hidden.to(dtype), table.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    with torch.autocast(device, enabled=False):
        return _CrossEntropy.apply(hidden, table, bias, target)


def targets_at_once(items: int, device: torch.device) -> int:
    """How many targets are scored at once."""
    if device.type != "cpu":
        return max(GPU_SCORES // items, 1)
    return max(CACHED_SCORES * torch.get_num_threads() // items, LEAST_TARGETS)


class _CrossEntropy(torch.autograd.Function):
    """The gradients are computed with the loss and kept; `backward` only scales them."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, table: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
        exact = torch.promote_types(hidden.dtype, torch.float32)
        # float16 would round small probabilities to 0 before the scaler of gradients has a say
        product = exact if hidden.dtype == torch.float16 else hidden.dtype
        needs_hidden, needs_table, needs_bias, _ = ctx.needs_input_grad
        of_hidden = torch.empty_like(hidden, dtype=product) if needs_hidden else None
        of_table = torch.zeros_like(table, dtype=exact) if needs_table else None
        of_bias = torch.zeros(len(table), dtype=exact, device=table.device) if needs_bias else None
        total = torch.zeros((), dtype=exact, device=hidden.device)
        size, weights = targets_at_once(len(table), hidden.device), table.to(product)
        for begin in range(0, len(hidden), size):
            rows = slice(begin, begin + size)
            vectors, right = hidden[rows], target[rows].unsqueeze(1)
            scores = vectors @ table.T if bias is None else torch.addmm(bias, vectors, table.T)
            log_probability = scores.to(exact).log_softmax(1)
            total -= log_probability.gather(1, right).sum()
            if not (needs_hidden or needs_table or needs_bias):
                continue
            # the gradient of a target's loss by its scores: the probabilities, less 1 at the target
            of_scores = log_probability.exp_()
            of_scores.scatter_add_(1, right, of_scores.new_full(right.shape, -1.0))
            if of_bias is not None:
                of_bias += of_scores.sum(0)
            of_scores = of_scores.to(product)
            if of_hidden is not None:
                of_hidden[rows] = of_scores @ weights
            if of_table is not None and of_table.dtype == product:
                of_table.addmm_(of_scores.T, vectors.to(product))
            elif of_table is not None:
                of_table += of_scores.T @ vectors
        ctx.save_for_backward(of_hidden, of_table, of_bias)
        ctx.dtypes = hidden.dtype, table.dtype, None if bias is None else bias.dtype
        ctx.targets = len(hidden)
        return total / len(hidden)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_loss: Tensor) -> tuple[Tensor | None, ...]:
        scale = of_loss / max(ctx.targets, 1)  # without targets the loss is not a number, but the gradient is 0
        gradients = (
            None if gradient is None else (gradient * scale).to(dtype)
            for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        )
        return *gradients, None
