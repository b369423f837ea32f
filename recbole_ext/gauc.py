"""GAUC of labelled events, which RecBole has for rankings alone."""

from typing import Any

import numpy as np
import pandas as pd
from recbole.evaluator import Evaluator
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
    rank = pd.Series(score).groupby(user).rank().to_numpy()
    events, positive = np.bincount(user), np.bincount(user, label)
    negative = events - positive
    both = (positive > 0) & (negative > 0)
    if not both.any():
        return float("nan")
    in_order = np.bincount(user, rank * label) - positive * (positive + 1) / 2  # pairs of a user that stand rightly
    return float(np.average(in_order[both] / (positive * negative)[both], weights=events[both]))


class LabelEvaluator(Evaluator):
    """RecBole's evaluator, with GAUC of labels where that is asked for."""

    def __init__(self, config):
        super().__init__(config)
        if measures_labels(config):
            self.metric_class["gauc"] = self
            self.decimals = config["metric_decimal_place"]

    def calculate_metric(self, struct) -> dict[str, float]:
        """GAUC of what a `CountingCollector` collected."""
        user, label, score = (struct.get(key).numpy() for key in ("data.user", "data.label", "rec.score"))
        return {"gauc": round(gauc(user, label, score), self.decimals)}
