"""From tables of events to requests: users need not be in the training data.

`HistoryReader.convert` checks a table and converts each column once; `HistoryReader.make_requests` then selects the
events of each request and turns them into the model's examples. n users.
"""

from collections.abc import Iterable, Mapping
from logging import getLogger
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from recbole_ext.data.description import DatasetDescription
from recbole_ext.data.files.table import Table, refuse_repeated, values_table
from recbole_ext.data.ranges import token_ranks
from recbole_ext.errors import InputError
from recbole_ext.model import contract
from recbole_ext.serving.columns import Vocabulary, as_text, feature, missing, numbers, request_seconds, seconds
from recbole_ext.serving.requests import Requests, UserEvents
from recbole_ext.utils.wording import counted, nearest, quoted


class HistoryReader:
    """Reads histories for one model.

    Args:
        description: of the training data.
        items: the vocabulary of items.
        users: the vocabulary of users.
        model: declares what it reads (see `model/contract.py`).
    """

    def __init__(self, description: DatasetDescription, items: Vocabulary, users: Vocabulary, model: Any):
        self.description, self.items, self.users = description, items, users
        self.config = description.config
        self.context_features = contract.context_features(model)
        self.history_features = contract.history_features(model)
        self.user_features = contract.user_features(model)
        self.min_history = contract.min_history(model)
        self.needs_times = contract.reads_times(model)

    def required_columns(self) -> list[str]:
        """Columns that histories must have."""
        description = self.description
        times = [description.time_field] if self.needs_times else []
        columns = [description.uid_field, description.iid_field, *times, *self.context_features]
        return [*columns, *(self._source_of(name) for name in self.history_features)]

    def columns(self) -> list[str]:
        """All columns that are read if histories have them."""
        labels = [self.description.label_field, *(self.config["threshold"] or ())]
        labels = labels if self.config["history"] == "positive" else []
        return list(
            dict.fromkeys([*self.required_columns(), self.description.time_field, *self.user_features, *labels])
        )

    def read(
        self, histories: pd.DataFrame | Table, users: Iterable[Any] | Table | None = None, at: Any = None
    ) -> Requests:
        """Requests from histories: the events of each user up to the time of the request.

        Args:
            histories: one event a row with user, item and time; columns are called as in the training file. A model
                that reads no times needs none; then the order of the rows counts.
            users: users of the requests, in order; `None` means all users of `histories`, in order of appearance.
            at: time of all requests, or a mapping from users to times; `None` means each user's last event.

        Raises:
            InputError: a column is missing, a value is wrong, or a user has no event with a known item.
        """
        return self.make_requests(self.convert(histories), users, at)

    def convert(self, histories: pd.DataFrame | Table) -> UserEvents:
        """The events of a table; users are in order of appearance.

        Raises:
            InputError: a column is missing or repeated, or a value is wrong.
        """
        table, description = self._table(histories), self.description
        event_user, users = pd.factorize(as_text(table, description.uid_field))
        item_tokens = as_text(table, description.iid_field)
        time = seconds(table, description.time_field, description) if description.time_field in table.frame else None
        users, row, positive = np.asarray(users, dtype=object), np.arange(len(item_tokens)), self._positive(table)
        features = {name: self._event_feature(table, name) for name in self.history_features}
        events = UserEvents(table, users, row, event_user, self.items.ids(item_tokens), time, positive, features)
        by_item = time is not None and self.config["tie_break"] == "item"
        keys = (token_ranks(item_tokens) if by_item else None, time, event_user)  # the most significant last
        return events.select(np.lexsort([key for key in keys if key is not None]))  # a stable sort

    def make_requests(self, events: UserEvents, users: Iterable[Any] | Table | None, at: Any) -> Requests:
        """Requests from converted events; arguments and errors as for `read`."""
        description = self.description
        if users is not None:
            events = events.select_users(self._requested_users(users))
        if not len(events.users):
            getLogger().warning(f"{events.table.path}: there is no user to make a request for; the result is empty.")
        self._report_unknown_items(events)
        user_time = None
        if at is not None:
            user_time = self._request_times(at, events)
            events = events.select_up_to(user_time, self.config["history"] == "positive")
        history = events.history()
        self._refuse_short(history)
        if user_time is None and events.event_time is not None:
            user_time = events.last_value(events.event_time, 0.0)
            if self.history_features:  # just after the last event, when its outcome is known
                user_time = np.nextafter(user_time, np.inf)
        last_row = events.last_value(events.event_row, -1)
        user_id = torch.from_numpy(self.users.ids(events.users))
        columns = {description.uid_field: user_id}
        if user_time is not None:
            columns[description.time_field] = torch.from_numpy(user_time)
        columns |= self._context_columns(events, last_row)
        examples = history.to_examples(columns, self.config, description.iid_field, description.time_field)
        user_features = self._user_features(events.table, last_row, user_id)
        seen = events.with_known_item()
        return Requests(events.users, examples, user_features, seen.event_item, seen.user_start())

    # ---------------------------------------------------------------- checks of the events

    def _table(self, histories: Any) -> Table:
        """The columns that are read, in a table."""
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
        absent = [name for name in self.required_columns() if name not in table.frame]
        if absent:
            # repr shows blanks and tabs in names
            shown = [name if name.isprintable() and name == name.strip() else repr(name) for name in names]
            existing = f"the columns are {', '.join(shown)}" if shown else "there are no columns"
            raise InputError(f"{table.path}: there is no column '{absent[0]}', which the model reads; {existing}.")
        self._report_similar_names(names)
        return table

    def _report_similar_names(self, names: list[str]) -> None:
        """Warn if a column may be a misspelt feature of users: these are optional, so it would be ignored silently."""
        unread = [name for name in names if name and name not in self.columns()]
        for name in (name for name in self.user_features if name not in names):
            if similar := nearest(name, unread):
                getLogger().warning(f"histories: the column '{similar}' is not read; the model's feature is '{name}'.")

    def _report_unknown_items(self, events: UserEvents) -> None:
        rows = np.sort(events.event_row[events.event_item == 0])
        if len(rows):
            names = pd.unique(as_text(events.table.take(rows), self.description.iid_field))
            getLogger().warning(
                f"histories: {counted(len(rows), 'event')} of {counted(len(names), 'item')} that the model does "
                f"not know skipped: {quoted(names)}."
            )

    def _positive(self, table: Table) -> np.ndarray:
        """Which events may be part of a history, bool [rows]; all of them if the table has no labels."""
        all_rows = np.ones(len(table.frame), dtype=bool)
        if self.config["history"] != "positive":
            return all_rows
        label_field, thresholds = self.description.label_field, self.config["threshold"] or {}
        if label_field in table.frame:
            labels = numbers(table, label_field)
            table.refuse((labels != 0) & (labels != 1), label_field, "a label should be 0 or 1")
            return labels == 1
        for name, threshold in thresholds.items():
            if name in table.frame:
                return numbers(table, name) >= threshold
        getLogger().warning(
            f"histories have no {' or '.join([label_field, *thresholds])}, which marked positive events in training; "
            f"all events count as positive."
        )
        return all_rows

    def _refuse_short(self, history: UserEvents) -> None:
        """Refuse users with too few events for the model."""
        length, users = history.user_length(), history.users
        unknown = self.users.ids(users) == 0  # whom a model that can score without a history cannot score
        short = length < self.min_history if self.min_history else (length == 0) & unknown
        if short.any():
            raise InputError(
                f"{counted(short.sum(), 'user')} without an event with an item that the model knows up to the time of "
                f"the request: {quoted(users[short])}; leave them out or give them a history."
            )

    # ---------------------------------------------------------------- users and times of the requests

    def _requested_users(self, users: Iterable[Any] | Table) -> np.ndarray:
        """Tokens of the users, [n]."""
        field = self.description.uid_field
        table = values_table(users, field, "users")
        names = as_text(table, field)
        table.refuse(pd.Index(names, dtype=object).duplicated(), field, "it appears twice; ask for each user once")
        return names

    def _request_times(self, at: Any, events: UserEvents) -> np.ndarray:
        """Time of each user's request in seconds since the first training event, [n]."""
        description = self.description
        if events.event_time is None:
            raise InputError(
                f"at is given, but {events.table.path} has no column '{description.time_field}' to compare it with; "
                f"give the times of the events, or leave out at."
            )
        if isinstance(at, (Mapping, pd.Series)):
            table = values_table(list(at.keys()), description.uid_field, "at")
            users = as_text(table, description.uid_field)
            repeated = pd.Index(users, dtype=object).duplicated()
            table.refuse(repeated, description.uid_field, "it appears twice; give each user one time")
            times = dict(zip(users, at.values() if isinstance(at, Mapping) else at, strict=True))
            absent = [user for user in events.users if user not in times]
            if absent:
                raise InputError(f"at has no time for {quoted(absent)}; give a time for every user.")
            return request_seconds(values_table([times[user] for user in events.users], "at", ""), "at", description)
        if isinstance(at, (np.ndarray, Tensor)) and at.ndim == 0:
            at = np.asarray(at)[()]  # keeps the type
        if np.ndim(at) != 0:
            raise InputError(f"at is {at!r}; it should be one time, or a mapping from users to times.")
        return np.repeat(request_seconds(values_table([at], "at", ""), "at", description), len(events.users))

    # ---------------------------------------------------------------- features of the requests

    def _context_columns(self, events: UserEvents, user_row: np.ndarray) -> dict[str, Tensor]:
        """Context features of the requests, [n], from each user's last event."""
        if not self.context_features:
            return {}
        without_event = events.users[user_row < 0]
        if len(without_event):
            raise InputError(
                f"the model reads {', '.join(self.context_features)} from a user's last event, but these users have no "
                f"event: {quoted(without_event)}."
            )
        last = events.table.take(user_row)
        return {name: feature(last, name, self.description) for name in self.context_features}

    def _source_of(self, name: str) -> str:
        """The column of histories that a column of training events is made from: a label may come from `threshold`."""
        thresholds = self.config["threshold"] or {}
        return next(iter(thresholds)) if name == self.description.label_field and thresholds else name

    def _event_feature(self, table: Table, name: str) -> np.ndarray:
        """A column of all events, [rows], as the model reads it."""
        source = self._source_of(name)
        if source != name:
            return (numbers(table, source) >= self.config["threshold"][source]).astype(np.float32)
        return feature(table, name, self.description).numpy()

    def _user_features(self, table: Table, user_row: np.ndarray, user_id: Tensor) -> dict[str, Tensor]:
        """Features of users, [n, ...], from each user's last event; from the training data where it has no value."""
        features = {}
        for name in (name for name in self.user_features if name in table.frame):
            values = self.description.user_feat[name][user_id].clone()
            users = np.flatnonzero(user_row >= 0)
            users = users[~missing(table.frame[name].iloc[user_row[users]])]
            new_values = feature(table.take(user_row[users]), name, self.description)
            values[torch.from_numpy(users)] = new_values.to(values.dtype)
            features[name] = values
        return features
