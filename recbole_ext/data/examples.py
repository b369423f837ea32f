"""Training and evaluation examples as ranges into one event log.

N events in the log, n examples, L longest history.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from recbole.data.interaction import Interaction


@dataclass(frozen=True)
class Ranges:
    """Example e is: history `log[start[e]:end[e]]`, then the event `target[e]` of the log of targets.

    All three are int64 arrays of shape [n].
    """

    start: np.ndarray
    end: np.ndarray
    target: np.ndarray

    def __getitem__(self, index) -> Ranges:
        return Ranges(self.start[index], self.end[index], self.target[index])

    def __len__(self) -> int:
        return len(self.target)


@dataclass(frozen=True)
class EventLog:
    """Columns of events, sorted by user and time; `lists` names the columns of which a history gives the past."""

    columns: dict[str, torch.Tensor]
    lists: tuple[str, ...] = field(default=())

    def without(self, name: str) -> EventLog:
        rest = {key: value for key, value in self.columns.items() if key != name}
        return EventLog(rest, tuple(key for key in self.lists if key != name))


class Examples(Interaction):
    """What RecBole takes for the table of all examples, without the copies of every history.

    `examples[index]` is a smaller table of the same kind; `gather()` makes the batch of it, with the histories as
    lists padded with 0 on the right. A column is gathered when somebody asks for it.

    Args:
        targets: log from which the target events come.
        history: log from which the histories come; the same object unless histories are filtered.
        ranges: the examples.
        suffix: RecBole's `LIST_SUFFIX`.
        length_field: RecBole's `ITEM_LIST_LENGTH_FIELD`.
        width: L, the width of the lists.
    """

    def __init__(
        self, targets: EventLog, history: EventLog, ranges: Ranges, suffix: str, length_field: str, width: int
    ):
        self.targets, self.history, self.ranges = targets, history, ranges
        self.suffix, self.length_field, self.width = suffix, length_field, width

    # ---------------------------------------------------------------- columns

    @property
    def columns(self) -> list[str]:
        lists = [name + self.suffix for name in self.history.lists]
        return [*self.targets.columns, self.length_field, *lists]

    @property
    def length(self) -> int:
        return len(self.ranges)

    @property
    def interaction(self) -> dict[str, torch.Tensor]:
        """Every column, gathered: for the parts of RecBole that go through all of them."""
        return {name: self._column(name) for name in self.columns}

    def _column(self, name: str) -> torch.Tensor:
        ranges = self.ranges
        if name in self.targets.columns:
            return self.targets.columns[name][torch.from_numpy(ranges.target)]
        if name == self.length_field:
            return torch.from_numpy(ranges.end - ranges.start)
        return self._lists([name.removesuffix(self.suffix)])[name]

    def _lists(self, names) -> dict[str, torch.Tensor]:
        start, end = torch.from_numpy(self.ranges.start), torch.from_numpy(self.ranges.end)
        rows = start[:, None] + torch.arange(self.width)  # [n, L]
        inside = rows < end[:, None]
        rows.masked_fill_(~inside, 0)
        lists = {}
        for name in names:
            values = self.history.columns[name]
            gathered = values[rows] if len(values) else values.new_zeros(rows.shape + values.shape[1:])
            lists[name + self.suffix] = gathered.masked_fill_(~inside.view(*inside.shape, *[1] * (values.dim() - 1)), 0)
        return lists

    def gather(self) -> Interaction:
        """The batch of these examples: targets [n], lengths [n] and lists [n, L]."""
        index = torch.from_numpy(self.ranges.target)
        batch = {name: values[index] for name, values in self.targets.columns.items()}
        batch[self.length_field] = torch.from_numpy(self.ranges.end - self.ranges.start)
        batch.update(self._lists(self.history.lists))
        return Interaction(batch)

    # ---------------------------------------------------------------- what RecBole does to its table

    def replaced(self, **changes) -> Examples:
        other = copy.copy(self)
        other.__dict__.update(changes)
        return other

    def __getitem__(self, index):
        if isinstance(index, str):
            if index not in self:
                raise KeyError(index)
            return self._column(index)
        if isinstance(index, (int, np.integer)):
            index = [index]
        if isinstance(index, torch.Tensor):
            index = index.numpy()
        if isinstance(index, (list, range)):
            index = np.asarray(index, dtype=np.int64)
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
        if column in self.targets.columns:
            self.targets = self.targets.without(column)
        else:
            self.history = replace(
                self.history, lists=tuple(name for name in self.history.lists if name + self.suffix != column)
            )

    def _reindex(self, index) -> None:
        self.ranges = self.ranges[np.asarray(index)]

    def __delitem__(self, name):
        self.drop(name)
