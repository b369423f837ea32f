"""Which events make an example: index arithmetic on a log sorted by user and time.

N events in the log, n examples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


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
