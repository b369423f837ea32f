"""Histories that a user of the model brings along, as the model's own examples.

N events, n users asked.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from logging import getLogger
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from recbole_ext.data.catalogue import Catalogue
from recbole_ext.data.examples import EventLog, Examples
from recbole_ext.data.ranges import Ranges
from recbole_ext.data.times import FIRST_YEAR, LATEST_YEAR, check_span, year_of
from recbole_ext.errors import InputError
from recbole_ext.serving.values import Vocabulary, as_text, feature, numbers, seconds
from recbole_ext.wording import counted, nearest

SHOWN = 5  # names in a message


@dataclass(frozen=True)
class Histories:
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


class Reader:
    """Reads histories for one model.

    Args:
        catalogue: of the model.
        items: the vocabulary of items.
        users: the vocabulary of users.
        model: it says what it reads by `context` and `users`, and by `min_history` whether it needs a history.
    """

    def __init__(self, catalogue: Catalogue, items: Vocabulary, users: Vocabulary, model: Any):
        self.catalogue, self.items, self.users = catalogue, items, users
        self.config = catalogue.config
        self.context = list(getattr(model, "context", ()))
        self.user_features = list(getattr(getattr(model, "users", None), "names", ()))
        self.least = getattr(model, "min_history", 1)

    def needed(self) -> list[str]:
        """Columns that histories must have."""
        catalogue = self.catalogue
        return [catalogue.uid_field, catalogue.iid_field, catalogue.time_field, *self.context]

    def columns(self) -> list[str]:
        """All columns that are looked at, where histories have them."""
        labels = [self.catalogue.label_field, *(self.config["threshold"] or ())]
        return [*self.needed(), *self.user_features, *(labels if self.config["history"] == "positive" else ())]

    def read(self, events: pd.DataFrame, asked: Iterable[Any] | None, at: Any) -> Histories:
        """Histories of the users asked, as far as they had happened at the time of the request.

        Args:
            events: one event a row: user, item and time, under the names that the training's file had.
            asked: users, in the order wanted; `None` means all of `events`, in the order they appear.
            at: time of the requests: one, or a mapping from users to times; `None` means each user's last event.

        Raises:
            InputError: a column is missing, a value is none, or a user has no event with a known item.
        """
        catalogue = self.catalogue
        user_field, item_field, time_field = catalogue.uid_field, catalogue.iid_field, catalogue.time_field
        self._check_columns(events, self.needed())
        self._report_misspelt(events)
        tokens = as_text(events[user_field], user_field)
        names, owner = _asked(tokens, asked, user_field)
        item = self.items.ids(as_text(events[item_field], item_field))
        time = seconds(events[time_field], catalogue, time_field)
        if len(time):
            origin = catalogue.time_origin
            check_span(time.min() + origin, time.max() + origin, self.config["time_unit"], time_field)
        inside = owner >= 0
        self._report_unknown(events, inside & (item == 0))

        request = None if at is None else _request_times(at, names, catalogue)
        positive = self._positive(events)
        if request is not None:
            inside &= time <= request[owner]
            if self.config["history"] == "positive":  # as in training: strictly earlier
                positive &= time < request[owner]
        order = np.flatnonzero(inside)
        order = order[np.lexsort((time[order], owner[order]))]  # stable: equal times keep their order
        last_row = _last(owner[order], order, len(names))  # of each user, -1 if there is none

        known = order[item[order] > 0]
        kept = known[positive[known]]
        first = np.searchsorted(owner[kept], np.arange(len(names) + 1))
        self._refuse_empty(names, np.diff(first))
        if request is None:
            request = np.where(last_row >= 0, time[last_row] if len(time) else 0.0, 0.0)
        columns = {
            user_field: torch.from_numpy(self.users.ids(names)),
            time_field: torch.from_numpy(request),
            **self._context(events, last_row, names),
        }
        history = EventLog(
            {item_field: torch.from_numpy(item[kept]), time_field: torch.from_numpy(time[kept])},
            (item_field, time_field),
        )
        width = self.config["MAX_ITEM_LIST_LENGTH"]
        ranges = Ranges(np.maximum(first[:-1], first[1:] - width), first[1:], np.arange(len(names)))
        suffix, length = self.config["LIST_SUFFIX"], self.config["ITEM_LIST_LENGTH_FIELD"]
        examples = Examples(EventLog(columns), history, ranges, suffix, length, width)
        seen_first = np.searchsorted(owner[known], np.arange(len(names) + 1))
        given = self._given(events, last_row, columns[user_field])
        return Histories(names, examples, given, seen_first, item[known])

    # ---------------------------------------------------------------- what the events have to hold

    def _check_columns(self, events: Any, names: list[str]) -> None:
        if not isinstance(events, pd.DataFrame):
            raise InputError(f"histories are a {type(events).__name__}; they should be a DataFrame, one event a row.")
        missing = [name for name in names if name not in events]
        if missing:
            raise InputError(
                f"histories have no column '{missing[0]}', which the model reads; they have "
                f"{', '.join(map(str, events.columns)) or 'none'}."
            )

    def _report_misspelt(self, events: pd.DataFrame) -> None:
        """Features of users are read where they are given: a column that is nearly called so may be meant."""
        spare = [str(name) for name in events if name not in self.columns()]
        for name in (name for name in self.user_features if name not in events):
            if near := nearest(name, spare):
                getLogger().warning(f"histories: the column '{near}' is not read; the model's feature is '{name}'.")

    def _report_unknown(self, events: pd.DataFrame, unknown: np.ndarray) -> None:
        if unknown.any():
            names = pd.unique(as_text(events[self.catalogue.iid_field][unknown], self.catalogue.iid_field))
            getLogger().warning(
                f"histories: {counted(unknown.sum(), 'event')} of {counted(len(names), 'item')} that the model does "
                f"not know skipped: {_listed(names)}."
            )

    def _positive(self, events: pd.DataFrame) -> np.ndarray:
        """Which events may stand in a history, bool [N]; all of them where the events say nothing of labels."""
        everything = np.ones(len(events), dtype=bool)
        if self.config["history"] != "positive":
            return everything
        if self.catalogue.label_field in events:
            return numbers(events[self.catalogue.label_field], self.catalogue.label_field) > 0
        names = [self.catalogue.label_field, *(self.config["threshold"] or ())]
        for name, least in (self.config["threshold"] or {}).items():
            if name in events:
                return numbers(events[name], name) >= least
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
                f"the request: {_listed(names[empty])}; leave them out or give them a history."
            )

    # ---------------------------------------------------------------- features beside the history

    def _context(self, events: pd.DataFrame, last_row: np.ndarray, names: np.ndarray) -> dict[str, Tensor]:
        """Columns of the request's context, [n], from each user's last event."""
        if not self.context:
            return {}
        lacking = names[last_row < 0]
        if len(lacking):
            raise InputError(
                f"the model reads {', '.join(self.context)} from a user's last event, but these have none: "
                f"{_listed(lacking)}."
            )
        return {name: feature(events[name].iloc[last_row], name, self.catalogue) for name in self.context}

    def _given(self, events: pd.DataFrame, last_row: np.ndarray, ids: Tensor) -> dict[str, Tensor]:
        """Features of users, [n, ...], from each user's last event; where it has none, from the data."""
        given = {}
        for name in (name for name in self.user_features if name in events):
            values = self.catalogue.user_feat[name][ids].clone()
            told = np.flatnonzero(last_row >= 0)
            told = told[events[name].iloc[last_row[told]].notna().to_numpy()]
            found = feature(events[name].iloc[last_row[told]], name, self.catalogue)
            values[torch.from_numpy(told)] = found.to(values.dtype)
            given[name] = values
        return given


