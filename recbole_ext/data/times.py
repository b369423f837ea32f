"""Units of time, and the sentence for a wrong one."""

from recbole_ext.errors import InputError

# Seconds in one unit. Times are read as float64, which tells nanoseconds since 1970 apart in steps of 256.
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "D": 86400.0}
LONGEST_YEARS, FIRST_YEAR, LATEST_YEAR = 200, 1500, 2500


def seconds_per_unit(time_unit: str) -> float:
    """Seconds in one unit of the file's time column; `InputError` if the unit is none of `SECONDS`."""
    if time_unit not in SECONDS:
        raise InputError(f"time_unit is '{time_unit}'; it should be one of {', '.join(SECONDS)}.")
    return SECONDS[time_unit]


def check_span(first: float, last: float, time_unit: str, field: str) -> None:
    """Refuse a span of centuries and times far from now, which a wrong unit gives: milliseconds read as seconds.

    Args:
        first, last: times of the first and the last event, in seconds since 1970.
        time_unit: in which the column was read.
        field: name of the time column.

    Raises:
        InputError: names `time_unit`.
    """
    year = 365.25 * 86400
    years, earliest, latest = (last - first) / year, 1970 + first / year, 1970 + last / year
    if years > LONGEST_YEARS or earliest < FIRST_YEAR or latest > LATEST_YEAR:
        raise InputError(
            f"column '{field}' spans {years:.0f} years, from {earliest:.0f} to {latest:.0f}, "
            f"when read with time_unit: {time_unit}; set time_unit to the unit of the file ({', '.join(SECONDS)})."
        )
