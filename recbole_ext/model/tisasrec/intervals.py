"""Time intervals between events, and products with their embeddings (paper, sections 3.2 and 3.4).

The embeddings of all pairs of events would be a [B, T, T, H] tensor. It is never made: the product of a query with the
embedding of an interval is read from the products with all S embeddings, and the sum of embeddings weighted by the
attention is computed from the sum of the weights of each interval. Both intermediate results are [B, n, R, S], and none
of them is stored for the gradient.

B batch, R query positions, T positions, n heads, d size of a head, k largest interval, S intervals with an embedding.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

MICROSECONDS = 1e6  # in a second; times are rounded to them, so that quotients of intervals are exact


def count_intervals(time: Tensor, unit: float | None, limit: int) -> Tensor:
    """The time between each two events as a number of units, rounded down and at most k.

    Args:
        time: of the events, seconds in ascending order, that of the last event in the padding on the right. [B, T]
        unit: seconds, or `None` for the smallest positive interval of each row. Where all events of a row have the
            same time there is none, and all intervals are 0.
        limit: k.

    Returns:
        int64 [B, T, T].
    """
    time = ((time.to(torch.float64) - time[:, :1]) * MICROSECONDS).round()
    units: Tensor | float
    if unit is None:
        steps = time.diff(dim=1, prepend=torch.full_like(time[:, :1], -torch.inf))
        units = torch.where(steps > 0, steps, torch.inf).amin(1).view(-1, 1, 1)
    else:
        units = unit * MICROSECONDS
    between = (time.unsqueeze(2) - time.unsqueeze(1)).abs_()
    return between.div_(units).floor_().clamp_(max=limit).to(torch.int64)


def used_intervals(interval: Tensor, size: int, may_wait: bool = True) -> tuple[Tensor, Tensor]:
    """Number the intervals of a batch without gaps, so that others need no products.

    Args:
        interval: int64 [B, T, T], in [0, size).
        may_wait: whether to wait for a GPU; if not, all `size` intervals count as used there.

    Returns:
        the S intervals of the batch, ascending [S]; and the position of each interval among them, [B, T, T].
    """
    stays = not may_wait and interval.device.type != "cpu"
    if stays or torch.compiler.is_compiling():  # shapes of a traced graph do not depend on values
        return torch.arange(size, device=interval.device), interval
    is_used = torch.zeros(size, dtype=torch.bool, device=interval.device).index_fill_(0, interval.flatten(), True)
    return is_used.nonzero().squeeze(1), (is_used.cumsum(0) - 1)[interval]


def interval_logits(query: Tensor, table: Tensor, interval: Tensor) -> Tensor:
    """The products of queries with the embeddings of their intervals.

    Args:
        query: [B, n, R, d].
        table: embeddings of the intervals, [n, S, d].
        interval: rows of the table, [B, R, T].

    Returns:
        [B, n, R, T].
    """
    with torch.autocast(query.device.type, enabled=False):
        return _Logits.apply(query, table.to(query.dtype), interval)


def sum_of_intervals(weights: Tensor, table: Tensor, interval: Tensor) -> Tensor:
    """The sums of the embeddings of intervals, with these weights.

    Args:
        weights: [B, n, R, T].
        table, interval: as for `interval_logits`.

    Returns:
        [B, n, R, d].
    """
    with torch.autocast(weights.device.type, enabled=False):
        return _WeightedSum.apply(weights, table.to(weights.dtype), interval)


class _Logits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, table: Tensor, interval: Tensor) -> Tensor:
        ctx.save_for_backward(query, table, interval)
        return _read(query @ table.mT, interval)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, table, interval = ctx.saved_tensors
        sums = _add_up(gradients[0], interval, table.shape[1])
        return sums @ table, _over_batch(sums, query), None


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, table: Tensor, interval: Tensor) -> Tensor:
        ctx.save_for_backward(weights, table, interval)
        return _add_up(weights, interval, table.shape[1]) @ table

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weights, table, interval = ctx.saved_tensors
        sums = _add_up(weights, interval, table.shape[1])
        return _read(gradients[0] @ table.mT, interval), _over_batch(sums, gradients[0]), None


def _read(values: Tensor, interval: Tensor) -> Tensor:
    """Values [B, n, R, S] of all intervals at those of each pair: [B, n, R, T]."""
    return values.gather(-1, interval.unsqueeze(1).expand(-1, values.shape[1], -1, -1))


def _add_up(values: Tensor, interval: Tensor, size: int) -> Tensor:
    """The sums of the values [B, n, R, T] of pairs with the same interval: [B, n, R, S]."""
    sums = values.new_zeros(*values.shape[:-1], size)
    return sums.scatter_add_(-1, interval.unsqueeze(1).expand_as(values), values)


def _over_batch(sums: Tensor, vectors: Tensor) -> Tensor:
    """[B, n, R, S] and [B, n, R, d] -> [n, S, d]."""
    return torch.einsum("bnrs,bnrd->nsd", sums, vectors)
