"""Events of users that need not be in the training data, as requests: tables in, the model's own examples out.

One way: `HistoryReader.convert` checks a table and converts each column once (`Events`, sorted by user and time); then
`Events.for_users`, `Events.select_before`, `Events.to_examples` and `Events.seen_items` make the requests.

N events, n users asked. Names of arrays begin with what they count: `event_...` [N], `user_...` [n].
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from logging import getLogger
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from recbole_ext.data.description import DatasetDescription
from recbole_ext.data.examples import EventLog, Examples, Ranges
from recbole_ext.data.files.table import Table, refuse_repeated, values_table
from recbole_ext.errors import InputError
from recbole_ext.model import contract
from recbole_ext.serving.columns import Vocabulary, as_text, feature, missing, numbers, request_seconds, seconds
from recbole_ext.utils.wording import counted, nearest, quoted


@dataclass(frozen=True)
class Requests:
    """Requests of n users.

    Attributes:
        users: tokens, in the order asked. [n]
        examples: the requests with their histories, n rows.
        given: features of users that the histories brought, [n, ...] each.
        seen_first, seen: `seen[seen_first[i] : seen_first[i + 1]]` are the ids of all known items of user i, those
            included that a history leaves out because they are too old, or not positive.
    """

    users: np.ndarray
    examples: Examples
    given: dict[str, Tensor]
    seen_first: np.ndarray
    seen: np.ndarray

    def __len__(self) -> int:
        return len(self.users)


@dataclass(frozen=True)
class Events:
    """Events of n users in the model's terms, sorted by user and time; of equal times, in the order of their rows.

    Attributes:
        table: where they come from.
        users: tokens, [n].
        event_row: row of `table`. [N]
        event_user: number of the user in `users`, ascending. [N]
        event_item: id of the item, 0 if the model does not know it. [N]
        event_time: seconds since the first event of the training, float64; `None` if the table has no times. [N]
        event_positive: whether the event may be part of a history, bool. [N]
    """

    table: Table
    users: np.ndarray
    event_row: np.ndarray
    event_user: np.ndarray
    event_item: np.ndarray
    event_time: np.ndarray | None
    event_positive: np.ndarray

    def _at(self, event: np.ndarray) -> "Events":
        """Some of the events, by place or as a mask."""
        return replace(
            self, event_row=self.event_row[event], event_user=self.event_user[event], event_item=self.event_item[event],
            event_time=None if self.event_time is None else self.event_time[event],
            event_positive=self.event_positive[event],
        )  # fmt: skip

    def for_users(self, users: np.ndarray) -> "Events":
        """The events of some users, in the order of these."""
        number = pd.Index(users, dtype=object).get_indexer(pd.Index(self.users, dtype=object))  # of each user here
        event_user = number[self.event_user]
        order = np.argsort(event_user, kind="stable")
        order = order[event_user[order] >= 0]
        return replace(self._at(order), users=users, event_user=event_user[order])

    def select_before(self, user_time: np.ndarray, positive: bool) -> "Events":
        """The events up to the request of each user.

        Args:
            user_time: of the requests, [n].
            positive: whether histories are of positive events; as in training, these are strictly earlier then.
        """
        if self.event_time is None:
            raise ValueError("events without times are neither before a request nor after it")
        event_request = user_time[self.event_user]
        earlier = self.event_time < event_request
        chosen = replace(self, event_positive=self.event_positive & earlier) if positive else self
        return chosen._at(self.event_time <= event_request)

    def user_start(self) -> np.ndarray:
        """Events of user i are `user_start[i]:user_start[i + 1]`. [n + 1]"""
        return np.searchsorted(self.event_user, np.arange(len(self.users) + 1))

    def user_last(self) -> np.ndarray:
        """Each user's last event, -1 if there is none. [n]"""
        start = self.user_start()
        return np.where(np.diff(start) > 0, start[1:] - 1, -1)

    def seen_items(self) -> tuple[np.ndarray, np.ndarray]:
        """Items that the model knows: where those of each user start, [n + 1], and their ids."""
        known = self._at(self.event_item > 0)
        return known.user_start(), known.event_item

    def history(self) -> "Events":
        """The events that may be part of a history."""
        return self._at((self.event_item > 0) & self.event_positive)

    def to_examples(self, requests: dict[str, Tensor], config: Any, item_field: str, time_field: str) -> Examples:
        """A request of each user with these events as history, n examples.

        Args:
            requests: columns of the requests, [n] each.
            config: of the model.
            item_field, time_field: names of the columns of the history.
        """
        columns = {item_field: torch.from_numpy(self.event_item)}
        if self.event_time is not None:
            columns[time_field] = torch.from_numpy(self.event_time)
        start, width = self.user_start(), config["MAX_ITEM_LIST_LENGTH"]
        ranges = Ranges(np.maximum(start[:-1], start[1:] - width), start[1:], np.arange(len(self.users)))
        suffix, length = config["LIST_SUFFIX"], config["ITEM_LIST_LENGTH_FIELD"]
        return Examples(EventLog(requests), EventLog(columns, tuple(columns)), ranges, suffix, length, width)


