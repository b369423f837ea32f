"""Units of time, dates, and checks that find a wrong unit."""

from datetime import datetime, timezone
from logging import getLogger
from typing import Any

import numpy as np
import pandas as pd

from recbole_ext.errors import InputError

# Seconds in one unit. Times are float64, whose resolution for nanoseconds since 1970 is 256 ns.
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "D": 86400.0}
LONGEST_YEARS, FIRST_YEAR, LATEST_YEAR = 200, 1500, 2500
YEAR = 365.25 * 86400  # seconds


def seconds_per_unit(time_unit: str) -> float:
    """Seconds in one unit of time; `InputError` for an unknown unit."""
    if time_unit not in SECONDS:
        raise InputError(f"time_unit is '{time_unit}'; it should be one of {', '.join(SECONDS)}.")
    return SECONDS[time_unit]


def in_unit(time: str | float, time_unit: str) -> float:
    """Convert a date to a number in a unit since 1970; numbers are returned unchanged.

    Args:
        time: a number in the unit, or a date in ISO 8601, in UTC unless it has an offset.
        time_unit: one of `SECONDS`.
    """
    if not isinstance(time, str):
        return float(time)
    moment = pd.Timestamp(time)
    moment = moment.tz_localize("UTC") if moment.tzinfo is None else moment.tz_convert("UTC")
    return moment.as_unit("ns").value / round(SECONDS[time_unit] * 1e9)


def text_of_time(time: float, time_unit: str) -> str:
    """Convert a number in a unit since 1970 to a date and time in UTC, without fractions of seconds."""
    return f"{datetime.fromtimestamp(time * SECONDS[time_unit], timezone.utc):%Y-%m-%d %H:%M:%S}"


def year_of(time: Any) -> Any:
    """Convert seconds since 1970, a number or an array, to years with fractions."""
    return 1970 + time / YEAR


def mistyped(years: np.ndarray, expected: float | None = None) -> np.ndarray:
    """Whether each year is centuries from the others or from now, and so probably a typing error. bool [N]

    If more than half of the years are, all results are False: then the unit is wrong, which `check_span` reports.

    Args:
        years: of the events, with fractions. [N]
        expected: a typical year; by default the median of the plausible ones.
    """
    plausible = (years >= FIRST_YEAR) & (years <= LATEST_YEAR)
    if not plausible.any():
        return np.zeros(len(years), dtype=bool)
    expected = float(np.median(years[plausible])) if expected is None else expected
    wrong = ~plausible | (np.abs(years - expected) > LONGEST_YEARS)
    return wrong & (2 * wrong.sum() <= len(years))


def check_span(first: float, last: float, time_unit: str, field: str, source: str = "") -> None:
    """Refuse a span of centuries and times far from now, which a wrong unit causes, e.g. milliseconds read as seconds.

    Args:
        first, last: times of the first and the last event, in seconds since 1970.
        time_unit: of the column.
        field: name of the time column.
        source: of the column, e.g. a file.

    Raises:
        InputError: the message names `time_unit`.
    """
    earliest, latest = year_of(first), year_of(last)
    if latest - earliest > LONGEST_YEARS or earliest < FIRST_YEAR or latest > LATEST_YEAR:
        years = [f"{np.round(number):.6g}" for number in (latest - earliest, earliest, latest)]
        raise InputError(
            f"{source and f'{source}: '}column '{field}' spans {years[0]} years, from {years[1]} to {years[2]}, when "
            f"read with time_unit: {time_unit}; set time_unit to the unit of the file ({', '.join(SECONDS)})."
        )


def report_period(first: float, last: float, time_unit: str, field: str) -> None:
    """Log the dates of the data; warn if seconds were probably read in a smaller unit."""
    begin, end = (datetime.fromtimestamp(time, timezone.utc).date() for time in (first, last))
    getLogger().info(f"Data: {field} from {begin} to {end} (time_unit: {time_unit})")
    if SECONDS[time_unit] < 1 and first > 0 and last < YEAR:
        getLogger().warning(
            f"column '{field}' is in 1970, from {begin} to {end}, when read with time_unit: {time_unit}; if the file "
            f"contains seconds, set time_unit to s."
        )
