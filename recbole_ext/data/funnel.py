"""What was kept and what was dropped on the way from the file to the examples, as lines in the log."""

from logging import getLogger

import numpy as np

from recbole_ext.errors import InputError


class Funnel:
    """Counts users, items and events after each step and logs each step that changed them.

    Args:
        user, item: names of the id columns.
    """

    def __init__(self, user: str, item: str):
        self.user, self.item = user, item
        self.last = (0, 0, 0)  # events, users, items

    def begin(self, frame) -> None:
        self.last = self._count(frame)
        getLogger().info("Data: read {:,} events of {:,} users and {:,} items".format(*self.last))

    def step(self, name: str, frame) -> None:
        """Log what the step `name` left; `InputError` where it left nothing."""
        if len(frame) == self.last[0]:
            return
        if len(frame) == 0:
            raise InputError(f"no event is left after {name}; loosen that filter.")
        before, self.last = self.last, self._count(frame)
        parts = (
            f"{now:,} of {was:,} {kind}"
            for now, was, kind in zip(self.last, before, ("events", "users", "items"), strict=True)
        )
        getLogger().info(f"Data: {name} kept {', '.join(parts)}")

    def examples(self, table, time_field: str) -> None:
        """Log how many events became targets."""
        events = len(table.targets.columns[time_field])
        users = np.unique(table.targets.columns[self.user].numpy())
        left = np.unique(table[self.user].numpy())
        getLogger().info(
            f"Data: {len(table):,} of {events:,} events have a history and are targets; "
            f"{len(users) - len(left):,} of {len(users):,} users have none"
        )

    def split(self, name: str, table) -> None:
        """Log the size of one split."""
        users, items = (len(np.unique(np.asarray(table[field]))) for field in (self.user, self.item))
        getLogger().info(f"Data: {name} has {len(table):,} examples of {users:,} users, with {items:,} target items")

    def _count(self, frame) -> tuple[int, int, int]:
        return len(frame), frame[self.user].nunique(), frame[self.item].nunique()
