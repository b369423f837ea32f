"""Less work for the same batch: rows of like length together, equal rows once."""

from collections.abc import Iterator

import torch
from torch import Tensor

PAIRS_AT_ONCE = (2**24, 2**20)  # pairs of slots of a part of a batch, on accelerators and on CPUs


def alike(length: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Take a batch in parts of rows of like length, so that little is computed for padding and memory is bounded.

    Args:
        length: slots in use, [B].

    Yields:
        rows of the batch, [b], and the slots that the longest of them uses; longest first.
    """
    order = length.argsort(descending=True, stable=True)
    sizes = length[order].tolist()
    pairs = PAIRS_AT_ONCE[length.device.type == "cpu"]
    begin = 0
    while begin < len(sizes):
        count = max(1, pairs // sizes[begin] ** 2)
        yield order[begin : begin + count], sizes[begin]
        begin += count


def distinct(*columns: Tensor) -> tuple[Tensor, Tensor]:
    """Find runs of equal rows: sampled evaluation asks about one history with a hundred items in a row.

    Args:
        columns: tensors [B, ...]; rows are equal if they are in all of them.

    Returns:
        the first row of each run, [D], and the run of each row, [B].
    """
    changed = torch.zeros(len(columns[0]) - 1, dtype=torch.bool, device=columns[0].device)
    for column in columns:
        changed |= (column[1:] != column[:-1]).flatten(1).any(1) if column.dim() > 1 else column[1:] != column[:-1]
    new = torch.cat([changed.new_ones(1), changed])
    return new.nonzero().squeeze(1), new.cumsum(0) - 1
