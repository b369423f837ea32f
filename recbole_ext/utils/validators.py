"""Kinds of values that keys take.

`kind.fit(value)` returns the value, tidied (a single name where a list goes becomes a list of one, 5.0 becomes 5), or
raises `Misfit`, which says what would be right.
"""

import numbers
import os
import re
import sys
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np
import pandas as pd

MOST = 10**18  # below what 64 bits hold


class Misfit(Exception):
    """A value is not of its kind.

    Args:
        value: what was found.
        wanted: what would be right, to follow "it should be".
        inside: the way to the value within a mapping, e.g. `".mode.valid"`.
        verb: what the key does with the value: it "is" that, or "names" it among its own.
    """

    def __init__(self, value: Any, wanted: str, inside: str = "", verb: str = "is"):
        super().__init__(wanted)
        self.value, self.wanted, self.inside, self.verb = value, wanted, inside, verb


class Kind:
    """Any value at all; the kinds below are narrower."""

    textual = False  # whether the text of a value is taken as it stands, and not read as a literal

    def fit(self, value: Any) -> Any:
        return value


@dataclass(frozen=True)
class Number(Kind):
    """A finite number in `interval`, e.g. `"(0, 1]"`."""

    interval: str = "(-inf, inf)"
    whole: bool = False

    def fit(self, value: Any) -> Any:
        low, high = (float(end) for end in self.interval[1:-1].split(","))
        good = isinstance(value, numbers.Real) and not isinstance(value, bool)
        good = good and (low <= value if self.interval[0] == "[" else low < value)
        good = good and (value <= high if self.interval[-1] == "]" else value < high)
        good = good and abs(value) <= sys.float_info.max
        if not good or (self.whole and value != int(value)):
            raise Misfit(value, self.wanted)
        if self.whole and abs(value) >= MOST:
            raise Misfit(value, f"{self.wanted} of at most 18 digits")
        whole = self.whole or (isinstance(value, numbers.Integral) and abs(int(value)) < MOST)
        return int(value) if whole else float(value)

    @property
    def wanted(self) -> str:
        noun = "a whole number" if self.whole else "a number"
        return noun if self.interval == "(-inf, inf)" else f"{noun} in {self.interval}"


def whole(interval: str = "(-inf, inf)") -> Number:
    return Number(interval, whole=True)


class Moment(Kind):
    """A number in the unit of the file's times, or a date with or without a time of day; returned as ISO 8601 text."""

    PATTERN = r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?( ?(Z|[-+]\d\d:?\d\d))?)?"
    wanted = "a date such as '1998-03-01' or '1998-03-01 12:00+01:00', or a number in the unit of the file"

    def fit(self, value: Any) -> str | float:
        text = str(value).strip() if isinstance(value, (str, date, np.datetime64)) else None
        if text is None:
            try:
                return Number().fit(value)
            except Misfit:
                raise Misfit(value, self.wanted) from None
        try:
            if not re.fullmatch(self.PATTERN, text):
                raise ValueError(text)
            pd.Timestamp(text).as_unit("ns")  # a day that there is, in the years that nanoseconds reach
        except ValueError:
            raise Misfit(value, self.wanted) from None
        return text


class TwoMoments(Kind):
    """Two dates, or two numbers, of which the second is later."""

    wanted = "a list of two dates or of two numbers, the later one last"

    def fit(self, value: Any) -> list[str | float]:
        if not isinstance(value, (list, tuple)) or len(value) != 2:
            raise Misfit(value, self.wanted)
        moments = [Moment().fit(member) for member in value]
        dates = [isinstance(moment, str) for moment in moments]
        ordered: list[Any] = [pd.to_datetime(moment, utc=True) if any(dates) else moment for moment in moments]
        if dates[0] != dates[1] or not ordered[0] < ordered[1]:
            raise Misfit(value, self.wanted)
        return moments


