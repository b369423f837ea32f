"""Temporal kernels of MEANTIME (paper, section 3.2).

A relative kernel turns the gap D = (t_i - t_j) / tau of two positions into features phi(D), eq. 5 to 7. Its head adds
a_i . phi(D_ij) to the attention logits, with a vector a_i for each query position. The features of all pairs would be a
[B, T, T, h] tensor, which is never made: `SinPhases` splits the product by angle addition, and `GapTable` tabulates it
and interpolates. Both agree with the formula to float32 rounding.

B batch, R query positions, T positions, h features of a kernel, G grid points.
"""

import math
import os
from typing import Any

import torch
from torch import Tensor, nn

from recbole_ext.errors import InputError

DAY = 86400.0  # seconds
MAX_DAYS = 73050  # two centuries
LAST_DAY = 2**18  # since 1970, in the year 2687: later days mean a wrong unit, e.g. milliseconds read as seconds
GRID = 512
LONGEST_GAP = 2.0**32  # seconds (136 years); longer gaps count as this one


def frequencies(count: int, freq: float) -> Tensor:
    """w_c = freq^(-c/h) for c = 0..h-1, float64 [h] (paper, eq. 5 to 7)."""
    return float(freq) ** (-torch.arange(count, dtype=torch.float64) / count)


def log_features(gap: Tensor, w: Tensor) -> Tensor:
    """log(1 + |D| w_c): [...] -> [..., h]."""
    return torch.log1p(gap.unsqueeze(-1) * w)


def exp_features(gap: Tensor, w: Tensor) -> Tensor:
    """exp(-|D| w_c): [...] -> [..., h]."""
    return torch.exp(-gap.unsqueeze(-1) * w)


TABULATED = {"exp": exp_features, "log": log_features}


def as_bits(constant: Tensor) -> Tensor:
    """A float64 constant as integers, which `model.half()` does not round; `view(torch.float64)` reads it."""
    return constant.view(torch.int64)


