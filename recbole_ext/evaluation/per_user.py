"""Metrics of each user: the values that RecBole averages, for paired tests and for groups of users."""

import importlib.util
import io
import os
from typing import Any

import numpy as np
import pandas as pd
from recbole.evaluator.base_metric import LossMetric
from recbole.evaluator.metrics import AUC, GAUC

from recbole_ext.errors import InputError
from recbole_ext.evaluation.gauc import user_auc
from recbole_ext.utils.atomic_write import write_whole
from recbole_ext.utils.paths import writable_file

SUFFIXES = (".csv", ".parquet")


def per_user_file(path: Any) -> str | None:
    """The absolute path of the file to write, or None; `InputError` if it cannot be written, or not in its format."""
    if path is None:
        return None
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
    suffix = os.path.splitext(name)[1].lower()
    if suffix not in SUFFIXES:
        raise InputError(f"per_user is {path!r}; it should be the name of a file that ends in {' or '.join(SUFFIXES)}.")
    if suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise InputError(f"per_user is {path!r}, which needs the package pyarrow: pip install pyarrow.")
    return writable_file(name, "per_user")


def check_users(config: Any) -> None:
    """`InputError` if the events have no users."""
    if not config["USER_ID_FIELD"]:
        raise InputError("per_user asks for the metrics of each user, but USER_ID_FIELD is empty; leave per_user out.")


def write_per_user(frame: pd.DataFrame, path: str) -> None:
    """Write what `per_user_table` made, as a whole or not at all; the suffix of the path decides the format."""
    if path.lower().endswith(".csv"):
        content = frame.to_csv(index=False, lineterminator="\n").encode()
    else:
        memory = io.BytesIO()
        frame.to_parquet(memory, index=False, engine="pyarrow")
        content = memory.getvalue()
    with write_whole(path) as file:
        file.write(content)


def per_user_table(metrics: dict[str, Any], collected: Any, user_field: str, tokens: Any) -> pd.DataFrame:
    """The metrics of each row of an evaluation.

    Args:
        metrics: RecBole's metric objects by name.
        collected: what a `CountingCollector` has collected, rows kept.
        user_field: name of the column of users.
        tokens: of the users by their ids.

    Returns:
        of rankings, a row for each ranking that was measured, in the order of the data: the user, `positives` (targets
        of that ranking), and a column for each metric that RecBole averages over rankings. Of labels, a row for each
        user: the user, `events`, and a column for each metric, NaN where a user's labels are all the same and the
        metric needs both. Metrics of all rankings together (ItemCoverage) have no column.
    """
    users = collected.get("data.user").numpy()
    if "rec.score" in collected and "data.label" in collected:
        ids, columns = _of_labels(metrics, collected, users)
    else:
        ids, columns = users, {"positives": collected.get("data.positives").numpy()}
        for metric in metrics.values():
            columns |= _of_ranking(metric, collected, len(users))
    return pd.DataFrame({user_field: np.asarray(tokens, dtype=object)[ids], **columns})


def _of_ranking(metric: Any, collected: Any, rows: int) -> dict[str, np.ndarray]:
    """Values [rows] by the names of results; empty if the metric has none of single rankings."""
    if isinstance(metric, GAUC):
        return {"gauc": _auc_of_rankings(metric, collected)}
    if not hasattr(metric, "topk_result"):
        return {}
    found: dict[str, np.ndarray] = {}
    average = metric.topk_result  # RecBole's metrics give it the values of each row, for each k from 1

    def note(name: str, values: np.ndarray) -> dict[str, float]:
        if values.ndim == 2 and len(values) == rows:
            found.update({f"{name}@{k}": values[:, k - 1].astype(np.float64) for k in metric.topk})
        return average(name, values)

    metric.topk_result = note
    try:
        metric.calculate_metric(collected)
    finally:
        del metric.topk_result
    return found


def _auc_of_rankings(metric: GAUC, collected: Any) -> np.ndarray:
    rank_sum, length, positives = np.split(collected.get("rec.meanrank").numpy(), 3, axis=1)
    found = np.full(len(length), np.nan)
    for row in np.flatnonzero((positives > 0) & (length > positives)):
        one = slice(row, row + 1)
        found[row] = metric.metric_info(rank_sum[one], length[one, 0], positives[one, 0])
    return found


def _of_labels(metrics: dict[str, Any], collected: Any, users: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Ids of users, and values by the names of results, a number for each user."""
    score, label = (collected.get(key).numpy().reshape(-1) for key in ("rec.score", "data.label"))
    ids, owner, events = np.unique(users, return_inverse=True, return_counts=True)
    columns: dict[str, np.ndarray] = {"events": events}
    order = np.argsort(owner, kind="stable")
    parts = np.split(order, np.cumsum(events)[:-1])
    for name, metric in metrics.items():
        if name == "gauc" or isinstance(metric, AUC):
            columns[name] = user_auc(owner, label, score)
        elif isinstance(metric, LossMetric):
            columns[name] = np.array([float(metric.metric_info(score[rows], label[rows])) for rows in parts])
    return ids, columns
