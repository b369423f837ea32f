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

from recbole_ext.data.ranges import Ranges


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
        self.kept: dict[str, Tensor] = {}  # the list that was last asked for by name: some models ask again and again

    # ---------------------------------------------------------------- columns

    @property
    def columns(self) -> list[str]:
        lists = [name + self.suffix for name in self.history.lists]
        return [name for name in (*self.targets.columns, self.length_field, *lists) if name not in self.hidden]

    @property
    def interaction(self) -> Examples:
        """RecBole's mapping of names to columns; the examples are one, and gather a column when it is asked for."""
        return self

    def keys(self) -> list[str]:
        return self.columns

    def items(self) -> Iterator[tuple[str, Tensor]]:
        return ((name, self[name]) for name in self.columns)

    @property
    def length(self) -> int:
        return len(self.ranges)

    def gather(self) -> Interaction:
        """The batch of these examples."""
        lists = [name for name in self.history.lists if name + self.suffix not in self.hidden]
        batch = {name: self._column(name) for name in (*self.targets.columns, self.length_field)}
        batch = {name: values for name, values in batch.items() if name not in self.hidden}
        return Interaction({**batch, **self._lists(lists)})

    def _column(self, name: str) -> Tensor:
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
        return self.replaced(ranges=self.ranges[index])

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
        return copy.copy(self)  # logs and ranges are never written to

    def __setitem__(self, name, value):
        raise TypeError("examples are ranges into the event log and take no new columns; set them on a batch")

    def drop(self, column: str) -> None:
        """Take a column out of the table and of the batches, as `unused_col` asks."""
        if column not in self:
            raise ValueError(f"there is no column '{column}'; the columns are {', '.join(self.columns)}")
        self.hidden |= {column}

    __delitem__ = drop

    def sort(self, by, ascending=True) -> None:
        """Reorder the examples by one column or several, of which the first counts most; stable."""
        names = [by] if isinstance(by, str) else list(by)
        rises = [ascending] * len(names) if isinstance(ascending, bool) else list(ascending)
        keys = [self[name].numpy() if up else -self[name].numpy() for name, up in zip(names, rises, strict=True)]
        self._reindex(np.lexsort(keys[::-1]))

    def _reindex(self, index) -> None:
        self.ranges, self.kept = self.ranges[np.asarray(index)], {}
