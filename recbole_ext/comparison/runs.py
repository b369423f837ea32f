"""Reads finished runs: the JSON of a run, its metrics of each user, or its checkpoint."""

import json
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from recbole_ext.data.files.table import Table, read_csv
from recbole_ext.errors import InputError
from recbole_ext.evaluation.per_user import SUFFIXES
from recbole_ext.quick_start import evaluate_checkpoint
from recbole_ext.utils.paths import check_suffix
from recbole_ext.utils.wording import listed

SOURCES = (".json", *SUFFIXES, ".pth")
COUNTS = ("positives", "events")  # the second column of a table of `per_user_table`: of rankings, of labels
MAY_BE_EMPTY = ("auc", "gauc")  # without values for users whose labels are all equal


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        path: the file that was read.
        keys: the configuration; None if the file does not have it.
        test_data: the result of `describe_test_data`; None if the file does not have it.
        sums: each user's weighted sum of each metric, [users, metrics], sorted by user.
        weights: the weights in these sums, such that sum(sums) / sum(weights) is the metric of all users.
        targets: each user's number of rankings and of targets, [users, 2], in the same order.
    """

    path: str
    keys: dict[str, Any] | None
    test_data: dict[str, Any] | None
    sums: pd.DataFrame
    weights: pd.DataFrame
    targets: pd.DataFrame

    @property
    def means(self) -> pd.Series:
        """Each metric of all users, as the run has printed it."""
        return self.sums.sum() / self.weights.sum()


def read_run(path: str) -> Run:
    """Read a run.

    Args:
        path: the JSON of `--json`, which names the metrics of each user or a checkpoint; the metrics of each user of
            `--per_user`; or a checkpoint, which is evaluated on its test data.

    Raises:
        InputError: the file cannot be read, or is none of these.
    """
    if not os.path.isfile(path):
        raise InputError(f"there is no run {path}; name a file.")
    suffix = check_suffix(path, SOURCES, "a run")
    if suffix == ".json":
        return _read_result(path)
    if suffix == ".pth":
        return _evaluated(path, path)
    table = read_table(path)
    return _run(path, table, table.frame.attrs.get("config"), table.frame.attrs.get("test_data"))


def _read_result(path: str) -> Run:
    """The run of a JSON file, with the metrics of each user that it names, or else with those of its checkpoint."""
    result = _load_result(path)
    keys, metrics, named = result["config"], result["test_result"], _named_files(result, path)
    file_name, checkpoint = named.get("per_user"), named.get("checkpoint")
    if file_name is None and checkpoint is None:
        raise InputError(f"{path} names no metrics of each user and no checkpoint; run it again with --per_user=FILE.")
    if file_name is None:
        return _evaluated(str(checkpoint), path)
    run = _run(path, read_table(file_name), keys, result.get("test_data"))
    _check_means(run, metrics, file_name)
    return run


def files_of_run(path: str) -> dict[str, str]:
    """The files that `read_run` may read, by what they are: `run`, and the `per_user` or `checkpoint` of a JSON file.

    Raises:
        InputError: the JSON file cannot be read, or is not the result of a run.
    """
    is_result = path.lower().endswith(".json") and os.path.isfile(path)
    return {"run": path, **(_named_files(_load_result(path), path) if is_result else {})}


def _load_result(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}.") from error
    parts = [result.get(name) if isinstance(result, dict) else None for name in ("config", "test_result")]
    if not all(isinstance(part, dict) for part in parts):
        raise InputError(f"{path} is not the result of a run with test data; it should be a file of --json.")
    return result


def _named_files(result: dict[str, Any], path: str) -> dict[str, str]:
    """The files that a result names: its `per_user` and its `checkpoint`, those that it has."""
    names = {name: result.get(name) for name in ("per_user", "checkpoint")}
    return {name: _beside(file, path) for name, file in names.items() if isinstance(file, str) and file}


def _beside(name: str, path: str) -> str:
    """A file that a result names; if it has moved together with the result, the file beside the result."""
    beside = os.path.join(os.path.dirname(path), os.path.basename(name))
    return beside if not os.path.exists(name) and os.path.exists(beside) else name


def _evaluated(checkpoint: str, path: str) -> Run:
    config, _, users = evaluate_checkpoint(checkpoint, per_user=True)
    if users is None:
        raise InputError(f"checkpoint {checkpoint} has no test data; its split leaves them empty.")
    return _run(path, Table(path, users), config.to_dict(), users.attrs["test_data"])


def _check_means(run: Run, metrics: dict[str, Any], file_name: str) -> None:
    """`InputError` if the metrics of each user are not those of the result: a later run may have written the file."""
    decimals = (run.keys or {}).get("metric_decimal_place")
    tolerance = 10.0 ** -(decimals if isinstance(decimals, int) else 4)
    for name, value in run.means.items():
        measured = metrics.get(name)
        if name != "auc" and isinstance(measured, (int, float)) and not np.isclose(value, measured, 0, tolerance):
            raise InputError(
                f"{run.path} has {name} {measured}, but the users of {file_name} have {value:.4f}; the file is of "
                f"another run."
            )


# -------------------------------------------------------------------- metrics of each user


def read_table(path: str) -> Table:
    """A file of metrics of each user, with the attributes that a Parquet file has.

    Raises:
        InputError: it cannot be read.
    """
    if not os.path.isfile(path):
        raise InputError(f"there are no metrics of each user in {path}; it does not exist.")
    if check_suffix(path, SUFFIXES, "the file of metrics of each user") == ".csv":
        return read_csv(path, "utf-8", None, "save it as utf-8")
    import pyarrow

    try:
        return Table(path, pd.read_parquet(path, engine="pyarrow"))
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        reason = (str(error).strip().splitlines() or ["no reason given"])[0].rstrip(".")
        raise InputError(f"{path} cannot be read as a parquet file: {reason}.") from error


def _run(path: str, table: Table, keys: Any, test_data: Any) -> Run:
    """The run of a table of `per_user_table`, after checks of every value."""
    _check_stated(keys, test_data, path)
    frame, source = table.frame, table.path
    names = [str(name) for name in frame.columns]
    if len(names) < 3 or names[1] not in COUNTS:
        raise InputError(
            f"{source} has the columns {', '.join(names) or 'none'}; it should have a user, {' or '.join(COUNTS)}, and "
            f"metrics, as --per_user writes them."
        )
    if frame.empty:
        raise InputError(f"{source} has no users.")
    (user, count), metrics = names[:2], names[2:]
    table.refuse(frame[user].isna(), user, "it should be a user")
    numbers = frame[names[1:]].apply(pd.to_numeric, errors="coerce").astype(float)
    for name in names[1:]:
        optional = name in MAY_BE_EMPTY
        wrong = ~np.isfinite(numbers[name]) & ~(frame[name].isna() & optional)
        table.refuse(wrong, name, "it should be a number" + (" or empty" if optional else ""))
    table.refuse((numbers[count] < 1) | (numbers[count] % 1 != 0), count, "it should be a whole number from 1")
    users = frame[user].astype(str)
    if count == "events":
        table.refuse(users.duplicated(), user, "which has a row already; labels have one row for each user")

    weights = pd.DataFrame({name: _weight(name, numbers, count) for name in metrics})
    sums = (numbers[metrics].fillna(0) * weights).groupby(users).sum()
    targets = numbers[[count]].assign(rankings=1.0).groupby(users).sum()
    return Run(path, keys, test_data, sums, weights.groupby(users).sum(), targets)


def _check_stated(keys: Any, test_data: Any, path: str) -> None:
    """`InputError` if the keys of a run or its test data, where it has them, are not what a run writes."""
    sides: list[tuple[str, Any, dict[str, type]]] = [("test_data", test_data, {"digest": str, "items": int})]
    if keys is not None:
        evaluation = keys.get("eval_args") if isinstance(keys, dict) else None
        sides += [
            ("config", keys, {"model": str, "eval_args": dict}),
            ("config.eval_args", evaluation, {"split": dict, "mode": dict}),
        ]
    kinds = {dict: "a dictionary", str: "a text", int: "a whole number"}
    for name, value, members in sides:
        if value is None:
            continue
        if not isinstance(value, dict):
            raise InputError(f"{path}: {name} is {value!r}; it should be a dictionary, as a run writes it.")
        for member, kind in members.items():
            if not isinstance(value.get(member), kind):
                found = repr(value[member]) if member in value else "missing"
                raise InputError(f"{path}: {name}.{member} is {found}; it should be {kinds[kind]}, as a run writes it.")


def _weight(metric: str, numbers: pd.DataFrame, count: str) -> pd.Series:
    """The weight of each row in a metric of all users: see docs/evaluation.md."""
    weight = numbers[count] if count == "events" or metric == "gauc" else pd.Series(1.0, numbers.index)
    return weight.where(numbers[metric].notna(), 0.0)


def check_same_users(runs: list[Run]) -> None:
    """Refuse runs with different test users or targets.

    Raises:
        InputError: names the first run that differs from the first one, and how.
    """
    first = runs[0]
    for run in runs[1:]:
        pair = f"{first.path} and {run.path} cannot be compared"
        if not first.targets.index.equals(run.targets.index):
            more, less = (
                len(one.targets.index.difference(other.targets.index)) for one, other in ((first, run), (run, first))
            )
            parts = [f"{number:,} only in {path}" for number, path in ((more, first.path), (less, run.path)) if number]
            raise InputError(f"{pair}: they have different test users, {listed(parts)}.")
        if list(first.targets) != list(run.targets):
            raise InputError(f"{pair}: one has metrics of rankings, the other of labels.")
        common = first.weights.columns.intersection(run.weights.columns)
        differs = (first.targets != run.targets).any(axis=1) | (first.weights[common] != run.weights[common]).any(
            axis=1
        )
        if differs.any():
            raise InputError(
                f"{pair}: user '{differs.idxmax()}' has other numbers of targets or rankings in them "
                f"({int(differs.sum()):,} of {len(differs):,} users)."
            )
        if first.test_data and run.test_data and first.test_data["digest"] != run.test_data["digest"]:
            raise InputError(f"{pair}: the items of the test targets differ; use the same data and split.")
