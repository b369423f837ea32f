"""`compare`: finished runs in one table, with paired intervals and p-values."""

import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from recbole_ext.comparison import protocol
from recbole_ext.comparison.figures import all_figures
from recbole_ext.comparison.runs import Run, check_same_users, files_of_run, read_run
from recbole_ext.comparison.statistics import bootstrap_difference, holm
from recbole_ext.errors import InputError
from recbole_ext.utils.atomic_write import write_whole
from recbole_ext.utils.html import render
from recbole_ext.utils.literals import to_builtin
from recbole_ext.utils.paths import writable_file
from recbole_ext.utils.validators import Int, ListOf, Number, Str, validate
from recbole_ext.utils.wording import nearest, quoted

FEW_USERS = 30
VALIDATORS = {
    "metrics": ListOf(Str(expected="the name of a metric")), "confidence": Number("(0, 1)"),
    "resamples": Int("[100, 1000000]"), "seed": Int("[0, inf)"),
}  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`.

    Attributes:
        table: for each metric and row, `name`, `runs` (number of seeds), `metric`, `mean` and `std` over the runs
            (`std` is NaN for one run), `difference` from the baseline, its interval from `low` to `high`, `p_value`,
            and `p_corrected` for all comparisons in the table (Holm). The last five are NaN for the baseline.
        runs: each run's `name` of its row, `path`, `seed` and metrics.
        baseline: the name of the row that the others are compared with.
        users: number of test users.
        confidence: of the intervals.
        resamples: of the bootstrap.
        protocol: how the first run was evaluated.
        warnings: sentences about what limits the comparison.
    """

    table: pd.DataFrame
    runs: pd.DataFrame
    baseline: str
    users: int
    confidence: float
    resamples: int
    protocol: dict[str, Any]
    warnings: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, e.g. for JSON; NaN becomes None."""
        return {
            "table": _records(self.table), "runs": _records(self.runs), "baseline": self.baseline, "users": self.users,
            "confidence": self.confidence, "resamples": self.resamples, "protocol": self.protocol,
            "warnings": self.warnings,
        }  # fmt: skip

    def write_html(self, path: str) -> None:
        """Write a page with the table and figures, which works offline.

        Raises:
            InputError: the file cannot be written.
        """
        path = writable_file(path, "the page")
        text = render(
            "comparison/page.html", f"Comparison with {self.baseline}", all_figures(self), comparison=self,
            metrics=list(dict.fromkeys(self.table["metric"])), cells=self.cells,
        )  # fmt: skip
        with write_whole(path) as file:
            file.write(text.encode())

    def cells(self, metric: str) -> tuple[list[str], list[list[str]]]:
        """The header and the rows of the table of a metric, as text."""
        several = len(self.table) - self.table["metric"].nunique() > 1
        header = ["name", "runs", metric, "difference", f"{100 * self.confidence:.4g} % interval", "p"]
        rows = []
        for row in self.table[self.table["metric"] == metric].itertuples():
            spread = "" if np.isnan(row.std) else f" ± {row.std:.4f}"
            cells = [row.name, str(row.runs), f"{row.mean:.4f}{spread}"]
            if row.name == self.baseline:
                cells += ["baseline", *[""] * (2 + several)]
            else:
                cells += [f"{row.difference:+.4f}", f"{row.low:+.4f} to {row.high:+.4f}", f"{row.p_value:.4f}"]
                cells += [f"{row.p_corrected:.4f}"] * several
            rows.append(cells)
        return [*header, *["p, corrected"] * several], rows


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return to_builtin([
        {key: None if isinstance(value, float) and np.isnan(value) else value for key, value in record.items()}
        for record in table.to_dict("records")
    ])  # fmt: skip


def compare(
    runs: Sequence[str | os.PathLike] | Mapping[str, Any],
    baseline: str | None = None,
    metrics: str | Sequence[str] | None = None,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 2020,
) -> Comparison:
    """Compare the test metrics of finished runs on the same users.

    Each run is the JSON file of `--json`, the metrics of each user of `--per_user` (`.csv` or `.parquet`), or a
    checkpoint, which is evaluated again. The difference of two rows is bootstrapped over the test users, whose metrics
    are averaged over the runs of a row. Interval and p-value answer whether the difference could come from the choice
    of the users. They do not cover the choice of the seeds, which `std` shows.

    Args:
        runs: the files, or patterns such as `"runs/*.json"`. Runs that differ in the seed only become one row. A
            mapping from names to a file, a pattern or a list of these sets the rows and their names.
        baseline: name of the row that the others are compared with; None means the first row.
        metrics: names such as `"NDCG@10"`; None means the `valid_metric` of the first run.
        confidence: of the intervals, in (0, 1).
        resamples: number of resamples of the bootstrap.
        seed: of the bootstrap; the result depends on nothing else.

    Raises:
        InputError: a file cannot be read or has wrong values; there are fewer than two rows; the rows have different
            test users, targets or candidates; a name does not exist.
    """
    given = {"metrics": metrics, "confidence": confidence, "resamples": resamples, "seed": seed}
    options: dict[str, Any] = {
        key: None if value is None and key == "metrics" else validate(key, value, VALIDATORS[key])
        for key, value in given.items()
    }
    rows = _named_rows(runs) if isinstance(runs, Mapping) else _grouped_rows(runs)
    if len(rows) < 2:
        raise InputError(
            f"there is one row to compare, {quoted(rows)}; name two runs or more that differ in more than the seed."
        )
    first = next(iter(rows))
    if baseline is None:
        baseline = first
    elif baseline not in rows:
        raise InputError(f"there is no row '{baseline}' to be the baseline; the rows are {quoted(rows, 20)}.")
    every_run = [run for row in rows.values() for run in row]
    check_same_users(every_run)
    warnings = [*protocol.differences(rows), *_warnings_of_rows(rows)]
    names = _metrics(options["metrics"], every_run)
    user_count = len(every_run[0].targets)
    if user_count < FEW_USERS:
        warnings.append(f"There are only {user_count} test users; the intervals of so few are too narrow.")
    return Comparison(
        _table(rows, baseline, names, options), _run_table(rows), baseline, user_count, options["confidence"],
        options["resamples"], protocol.protocol(every_run[0]), warnings,
    )  # fmt: skip


def files_read(runs: Sequence[str] | Mapping[str, Any]) -> dict[str, str]:
    """The files that `compare` reads: each run, and the metrics of each user and the checkpoint that it names.

    Args:
        runs: as for `compare`.

    Returns:
        paths, by a description of each for messages.

    Raises:
        InputError: there is no such file, or it is not the result of a run.
    """
    listed = [file for files in runs.values() for file in files] if isinstance(runs, Mapping) else list(runs)
    return {
        f"run {path}" + f" ({kind})" * (kind != "run"): file
        for path in _paths(listed)
        for kind, file in files_of_run(path).items()
    }


# -------------------------------------------------------------------- rows


def _named_rows(runs: Mapping[str, Any]) -> dict[str, list[Run]]:
    rows = {}
    for name, files in runs.items():
        listed_files = files if isinstance(files, (list, tuple)) else [files]
        rows[str(name)] = [read_run(path) for path in _paths(listed_files)]
    return rows


def _grouped_rows(runs: Sequence[str | os.PathLike]) -> dict[str, list[Run]]:
    """Runs that differ in the seed only as rows, named by their model and the keys in which models differ."""
    if isinstance(runs, (str, os.PathLike)):
        runs = [runs]
    groups: dict[str, list[Run]] = {}
    for path in _paths(runs):
        run = read_run(path)
        groups.setdefault(protocol.same_but_seed(run), []).append(run)
    firsts = [group[0] for group in groups.values()]
    names = [_row_name(run, firsts) for run in firsts]
    names = [name if names.count(name) == 1 else run.path for name, run in zip(names, firsts, strict=True)]
    return dict(zip(names, groups.values(), strict=True))


def _paths(files: Sequence[Any]) -> list[str]:
    """The files, with patterns expanded, each once."""
    paths: list[str] = []
    for file in files:
        if not isinstance(file, (str, os.PathLike)):
            raise InputError(f"a run is {file!r}; it should be the path of a file.")
        path = os.path.expanduser(file)
        matches = [path] if os.path.exists(path) else sorted(glob.glob(path))
        if not matches:
            raise InputError(f"there is no run {path}; name a file, or a pattern such as 'runs/*.json'.")
        paths += matches
    return list(dict.fromkeys(paths))


def _row_name(run: Run, others: list[Run]) -> str:
    """The model of a run, and its keys that differ among the runs of this model; the file if the keys are unknown."""
    if run.keys is None:
        return os.path.splitext(os.path.basename(run.path))[0]
    model, keys = run.keys.get("model"), protocol.training_keys(run)
    same_model = [protocol.training_keys(other) for other in others if (other.keys or {}).get("model") == model]
    differing = [
        f"{key}={value}" for key, value in keys.items()
        if key != "seed" and any(other.get(key) != value for other in same_model)
    ]  # fmt: skip
    return ", ".join([str(model), *differing])


def _warnings_of_rows(rows: dict[str, list[Run]]) -> list[str]:
    """Sentences about rows whose runs differ in more than the seed.

    Raises:
        InputError: two runs of a row have the same seed, so that one of them is a repetition.
    """
    sentences = []
    for name, runs in rows.items():
        known = [run for run in runs if run.keys is not None]
        keys = [protocol.training_keys(run) for run in known]
        for index, run in enumerate(known):
            if keys[index] in keys[:index]:
                other = known[keys.index(keys[index])]
                raise InputError(f"{other.path} and {run.path} have the same keys and the same seed; leave one out.")
        all_keys = dict.fromkeys(key for of_run in keys for key in of_run if key != "seed")
        different = [key for key in all_keys if any(of_run.get(key) != keys[0].get(key) for of_run in keys)]
        if different:
            sentences.append(f"The runs of '{name}' differ in more than the seed: {', '.join(different)}.")
    return sentences


# -------------------------------------------------------------------- tables


def _metrics(names: list[str] | None, runs: list[Run]) -> list[str]:
    """The names of the metrics to compare, as the files spell them."""
    common = [
        name for name in runs[0].sums if all(name in run.sums and run.weights[name].sum() > 0 for run in runs)
    ]  # fmt: skip
    if not common:
        raise InputError("the runs have no metric in common; run them with the same metrics and topk.")
    if names is None:
        preferred = str((runs[0].keys or {}).get("valid_metric")).lower()
        return [preferred if preferred in common else common[0]]
    for name in names:
        if name.lower() not in common:
            near = nearest(name, common)
            hint = f"did you mean {near}?" if near else f"they have {', '.join(common)}."
            raise InputError(f"the runs have no metric '{name}' in common; {hint}")
    return list(dict.fromkeys(name.lower() for name in names))


def _table(rows: dict[str, list[Run]], baseline: str, metrics: list[str], options: dict[str, Any]) -> pd.DataFrame:
    records: list[dict[str, Any]] = []
    for metric in metrics:
        weight = rows[baseline][0].weights[metric].to_numpy()
        of_users = {name: np.mean([run.sums[metric] for run in runs], axis=0) for name, runs in rows.items()}
        for name, runs in rows.items():
            values = np.array([run.means[metric] for run in runs])
            record: dict[str, Any] = {
                "name": name, "runs": len(runs), "metric": metric, "mean": values.mean(),
                "std": values.std(ddof=1) if len(values) > 1 else np.nan,
                **dict.fromkeys(("difference", "low", "high", "p_value", "p_corrected"), np.nan),
            }  # fmt: skip
            if name != baseline:
                found = bootstrap_difference(
                    of_users[name] - of_users[baseline], weight, options["confidence"], options["resamples"],
                    options["seed"],
                )  # fmt: skip
                record |= {
                    "difference": found.estimate, "low": found.low, "high": found.high, "p_value": found.p_value,
                }  # fmt: skip
            records.append(record)
    table = pd.DataFrame(records)
    compared = table["name"] != baseline
    table.loc[compared, "p_corrected"] = holm(table.loc[compared, "p_value"].to_numpy())
    return table


def _run_table(rows: dict[str, list[Run]]) -> pd.DataFrame:
    return pd.DataFrame(
        {"name": name, "path": run.path, "seed": (run.keys or {}).get("seed"), **run.means}
        for name, runs in rows.items()
        for run in runs
    )
