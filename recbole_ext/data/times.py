"""Exact time: float64 seconds since the first event of the data."""

import numpy as np
import pandas as pd

from recbole_ext.errors import InputError

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "D": 86400.0}
LONGEST_YEARS = 200


def seconds_per_unit(time_unit: str) -> float:
    """Seconds in one unit of the file's time column; `InputError` if the unit is none of `SECONDS`."""
    if time_unit not in SECONDS:
        raise InputError(f"time_unit is '{time_unit}'; it should be one of {', '.join(SECONDS)}.")
    return SECONDS[time_unit]


def check_times(times: pd.Series, path: str) -> None:
    """Refuse an event without a time: put anywhere in a history, it would be a guess.

    Raises:
        InputError: names the first line without a time.
    """
    bad = times.isna().to_numpy()
    if bad.any():
        line = int(np.flatnonzero(bad)[0]) + 2
        more = f" (and {bad.sum() - 1} more)" if bad.sum() > 1 else ""
        raise InputError(f"{path} line {line}{more}: {times.name} is empty; give every event a time or drop the line.")


def check_span(first: float, last: float, time_unit: str, field: str) -> None:
    """Refuse a span of centuries, which a wrong unit gives: milliseconds read as seconds.

    Args:
        first, last: times of the first and the last event, in seconds.

    Raises:
        InputError: names `time_unit`.
    """
    years = (last - first) / (365.25 * 86400)
    if years > LONGEST_YEARS:
        raise InputError(
            f"column '{field}' spans {years:.0f} years when read with time_unit: {time_unit}; "
            f"set time_unit to the unit of the file ({', '.join(SECONDS)})."
        )
