"""Strict conversion of table columns: tokens to text and ids, times to seconds, features to tensors. N rows."""

import re
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import torch
from recbole.utils import FeatureType
from torch import Tensor

from recbole_ext.data.description import DatasetDescription
from recbole_ext.data.files.table import Table
from recbole_ext.data.files.time_units import FIRST_YEAR, LATEST_YEAR, YEAR, check_span, mistyped, seconds_per_unit
from recbole_ext.errors import InputError

NUMBERS = (int, float, Decimal, np.integer, np.floating)
FLAGS = (bool, np.bool_)
PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}  # units of NumPy's dates
UTC = re.compile(r" ?(UTC|GMT)$")
YEAR_FIRST = re.compile(r"\s*\d{4}\D")
NARROW = (np.float32, np.float16)  # floating-point types that round numbers long before float64


class Vocabulary:
    """Maps tokens to ids. Unknown tokens have id 0, the id of the padding.

    Args:
        tokens: by id; the first token is the padding.
    """

    def __init__(self, tokens: list[str]):
        self.tokens = np.asarray(tokens, dtype=object)
        self.index = pd.Index(self.tokens[1:])

    def ids(self, tokens: np.ndarray) -> np.ndarray:
        """int64, the shape of `tokens`."""
        return self.index.get_indexer(pd.Index(tokens, dtype=object)).astype(np.int64) + 1


def _array(column: pd.Series) -> np.ndarray:
    """A column of any dtype as a NumPy array: numbers, dates in UTC, or objects."""
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    return column.to_numpy()


def _is_number(value: Any) -> bool:
    return isinstance(value, NUMBERS) and not isinstance(
        value, (*FLAGS, np.timedelta64)
    )  # a subclass of NumPy's integers


def _digits(kind: type) -> int:
    """Whole numbers are exact up to 2 to this power: 53 for float64, 24 for float32."""
    return min(np.finfo(kind).nmant + 1, 53)


def _refuse_rounded(table: Table, name: str, values: np.ndarray, kinds: tuple[type, ...], remedy: str) -> None:
    """Refuse numbers so large that their floating-point type rounds whole numbers."""
    for kind in kinds:
        if values.dtype.kind == "O":
            of_kind = np.array([isinstance(value, kind) for value in values], dtype=bool)
        else:
            of_kind = np.full(len(values), values.dtype == kind)
        large = np.zeros(len(values), dtype=bool)
        large[of_kind] = ~(np.abs(values[of_kind].astype(np.float64)) < 2.0 ** _digits(kind))
        table.refuse(large, name, f"a number of type {kind.__name__} is exact up to 2^{_digits(kind)} only; {remedy}")


def missing(column: pd.Series) -> np.ndarray:
    """Which values are missing or empty text, bool [N]."""
    is_missing, values = column.isna().to_numpy(dtype=bool), _array(column)
    if values.dtype.kind == "O":
        is_missing |= np.array([isinstance(value, str) and not value for value in values], dtype=bool)
    return is_missing


# -------------------------------------------------------------------- tokens


def as_text(table: Table, name: str, flags: bool = False) -> np.ndarray:
    """Tokens of a column as text, as in atomic files, [N]: 7 and 7.0 become '7'.

    Args:
        table: the rows.
        name: the column.
        flags: whether True and False are valid tokens: yes for features, no for users and items.

    Raises:
        InputError: a token is missing, has a NUL character, or is neither text nor a whole number.
    """
    text = _as_text(table, name, flags)
    table.refuse(np.array(["\0" in token for token in text], dtype=bool), name, "remove the NUL character")
    return text


def _as_text(table: Table, name: str, flags: bool) -> np.ndarray:
    column = table.frame[name]
    table.refuse(missing(column), name, "give every row one")
    values = _array(column)
    if values.dtype.kind == "O" and pd.api.types.infer_dtype(values, skipna=False) == "string":
        return values
    if values.dtype.kind in "fO":
        _refuse_rounded(table, name, values, NARROW, "give text or whole numbers")
    if values.dtype.kind == "f" and (np.abs(values) < 2.0**53).all() and (values % 1 == 0).all():
        values = values.astype(np.int64)
    if values.dtype.kind in "iu":
        return pd.Series(values).astype(str).to_numpy(dtype=object)
    objects = np.array(list(values), dtype=object) if values.dtype.kind != "O" else values
    kinds = (str, *FLAGS) if flags else (str,)
    wrong = [not (isinstance(value, kinds) or _is_number(value)) for value in objects]
    table.refuse(np.array(wrong, dtype=bool), name, "it should be text or a whole number")
    fractional = np.array([isinstance(value, (float, Decimal, np.floating)) for value in objects], dtype=bool)
    numbers = objects[fractional].astype(np.float64)
    unsafe = np.zeros(len(objects), dtype=bool)
    unsafe[fractional] = ~(np.abs(numbers) < 2.0**53)
    table.refuse(unsafe, name, "a number with a decimal point is exact up to 2^53 only; give text or whole numbers")
    if (numbers % 1 == 0).all():  # a column of integers with missing values has floats
        objects = objects.copy()
        objects[fractional] = [int(number) for number in numbers]
    return np.array([str(value) for value in objects], dtype=object)