def _asked(tokens: np.ndarray, asked: Iterable[Any] | None, field: str) -> tuple[np.ndarray, np.ndarray]:
    """The users asked, [n], and for each event the number of its user among them, or -1: [N]."""
    if asked is None:
        owner, names = pd.factorize(tokens)
        return np.asarray(names, dtype=object), owner
    if isinstance(asked, str) or not isinstance(asked, Iterable):
        raise InputError(f"users is {asked!r}; it should be a list of {field}.")
    names = as_text(list(asked), field)
    index = pd.Index(names)
    if not index.is_unique:
        raise InputError(f"users names '{index[index.duplicated()][0]}' twice; ask for each user once.")
    return names, index.get_indexer(pd.Index(tokens, dtype=object))


def _request_times(at: Any, names: np.ndarray, catalogue: Catalogue) -> np.ndarray:
    """Seconds of each user's request, [n]."""
    if isinstance(at, (Mapping, pd.Series)):
        times = {str(name): time for name, time in at.items()}
        lacking = [name for name in names if name not in times]
        if lacking:
            raise InputError(f"at has no time for {_listed(lacking)}; give every user asked one.")
        return _of_our_days([times[name] for name in names], catalogue)
    if np.ndim(at) != 0 or isinstance(at, (bool, np.bool_)):
        raise InputError(f"at is {at!r}; it should be one time, or a mapping from users to times.")
    return np.repeat(_of_our_days([at], catalogue), len(names))


def _of_our_days(times: list[Any], catalogue: Catalogue) -> np.ndarray:
    """Seconds of requests; `InputError` for a time that another unit would give, as milliseconds read as seconds."""
    found = seconds(times, catalogue, "at")
    for time, year in zip(times, year_of(found + (catalogue.time_origin or 0.0)), strict=True):
        if not FIRST_YEAR <= year <= LATEST_YEAR:
            unit = catalogue.config["time_unit"]
            raise InputError(
                f"at is {time!r}, which in time_unit {unit} is the year {np.floor(year):.6g}; give it in that unit, or "
                f"as a date."
            )
    return found


def _last(owner: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """The last of each owner's rows, for rows sorted by owner: [count], -1 where there is none."""
    end = np.searchsorted(owner, np.arange(count), side="right")
    begin = np.searchsorted(owner, np.arange(count), side="left")
    if not len(rows):
        return np.full(count, -1)
    return np.where(end > begin, rows[np.maximum(end - 1, 0)], -1)


def _listed(names: Iterable[Any]) -> str:
    names = list(names)
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(f"'{name}'" for name in names[:SHOWN]) + more
