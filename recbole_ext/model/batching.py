"""Less work for the same result: rows of similar length together, equal rows once.

A graph that is traced (`torch.export`) may depend on the shapes of a batch but not on its values. While tracing, every
row therefore counts as different and as long as the padded lists. The results are the same.

B rows of a batch, T positions of its padded lists.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from recbole_ext.model.host_copies import on_host, with_copies

# Upper limits for one bucket, on accelerators and on CPUs. CPUs are fastest when a bucket fits into the cache.
MAX_PAIRS = (2**24, 2**20)
MAX_POSITIONS = (2**22, 3 * 2**12)


def newest_positions(length: Tensor, limit: int, slots: int, width: int) -> tuple[Tensor, Tensor]:
    """Where the newest events of right-padded histories are.

    Args:
        length: events of each history, [B].
        limit: largest number of events to use.
        slots: T, positions of the result.
        width: positions of the padded lists.

    Returns:
        for each position of the result, its position in the padded list, [B, T]; and which positions hold events,
        bool [B, T].
    """
    used = length.clamp(max=limit).unsqueeze(1)
    slot = torch.arange(slots, device=length.device)
    return (slot + length.unsqueeze(1) - used).clamp(max=width - 1), slot < used


def newest_events(
    items: Tensor, time: Tensor, length: Tensor, limit: int, free: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """The newest events of right-padded histories, without positions that no row of the batch uses.

    Args:
        items, time: of the events, oldest first, [B, L].
        length: events of each history, [B].
        limit: largest number of events to use.
        free: positions to add at the end.

    Returns:
        items [B, T], 0 in the padding; time, that of the last event in the padding, float64 [B, T]; and the events in
        use, [B].
    """
    used, width = clamped(length, limit), items.shape[1]
    index, is_event = newest_positions(length, limit, used_length(used, width) + free or 1, width)
    time = time.gather(1, index).to(torch.float64)
    last_time = time.gather(1, (used - 1).clamp(min=0).unsqueeze(1))
    return items.gather(1, index).masked_fill(~is_event, 0), torch.where(is_event, time, last_time), used


def clamped(length: Tensor, limit: int) -> Tensor:
    """Lengths, at most the limit; with a copy on the CPU, unless while tracing."""
    if not torch.compiler.is_compiling():
        on_host(length)
    return with_copies(lambda length: length.clamp(max=limit), length)


def used_length(length: Tensor, width: int) -> int:
    """The largest length in a batch, 0 for an empty batch; `width`, that of the padded lists, while tracing."""
    if torch.compiler.is_compiling():
        return width
    return int(on_host(length).max()) if len(length) else 0


def length_buckets(length: Tensor, pairwise: bool = True, table_width: int = 0) -> Iterator[tuple[Tensor, int]]:
    """Split a batch into buckets of similar length: little is computed for padding, and memory is bounded.

    Args:
        length: positions that each row uses, [B].
        pairwise: whether the cost of a row grows with pairs of positions, or with positions.
        table_width: numbers that a pairwise computation stores for each position, where these are more than T.

    Yields:
        row numbers of a bucket, [b], and the length of its longest row; longest bucket first. An empty batch yields one
        empty bucket, so that its result has the right shape. The numbers have a copy on the CPU.
    """
    lengths_on_host = on_host(length)
    order = with_copies(lambda length: length.argsort(descending=True, stable=True), length)
    lengths = lengths_on_host.sort(descending=True).values.tolist()
    if not lengths:
        yield order, 1
    limit = (MAX_PAIRS if pairwise else MAX_POSITIONS)[length.device.type == "cpu"]
    begin = 0
    while begin < len(lengths):
        for_each_position = max(lengths[begin], table_width) if pairwise else 1
        count = max(1, limit // (lengths[begin] * for_each_position))
        yield with_copies(lambda order, rows=slice(begin, begin + count): order[rows], order), lengths[begin]
        begin += count


def map_length_buckets(
    length: Tensor, compute: Callable[[Tensor, int | None], Tensor], pairwise: bool = True, table_width: int = 0
) -> Tensor:
    """The results of `compute` for each bucket, in the order of the batch: [B, ...].

    Args:
        length, pairwise, table_width: as for `length_buckets`.
        compute: called with the row numbers of a bucket, [b], and its length, or `None` for all positions; returns
            [b, ...].
    """
    if torch.compiler.is_compiling():
        return compute(torch.arange(length.shape[0], device=length.device), None)
    buckets = list(length_buckets(length, pairwise, table_width))
    results = torch.cat([compute(rows, slots) for rows, slots in buckets])
    return results[torch.cat([rows for rows, _ in buckets]).argsort()]


def map_used_positions(
    length: Tensor, compute: Callable[[Tensor, int], Tensor], *columns: Tensor, table_width: int = 0
) -> list[Tensor]:
    """The results of `compute` for each bucket, and some columns, at the M positions that rows use.

    Args:
        length, table_width: as for `length_buckets`.
        compute: called with the row numbers of a bucket, [b], and its length; returns [b, length, ...].
        columns: [B, T, ...] each.

    Returns:
        [M, ...] of the results, then of each column, in the same order.
    """
    parts = []
    for rows, width in length_buckets(length, table_width=table_width):
        values = compute(rows, width), *(column[rows, :width] for column in columns)
        parts.append(take_first(with_copies(rows_of, length, rows), *values))
    return [torch.cat(values) for values in zip(*parts, strict=True)]


def rows_of(values: Tensor, rows: Tensor) -> Tensor:
    """Some rows of a tensor."""
    return values[rows]


def take_first(count: Tensor, *columns: Tensor) -> list[Tensor]:
    """The first positions of each row: `count` [b] of the columns [b, T, ...] -> [M, ...] each, row by row.

    On a GPU, the counts need a copy on the CPU, or this waits for the GPU.
    """
    width = columns[0].shape[1]
    if count.device.type == "cpu":
        is_taken = torch.arange(width) < count.unsqueeze(1)
        return [column[is_taken] for column in columns]
    total = int(on_host(count).sum())
    row = torch.repeat_interleave(count, output_size=total)
    first = row * width - (count.cumsum(0) - count)[row]
    position = first + torch.arange(total, device=count.device)
    return [column.flatten(0, 1).index_select(0, position) for column in columns]


def unique_consecutive_rows(*columns: Tensor) -> tuple[Tensor, Tensor]:
    """Find runs of equal rows: sampled evaluation asks for one history with a hundred items in a row.

    Args:
        columns: tensors [B, ...]; rows are equal if they are equal in all of them.

    Returns:
        the first row of each run, [D], and the run of each row, [B].
    """
    if torch.compiler.is_compiling():
        rows = torch.arange(columns[0].shape[0], device=columns[0].device)
        return rows, rows
    starts_run = torch.zeros(len(columns[0]), dtype=torch.bool, device=columns[0].device)
    starts_run[:1] = True
    for column in columns:
        changed = column[1:] != column[:-1]
        starts_run[1:] |= changed.flatten(1).any(1) if column.dim() > 1 else changed
    return starts_run.nonzero().squeeze(1), starts_run.cumsum(0) - 1


def group_equal_rows(keys: Sequence[Tensor], *columns: Tensor) -> tuple[Tensor, Tensor]:
    """Group equal rows anywhere in a batch: negatives of a training batch repeat the histories of its positives.

    Groups are padded to the largest. If that would more than double the batch, every row is a group.

    Args:
        keys: numbers [B] to sort by, equal for equal rows and rarely for others.
        columns: tensors [B, ...]; rows are equal if they are equal in all of them.

    Returns:
        the row numbers of each of D groups, padded with the group's first row, [D, C]; and the index of each row in
        the flattened groups, [B].
    """
    rows = torch.arange(len(columns[0]), device=columns[0].device)
    if not len(rows):
        return rows.unsqueeze(1), rows
    order = rows
    for key in reversed(keys):
        order = order[key[order].argsort(stable=True)]
    first, run = unique_consecutive_rows(*(column[order] for column in columns))
    size = int(run.bincount().max())
    if size * len(first) > 2 * len(rows):
        return rows.unsqueeze(1), rows
    index = run * size + rows - first[run]
    groups = order[first].unsqueeze(1).repeat(1, size)
    groups.view(-1)[index] = order
    return groups, torch.empty_like(index).index_copy_(0, order, index)
