"""Validators of the values of configuration keys and options.

`validator.validate(value)` returns the normalised value (a single name becomes a list where a list is expected, and
5.0 becomes 5), or raises `ValidationError`, which says what is expected.
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

from recbole_ext.errors import InputError

MAX_INT = 10**18  # fits in 64 bits


class ValidationError(Exception):
    """A value does not pass its validator.

    Args:
        value: the value, or the part of it that is wrong.
        expected: what would be right, to follow "it should be".
        path: of the wrong part within a mapping, e.g. `".mode.valid"`.
        verb: between the key and the value in the message: "is", or "names" for a wrong name in a mapping.
    """

    def __init__(self, value: Any, expected: str, path: str = "", verb: str = "is"):
        super().__init__(expected)
        self.value, self.expected, self.path, self.verb = value, expected, path, verb


def validate(key: str, value: Any, validator: "Validator") -> Any:
    """The normalised value of a key.

    Raises:
        InputError: names the key, the value, and what is expected.
    """
    try:
        return validator.validate(value)
    except ValidationError as error:
        raise InputError(
            f"key '{key}{error.path}' {error.verb} {error.value!r}; it should be {error.expected}."
        ) from None


def validate_keys(config: Any, validators: "dict[str, Validator]") -> dict[str, Any]:
    """The normalised values of some keys of a configuration, this package's or RecBole's.

    Args:
        config: anything that gives a value for each key.
        validators: of the keys; those of a model are its class attribute `validators`.

    Raises:
        InputError: names the first wrong key, its value, and what is expected.
    """
    return {key: validate(key, config[key], validator) for key, validator in validators.items()}


class Validator:
    """Accepts every value; subclasses accept less."""

    raw_text = False  # whether text is used as it is, rather than parsed as a literal

    def validate(self, value: Any) -> Any:
        return value


@dataclass(frozen=True)
class Number(Validator):
    """A finite number in `interval`, e.g. `"(0, 1]"`."""

    interval: str = "(-inf, inf)"
    noun = "a number"

    def validate(self, value: Any) -> int | float:
        low, high = (float(end) for end in self.interval[1:-1].split(","))
        valid = isinstance(value, numbers.Real) and not isinstance(value, bool)
        valid = valid and (low <= value if self.interval[0] == "[" else low < value)
        valid = valid and (value <= high if self.interval[-1] == "]" else value < high)
        if not valid or abs(value) > sys.float_info.max:
            raise ValidationError(value, self.expected)
        return int(value) if isinstance(value, numbers.Integral) and abs(int(value)) < MAX_INT else float(value)

    @property
    def expected(self) -> str:
        return self.noun if self.interval == "(-inf, inf)" else f"{self.noun} in {self.interval}"


class Int(Number):
    """A whole number in `interval`; 5.0 counts as 5."""

    noun = "a whole number"

    def validate(self, value: Any) -> int:
        super().validate(value)
        if value != int(value):
            raise ValidationError(value, self.expected)
        if abs(value) >= MAX_INT:
            raise ValidationError(value, f"{self.expected} of at most 18 digits")
        return int(value)


class Timestamp(Validator):
    """A number in the unit of the file's times, or a date with an optional time of day, returned as ISO 8601 text."""

    PATTERN = r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?( ?(Z|[-+]\d\d:?\d\d))?)?"
    expected = "a date such as '1998-03-01' or '1998-03-01 12:00+01:00', or a number in the unit of the file"

    def validate(self, value: Any) -> str | float:
        if not isinstance(value, (str, date, np.datetime64)):
            try:
                return Number().validate(value)
            except ValidationError:
                raise ValidationError(value, self.expected) from None
        text = str(value).strip()
        try:
            if not re.fullmatch(self.PATTERN, text):
                raise ValueError(text)
            pd.Timestamp(text).as_unit("ns")  # the day exists, within the years that nanoseconds can count
        except ValueError:
            raise ValidationError(value, self.expected) from None
        return text


class TimeRange(Validator):
    """Two dates, or two numbers; the second is later."""

    expected = "a list of two dates or of two numbers, the later one last"

    def validate(self, value: Any) -> list[str | float]:
        if not isinstance(value, (list, tuple)) or len(value) != 2:
            raise ValidationError(value, self.expected)
        times = [Timestamp().validate(member) for member in value]
        are_dates = [isinstance(time, str) for time in times]
        comparable: list[Any] = [pd.to_datetime(time, utc=True) if any(are_dates) else time for time in times]
        if are_dates[0] != are_dates[1] or not comparable[0] < comparable[1]:
            raise ValidationError(value, self.expected)
        return times


