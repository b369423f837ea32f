"""Units of time, and the sentence for a wrong one."""

from datetime import datetime, timezone
from logging import getLogger
from typing import Any

import numpy as np
import pandas as pd

from recbole_ext.errors import InputError

# Seconds in one unit. Times are read as float64, which tells nanoseconds since 1970 apart in steps of 256.
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "D": 86400.0}
LONGEST_YEARS, FIRST_YEAR, LATEST_YEAR = 200, 1500, 2500
YEAR = 365.25 * 86400  # in seconds


def seconds_per_unit(time_unit: str) -> float:
    """Seconds in one unit of the file's time column; `InputError` if the unit is none of `SECONDS`."""
    if time_unit not in SECONDS:
        raise InputError(f"time_unit is '{time_unit}'; it should be one of {', '.join(SECONDS)}.")
    return SECONDS[time_unit]


def in_unit(time: str | float, time_unit: str) -> float:
    """A date, or a number that is one already, as a number in a unit since 1970.

    Args:
        time: a number in the unit, or an ISO 8601 text; UTC unless it names an offset.
        time_unit: one of `SECONDS`.
    """
    if not isinstance(time, str):
        return float(time)
    moment = pd.Timestamp(time)
    moment = moment.tz_localize("UTC") if moment.tzinfo is None else moment.tz_convert("UTC")
    return moment.as_unit("ns").value / round(SECONDS[time_unit] * 1e9)


def text_of_time(time: float, time_unit: str) -> str:
    """The date and time in UTC, to the second, of a number in a unit since 1970."""
    return f"{datetime.fromtimestamp(time * SECONDS[time_unit], timezone.utc):%Y-%m-%d %H:%M:%S}"


def year_of(time: Any) -> Any:
    """The year, with its fraction, of seconds since 1970; numbers or arrays of them."""
    return 1970 + time / YEAR


def mistyped(years: np.ndarray, expected: float | None = None) -> np.ndarray:
    """Which of some years are centuries from the others or from now, bool [N]: values to correct.

    None where more than half of them are: then the unit is wrong, which `check_span` says.

    Args:
        years: of the events, with their fractions. [N]
        expected: a year of the others, where one is known; by default their median.
    """
    plausible = (years >= FIRST_YEAR) & (years <= LATEST_YEAR)
    if not plausible.any():
        return np.zeros(len(years), dtype=bool)
    expected = float(np.median(years[plausible])) if expected is None else expected
    wrong = ~plausible | (np.abs(years - expected) > LONGEST_YEARS)
    return wrong & (2 * wrong.sum() <= len(years))


def check_span(first: float, last: float, time_unit: str, field: str, source: str = "") -> None:
    """Refuse a span of centuries and times far from now, which a wrong unit gives: milliseconds read as seconds.

    Args:
        first, last: times of the first and the last event, in seconds since 1970.
        time_unit: in which the column was read.
        field: name of the time column.
        source: of the column, a file for example.

    Raises:
        InputError: names `time_unit`.
    """
    earliest, latest = year_of(first), year_of(last)
    if latest - earliest > LONGEST_YEARS or earliest < FIRST_YEAR or latest > LATEST_YEAR:
        years = [f"{np.round(number):.6g}" for number in (latest - earliest, earliest, latest)]
        raise InputError(
            f"{source and f'{source}: '}column '{field}' spans {years[0]} years, from {years[1]} to {years[2]}, when "
            f"read with time_unit: {time_unit}; set time_unit to the unit of the file ({', '.join(SECONDS)})."
        )


def report_period(first: float, last: float, time_unit: str, field: str) -> None:
    """Log the dates of seconds since 1970, which show a wrong unit; warn of what seconds give in a smaller unit."""
    begin, end = (datetime.fromtimestamp(time, timezone.utc).date() for time in (first, last))
    getLogger().info(f"Data: {field} from {begin} to {end} (time_unit: {time_unit})")
    if SECONDS[time_unit] < 1 and first > 0 and last < YEAR:
        getLogger().warning(
            f"column '{field}' lies in 1970, from {begin} to {end}, when read with time_unit: {time_unit}; if the file "
            f"has seconds, set time_unit to s."
        )
