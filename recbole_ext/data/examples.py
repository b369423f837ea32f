"""The table of training and evaluation examples, which refers to one event log instead of copying histories.

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

from recbole_ext.data.order import stable_order
from recbole_ext.data.ranges import Ranges


@dataclass(frozen=True)
class EventLog:
    """Columns of events, [N, ...] each, sorted by user and time. Histories consist of the columns in `lists`."""

    columns: dict[str, Tensor]
    lists: tuple[str, ...] = ()


class Examples(Interaction):
    """An `Interaction` of all examples, which RecBole uses as its table, without copied histories.

    `examples[index]` is a smaller table, for any index that a NumPy array accepts. `examples[name]` is a column, which
    is gathered at each access: targets [n], lengths [n], lists [n, L] padded with 0 on the right. `gather()` returns a
    batch of all columns.

    `examples[name] = values` adds or replaces a column, [n, ...], also in batches; histories do not change. A column
    that was read is a copy, so changes to it in place have no effect.

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
        self.dropped: frozenset[str] = frozenset()  # names of columns
        self.added: dict[str, Tensor] = {}  # columns that were set
        self.in_batches = True  # False if batches consist of windows instead of these examples
        self.cached_list: dict[str, Tensor] = {}  # the last list read by name: some models read it many times

    # ---------------------------------------------------------------- columns

    @property
    def columns(self) -> list[str]:
        lists = [name + self.suffix for name in self.history.lists]
        names = [name for name in (*self.targets.columns, self.length_field, *lists) if name not in self.dropped]
        return [*names, *(name for name in self.added if name not in names)]

    @property
    def interaction(self) -> Examples:
        """The mapping of names to columns that RecBole reads: the examples themselves."""
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
        excluded = self.dropped | self.added.keys()
        lists = [name for name in self.history.lists if name + self.suffix not in excluded]
        names = [name for name in (*self.targets.columns, self.length_field) if name not in excluded]
        return Interaction({**{name: self._column(name) for name in names}, **self._lists(lists), **self.added})

    def _column(self, name: str) -> Tensor:
        if name in self.added:
            return self.added[name]
        if name in self.targets.columns:
            return self.targets.columns[name].index_select(0, torch.from_numpy(self.ranges.target))
        if name == self.length_field:
            return _rows(self.ranges.end - self.ranges.start)
        if name not in self.cached_list:
            self.cached_list = self._lists([name.removesuffix(self.suffix)])
        return self.cached_list[name]

    def _lists(self, names: Iterable[str]) -> dict[str, Tensor]:
        start, end = _rows(self.ranges.start), _rows(self.ranges.end)
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
        """The sorted different values of a column in the targets and histories of these examples."""
        targets = self.targets.columns[name].index_select(0, torch.from_numpy(self.ranges.target))
        count = len(self.history.columns[name])
        starts, ends = (np.bincount(rows, minlength=count + 1) for rows in (self.ranges.start, self.ranges.end))
        in_history = np.cumsum(starts - ends)[:count] > 0
        return torch.cat([targets, self.history.columns[name][torch.from_numpy(in_history)]]).unique()

    def past(self, name: str, user: str) -> tuple[Tensor, Tensor]:
        """All earlier events of each example's user, including those that its list is too short for.

        Args:
            name: a column of the log of histories.
            user: the column of users. Where the log of histories lacks it, the lists are all there is.

        Returns:
            for each of P events in total, the row of its example and its value of the column, [P] each.
        """
        start, end = self.ranges.start, self.ranges.end
        if user in self.history.columns:
            users = self.targets.columns[user].numpy()[self.ranges.target]
            start = np.searchsorted(self.history.columns[user].numpy(), users, side="left")
        count = end - start
        row = np.repeat(np.arange(len(count)), count)
        offset = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        return torch.from_numpy(row), self.history.columns[name][torch.from_numpy(start[row] + offset)]

    # ---------------------------------------------------------------- the interface of Interaction

    def replaced(self, **changes: Any) -> Examples:
        """The same examples with other attributes, e.g. `ranges`."""
        other = copy.copy(self)
        other.__dict__.update(changes, cached_list={})
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
        return self.replaced(ranges=self.ranges[index], added=self._added_rows(index), in_batches=True)

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
        return self.replaced()  # logs and ranges never change

    def __setitem__(self, name, values):
        if not isinstance(name, str):
            raise KeyError(f"{name!r} is not the name of a column")
        if not self.in_batches:
            raise TypeError(
                f"column '{name}' would not reach the model, which learns from windows of events instead of these "
                f"examples; set it on a batch, from gather() or the loader"
            )
        values = torch.as_tensor(values)
        if values.shape[:1] != (len(self),):
            raise ValueError(
                f"column '{name}' has the shape {list(values.shape)}; it should have a row for each of the {len(self)} "
                f"examples"
            )
        self.added = {**self.added, name: values}  # a new dictionary: copies of this table share the old one

    def update(self, new_inter: Interaction) -> None:
        """Set all columns of another table."""
        for name in new_inter.columns:
            self[name] = new_inter[name]

    def add_prefix(self, prefix: str) -> None:
        """Not supported: columns of the event log have fixed names."""
        raise TypeError("columns of the event log have fixed names; call gather() and add the prefix to that batch")

    def drop(self, column: str) -> None:
        """Remove a column from the table and its batches; RecBole calls it for `unused_col`."""
        if column not in self:
            raise ValueError(f"there is no column '{column}'; the columns are {', '.join(self.columns)}")
        self.added = {name: values for name, values in self.added.items() if name != column}
        self.dropped |= {column}

    __delitem__ = drop

    def sort(self, by, ascending=True) -> None:
        """Sort the examples by one or several columns, the most significant first; the sort is stable."""
        names = [by] if isinstance(by, str) else list(by)
        directions = [ascending] * len(names) if isinstance(ascending, bool) else list(ascending)
        keys = [self[name].numpy() if up else -self[name].numpy() for name, up in zip(names, directions, strict=True)]
        self._reindex(stable_order(*keys[::-1]))

    def _reindex(self, index) -> None:
        index = np.asarray(index)
        self.ranges, self.added, self.cached_list = self.ranges[index], self._added_rows(index), {}

    def _added_rows(self, index) -> dict[str, Tensor]:
        """The columns that were set, at these rows."""
        if not self.added:
            return {}
        rows = torch.from_numpy(np.arange(len(self))[index].copy())
        return {name: values[rows] for name, values in self.added.items()}


def _rows(rows: np.ndarray) -> Tensor:
    """Whole numbers as int64, with which torch can index."""
    return torch.from_numpy(rows.astype(np.int64, copy=False))
