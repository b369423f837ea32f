"""Numbers and names in sentences."""

import difflib
from collections.abc import Iterable


def counted(number: int, noun: str) -> str:
    """`1 event`, `2,000 events`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def quoted(names: Iterable[object], shown: int = 5) -> str:
    """`'a', 'b'`; of more than `shown` names, the first ones and the number of the others."""
    names = list(names)
    more = f" and {len(names) - shown:,} more" if len(names) > shown else ""
    return ", ".join(f"'{name}'" for name in names[:shown]) + more


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was probably meant to be, in whatever case; None if none resembles it."""
    folded = {one.lower(): one for one in sorted(known)}
    near = difflib.get_close_matches(name.lower(), folded, n=1)
    return folded[near[0]] if near else None


def listed(words: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