class HistoryReader:
    """Reads histories for one model.

    Args:
        catalogue: of the model.
        items: the vocabulary of items.
        users: the vocabulary of users.
        model: it says by `context_features`, `user_features`, `reads_times` and `min_history` what it reads
            (`model/contract.py`).
    """

    def __init__(self, catalogue: DatasetDescription, items: Vocabulary, users: Vocabulary, model: Any):
        self.catalogue, self.items, self.users = catalogue, items, users
        self.config = catalogue.config
        self.context = contract.context_features(model)
        self.user_features = contract.user_features(model)
        self.least = contract.min_history(model)
        self.needs_times = contract.reads_times(model)

    def needed(self) -> list[str]:
        """Columns that histories must have."""
        catalogue = self.catalogue
        times = [catalogue.time_field] if self.needs_times else []
        return [catalogue.uid_field, catalogue.iid_field, *times, *self.context]

    def columns(self) -> list[str]:
        """All columns that are looked at, where histories have them."""
        labels = [self.catalogue.label_field, *(self.config["threshold"] or ())]
        labels = labels if self.config["history"] == "positive" else []
        return list(dict.fromkeys([*self.needed(), self.catalogue.time_field, *self.user_features, *labels]))

    def read(
        self, histories: pd.DataFrame | Table, users: Iterable[Any] | Table | None = None, at: Any = None
    ) -> Requests:
        """Histories of the users asked, as far as they had happened at the time of the request.

        Args:
            histories: one event a row: user, item and time, under the names that the training's file had. Without
                times, which a model that reads none can do without, their order is that of the rows.
            users: users, in the order wanted; `None` means all of `histories`, in the order they appear.
            at: time of the requests: one, or a mapping from users to times; `None` means each user's last event.

        Raises:
            InputError: a column is missing, a value is wrong, or a user has no event with a known item.
        """
        return self.requests(self.convert(histories), users, at)

    def convert(self, histories: pd.DataFrame | Table) -> Events:
        """The events of a table, of all users in the order they appear.

        Raises:
            InputError: a column is missing or there twice, or a value is wrong.
        """
        table, catalogue = self._table(histories), self.catalogue
        event_user, users = pd.factorize(as_text(table, catalogue.uid_field))
        item = self.items.ids(as_text(table, catalogue.iid_field))
        timed = catalogue.time_field in table.frame
        time = seconds(table, catalogue.time_field, catalogue) if timed else None
        row = np.arange(len(item))
        events = Events(table, np.asarray(users, dtype=object), row, event_user, item, time, self._positive(table))
        keys = (event_user,) if time is None else (time, event_user)
        return events._at(np.lexsort(keys))  # stable

    def requests(self, events: Events, users: Iterable[Any] | Table | None, at: Any) -> Requests:
        """Requests of the users asked; the arguments and errors are those of `read`."""
        if users is not None:
            events = events.for_users(self._asked(users))
        self._report_unknown(events)
        names, catalogue = events.users, self.catalogue
        request_time = None if at is None else self._request_times(at, events)
        if request_time is not None:
            events = events.select_before(request_time, self.config["history"] == "positive")
        history, last = events.history(), events.user_last()
        self._refuse_empty(names, np.diff(history.user_start()))
        columns = {catalogue.uid_field: torch.from_numpy(self.users.ids(names))}
        if request_time is None and events.event_time is not None:
            request_time = np.zeros(len(names))
            request_time[last >= 0] = events.event_time[last[last >= 0]]
        if request_time is not None:
            columns[catalogue.time_field] = torch.from_numpy(request_time)
        last_row = np.full(len(names), -1)
        last_row[last >= 0] = events.event_row[last[last >= 0]]
        columns |= self._context(events.table, last_row, names)
        examples = history.to_examples(columns, self.config, catalogue.iid_field, catalogue.time_field)
        given = self._given(events.table, last_row, columns[catalogue.uid_field])
        return Requests(names, examples, given, *events.seen_items())

    # ---------------------------------------------------------------- what the events have to hold

    def _table(self, histories: Any) -> Table:
        """The columns that are looked at."""
        if isinstance(histories, Table):
            table = histories
        elif isinstance(histories, pd.DataFrame):
            names = list(histories.columns)
            refuse_repeated(names, "histories")
            read = [name for name in self.columns() if name in names]
            frame = histories[read].reset_index(drop=True)
            table = Table("histories", frame, tuple(str(name) for name in names if name not in read))
        else:
            raise InputError(
                f"histories are a {type(histories).__name__}; they should be a DataFrame, one event a row."
            )
        names = [*map(str, table.frame.columns), *table.unread]
        absent = [name for name in self.needed() if name not in table.frame]
        if absent:
            # a blank or a tab in a name would not show
            shown = [name if name.isprintable() and name == name.strip() else repr(name) for name in names]
            there = f"the columns are {', '.join(shown)}" if shown else "there are no columns"
            raise InputError(f"{table.path}: there is no column '{absent[0]}', which the model reads; {there}.")
        self._report_misspelt(names)
        return table

    def _report_misspelt(self, names: list[str]) -> None:
        """Features of users are read where they are given: a column that is nearly called so may be meant."""
        spare = [name for name in names if name and name not in self.columns()]
        for name in (name for name in self.user_features if name not in names):
            if near := nearest(name, spare):
                getLogger().warning(f"histories: the column '{near}' is not read; the model's feature is '{name}'.")

    def _report_unknown(self, events: Events) -> None:
        row = np.sort(events.event_row[events.event_item == 0])
        if len(row):
            names = pd.unique(as_text(events.table.take(row), self.catalogue.iid_field))
            getLogger().warning(
                f"histories: {counted(len(row), 'event')} of {counted(len(names), 'item')} that the model does "
                f"not know skipped: {quoted(names)}."
            )

    def _positive(self, table: Table) -> np.ndarray:
        """Which events may be part of a history, bool [N]; all of them where the table says nothing of labels."""
        everything = np.ones(len(table.frame), dtype=bool)
        if self.config["history"] != "positive":
            return everything
        if self.catalogue.label_field in table.frame:
            labels = numbers(table, self.catalogue.label_field)
            table.refuse((labels != 0) & (labels != 1), self.catalogue.label_field, "a label should be 0 or 1")
            return labels == 1
        for name, least in (self.config["threshold"] or {}).items():
            if name in table.frame:
                return numbers(table, name) >= least
        names = [self.catalogue.label_field, *(self.config["threshold"] or ())]
        getLogger().warning(
            f"histories have no {' or '.join(names)}, by which the training told positive events; all of them count."
        )
        return everything

    def _refuse_empty(self, names: np.ndarray, lengths: np.ndarray) -> None:
        # without events, a user whom the model knows is still somebody
        empty = lengths < self.least if self.least else (lengths < 1) & (self.users.ids(names) == 0)
        if empty.any():
            raise InputError(
                f"{counted(empty.sum(), 'user')} without an event with an item that the model knows up to the time of "
                f"the request: {quoted(names[empty])}; leave them out or give them a history."
            )

    # ---------------------------------------------------------------- who is asked, and when

    def _asked(self, users: Iterable[Any] | Table) -> np.ndarray:
        """Tokens of the users asked, [n]."""
        field = self.catalogue.uid_field
        table = values_table(users, field, "users")
        names = as_text(table, field)
        table.refuse(pd.Index(names, dtype=object).duplicated(), field, "it appears twice; ask for each user once")
        return names

    def _request_times(self, at: Any, events: Events) -> np.ndarray:
        """Seconds of each user's request, [n]."""
        names, catalogue = events.users, self.catalogue
        if events.event_time is None:
            raise InputError(
                f"at is given, but {events.table.path} has no column '{catalogue.time_field}' to compare it with; give "
                f"the times of the events, or leave out at."
            )
        if isinstance(at, (Mapping, pd.Series)):
            table = values_table(list(at.keys()), catalogue.uid_field, "at")
            users = as_text(table, catalogue.uid_field)
            twice = pd.Index(users, dtype=object).duplicated()
            table.refuse(twice, catalogue.uid_field, "it appears twice; give each user one time")
            times = dict(zip(users, at.values() if isinstance(at, Mapping) else at, strict=True))
            lacking = [name for name in names if name not in times]
            if lacking:
                raise InputError(f"at has no time for {quoted(lacking)}; give every user asked one.")
            return request_seconds(values_table([times[name] for name in names], "at", ""), "at", catalogue)
        if isinstance(at, (np.ndarray, Tensor)) and at.ndim == 0:
            at = np.asarray(at)[()]  # keeps the type
        if np.ndim(at) != 0:
            raise InputError(f"at is {at!r}; it should be one time, or a mapping from users to times.")
        return np.repeat(request_seconds(values_table([at], "at", ""), "at", catalogue), len(names))

    # ---------------------------------------------------------------- features beside the history

    def _context(self, table: Table, user_row: np.ndarray, names: np.ndarray) -> dict[str, Tensor]:
        """Columns of the request's context, [n], from each user's last event."""
        if not self.context:
            return {}
        lacking = names[user_row < 0]
        if len(lacking):
            raise InputError(
                f"the model reads {', '.join(self.context)} from a user's last event, but these have none: "
                f"{quoted(lacking)}."
            )
        last = table.take(user_row)
        return {name: feature(last, name, self.catalogue) for name in self.context}

    def _given(self, table: Table, user_row: np.ndarray, ids: Tensor) -> dict[str, Tensor]:
        """Features of users, [n, ...], from each user's last event; where it has none, from the data."""
        given = {}
        for name in (name for name in self.user_features if name in table.frame):
            values = self.catalogue.user_feat[name][ids].clone()
            told = np.flatnonzero(user_row >= 0)
            told = told[~missing(table.frame[name].iloc[user_row[told]])]
            found = feature(table.take(user_row[told]), name, self.catalogue)
            values[torch.from_numpy(told)] = found.to(values.dtype)
            given[name] = values
        return given
