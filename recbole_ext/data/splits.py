"""Splits that cut time at two points for all users, and what is said of parts that a split leaves empty."""

from collections.abc import Callable, Sequence
from logging import getLogger
from typing import Any

import numpy as np

from recbole_ext.data.files.time_units import in_unit, text_of_time
from recbole_ext.errors import InputError

PARTS = ("training", "validation", "test")


def cuts_time(eval_args: dict[str, Any]) -> bool:
    """Whether the parts of a split are periods: validation and test begin at one time for all users."""
    (kind,) = eval_args["split"]
    return kind == "date" or (kind == "TS" and eval_args["group_by"] in (None, "none"))


def rows_of_periods(
    times: np.ndarray,
    config: Any,
    ends: tuple[float, float],
    shares_to_rows: Callable[[int, list[float]], list[int]],
    from_file: Callable[[float], float] = float,
) -> list[np.ndarray]:
    """The rows of the training, validation and test period, ascending.

    An event at the very time where a period begins belongs to that period. So do all events of that time: with shares,
    the later parts may therefore be larger than their shares.

    Args:
        times: of the examples, [n].
        config: of the run; its `eval_args` cut time (`cuts_time`).
        ends: times of the first and the last event, in the unit of the file.
        shares_to_rows: turns the number of examples and the three shares into the first row of the second and third
            part, for examples in order of time.
        from_file: turns a time in the unit of the file into the unit of `times`.

    Raises:
        InputError: a date lies outside of the data.
    """
    ((kind, how),) = config["eval_args"]["split"].items()
    if kind == "date":
        dates = [in_unit(date, config["time_unit"]) for date in how]
        if not ends[0] < dates[0] or dates[1] > ends[1]:
            numbers = isinstance(how[0], (int, float))
            period = [f"{time:.15g}" if numbers else text_of_time(time, config["time_unit"]) for time in ends]
            raise InputError(
                f"eval_args split date is {how}, but the events of data set '{config['dataset']}' are from {period[0]} "
                f"to {period[1]}{'' if numbers else ' (UTC)'}; choose two dates after the first and up to the last."
            )
        begins = [from_file(date) for date in dates]
    else:
        ordered = np.sort(times)
        rows = shares_to_rows(len(times), [share / sum(how) for share in how])
        begins = [ordered[row] if row < len(ordered) else np.inf for row in rows]
    part = np.searchsorted(begins, times, side="right")
    return [np.flatnonzero(part == number) for number in range(3)]


def add_validation(dataset: Any) -> None:
    """Give a data set of RecBole that was read from two files, training and test data, an empty validation part."""
    sizes = dataset.file_size_list if dataset.benchmark_filename_list else []
    if len(sizes) == 2:
        sizes.insert(1, 0)


def report_empty_parts(parts: Sequence[Any], config: Any) -> None:
    """Warn of an empty validation or test part, and say why it is empty and what follows.

    Args:
        parts: training, validation and test data.
        config: of the run.

    Raises:
        InputError: there is nothing to train on.
    """
    for number, part in enumerate(parts):
        if len(part):
            continue
        reason = _reason(config, number)
        if number == 0:
            raise InputError(f"there is no training data: {reason}.")
        follows = (
            f"training runs all {config['epochs']} epochs, and the last one is tested",
            "there is no test result",
        )[number - 1]
        getLogger().warning(f"There is no {PARTS[number]} data: {reason}; {follows}.")


def _reason(config: Any, number: int) -> str:
    files, eval_args = config["benchmark_filename"], config["eval_args"]
    if files:
        if len(files) == 2 and number == 1:
            return f"benchmark_filename {files} names a file for training and one for the test"
        name = files[-1 if number == 2 else number]
        return f"the file {config['dataset']}.{name}.inter has no event that can be an example"
    ((kind, how),) = eval_args["split"].items()
    if kind == "LS" and number > 0 and how == ("test_only", "valid_only")[number - 1]:
        return f"eval_args split is LS: {how}"
    if kind == "LS" and number > 0:
        return f"no user has enough events for eval_args split LS: {how}"
    if kind == "date":
        period = (f"before {how[0]}", f"from {how[0]} to before {how[1]}", f"from {how[1]} on")[number]
        return f"no event {period} (eval_args split date) can be an example"
    return f"eval_args split {kind}: {how} leaves it no event"