class Bool(Validator):
    """True or False; 0 and 1 are refused."""

    expected = "True or False"

    def validate(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValidationError(value, self.expected)
        return value


@dataclass(frozen=True)
class Str(Validator):
    """Text that is not empty and matches `pattern`, which `expected` describes. Numbers and paths become text."""

    pattern: str = r"(?s).+"
    expected: str = "a text"
    raw_text = True

    def validate(self, value: Any) -> str:
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value) or "\0" in value:
            raise ValidationError(value, self.expected)
        return value


class Encoding(Validator):
    """The name of a text encoding that Python has."""

    raw_text = True

    def validate(self, value: Any) -> str:
        try:
            "a".encode(value)
        except (LookupError, TypeError, ValueError):
            raise ValidationError(value, "a known encoding, e.g. utf-8, utf-16 or latin-1") from None
        return value


class OneOf(Validator):
    """One of a few names, in upper or lower case; returned as spelled here. None counts as the choice `none`."""

    raw_text = True

    def __init__(self, *choices: str):
        self.choices = {choice.lower(): choice for choice in choices}
        self.expected = f"one of {', '.join(choices)}"

    def validate(self, value: Any) -> str:
        name = str(value).lower()
        if not isinstance(value, (str, type(None))) or name not in self.choices:
            raise ValidationError(value, self.expected)
        return self.choices[name]


class OrNone(Validator):
    """A value that `validator` accepts, or None, which may be written `None`, `null`, `~` or as an empty text."""

    def __init__(self, validator: Validator):
        self.validator, self.raw_text = validator, validator.raw_text

    @property
    def expected(self) -> str:
        return f"{self.validator.expected}, or None"  # type: ignore[attr-defined]

    def validate(self, value: Any) -> Any:
        if value is None or (isinstance(value, str) and value.strip().lower() in {"", "~", "none", "null"}):
            return None
        try:
            return self.validator.validate(value)
        except ValidationError as error:
            if error.path or error.verb != "is":
                raise
            raise ValidationError(value, f"{error.expected}, or None") from None


@dataclass(frozen=True)
class ListOf(Validator):
    """A list of at least one member (`may_be_empty`: of any length), or of exactly `count`; 5 counts as [5]."""

    member: Validator
    count: int = 0
    may_be_empty: bool = False

    def validate(self, value: Any) -> list:
        members = list(value) if isinstance(value, (list, tuple, set)) else [value]
        try:
            members = [self.member.validate(member) for member in members]
        except ValidationError as error:
            raise ValidationError(value, f"a list, each member {error.expected}") from None
        if self.count and len(members) != self.count:
            raise ValidationError(value, f"a list of {self.count}")
        if not members and not self.may_be_empty:
            raise ValidationError(value, "a list of at least one")
        return members


@dataclass(frozen=True)
class MappingOf(Validator):
    """A mapping.

    Args:
        fields: the keys that it may have, and the validators of their values.
        values: the validator of the values under any other key; None refuses other keys.
        one_key: whether it has exactly one key.
        required: a key that it must have unless it is empty.
    """

    fields: dict[str, Validator] = field(default_factory=dict)
    values: Validator | None = None
    one_key: bool = False
    required: str = ""

    def validate(self, value: Any) -> dict[str, Any]:
        names = ", ".join(self.fields) if self.values is None else "names"
        if not isinstance(value, dict):
            example = f" such as {{'key': value}} with the keys {names}" if self.fields else ""
            raise ValidationError(value, f"a mapping{example}")
        if self.one_key and len(value) != 1:
            raise ValidationError(value, f"a mapping with one key{f' out of {names}' if self.fields else ''}")
        if self.required and value and self.required not in value:
            raise ValidationError(value, f"a mapping with the key {self.required}")
        result = {}
        for name, member in value.items():
            validator = self.fields.get(name, self.values)
            if validator is None:
                raise ValidationError(name, f"one of {names}", verb="names")
            try:
                result[str(name)] = validator.validate(member)
            except ValidationError as error:
                raise ValidationError(error.value, error.expected, f".{name}{error.path}", error.verb) from None
        return result


@dataclass(frozen=True)
class UnionOf(Validator):
    """`nested` checks mappings and lists, `scalar` every other value."""

    scalar: Validator
    nested: Validator

    def validate(self, value: Any) -> Any:
        return (self.nested if isinstance(value, (dict, list, tuple)) else self.scalar).validate(value)
