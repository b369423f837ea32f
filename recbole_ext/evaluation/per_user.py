"""Metrics of each user, for paired tests and groups of users, and GAUC of labels, a weighted mean of the users' AUC."""

import hashlib
import io
from typing import Any

import numpy as np
import pandas as pd
from recbole.evaluator.base_metric import LossMetric
from recbole.evaluator.metrics import AUC, GAUC
from recbole.utils import EvaluatorType

from recbole_ext.errors import InputError
from recbole_ext.utils.atomic_write import write_whole
from recbole_ext.utils.paths import check_suffix, writable_file

SUFFIXES = (".csv", ".parquet")


# -------------------------------------------------------------------- the file


def per_user_file(path: Any) -> str | None:
    """The absolute path of the file to write, or None.

    Raises:
        InputError: the file cannot be written, or its suffix is not one of `SUFFIXES`.
    """
    if path is None:
        return None
    check_suffix(path, SUFFIXES, "per_user")
    return writable_file(path, "per_user")


def check_users(config: Any) -> None:
    """`InputError` if the events have no users."""
    if not config["USER_ID_FIELD"]:
        raise InputError("per_user needs users, but USER_ID_FIELD is empty; leave per_user out.")


def write_per_user(frame: pd.DataFrame, path: str) -> None:
    """Write a table of metrics atomically, in the format given by the suffix of the path.

    Parquet files also store the attributes of the table, as pandas does: the keys of the run and its test data.
    """
    if path.lower().endswith(".csv"):
        content = frame.to_csv(index=False, lineterminator="\n").encode()
    else:
        memory = io.BytesIO()
        frame.to_parquet(memory, index=False, engine="pyarrow")
        content = memory.getvalue()
    with write_whole(path) as file:
        file.write(content)


# -------------------------------------------------------------------- the table


def per_user_table(metrics: dict[str, Any], collected: Any, user_field: str, tokens: Any) -> pd.DataFrame:
    """The metrics of each ranking, or of each user's labelled events.

    Args:
        metrics: RecBole's metric objects by name.
        collected: the data of a `LabelCollector` whose `keeps_rows` was set.
        user_field: name of the column of users.
        tokens: of the users by id.

    Returns:
        for rankings, a row for each ranking in the order of the data: the user, `positives` (number of targets), and a
        column for each metric that RecBole averages over rankings. For labels, a row for each user: the user, `events`,
        and a column for each metric; NaN where the metric needs both labels and the user has only one. Metrics of all
        rankings together (ItemCoverage) have no column.
    """
    users = collected.get("data.user").numpy()
    if "rec.score" in collected and "data.label" in collected:
        ids, columns = _of_labels(metrics, collected, users)
    else:
        ids, columns = users, {"positives": collected.get("data.positives").numpy()}
        for metric in metrics.values():
            columns |= _of_rankings(metric, collected, len(users))
    return pd.DataFrame({user_field: np.asarray(tokens, dtype=object)[ids], **columns})


def describe_test_data(dataset: Any, labeled: bool) -> dict[str, Any]:
    """What two runs must have in common if their metrics are compared user by user.

    Args:
        dataset: the test data.
        labeled: whether labels are measured; they are then part of the targets.

    Returns:
        numbers of `users`, `targets` and `items`, and `digest`: SHA-256 of the pairs of user and item token (and the
        label) of all targets, which does not depend on their order.
    """
    events, names = dataset.inter_feat, [dataset.uid_field, dataset.iid_field]
    names = [name for name in names if name]  # data with labels may have no items
    tokens = [np.asarray(dataset.field2id_token[name], dtype=str)[events[name].numpy()] for name in names]
    if labeled:
        tokens.append(events[dataset.label_field].numpy().astype(str))
    lines = sorted("\t".join(target) for target in zip(*tokens, strict=True))
    return {
        "users": len(np.unique(tokens[0])), "targets": len(lines), "items": int(dataset.item_num) - 1,
        "digest": hashlib.sha256("\n".join(lines).encode()).hexdigest(),
    }  # fmt: skip


