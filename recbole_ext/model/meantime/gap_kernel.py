"""The reading of `GapTable` as one Triton kernel, instead of four `gather` operations (`gap_kernel: triton`).

A pair of positions then needs one number, its position in the table, where the plain path keeps a cell and four
weights: 4 bytes instead of 24 in float32. Dropout and softmax stay outside, so all settings can use it. On a CPU,
Triton's interpreter can run it, for tests (`TRITON_INTERPRET=1`).

N rows of queries, T keys, G + 2 grid points.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 256  # keys of a program


@triton.jit
def _locate(position, width, points, BLOCK: tl.constexpr):
    """The pairs of this program, and where `GapTable.locate` finds them in the table.

    Returns places of the pairs [BLOCK] and which exist, places of the grid points to their left, and the weights of the
    four nearest points.
    """
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < width
    pairs = row * width + columns
    p = tl.load(position + pairs, mask=mask, other=0.0)
    cell = tl.minimum(tl.maximum(p.to(tl.int32), 0), points - 4)  # a time that is no number reads no other memory
    x = p - cell
    left, right, far = x + 1, x - 1, x - 2
    inner, outer = left * far, x * right
    return pairs, mask, row * points + cell, outer * far / -6, inner * right / 2, inner * x / -2, outer * left / 6


@triton.jit
def _read(table, position, out, width, points, BLOCK: tl.constexpr):
    pairs, mask, cell, first, second, third, fourth = _locate(position, width, points, BLOCK)
    grid = table + cell
    value = tl.load(grid, mask=mask, other=0.0) * first
    value += tl.load(grid + 1, mask=mask, other=0.0) * second
    value += tl.load(grid + 2, mask=mask, other=0.0) * third
    value += tl.load(grid + 3, mask=mask, other=0.0) * fourth
    tl.store(out + pairs, value, mask=mask)


@triton.jit
def _add_gradient(table, position, gradient, width, points, BLOCK: tl.constexpr):
    pairs, mask, cell, first, second, third, fourth = _locate(position, width, points, BLOCK)
    g = tl.load(gradient + pairs, mask=mask, other=0.0)
    grid = table + cell
    tl.atomic_add(grid, g * first, mask=mask)
    tl.atomic_add(grid + 1, g * second, mask=mask)
    tl.atomic_add(grid + 2, g * third, mask=mask)
    tl.atomic_add(grid + 3, g * fourth, mask=mask)


class ReadTable(torch.autograd.Function):
    """Interpolate each row of a table [..., G+2] at the row's positions [..., T]; only positions are stored.

    The order of additions to a gradient is not fixed, as in the plain path on a GPU.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, position: Tensor) -> Tensor:
        table, position = table.contiguous(), position.contiguous()
        ctx.save_for_backward(position)
        ctx.shape = table.shape
        out = torch.empty_like(position)
        _launch(_read, table, position, out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (position,) = ctx.saved_tensors
        table = gradient.new_zeros(ctx.shape)
        _launch(_add_gradient, table, position, gradient.contiguous())
        return table, None


def _launch(kernel: Any, table: Tensor, position: Tensor, values: Tensor) -> None:
    """Run a kernel on all rows: `values` [..., T] are written, or are gradients that are added to the table."""
    points, width = table.shape[-1], position.shape[-1]
    if position.numel():
        grid = (position.numel() // width, triton.cdiv(width, BLOCK))
        kernel[grid](table, position, values, width, points, BLOCK=BLOCK)
