"""What was kept and what was dropped on the way from the file to the examples, as lines in the log."""

from logging import getLogger

import pandas as pd

from recbole_ext.data.examples import Examples


class Funnel:
    """Counts events, users and items after each step and logs the steps that changed them.

    Args:
        user, item: names of the id columns.
    """

    def __init__(self, user: str, item: str):
        self.user, self.item = user, item
        self.last = (0, 0, 0)  # events, users, items

    def begin(self, frame: pd.DataFrame) -> None:
        """Log what was read."""
        self.last = self._count(frame)
        getLogger().info("Data: read {:,} events of {:,} users and {:,} items".format(*self.last))

    def step(self, name: str, frame: pd.DataFrame) -> None:
        """Log what the step `name` left, if it dropped anything."""
        if len(frame) == self.last[0]:
            return
        before, self.last = self.last, self._count(frame)
        kept = zip(("events", "users", "items"), self.last, before, strict=True)
        getLogger().info(f"Data: {name} kept {', '.join(f'{now:,} of {was:,} {kind}' for kind, now, was in kept)}")

    def targets(self, table: Examples) -> None:
        """Log how many events became targets, and how many users have one."""
        users = table.targets.columns[self.user]
        getLogger().info(
            f"Data: {len(table):,} of {len(users):,} events have a history and are targets, "
            f"of {len(table[self.user].unique()):,} of {len(users.unique()):,} users"
        )

    def split(self, name: str, table: Examples, windows: Examples | None = None) -> None:
        """Log the size of one split."""
        users, items = (len(table.targets.columns[field][table.ranges.target].unique()) for field in (self.user, self.item))
        inside = "" if windows is None else f", trained on as {len(windows):,} windows"
        getLogger().info(f"Data: {name} has {len(table):,} targets of {users:,} users and {items:,} items{inside}")

    def _count(self, frame: pd.DataFrame) -> tuple[int, int, int]:
        return len(frame), frame[self.user].nunique(), frame[self.item].nunique()
