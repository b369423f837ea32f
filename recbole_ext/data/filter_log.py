"""What the log says about a data set: the events, users and items left after each step, and repeated events."""

from collections.abc import Sized
from logging import getLogger
from typing import Any

import pandas as pd
from recbole.utils import FeatureType

SEQUENCES = (FeatureType.TOKEN_SEQ, FeatureType.FLOAT_SEQ)


class FilterLog:
    """Counts events, users and items after each step, and logs the steps that removed events.

    `users` and `items` hold the id or token of each remaining event, [N].
    """

    def __init__(self) -> None:
        self.counts = (0, 0, 0)  # events, users, items

    def begin(self, users: Any, items: Any) -> None:
        """Log what was read."""
        self.counts = _count(users, items)
        getLogger().info("Data: read {:,} events of {:,} users and {:,} items".format(*self.counts))

    def step(self, name: str, users: Any, items: Any) -> None:
        """Log what is left after the step `name`, if it removed events."""
        if len(users) == self.counts[0]:
            return
        before, self.counts = self.counts, _count(users, items)
        changes = zip(self.counts, before, ("events", "users", "items"), strict=True)
        getLogger().info(f"Data: {name} kept {', '.join('{:,} of {:,} {}'.format(*change) for change in changes)}")

    def targets(self, users: Any, shortest_history: int) -> None:
        """Log how many events are targets.

        Args:
            users: of the targets.
            shortest_history: its length.
        """
        event_count, user_count, _ = self.counts
        condition = "have a history and " if shortest_history else ""
        getLogger().info(
            f"Data: {len(users):,} of {event_count:,} events {condition}are targets, "
            f"of {len(pd.unique(users)):,} of {user_count:,} users"
        )

    def split(self, name: str, counts: tuple[int, ...], windows: Sized | None = None) -> None:
        """Log the numbers of targets, users and items of one part of the split, and of its windows, if any."""
        trained_on = "" if windows is None else f", trained on as {len(windows):,} windows"
        getLogger().info("Data: {} has {:,} targets of {:,} users and {:,} items{}".format(name, *counts, trained_on))


def _count(users: Any, items: Any) -> tuple[int, int, int]:
    return len(users), len(pd.unique(users)), len(pd.unique(items))


def warn_of_copies(
    events: pd.DataFrame, time_field: str, types: dict[str, FeatureType], config: Any, total: int | None = None
) -> None:
    """Warn of exact copies of events, as in logs that were joined or appended twice.

    Args:
        events: a row for each event.
        time_field: name of the column of times.
        types: of the columns.
        config: of the run.
        total: number of all events, if `events` are only those that can be copies.
    """
    presplit = bool(config["benchmark_filename"])
    if config["rm_dup_inter"] is not None and not presplit:
        return
    same_time = events[events[time_field].duplicated(keep=False)]  # few events, which makes the comparison fast
    lists = {name: same_time[name].map(tuple) for name in same_time if types.get(name) in SEQUENCES}
    copies = int(same_time.assign(**lists).duplicated().sum())
    if copies:
        remedy = (
            "remove them from the files"
            if presplit
            else "rm_dup_inter: first removes them, and also every other repeat of an item by the same user"
        )
        getLogger().warning(
            f"{copies:,} of {total or len(events):,} events are exact copies of others in all loaded columns, and the "
            f"history of a copy contains the original; {remedy}."
        )
