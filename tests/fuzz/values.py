"""Strategies that several parts share: odd tokens, odd numbers, and how often a draw is odd."""

from hypothesis import strategies as st

from tests.fuzz.oracle import SECONDS

BASE = 1_600_000_000  # seconds since 1970 of the first usual event
ITEMS = ("1", "2", "3", "4", "5", "6", "7", "8", "NA", "x y", "é")  # of the small models
LETTERS = st.characters(exclude_categories=["Cs"])
ODD_TOKENS = st.one_of(
    st.sampled_from(["", "NA", "None", "nan", "01", "1.0", "1e5", "-1", "True", "😀", '"q"', 'a"b', '"', "'", " a", "#",
                     "18446744073709551617", "a,b", "a;b", "a::b", "\\", "\u2028", "\x85", "\x1f", "\0", "[PAD]"]),
    st.text(LETTERS, max_size=5),
)  # fmt: skip
ODD_NUMBERS = st.sampled_from(
    ["", "nan", "NA", "inf", "-inf", "1e308", "-1.7e308", "1e400", "3.5e38", "x", "0x10", "1_0", "2020-01-01", "1,5",
     "True", "-0", "1e-320"]
)  # fmt: skip


def mostly(usual: st.SearchStrategy, odd: st.SearchStrategy, percent: int = 3) -> st.SearchStrategy:
    """The usual values, and odd ones in a few percent of the draws, at most 48."""
    # hypothesis likes the ends of a range, and makes examples smaller towards 0
    return st.integers(0, 999).flatmap(lambda number: odd if 515 <= number < 515 + 10 * percent else usual)


def chance(percent: int) -> st.SearchStrategy:
    return mostly(st.just(False), st.just(True), percent)


def in_unit(seconds: float, unit: str) -> str:
    value = seconds / SECONDS[unit]
    return str(int(value)) if value == int(value) else repr(value)