def _of_rankings(metric: Any, collected: Any, row_count: int) -> dict[str, np.ndarray]:
    """Columns [rows] of a metric; empty if the metric has no values of single rankings."""
    if isinstance(metric, GAUC):
        return {"gauc": _auc_of_rankings(metric, collected)}
    if not hasattr(metric, "topk_result"):
        return {}
    columns: dict[str, np.ndarray] = {}
    average = metric.topk_result  # RecBole's metrics pass it the values of each row, for each k from 1

    def record(name: str, values: np.ndarray) -> dict[str, float]:
        if values.ndim == 2 and len(values) == row_count:
            columns.update({f"{name}@{k}": values[:, k - 1].astype(np.float64) for k in metric.topk})
        return average(name, values)

    metric.topk_result = record
    try:
        metric.calculate_metric(collected)
    finally:
        del metric.topk_result
    return columns


def _auc_of_rankings(metric: GAUC, collected: Any) -> np.ndarray:
    rank_sum, length, positives = np.split(collected.get("rec.meanrank").numpy(), 3, axis=1)
    auc = np.full(len(length), np.nan)
    for row in np.flatnonzero((positives > 0) & (length > positives)):
        rows = slice(row, row + 1)
        auc[row] = metric.metric_info(rank_sum[rows], length[rows, 0], positives[rows, 0])
    return auc


def _of_labels(metrics: dict[str, Any], collected: Any, users: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The ids of the users, and columns with a value for each user."""
    score, label = (collected.get(key).numpy().reshape(-1) for key in ("rec.score", "data.label"))
    ids, user_index, events = np.unique(users, return_inverse=True, return_counts=True)
    columns: dict[str, np.ndarray] = {"events": events}
    rows_of_users = np.split(np.argsort(user_index, kind="stable"), np.cumsum(events)[:-1])
    for name, metric in metrics.items():
        if name == "gauc" or isinstance(metric, AUC):
            columns[name] = user_auc(user_index, label, score)
        elif isinstance(metric, LossMetric):
            columns[name] = np.array([float(metric.metric_info(score[rows], label[rows])) for rows in rows_of_users])
    return ids, columns


# -------------------------------------------------------------------- GAUC of labels


def measures_gauc_of_labels(config: Any) -> bool:
    """Whether GAUC is configured for labelled events; RecBole has GAUC for rankings only."""
    return config["eval_type"] == EvaluatorType.VALUE and "GAUC" in config["metrics"]


def gauc(user: np.ndarray, label: np.ndarray, score: np.ndarray) -> float:
    """Mean AUC of the users, weighted by their events (Zhou et al., Deep Interest Network, KDD 2018, section 5.2).

    Users with events of one label only have no AUC and are left out. Ties count one half.

    Args:
        user: integers from 0, [N].
        label: 0 or 1, [N].
        score: [N].

    Returns:
        GAUC in [0, 1], or NaN if no user has both labels.
    """
    auc, events = user_auc(user, label, score), np.bincount(user)
    both = ~np.isnan(auc)
    return float(np.average(auc[both], weights=events[both])) if both.any() else float("nan")


def user_auc(user: np.ndarray, label: np.ndarray, score: np.ndarray) -> np.ndarray:
    """AUC of each user's events, [U] for the users 0 to U - 1; NaN for users with events of one label only.

    Args:
        user: integers from 0, [N].
        label: 0 or 1, [N].
        score: [N]; ties count one half.
    """
    rank = pd.Series(score).groupby(user).rank().to_numpy()
    positive = np.bincount(user, label)
    negative = np.bincount(user) - positive
    ordered_pairs = np.bincount(user, rank * label) - positive * (positive + 1) / 2  # positive above negative
    with np.errstate(invalid="ignore"):  # 0 / 0
        return ordered_pairs / np.where(positive * negative > 0, positive * negative, np.nan)