class Truth(Kind):
    def fit(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise Misfit(value, "True or False")
        return value


@dataclass(frozen=True)
class Text(Kind):
    """A text that is not empty; of the given `pattern`, if any, which `wanted` describes."""

    pattern: str = r"(?s).+"
    wanted: str = "a text"
    textual = True

    def fit(self, value: Any) -> str:
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value) or "\0" in value:
            raise Misfit(value, self.wanted)
        return value


class Encoding(Kind):
    """The name of a way to write text in bytes."""

    textual = True

    def fit(self, value: Any) -> str:
        try:
            "a".encode(value)
        except (LookupError, TypeError, ValueError):
            raise Misfit(value, "an encoding that is known, e.g. utf-8, utf-16 or latin-1") from None
        return value


class OneOf(Kind):
    """One of a few names, in any capitals; returned as it is written here."""

    textual = True

    def __init__(self, *choices: str):
        self.choices = {choice.lower(): choice for choice in choices}

    def fit(self, value: Any) -> str:
        name = str(value).lower()
        if not isinstance(value, str) or name not in self.choices:
            raise Misfit(value, f"one of {', '.join(self.choices.values())}")
        return self.choices[name]


class Maybe(Kind):
    """The given kind, or nothing at all: `None`, `~`, an empty text."""

    def __init__(self, kind: Kind):
        self.kind, self.textual = kind, kind.textual

    def fit(self, value: Any) -> Any:
        if value is None or (isinstance(value, str) and value.strip().lower() in {"", "~", "none", "null"}):
            return None
        try:
            return self.kind.fit(value)
        except Misfit as misfit:
            if misfit.inside or misfit.verb != "is":
                raise
            raise Misfit(value, f"{misfit.wanted}, or None") from None


@dataclass(frozen=True)
class ListOf(Kind):
    """A list of at least one, or of exactly `count` unless that is 0; a single member stands for a list of one."""

    kind: Kind
    count: int = 0
    may_be_empty: bool = False

    def fit(self, value: Any) -> list:
        members = list(value) if isinstance(value, (list, tuple, set)) else [value]
        try:
            members = [self.kind.fit(member) for member in members]
        except Misfit as misfit:
            raise Misfit(value, f"a list, each member {misfit.wanted}") from None
        if self.count and len(members) != self.count:
            raise Misfit(value, f"a list of {self.count}")
        if not members and not self.may_be_empty:
            raise Misfit(value, "a list of at least one")
        return members


@dataclass(frozen=True)
class Mapping(Kind):
    """A mapping with the `known` keys, or with keys of the user's own whose values are all of kind `each`.

    It has a `single` key, or, if it is not empty, the one that it `needs`.
    """

    known: dict[str, Kind] = field(default_factory=dict)
    each: Kind | None = None
    single: bool = False
    needs: str = ""

    def fit(self, value: Any) -> dict[str, Any]:
        names = ", ".join(self.known) if self.each is None else "names"
        if not isinstance(value, dict):
            raise Misfit(
                value, f"a mapping such as {{'key': value}} with the keys {names}" if self.known else "a mapping"
            )
        if self.single and len(value) != 1:
            raise Misfit(value, f"a mapping with one key{f' out of {names}' if self.known else ''}")
        if self.needs and value and self.needs not in value:
            raise Misfit(value, f"a mapping with the key {self.needs}")
        fitted = {}
        for name, member in value.items():
            kind = self.known.get(name, self.each)
            if kind is None:
                raise Misfit(name, f"one of {names}", verb="names")
            try:
                fitted[str(name)] = kind.fit(member)
            except Misfit as misfit:
                raise Misfit(misfit.value, misfit.wanted, f".{name}{misfit.inside}", misfit.verb) from None
        return fitted


@dataclass(frozen=True)
class Either(Kind):
    """Two kinds of value: mappings (or lists) of one kind, and everything else of another."""

    plain: Kind
    nested: Kind

    def fit(self, value: Any) -> Any:
        return (self.nested if isinstance(value, (dict, list, tuple)) else self.plain).fit(value)
