"""The files of a training run: the checkpoint of its best epoch, the state of its latest epoch, and learning curves.

Files are written atomically, contain only plain values and tensors, and are read without unpickling objects.
"""

import os
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from recbole_ext.checkpoint.content import check_content
from recbole_ext.errors import InputError
from recbole_ext.utils.atomic_write import DeferredErrors, write_whole

FORMAT = 1  # a new number means a new file of that format in tests/checkpoint/old_formats


def save(checkpoint: dict[str, Any], path: str) -> None:
    """Write a checkpoint atomically: a crash leaves the previous file unchanged.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with write_whole(path) as file:
        target: Any = DeferredErrors(file)
        torch.save(checkpoint, target)
        target.check()


def load(path: str | os.PathLike, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a checkpoint of this package and check its content. Code in the file is never executed.

    Args:
        path: the file.
        device: the device that the tensors are loaded to.

    Raises:
        InputError: the file is missing or damaged, contains pickled objects, or is not a checkpoint of this package.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"the checkpoint is {path!r}; it should be the path of a file.")
    path = os.path.expanduser(path)
    if os.path.isdir(path):
        raise InputError(f"{path} is a folder; name the checkpoint in it, a file that ends in .pth.")
    if not os.path.isfile(path):
        raise InputError(f"there is no checkpoint {path}.")
    if os.path.getsize(path) == 0:  # a run reserves its file before the first epoch
        raise InputError(
            f"checkpoint {path} is empty: its run ended before an epoch was saved; start the training again."
        )
    try:
        _check_archive(path)
        checkpoint = torch.load(path, map_location=device, weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(
            f"checkpoint {path} contains pickled objects, which can run code when loaded; it was not written by "
            f"recbole_ext (only RecBole loads RecBole's own checkpoints)."
        ) from error
    except Exception as error:  # zipfile, zlib and torch raise many types of errors for damaged bytes
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InputError(f"{path} is not a checkpoint of recbole_ext, or it is damaged: {reason}.") from error
    if isinstance(checkpoint, dict) and isinstance(checkpoint.get("format"), int) and checkpoint["format"] > FORMAT:
        raise InputError(
            f"checkpoint {path} has format {checkpoint['format']}; this version reads up to {FORMAT}: update "
            f"recbole_ext."
        )
    check_content(checkpoint, path)
    return checkpoint


def _check_archive(path: str) -> None:
    """Check that the file is an archive of torch with correct checksums, which torch does not verify."""
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
        names = archive.namelist()
    if not any(name.endswith("/data.pkl") for name in names):
        raise zipfile.BadZipFile("it is not an archive of torch")
    if damaged is not None:
        raise zipfile.BadZipFile(f"the checksum of {damaged} is wrong")


# -------------------------------------------------------------------- the two files of a run


@dataclass(frozen=True)
class ResumeState:
    """The latest epoch that a run has stored.

    Attributes:
        best_file: path of the run's checkpoint, which contains the best epoch.
        path: the file with the latest epoch: the checkpoint, or the `.latest` file beside it.
        checkpoint: the content of `path`.
    """

    best_file: str
    path: str
    checkpoint: dict[str, Any]


def latest_file(path: str) -> str:
    """The path of the file with a run's latest epoch, given the path of the checkpoint with its best epoch."""
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
    best_file = os.path.expanduser(path)
    if best_file.endswith(".latest"):
        best_file = best_file.removesuffix(".latest") + ".pth"
    latest = latest_file(best_file)
    if os.path.isfile(latest) and os.path.isfile(best_file) and os.path.getsize(best_file) == 0:
        return ResumeState(best_file, latest, read(latest, device))  # no epoch has been validated yet
    best_epoch = read(best_file, device)
    if os.path.isfile(latest):
        latest_epoch = read(latest, device)
        same_run = latest_epoch.get("run") == best_epoch.get("run")
        if same_run and latest_epoch["epoch"] > best_epoch["epoch"]:
            return ResumeState(best_file, latest, latest_epoch)
    return ResumeState(best_file, best_file, best_epoch)


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
    """

    model: str
    dataset: str
    metric: str
    best_score: float | None
    best_epoch: int
    valid_result: dict[str, float]
    train_loss: list[float | None]
    valid_score: list[float | None]


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
        best["best_valid_result"], curves.train_loss, curves.valid_score,
    )  # fmt: skip
