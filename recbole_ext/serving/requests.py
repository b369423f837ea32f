"""The events of users, sorted, and the requests that are made from them.

N events, n users. The name of an array begins with what indexes it: `event_...` [N], `user_...` [n].
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from recbole_ext.data.examples import EventLog, Examples
from recbole_ext.data.files.table import Table
from recbole_ext.data.ranges import Ranges


@dataclass(frozen=True)
class UserEvents:
    """Events sorted by user and time; `tie_break` orders a user's events with equal times.

    Attributes:
        table: the source of the events.
        users: tokens, [n].
        event_row: row in `table`. [N]
        event_user: index into `users`, ascending. [N]
        event_item: item id, 0 for items unknown to the model. [N]
        event_time: seconds since the first training event, float64; `None` if the table has no times. [N]
        event_positive: whether the event may be part of a history, bool. [N]
        event_features: columns that the model reads of the events of a history, [N] each.
    """

    table: Table
    users: np.ndarray
    event_row: np.ndarray
    event_user: np.ndarray
    event_item: np.ndarray
    event_time: np.ndarray | None
    event_positive: np.ndarray
    event_features: dict[str, np.ndarray] = field(default_factory=dict)

    def select(self, events: np.ndarray) -> "UserEvents":
        """Some of the events, by index or mask, for the same users."""
        return replace(
            self, event_row=self.event_row[events], event_user=self.event_user[events],
            event_item=self.event_item[events], event_positive=self.event_positive[events],
            event_time=None if self.event_time is None else self.event_time[events],
            event_features={name: values[events] for name, values in self.event_features.items()},
        )  # fmt: skip

    def select_users(self, users: np.ndarray) -> "UserEvents":
        """The events of these users, in the order of `users`."""
        new_index = pd.Index(users, dtype=object).get_indexer(pd.Index(self.users, dtype=object))  # by old index
        event_user = new_index[self.event_user]
        order = np.argsort(event_user, kind="stable")
        order = order[event_user[order] >= 0]
        return replace(self.select(order), users=users, event_user=event_user[order])

    def select_up_to(self, user_time: np.ndarray, positive: bool) -> "UserEvents":
        """The events up to the request of each user, including those at the very time of the request.

        Args:
            user_time: times of the requests, [n].
            positive: whether histories hold positive events only. Then, as in training, an event at the very time of
                the request is not part of the history.
        """
        if self.event_time is None:
            raise ValueError("events without times cannot be compared with the time of a request")
        request_time = user_time[self.event_user]
        events = self
        if positive:
            events = replace(self, event_positive=self.event_positive & (self.event_time < request_time))
        return events.select(self.event_time <= request_time)

    def user_start(self) -> np.ndarray:
        """The events of user i are `user_start[i]:user_start[i + 1]`. [n + 1]"""
        return np.searchsorted(self.event_user, np.arange(len(self.users) + 1))

    def user_length(self) -> np.ndarray:
        """The number of events of each user. [n]"""
        return np.diff(self.user_start())

    def last_value(self, event_values: np.ndarray, default: float) -> np.ndarray:
        """The value of each user's last event, [n]; the default for users without events."""
        values = np.full(len(self.users), default, dtype=event_values.dtype)
        has_event = self.user_length() > 0
        values[has_event] = event_values[self.user_start()[1:][has_event] - 1]
        return values

    def with_known_item(self) -> "UserEvents":
        """The events with an item that the model knows."""
        return self.select(self.event_item > 0)

    def history(self) -> "UserEvents":
        """The events that may be part of a history: positive, with a known item."""
        return self.select((self.event_item > 0) & self.event_positive)

    def to_examples(self, columns: dict[str, Tensor], config: Any, item_field: str, time_field: str) -> Examples:
        """One example for each user, with these events as the history.

        Args:
            columns: of the examples besides the history, [n] each.
            config: of the model.
            item_field, time_field: names of the columns of the history.
        """
        history = {item_field: torch.from_numpy(self.event_item)}
        if self.event_time is not None:
            history[time_field] = torch.from_numpy(self.event_time)
        history |= {name: torch.from_numpy(values) for name, values in self.event_features.items()}
        start, max_length = self.user_start(), config["MAX_ITEM_LIST_LENGTH"]
        ranges = Ranges(np.maximum(start[:-1], start[1:] - max_length), start[1:], np.arange(len(self.users)))
        suffix, length_field = config["LIST_SUFFIX"], config["ITEM_LIST_LENGTH_FIELD"]
        return Examples(EventLog(columns), EventLog(history, tuple(history)), ranges, suffix, length_field, max_length)


@dataclass(frozen=True)
class Requests:
    """One request for each of n users.

    Attributes:
        users: tokens, in the order of the request. [n]
        examples: the requests with their histories, n rows.
        user_features: features of users that the histories contain, [n, ...] each.
        seen_items: item ids of all events of the users, sorted by user. They include events that the history leaves out
            because they are too old or not positive.
        seen_start: `seen_items[seen_start[i] : seen_start[i + 1]]` are those of user i. [n + 1]
    """

    users: np.ndarray
    examples: Examples
    user_features: dict[str, Tensor]
    seen_items: np.ndarray
    seen_start: np.ndarray

    def __len__(self) -> int:
        return len(self.users)

    def seen_pairs(self, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        """Seen items of some requests: the row within `rows` and the item id of each, [P]."""
        start = self.seen_start[rows.start : rows.stop + 1]
        return np.repeat(np.arange(len(start) - 1), np.diff(start)), self.seen_items[start[0] : start[-1]]
