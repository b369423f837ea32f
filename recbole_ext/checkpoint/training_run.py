"""Learning curves: the training loss and the validation score of each epoch, as plain numbers for a checkpoint."""

import os
from dataclasses import dataclass
from typing import Any

from recbole_ext.checkpoint import file as checkpoint

NAMES = ("train_loss", "valid_score")


class Curves:
    """Two lists with a number for each epoch from the first; None where there is none.

    Args:
        stored: what `plain` returned before; None to begin with, and of checkpoints without curves.
    """

    def __init__(self, stored: dict[str, list[float | None]] | None = None):
        self.lists: dict[str, list[float | None]] = {name: list((stored or {}).get(name, [])) for name in NAMES}

    def trained(self, epoch: int, loss: Any) -> None:
        """Note the loss of an epoch, counted from 0, or the losses that add up to it; later epochs are forgotten."""
        for values in self.lists.values():
            del values[epoch:]
            values += [None] * (epoch + 1 - len(values))
        self.lists["train_loss"][epoch] = float(sum(loss) if isinstance(loss, (tuple, list)) else loss)

    def validated(self, score: float) -> None:
        """Note the score of the epoch that was trained last."""
        if self.lists["valid_score"]:
            self.lists["valid_score"][-1] = float(score)

    def to_dict(self) -> dict[str, list[float | None]]:
        return {name: list(values) for name, values in self.lists.items()}


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
    curves = Curves(newest.get("curves")).to_dict()
    return TrainingRun(
        state["model"], config["dataset"], config["valid_metric"],
        state["best_valid_score"] if state["best_valid_result"] else None, state["epoch"] + 1,
        state["best_valid_result"], curves["train_loss"], curves["valid_score"],
    )  # fmt: skip
