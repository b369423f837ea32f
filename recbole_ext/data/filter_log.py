"""What was kept and what was dropped on the way from the file to the examples, as lines in the log."""

from logging import getLogger
from typing import Any

import pandas as pd

from recbole_ext.data.examples import Examples


class Funnel:
    """Counts events, users and items after each step and logs the steps that dropped something.

    Users and items are given as their ids, or tokens, of each event left: two columns of equal length.
    """

    def __init__(self) -> None:
        self.last = (0, 0, 0)  # events, users, items

    def begin(self, users: Any, items: Any) -> None:
        """Log what was read."""
        self.last = _count(users, items)
        getLogger().info("Data: read {:,} events of {:,} users and {:,} items".format(*self.last))

    def step(self, name: str, users: Any, items: Any) -> None:
        """Log what the step `name` left, if it dropped anything."""
        if len(users) == self.last[0]:
            return
        before, self.last = self.last, _count(users, items)
        kept = zip(("events", "users", "items"), self.last, before, strict=True)
        getLogger().info(f"Data: {name} kept {', '.join(f'{now:,} of {was:,} {kind}' for kind, now, was in kept)}")

    def targets(self, users: Any, shortest: int) -> None:
        """Log how many events became targets, given the users of those and their shortest history."""
        events, people, _ = self.last
        getLogger().info(
            f"Data: {len(users):,} of {events:,} events {'have a history and ' if shortest else ''}are targets, "
            f"of {len(pd.unique(users)):,} of {people:,} users"
        )

    def split(self, name: str, users: Any, items: Any, windows: Examples | None = None) -> None:
        """Log the size of one split."""
        inside = "" if windows is None else f", trained on as {len(windows):,} windows"
        counts = "{:,} targets of {:,} users and {:,} items".format(*_count(users, items))
        getLogger().info(f"Data: {name} has {counts}{inside}")


def _count(users: Any, items: Any) -> tuple[int, int, int]:
    return len(users), len(pd.unique(users)), len(pd.unique(items))
