"""Which events make an example: index arithmetic on a log sorted by user and time."""

import numpy as np

from recbole_ext.data.examples import Ranges


def user_starts(users: np.ndarray) -> np.ndarray:
    """Row of each event's user's first event, [N], for users sorted together."""
    new = np.flatnonzero(np.diff(users, prepend=users[:1] - 1))
    return np.repeat(new, np.diff(new, append=len(users)))


def prefixes(users: np.ndarray, width: int) -> Ranges:
    """Every event but a user's first is a target; its history is the at most `width` events before."""
    first = user_starts(users)
    target = np.flatnonzero(np.arange(len(users)) > first)
    return Ranges(np.maximum(first[target], target - width), target, target)


def filtered_prefixes(users: np.ndarray, times: np.ndarray, kept: np.ndarray, width: int, least: int) -> Ranges:
    """Every event is a target; its history is the at most `width` kept events strictly earlier.

    Args:
        users, times: of the log of targets, [N], sorted.
        kept: rows of the log that may stand in a history, ascending; ranges count within these.
        least: shortest history of an example that is used.
    """
    key_user = users[kept]
    first = np.searchsorted(key_user, users, side="left")
    # rank of a moment within its user: events of one time share it, so that none of them sees another
    moment = np.cumsum(
        np.diff(users, prepend=users[:1] - 1).astype(bool) | np.diff(times, prepend=times[:1] - 1).astype(bool)
    )
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
        targets: rows of the training targets.
        width: events in a full window.
        step: events from one window's end to the next's.
    """
    first = user_starts(users)
    order = np.argsort(targets, kind="stable")
    rows = targets[order]
    last = rows[np.flatnonzero(np.diff(users[rows], append=users.max(initial=0) + 1))]  # of each user
    count = np.maximum(last - first[last] + 1 - width, 0) // step + 1
    back = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    target = np.repeat(last, count) - back * step
    return Ranges(np.maximum(first[target], target - width + 1), target, target)
