"""Numbers and names in messages."""

import difflib
from collections.abc import Iterable


def counted(number: int, noun: str) -> str:
    """`1 event`, `2,000 events`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def quoted(names: Iterable[object], shown: int = 5) -> str:
    """`'a', 'b'`; of more than `shown` names, the first ones and the number of others."""
    names = list(names)
    more = f" and {len(names) - shown:,} more" if len(names) > shown else ""
    return ", ".join(f"'{name}'" for name in names[:shown]) + more


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The most similar of some names, in upper or lower case, for "did you mean"; None if none is similar."""
    by_lower_case = {candidate.lower(): candidate for candidate in sorted(names)}
    matches = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
    return by_lower_case[matches[0]] if matches else None


def listed(words: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
