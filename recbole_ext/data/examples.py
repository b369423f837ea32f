"""Training and evaluation examples as ranges into one event log.

N events in the log, n examples, L longest history.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from recbole.data.interaction import Interaction
from torch import Tensor


@dataclass(frozen=True)
class Ranges:
    """Example e is: the history `log[start[e]:end[e]]`, then the event `target[e]` of the log of targets.

    All three are int64 arrays of shape [n].
    """

    start: np.ndarray
    end: np.ndarray
    target: np.ndarray

    def __getitem__(self, index) -> Ranges:
        return Ranges(self.start[index], self.end[index], self.target[index])

    def __len__(self) -> int:
        return len(self.target)


def is_new(values: np.ndarray) -> np.ndarray:
    """Whether each value differs from the one before, bool [N]; the first one does."""
    return np.concatenate([[True], values[1:] != values[:-1]])[: len(values)]


def user_starts(users: np.ndarray) -> np.ndarray:
    """Row of each event's user's first event, [N], for users sorted together."""
    first = np.flatnonzero(is_new(users))
    return np.repeat(first, np.diff(first, append=len(users)))


def prefixes(users: np.ndarray, width: int, least: int = 1) -> Ranges:
    """Every event with `least` events of its user before is a target; its history is the at most `width` before."""
    first = user_starts(users)
    target = np.flatnonzero(np.arange(len(users)) >= first + least)
    return Ranges(np.maximum(first[target], target - width), target, target)


def filtered_prefixes(users: np.ndarray, times: np.ndarray, kept: np.ndarray, width: int, least: int) -> Ranges:
    """Every event is a target; its history is the at most `width` kept events strictly earlier.

    Args:
        users, times: of the log of targets, [N], sorted.
        kept: rows of the log that may stand in a history, ascending; starts and ends count within these.
        width: length of the longest history.
        least: shortest history of an example that is used.
    """
    # events of one user and time share a moment, so that none of them sees another
    moment = np.cumsum(is_new(users) | is_new(times))
    first = np.searchsorted(users[kept], users, side="left")
    end = np.searchsorted(moment[kept], moment, side="left")
    target = np.flatnonzero(end - first >= least)
    first, end = first[target], end[target]
    return Ranges(np.maximum(first, end - width), end, target)


def windows(users: np.ndarray, targets: np.ndarray, width: int, step: int) -> Ranges:
    """Windows of `width` events that end at each user's last training event and every `step` events before it.

    An earlier window is added as long as it is full. The last event of a window is its target, the others its
    history: together they are the window.

    Args:
        users: of the log, [N], sorted.
        targets: rows of the training targets, in any order; of each user, all from the second event to the last.
        width: events in a full window, 2 or more.
        step: events from one window's end to the next's, 1 or more.
    """
    first = user_starts(users)
    rows = np.sort(targets)
    last = rows[is_new(users[rows][::-1])[::-1]]  # of each user
    count = np.maximum(last - first[last] + 1 - width, 0) // step + 1
    back = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    target = np.repeat(last, count) - back * step
    return Ranges(np.maximum(first[target], target - width + 1), target, target)


@dataclass(frozen=True)
class EventLog:
    """Columns of events, [N, ...] each, sorted by user and time; histories give the past of those in `lists`."""

    columns: dict[str, Tensor]
    lists: tuple[str, ...] = ()


class Examples(Interaction):
    """What RecBole takes for the table of all examples, without the copies of every history.

    `examples[index]` is a smaller table of the same kind, for whatever indexes a NumPy array; `examples[name]` is a
    column: targets [n], lengths [n], lists [n, L] padded with 0 on the right. A column is gathered when it is asked
    for; `gather()` makes the batch of all columns.

    `examples[name] = values` sets a column, [n, ...], new or in place of one that is there; batches have it. Histories
    stay as they are. What is read is a copy: change a column by setting it, not in place.

    Args:
        targets: log from which the target events come.
        history: log from which the histories come; the same object unless histories are filtered.
        ranges: the examples.
        suffix: RecBole's `LIST_SUFFIX`.
        length_field: RecBole's `ITEM_LIST_LENGTH_FIELD`.
        width: L.
    """

    def __init__(
        self, targets: EventLog, history: EventLog, ranges: Ranges, suffix: str, length_field: str, width: int
    ):
        self.targets, self.history, self.ranges = targets, history, ranges
        self.suffix, self.length_field, self.width = suffix, length_field, width
        self.hidden: frozenset[str] = frozenset()  # columns that were dropped
        self.added: dict[str, Tensor] = {}  # columns that were set, a row for each example
        self.in_batches = True  # whether batches come from these examples, and not from windows
        self.kept: dict[str, Tensor] = {}  # the list that was last asked for by name: some models ask again and again

    # ---------------------------------------------------------------- columns

    @property
    def columns(self) -> list[str]:
        lists = [name + self.suffix for name in self.history.lists]
        names = [name for name in (*self.targets.columns, self.length_field, *lists) if name not in self.hidden]
        return [*names, *(name for name in self.added if name not in names)]

    @property
    def interaction(self) -> Examples:
        """RecBole's mapping of names to columns; the examples are one, and gather a column when it is asked for."""
        return self

    def keys(self) -> list[str]:
        return self.columns

    def items(self) -> Iterator[tuple[str, Tensor]]:
        return ((name, self[name]) for name in self.columns)

    def values(self) -> Iterator[Tensor]:
        return (self[name] for name in self.columns)

    def get(self, name: str, default: Any = None) -> Any:
        return default if name not in self.columns else self[name]

    @property
    def length(self) -> int:
        return len(self.ranges)

    def gather(self) -> Interaction:
        """The batch of these examples."""
        gone = self.hidden | self.added.keys()
        lists = [name for name in self.history.lists if name + self.suffix not in gone]
        names = [name for name in (*self.targets.columns, self.length_field) if name not in gone]
        return Interaction({**{name: self._column(name) for name in names}, **self._lists(lists), **self.added})

    def _column(self, name: str) -> Tensor:
        if name in self.added:
            return self.added[name]
        if name in self.targets.columns:
            return self.targets.columns[name][torch.from_numpy(self.ranges.target)]
        if name == self.length_field:
            return torch.from_numpy(self.ranges.end - self.ranges.start)
        if name not in self.kept:
            self.kept = self._lists([name.removesuffix(self.suffix)])
        return self.kept[name]

    def _lists(self, names: Iterable[str]) -> dict[str, Tensor]:
        start, end = torch.from_numpy(self.ranges.start), torch.from_numpy(self.ranges.end)
        rows = start[:, None] + torch.arange(self.width)  # [n, L]
        padding = rows >= end[:, None]
        rows.masked_fill_(padding, 0)
        lists = {}
        for name in names:
            values = self.history.columns[name]
            gathered = values[rows] if len(values) else values.new_zeros(rows.shape + values.shape[1:])
            lists[name + self.suffix] = gathered.masked_fill_(
                padding.view(*padding.shape, *[1] * (values.dim() - 1)), 0
            )
        return lists

    def distinct(self, name: str) -> Tensor:
        """The values of a column in the targets and in the histories of these examples, each once, sorted."""
        targets = self.targets.columns[name][torch.from_numpy(self.ranges.target)]
        count = len(self.history.columns[name])
        opened = np.bincount(self.ranges.start, minlength=count + 1) - np.bincount(self.ranges.end, minlength=count + 1)
        inside = np.cumsum(opened)[:count] > 0  # of some history
        return torch.cat([targets, self.history.columns[name][torch.from_numpy(inside)]]).unique()

    def past(self, name: str, user: str) -> tuple[Tensor, Tensor]:
        """What may stand in the history of each example, events included that are too old for its list.

        Args:
            name: a column of the log of histories.
            user: the column of users. A log without it has histories as they are, and nothing older.

        Returns:
            the row of the example and the value of the column, [P] each.
        """
        start, end = self.ranges.start, self.ranges.end
        if user in self.history.columns:
            owner = self.targets.columns[user].numpy()[self.ranges.target]
            start = np.searchsorted(self.history.columns[user].numpy(), owner, side="left")
        count = end - start
        row = np.repeat(np.arange(len(count)), count)
        back = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        return torch.from_numpy(row), self.history.columns[name][torch.from_numpy(start[row] + back)]

    # ---------------------------------------------------------------- what RecBole does to its table

    def replaced(self, **changes: Any) -> Examples:
        """The same examples with other attributes, e.g. `ranges`."""
        other = copy.copy(self)
        other.__dict__.update(changes, kept={})
        return other

    def __getitem__(self, index):
        if isinstance(index, str):
            if index not in self:
                raise KeyError(index)
            return self._column(index)
        if isinstance(index, (int, np.integer)):
            index = [index]
        if not isinstance(index, slice):
            index = np.asarray(index)
            index = index if len(index) else index.astype(np.int64)
        return self.replaced(ranges=self.ranges[index], added=self._added(index), in_batches=True)

    def __getattr__(self, name):
        if name.startswith("__") or "targets" not in self.__dict__ or name not in self:
            raise AttributeError(f"examples have no column or attribute '{name}'")
        return self._column(name)

    def __contains__(self, name) -> bool:
        return name in self.columns

    def __iter__(self):
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.ranges)

    def __str__(self) -> str:
        return f"{len(self)} examples with the columns {', '.join(self.columns)}"

    def __deepcopy__(self, memo):
        return self.replaced()  # logs and ranges are never written to

    def __setitem__(self, name, values):
        if not isinstance(name, str):
            raise KeyError(f"{name!r} is not the name of a column")
        if not self.in_batches:
            raise TypeError(
                f"column '{name}' would not reach the model, which learns from windows of events and not from these "
                f"examples; set it on a batch, which gather() and the loader give"
            )
        values = torch.as_tensor(values)
        if values.shape[:1] != (len(self),):
            shape = list(values.shape)
            raise ValueError(f"column '{name}' has the shape {shape}; there are {len(self)} examples, one a row")
        self.added = {**self.added, name: values}  # copies of this table keep theirs

    def update(self, new_inter: Interaction) -> None:
        """Set all columns of another table."""
        for name in new_inter.columns:
            self[name] = new_inter[name]

    def add_prefix(self, prefix: str) -> None:
        """Refused: the columns of the event log have the names that the data set gives them."""
        raise TypeError("columns of the event log keep their names; call gather() and add the prefix to that batch")

    def drop(self, column: str) -> None:
        """Take a column out of the table and of the batches, as `unused_col` asks."""
        if column not in self:
            raise ValueError(f"there is no column '{column}'; the columns are {', '.join(self.columns)}")
        self.added = {name: values for name, values in self.added.items() if name != column}
        self.hidden |= {column}

    __delitem__ = drop

    def sort(self, by, ascending=True) -> None:
        """Reorder the examples by one column or several, of which the first counts most; stable."""
        names = [by] if isinstance(by, str) else list(by)
        rises = [ascending] * len(names) if isinstance(ascending, bool) else list(ascending)
        keys = [self[name].numpy() if up else -self[name].numpy() for name, up in zip(names, rises, strict=True)]
        self._reindex(np.lexsort(keys[::-1]))

    def _reindex(self, index) -> None:
        index = np.asarray(index)
        self.ranges, self.added, self.kept = self.ranges[index], self._added(index), {}

    def _added(self, index) -> dict[str, Tensor]:
        """The rows of `index` of the columns that were set."""
        if not self.added:
            return {}
        rows = torch.from_numpy(np.arange(len(self))[index].copy())
        return {name: values[rows] for name, values in self.added.items()}
