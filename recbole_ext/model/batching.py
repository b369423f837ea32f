"""Less work for the same batch: rows of like length together, equal rows once.

While torch traces a graph (`torch.export`), which may depend on the shapes of a batch but not on its values, every row
is a row of its own and uses all slots that there are: the same scores.
"""

from collections.abc import Callable, Iterator, Sequence

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
        rows of the batch, [b], and the slots that the longest of them uses; longest first. An empty batch is one empty
        part, so that its result has the right shape.
    """
    order = length.argsort(descending=True, stable=True)
    sizes = length[order].tolist()
    if not sizes:
        yield order, 1
    most = (PAIRS_AT_ONCE if pairwise else SLOTS_AT_ONCE)[length.device.type == "cpu"]
    begin = 0
    while begin < len(sizes):
        count = max(1, most // sizes[begin] ** (2 if pairwise else 1))
        yield order[begin : begin + count], sizes[begin]
        begin += count


def longest(length: Tensor, width: int) -> int:
    """Slots that the longest row of a batch uses, of the `width` that its lists have; 0 for an empty batch."""
    if torch.compiler.is_compiling():
        return width
    return int(length.max()) if len(length) else 0


def in_parts(length: Tensor, compute: Callable[[Tensor, int | None], Tensor], pairwise: bool = True) -> Tensor:
    """What `compute` gives for each part of a batch, with the rows back in the batch's order: [B, ...].

    Args:
        length, pairwise: of `alike`.
        compute: called with the rows of a part, [b], and its slots, or `None` for all; returns [b, ...].
    """
    if torch.compiler.is_compiling():
        return compute(torch.arange(length.shape[0], device=length.device), None)
    parts = list(alike(length, pairwise))
    rows = torch.cat([compute(part, slots) for part, slots in parts])
    return rows[torch.cat([part for part, _ in parts]).argsort()]


def distinct(*columns: Tensor) -> tuple[Tensor, Tensor]:
    """Find runs of equal rows: sampled evaluation asks about one history with a hundred items in a row.

    Args:
        columns: tensors [B, ...]; rows are equal if they are in all of them.

    Returns:
        the first row of each run, [D], and the run of each row, [B].
    """
    if torch.compiler.is_compiling():
        every = torch.arange(columns[0].shape[0], device=columns[0].device)
        return every, every
    new = torch.zeros(len(columns[0]), dtype=torch.bool, device=columns[0].device)
    new[:1] = True
    for column in columns:
        changed = column[1:] != column[:-1]
        new[1:] |= changed.flatten(1).any(1) if column.dim() > 1 else changed
    return new.nonzero().squeeze(1), new.cumsum(0) - 1


def groups(keys: Sequence[Tensor], *columns: Tensor) -> tuple[Tensor, Tensor]:
    """Find equal rows anywhere in a batch: negatives of a training batch repeat the histories of its positives.

    Groups of very unlike sizes are not worth it: every row is then a group of its own.

    Args:
        keys: numbers [B] that are the same for equal rows, and seldom for others.
        columns: tensors [B, ...]; rows are equal if they are in all of them.

    Returns:
        the rows of each of D groups, [D, C], filled up with its first one; and the place of each row in that, [B],
        counted along the groups.
    """
    every = torch.arange(len(columns[0]), device=columns[0].device)
    if not len(every):
        return every.unsqueeze(1), every
    order = every
    for key in reversed(keys):
        order = order[key[order].argsort(stable=True)]
    first, run = distinct(*(column[order] for column in columns))
    most = int(run.bincount().max())
    if most * len(first) > 2 * len(every):
        return every.unsqueeze(1), every
    place = run * most + every - first[run]
    rows = order[first].unsqueeze(1).repeat(1, most)
    rows.view(-1)[place] = order
    return rows, torch.empty_like(place).index_copy_(0, order, place)
