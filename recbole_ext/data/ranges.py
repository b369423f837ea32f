"""Which events of a sorted log are the history and the target of each example.

N events in the log, n examples.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from recbole_ext.data.order import is_sorted, row_type


@dataclass(frozen=True)
class Ranges:
    """Example e has the history `log[start[e]:end[e]]` and predicts event `target[e]` of the log of targets.

    All three are arrays of whole numbers, [n]. `end` and `target` can be one array, which saves a third of the memory.
    """

    start: np.ndarray
    end: np.ndarray
    target: np.ndarray

    def __getitem__(self, index) -> Ranges:
        target = self.target[index]
        return Ranges(self.start[index], target if self.end is self.target else self.end[index], target)

    def __len__(self) -> int:
        return len(self.target)


def token_ranks(tokens: Iterable[str]) -> np.ndarray:
    """The rank of each token, [N]: whole numbers by value, then other tokens as text; equal tokens rank alike."""
    codes, distinct = pd.factorize(np.array(list(map(str, tokens)), dtype=object))
    ranks = np.empty(len(distinct), dtype=np.int64)
    ranks[sorted(range(len(distinct)), key=lambda index: _token_order(distinct[index]))] = np.arange(len(distinct))
    return ranks[codes]


def _token_order(token: str) -> tuple[bool, int, str]:
    is_number = token.isascii() and token.isdigit() and len(token) < 1000
    return not is_number, int(token) if is_number else 0, token


def starts_run(values: np.ndarray) -> np.ndarray:
    """Whether each value differs from the previous one, bool [N]; True for the first."""
    return np.concatenate([[True], values[1:] != values[:-1]])[: len(values)]


def user_starts(users: np.ndarray) -> np.ndarray:
    """For each event, the row of its user's first event, [N]; events of a user are adjacent."""
    starts = np.flatnonzero(starts_run(users))
    return np.repeat(starts.astype(row_type(len(users))), np.diff(starts, append=len(users)))


def prefixes(users: np.ndarray, max_length: int, min_history: int = 1) -> Ranges:
    """Every event with at least `min_history` earlier events of its user is a target.

    Its history is the latest `max_length` of these earlier events.
    """
    user_start = user_starts(users)
    rows = np.arange(len(users), dtype=user_start.dtype)
    is_target = rows - user_start >= min_history
    target, start = rows[is_target], user_start[is_target]
    del rows, user_start  # hundreds of MiB where data are large
    return Ranges(np.maximum(start, target - min(max_length, len(users)), out=start), target, target)


def filtered_prefixes(
    users: np.ndarray, times: np.ndarray, history_rows: np.ndarray, max_length: int, min_history: int
) -> Ranges:
    """Every event is a target; its history is the latest `max_length` history events of its user that are earlier.

    Args:
        users, times: of the log of targets, sorted by user and time. [N]
        history_rows: rows of the log that histories may contain, ascending. `start` and `end` of the result are
            positions in this array.
        max_length: length of the longest history.
        min_history: events with a shorter history are not targets.
    """
    # events of one user at the same time have the same number here, so that none is in the history of another
    moment = np.cumsum(starts_run(users) | starts_run(times))
    start = np.searchsorted(users[history_rows], users, side="left")
    end = np.searchsorted(moment[history_rows], moment, side="left")
    target = np.flatnonzero(end - start >= min_history)
    start, end = start[target], end[target]
    arrays = np.maximum(start, end - max_length), end, target
    return Ranges(*(array.astype(row_type(len(users))) for array in arrays))


def windows(users: np.ndarray, targets: np.ndarray, width: int, step: int) -> Ranges:
    """Windows of `width` events that end at each user's last training event and every `step` events before it.

    All windows are full, except the only window of a user with fewer events. The last event of a window is its target,
    the others are its history.

    Args:
        users: of the log, sorted. [N]
        targets: rows of the training targets in any order; for each user all events from the second to the last.
        width: events in a full window, 2 or more.
        step: events from one window's end to the next's, 1 or more.
    """
    first = np.flatnonzero(starts_run(users))  # row of each user
    rows = targets if is_sorted(targets) else np.sort(targets)
    before = np.searchsorted(rows, np.append(first, len(users))[1:])  # targets of each user and of all users before
    trained = np.diff(before, prepend=0) > 0
    first, last = first[trained], rows[before[trained] - 1].astype(np.int64)
    count = np.maximum(last - first + 1 - width, 0) // step + 1
    index_in_user = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    target = np.repeat(last, count) - index_in_user * step
    return Ranges(np.maximum(np.repeat(first, count), target - width + 1), target, target)