# -------------------------------------------------------------------- numbers and times


def _as_numbers(values: np.ndarray) -> np.ndarray:
    """Numbers, and text that is a number, as float64 [N]; NaN for other values."""
    if values.dtype.kind in "iuf":
        return values.astype(np.float64)
    if values.dtype.kind != "O":
        return np.full(len(values), np.nan)
    if pd.api.types.infer_dtype(values, skipna=True) != "string":
        values = np.array([v if isinstance(v, str) else _as_float(v) for v in values], dtype=object)
    return pd.to_numeric(pd.Series(values, dtype=object), errors="coerce").to_numpy(dtype=np.float64)


def _as_float(value: Any) -> float:
    """A number as float64; NaN for other values and for integers of more than 308 digits."""
    try:
        return float(value) if _is_number(value) else np.nan
    except OverflowError:
        return np.nan


def _as_dates(values: np.ndarray) -> np.ndarray:
    """Dates, and text in ISO 8601, as seconds since 1970, float64 [N]; NaN for other values.

    Dates without a time zone are in UTC. Text must begin with the year, because pandas guesses the order of day and
    month otherwise, and accepts `now`.
    """
    if values.dtype.kind == "M":
        per_second = PER_SECOND[np.datetime_data(values.dtype)[0]]
        return np.where(np.isnat(values), np.nan, values.view(np.int64) / per_second)
    converted = np.full(len(values), np.nan)
    if values.dtype.kind != "O":
        return converted
    text = np.array([isinstance(value, str) and YEAR_FIRST.match(value) is not None for value in values], dtype=bool)
    objects = np.array([isinstance(value, (date, np.datetime64)) for value in values], dtype=bool)
    if text.any():
        values = values.copy()
        values[text] = [UTC.sub("+00:00", value.strip()) for value in values[text]]
    for where, style in ((text, "ISO8601"), (objects, None)):
        if where.any():
            dates = pd.to_datetime(pd.Series(values[where], dtype=object), format=style, utc=True, errors="coerce")
            converted[where] = _as_dates(_array(dates))
    for row in np.flatnonzero((text | objects) & np.isnan(converted)):  # outside the years 1677 to 2262
        converted[row] = _far_date(values[row])
    return converted


