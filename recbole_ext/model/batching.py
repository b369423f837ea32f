"""Less work for the same batch: rows of like length together, equal rows once."""

from collections.abc import Iterator

import torch
from torch import Tensor

# in a part of a batch, on accelerators and on CPUs; a CPU is fastest when a part stays in its cache
PAIRS_AT_ONCE = (2**24, 2**20)
SLOTS_AT_ONCE = (2**22, 3 * 2**12)


def alike(length: Tensor, pairwise: bool = True) -> Iterator[tuple[Tensor, int]]:
    """Take a batch in parts of rows of like length, so that little is computed for padding and memory is bounded.

    Args:
        length: slots in use, [B].
        pairwise: whether a row costs by its pairs of slots, or by its slots.

    Yields:
        rows of the batch, [b], and the slots that the longest of them uses; longest first.
    """
    order = length.argsort(descending=True, stable=True)
    sizes = length[order].tolist()
    most = (PAIRS_AT_ONCE if pairwise else SLOTS_AT_ONCE)[length.device.type == "cpu"]
    begin = 0
    while begin < len(sizes):
        count = max(1, most // sizes[begin] ** (2 if pairwise else 1))
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
