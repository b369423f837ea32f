"""GAUC of labelled events, which RecBole has for rankings alone."""

from typing import Any

import numpy as np
import pandas as pd
from recbole.utils import EvaluatorType


def measures_labels(config: Any) -> bool:
    """Whether GAUC is asked for, of labels."""
    return config["eval_type"] == EvaluatorType.VALUE and "GAUC" in config["metrics"]


def gauc(user: np.ndarray, label: np.ndarray, score: np.ndarray) -> float:
    """Mean of the users' AUC, weighted by their events (Zhou et al., Deep Interest Network, KDD 2018, section 5.2).

    Users with events of one label have no AUC and do not count. Equal scores count as half in order.

    Args:
        user: whole numbers from 0, [N].
        label: 0 or 1, [N].
        score: [N].

    Returns:
        GAUC in [0, 1], or NaN if no user has both labels.
    """
    auc, events = user_auc(user, label, score), np.bincount(user)
    both = ~np.isnan(auc)
    return float(np.average(auc[both], weights=events[both])) if both.any() else float("nan")


def user_auc(user: np.ndarray, label: np.ndarray, score: np.ndarray) -> np.ndarray:
    """AUC of each user's events, [U] for the users 0 to U - 1; NaN of users without events of both labels.

    Args:
        user: whole numbers from 0, [N].
        label: 0 or 1, [N].
        score: [N]; equal scores count as half in order.
    """
    rank = pd.Series(score).groupby(user).rank().to_numpy()
    positive = np.bincount(user, label)
    negative = np.bincount(user) - positive
    in_order = np.bincount(user, rank * label) - positive * (positive + 1) / 2  # pairs of a user in the right order
    with np.errstate(invalid="ignore"):  # 0 / 0
        return in_order / np.where(positive * negative > 0, positive * negative, np.nan)
