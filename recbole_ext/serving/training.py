"""What a checkpoint tells of the training that wrote it."""

import os
from dataclasses import dataclass
from typing import Any

from recbole_ext import checkpoint
from recbole_ext.curves import Curves


@dataclass(frozen=True)
class TrainingRun:
    """A training, as far as its files tell; epochs count from 1.

    Attributes:
        model, dataset: names.
        metric: `valid_metric`, of which `best_score` is the best value.
        best_epoch: the epoch in the checkpoint.
        valid_result: metrics of that epoch on the validation data. Test metrics are in no checkpoint: they are measured
            after it has been written.
        train_loss, valid_score: of each epoch from the first to the last one stored; None where there is none.
    """

    model: str
    dataset: str
    metric: str
    best_score: float | None
    best_epoch: int
    valid_result: dict[str, float]
    train_loss: list[float | None]
    valid_score: list[float | None]


def read_run(path: str | os.PathLike) -> TrainingRun:
    """The training of a checkpoint; of the epochs after the best one, where their state lies beside it (`.latest`).

    Raises:
        InputError: the checkpoint cannot be read.
    """
    best, file, newest = checkpoint.newest(path)
    state = newest if file == best else checkpoint.load(best)
    config: dict[str, Any] = state["config"]
    curves = Curves(newest.get("curves")).plain()
    return TrainingRun(
        state["model"], config["dataset"], config["valid_metric"],
        state["best_valid_score"] if state["best_valid_result"] else None, state["epoch"] + 1,
        state["best_valid_result"], curves["train_loss"], curves["valid_score"],
    )  # fmt: skip
