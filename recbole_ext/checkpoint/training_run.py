"""The two files of a training run, with its best and its latest epoch, and the learning curves stored in them.

The checkpoint `NAME.pth` has the best epoch. `NAME.latest` beside it has the latest epoch, if that is another one.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from recbole_ext.checkpoint.file import load
from recbole_ext.errors import InputError


@dataclass(frozen=True)
class ResumeState:
    """The latest state that a run has stored, after an epoch or, with `checkpoint_minutes`, within one.

    Attributes:
        best_file: path of the run's checkpoint, which contains the best epoch.
        path: the file with the latest state: the checkpoint, or the `.latest` file beside it.
        checkpoint: the content of `path`.
    """

    best_file: str
    path: str
    checkpoint: dict[str, Any]


def best_file(path: str) -> str:
    """The path of a run's checkpoint, given either file of the run."""
    return path if not path.endswith(".latest") else path.removesuffix(".latest") + ".pth"


def latest_file(path: str) -> str:
    """The path of the file with a run's latest epoch, given the path of its checkpoint."""
    return f"{path.removesuffix('.pth')}.latest"


def find_resume_state(
    path: str | os.PathLike, device: torch.device | str = "cpu", read: Callable[..., dict[str, Any]] | None = None
) -> ResumeState:
    """Read the latest epoch of a run.

    Args:
        path: either file of the run: its checkpoint or the `.latest` file.
        device: the device that the tensors are loaded to.
        read: reads a file, given its path and the device; `None` means `load`.

    Raises:
        InputError: there is no checkpoint, or one of the files is not a valid checkpoint.
    """
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise InputError(f"resume is {path!r}; it should be the path of a checkpoint.")
    read = read or load
    best = best_file(os.path.expanduser(path))
    latest = latest_file(best)
    if os.path.isfile(latest) and os.path.isfile(best) and os.path.getsize(best) == 0:
        return ResumeState(best, latest, read(latest, device))  # no epoch has been validated yet
    best_epoch = read(best, device)
    if os.path.isfile(latest):
        latest_epoch = read(latest, device)
        same_run = latest_epoch.get("run") == best_epoch.get("run")
        if same_run and _progress(latest_epoch) > _progress(best_epoch):
            return ResumeState(best, latest, latest_epoch)
    return ResumeState(best, best, best_epoch)


def _progress(checkpoint: dict[str, Any]) -> tuple[int, int]:
    """The number of complete epochs less one, and the number of batches of the next epoch."""
    return checkpoint["epoch"], checkpoint.get("partial", {}).get("batches", 0)


# -------------------------------------------------------------------- learning curves


class LearningCurves:
    """The training loss and the validation score of each epoch; None for an epoch that has no value.

    Args:
        stored: the curves of a checkpoint; None for a new run, and for checkpoints without curves.
    """

    def __init__(self, stored: dict[str, list[float | None]] | None = None):
        stored = stored or {}
        self.train_loss = list(stored.get("train_loss", []))
        self.valid_score = list(stored.get("valid_score", []))

    def add_loss(self, epoch: int, loss: Any) -> None:
        """Record the loss of an epoch, counted from 0, or the terms of that loss. Later epochs are removed."""
        for values in (self.train_loss, self.valid_score):
            del values[epoch:]
            values += [None] * (epoch + 1 - len(values))
        self.train_loss[epoch] = float(sum(loss) if isinstance(loss, (tuple, list)) else loss)

    def add_score(self, score: float) -> None:
        """Record the validation score of the last trained epoch."""
        if self.valid_score:
            self.valid_score[-1] = float(score)

    def to_dict(self) -> dict[str, list[float | None]]:
        """Plain values for a checkpoint."""
        return {"train_loss": list(self.train_loss), "valid_score": list(self.valid_score)}


@dataclass(frozen=True)
class TrainingRun:
    """The training of a run as its files describe it; epochs count from 1.

    Attributes:
        model, dataset: their names.
        metric: `valid_metric`.
        best_score: the best value of `metric`; None without validation.
        best_epoch: the epoch in the checkpoint.
        valid_result: metrics of that epoch on the validation data. There are no test metrics, because the test runs
            after the last checkpoint is written.
        train_loss, valid_score: a value for each stored epoch; None for an epoch without one.
        valid_users: numbers of users whom scores and metrics measure, and of all users; None if they measure all.
    """

    model: str
    dataset: str
    metric: str
    best_score: float | None
    best_epoch: int
    valid_result: dict[str, float]
    train_loss: list[float | None]
    valid_score: list[float | None]
    valid_users: list[int] | None = None


def read_run(path: str | os.PathLike, checkpoint: dict[str, Any] | None = None) -> TrainingRun:
    """Read a training run from its checkpoint, and the epochs after the best one from the `.latest` file, if any.

    Args:
        path: either file of the run: its checkpoint or the `.latest` file.
        checkpoint: the content of `path`, if it is loaded already.

    Raises:
        InputError: the checkpoint cannot be read.
    """
    loaded = {} if checkpoint is None else {os.path.expanduser(path): checkpoint}

    def read(file: str, device: torch.device | str = "cpu") -> dict[str, Any]:
        if file not in loaded:
            loaded[file] = load(file, device)
        return loaded[file]

    latest = find_resume_state(path, read=read)
    best, curves = read(latest.best_file), LearningCurves(latest.checkpoint.get("curves"))
    return TrainingRun(
        best["model"], best["config"]["dataset"], best["config"]["valid_metric"],
        best["best_valid_score"] if best["best_valid_result"] else None, best["epoch"] + 1,
        best["best_valid_result"], curves.train_loss, curves.valid_score, best.get("valid_users"),
    )  # fmt: skip