def _far_date(value: Any) -> float:
    """Seconds since 1970 of a date that pandas cannot store in nanoseconds; NaN for other values."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
            value = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        return np.nan if pd.isna(value) else float(pd.Timestamp(value).timestamp())
    except (ValueError, OverflowError):
        return np.nan


def times(table: Table, name: str, description: DatasetDescription) -> np.ndarray:
    """A column of times since 1970 in the unit of the training file (`time_unit`), float64 [N].

    Args:
        table: the rows. Times are numbers in that unit, or dates: objects of Python, NumPy or pandas, or text in ISO
            8601. Dates without a time zone are in UTC.
        name: the column.
        description: of the training data.

    Raises:
        InputError: a time is missing or is neither a number nor a date; numbers and dates are mixed.
    """
    unit = description.config["time_unit"]
    values = _array(table.frame[name])
    numbers = _as_numbers(values)
    is_number = np.isfinite(numbers)
    dates = np.full(len(values), np.nan) if is_number.all() else _as_dates(values)
    is_date = np.isfinite(dates)
    wrong = ~(is_number | is_date)
    table.refuse(wrong, name, f"it should be a number in time_unit {unit}, or a date such as 2020-12-31T18:30")
    _refuse_rounded(table, name, values, NARROW, "give times as float64 or whole numbers")
    if is_number.any() and is_date.any():
        fewer, others = (is_date, "numbers") if is_number.sum() >= is_date.sum() else (is_number, "dates")
        table.refuse(fewer, name, f"other times are {others}: give numbers in time_unit {unit} alone, or dates alone")
    return dates / seconds_per_unit(unit) if is_date.any() else numbers


def seconds(table: Table, name: str, description: DatasetDescription) -> np.ndarray:
    """A column of event times in seconds since the first training event, float64 [N].

    Args:
        table, name, description: as for `times`.

    Raises:
        InputError: as `times`; a time is centuries away from the others, or all are centuries away from today.
    """
    config, values = description.config, times(table, name, description)
    unit = seconds_per_unit(config["time_unit"])
    if len(values):
        years = 1970 + values * (unit / YEAR)
        wrong = mistyped(years, expected=1970 + description.first_time * (unit / YEAR))
        if wrong.any():
            year = f"{np.round(years[wrong][0]):.6g}"
            table.refuse(wrong, name, f"that is about the year {year}, far from most of the others; correct it")
        first, last = np.clip([values.min(), values.max()], -1e300, 1e300).tolist()  # avoids overflow
        check_span(first * unit, last * unit, config["time_unit"], name, table.path)
    return (values - description.first_time) * unit


def request_seconds(table: Table, name: str, description: DatasetDescription) -> np.ndarray:
    """A column of request times in seconds since the first training event, float64 [N].

    Raises:
        InputError: as `times`; a time is far from today, for example milliseconds read as seconds.
    """
    values, unit = times(table, name, description), description.config["time_unit"]
    years = 1970 + values * (seconds_per_unit(unit) / YEAR)
    wrong = (years < FIRST_YEAR) | (years > LATEST_YEAR)
    if wrong.any():
        year = f"{np.round(years[wrong][0]):.6g}"
        table.refuse(wrong, name, f"in time_unit {unit} that is about the year {year}; give that unit, or a date")
    return (values - description.first_time) * seconds_per_unit(unit)


def numbers(table: Table, name: str) -> np.ndarray:
    """A column of numbers, or of True and False, float64 [N]; `InputError` for other and missing values."""
    values = _array(table.frame[name])
    values = values.astype(np.float64) if values.dtype.kind == "b" else _as_numbers(values)
    table.refuse(~np.isfinite(values), name, "it should be a number")
    return values


# -------------------------------------------------------------------- features


def feature(table: Table, name: str, description: DatasetDescription) -> Tensor:
    """A feature column as the model reads it: ids [N] or [N, S], or numbers, float32 [N].

    Unknown and missing tokens become padding. S is the length of the longest sequence in the training data.

    Raises:
        InputError: a number is missing or wrong; the column was discretised in training (`discretization`).
    """
    kind = description.field2type[name]
    if kind == FeatureType.FLOAT:
        if name in (description.config["discretization"] or {}):
            raise InputError(
                f"column '{name}' is discretised, which is not supported in histories; leave it out of them."
            )
        values = numbers(table, name)
        low, high = description.normalised.get(name, (0.0, 1.0))
        scaled = (values - low) / (high - low) if high > low else np.ones_like(values)
        return torch.from_numpy(scaled).to(torch.float32)
    vocabulary = Vocabulary(description.field2id_token[name])
    if kind == FeatureType.TOKEN:
        present = ~missing(table.frame[name])
        ids = np.zeros(len(present), dtype=np.int64)
        ids[present] = vocabulary.ids(as_text(table.take(present), name, flags=True))
        return torch.from_numpy(ids)
    separator, width = description.config["seq_separator"], description.field2seqlen[name]
    members = [_members(words, separator) for words in table.frame[name]]
    lengths = [len(words) for words in members]
    row = np.repeat(np.arange(len(members)), lengths)  # of each member
    flat = pd.Series([word for words in members for word in words], table.frame.index[row], dtype=object)
    member_ids = vocabulary.ids(as_text(replace(table, frame=flat.to_frame(name)), name, flags=True))
    position = np.arange(len(row)) - np.repeat(np.cumsum(lengths, dtype=np.int64) - lengths, lengths)
    ids = np.zeros((len(members), width), dtype=np.int64)
    fits = position < width
    ids[row[fits], position[fits]] = member_ids[fits]
    return torch.from_numpy(ids)


def _members(words: Any, separator: str) -> list[Any]:
    """Tokens of a sequence, from text or a list; empty for a missing value."""
    members = words.split(separator) if isinstance(words, str) else [] if np.ndim(words) == 0 else list(words)
    return [word for word in members if np.ndim(word) or not (pd.isna(word) or word == "")]