class SinPhases(nn.Module):
    """The sin kernel, phi(D) = [sin(w D), cos(w D)] with the h/2 even frequencies, as a product of two vectors.

    sin(w(t_i - t_j)) and cos(w(t_i - t_j)) are sums of products of sines and cosines of w t_i and w t_j, so
    a_i . phi(D_ij) = rotate(a_i) . [cos w t_j, sin w t_j]. Phases reach 1e8 radians, so they are computed in float64;
    only their sines and cosines are rounded.

    Args:
        hidden: h, even.
        freq: base of the frequencies.

    Raises:
        ValueError: h is odd.
    """

    bits: Tensor

    def __init__(self, hidden: int, freq: float):
        super().__init__()
        if hidden % 2:
            raise ValueError(f"hidden_size is {hidden}; the sin kernel needs an even number.")
        self.register_buffer("bits", as_bits(frequencies(hidden, freq)[::2].clone()), persistent=False)

    def forward(self, time: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Times [B, T] in units of tau, float64 -> their sines and cosines, [B, T, h/2] each."""
        phase = time.unsqueeze(-1) * self.bits.view(torch.float64)
        return phase.sin().to(dtype), phase.cos().to(dtype)

    @staticmethod
    def rotate(a: Tensor, sin: Tensor, cos: Tensor) -> Tensor:
        """Coefficients a [B, R, h] of phi, with the sines and cosines of the queries' times, -> [B, R, h]."""
        a_sin, a_cos = a.chunk(2, dim=-1)
        return torch.cat([a_sin * sin + a_cos * cos, a_cos * sin - a_sin * cos], dim=-1)


class GapTable(nn.Module):
    """The exp and log kernels: their logit a_i . phi(D) is a smooth function of u = log(1 + |D|).

    The logit is tabulated at GRID equal steps of u, from one step below 0 to one above the longest gap, and read by
    four-point Lagrange interpolation. The grid depends on tau only, so a history's scores do not depend on its batch.

    Args:
        kernels: names among `TABULATED`.
        hidden: h, features of a kernel.
        freq: base of the frequencies.
        tau: seconds in a gap of 1.
        in_triton: whether GPUs read the table by `gap_kernel`.
    """

    def __init__(self, kernels: list[str], hidden: int, freq: float, tau: float, in_triton: bool = False):
        super().__init__()
        self.in_triton = in_triton
        self.longest = math.log1p(LONGEST_GAP / tau)
        self.step = self.longest / (GRID - 2)
        u = torch.arange(-1, GRID + 1, dtype=torch.float64) * self.step
        w = frequencies(hidden, freq)
        for name in kernels:
            table = TABULATED[name](torch.expm1(u), w).T.contiguous()  # [h, G+2]
            self.register_buffer(name, as_bits(table), persistent=False)

    def locate(self, query_time: Tensor, time: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """The table cell of each gap, once per batch for all layers and both kernels.

        Args:
            query_time: [B, R] and time: [B, T], float64, in units of tau.
            dtype: of the weights, float32 at least.

        Returns:
            cell: grid point to the left of each gap, int64 [B, R, T].
            weights: of the four nearest grid points, [4, B, R, T].
            For `gap_kernel`: positions in the table instead, [B, R, T], and `None`.
        """
        dtype = torch.promote_types(dtype, torch.float32)
        gap = (query_time.unsqueeze(-1) - time.unsqueeze(-2)).abs_().to(dtype)
        position = gap.log1p_().clamp_(max=self.longest).div_(self.step)
        if self.in_triton and (position.is_cuda or os.environ.get("TRITON_INTERPRET") == "1"):
            return position, None
        cell = position.to(torch.int64).clamp_(max=GRID - 2)
        x = position.sub_(cell)
        left, right, far = x + 1, x - 1, x - 2
        inner, outer = left * far, x * right
        weights = torch.stack([outer * far / -6, inner * right / 2, inner * x / -2, outer * left / 6])
        return cell, weights

    def forward(self, name: str, a: Tensor, cell: Tensor, weights: Tensor | None) -> Tensor:
        """Logits a_i . phi(D_ij) of the kernel `name`: a [B, R, h], and what `locate` returns, -> [B, R, T]."""
        dtype = cell.dtype if weights is None else weights.dtype
        with torch.autocast(a.device.type, enabled=False):
            table = a.to(dtype) @ getattr(self, name).view(torch.float64).to(dtype)  # [B, R, G+2]
        if weights is None:
            return _triton_kernel().ReadTable.apply(table, cell)
        return _ReadTable.apply(table, cell, weights)


def _triton_kernel() -> Any:
    """The module `gap_kernel`, which imports Triton: CPU builds of torch come without it.

    Raises:
        InputError: Triton is not installed.
    """
    try:
        from recbole_ext.model.meantime import gap_kernel
    except ImportError as error:
        raise InputError(f"gap_kernel is triton, but {error.name} is not installed; set it to torch.") from error
    return gap_kernel


class _ReadTable(torch.autograd.Function):
    """Interpolate each row of a table [B, R, G+2] at the row's cells; only cells and weights are stored."""

    @staticmethod
    def forward(ctx, table: Tensor, cell: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(cell, weights)
        ctx.shape = table.shape
        width = table.shape[-1] - 3
        out = table.narrow(-1, 0, width).gather(-1, cell).mul_(weights[0])
        for tap in (1, 2, 3):
            out.addcmul_(table.narrow(-1, tap, width).gather(-1, cell), weights[tap])
        return out

    @staticmethod
    def backward(ctx, grad: Tensor):
        cell, weights = ctx.saved_tensors
        table = grad.new_zeros(ctx.shape)
        width = ctx.shape[-1] - 3
        for tap in range(4):
            table.narrow(-1, tap, width).scatter_add_(-1, cell, grad * weights[tap])
        return table, None, None


def day_range(dataset: Any, time_field: str) -> tuple[float, int]:
    """The days of the day kernel.

    Args:
        dataset: an event log (times in seconds since `time_origin`), or RecBole's (times in seconds since 1970).
        time_field: name of the column of times.

    Returns:
        seconds from the start of the first day (UTC) to time 0 of the data, and days up to the last event.

    Raises:
        InputError: there are no times; or they span more than two centuries or lie far in the future, which a wrong
            `time_unit` causes.
    """
    if time_field not in dataset.inter_feat:
        raise InputError(f"the day kernel needs the column '{time_field}' (TIME_FIELD); take it out of unused_col.")
    times = dataset.inter_feat[time_field]
    origin = getattr(dataset, "time_origin", None)
    first = math.floor((float(times.min()) if origin is None else origin) / DAY) * DAY
    offset = (0.0 if origin is None else origin) - first
    days = math.floor((float(times.max()) + offset) / DAY) + 1 if len(times) else 1
    if days > MAX_DAYS or first / DAY + days > LAST_DAY:
        raise InputError(
            f"column '{time_field}' spans {days} days up to the year {1970 + (first / DAY + days) / 365.25:.0f}; "
            f"set time_unit to the unit of the file (ms for milliseconds)."
        )
    return offset, max(days, 1)
