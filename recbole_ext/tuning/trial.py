"""One trial: train with a point of the space and report every validation. Runs in a worker process of Ray."""

import gc
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from recbole.utils import init_seed

from recbole_ext.checkpoint.rebuild import build
from recbole_ext.config import Config
from recbole_ext.config.config import OfflineConfig
from recbole_ext.config.metrics import register_metric
from recbole_ext.training.trainer import get_trainer
from recbole_ext.tuning.backend.shared_data import SharedData
from recbole_ext.tuning.journal import checkpoint_name

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Request:
    """What all trials of a search share.

    Attributes:
        model: name or class.
        dataset: name of the data set.
        keys: what the user gave, with absolute paths.
        threads: of one trial.
        metrics: classes that `register_metric` was given, for the process of the trial.
    """

    model: str | type
    dataset: str
    keys: dict[str, Any] = field(default_factory=dict)
    threads: int = 1
    metrics: tuple[type, ...] = ()


def train(
    point: dict[str, Any], request: Request, data: SharedData, folder: str, report: Report, keep: Callable[[str], None]
) -> None:
    """Train a model and report each validation.

    The test data is never looked at: its loader is dropped as soon as it has been made.

    Args:
        point: keys and values of this trial.
        request: what it shares with the others.
        data: read and split already. Where the point changes a key it depends on, the files are read again.
        folder: a folder of this trial's own.
        report: receives, after each validation, `epoch` (from 1), `score` (of `valid_metric`), `best_score` so far,
            `metrics` (all of them) and `loss` (of training).
        keep: receives the path of the checkpoint whenever a better one has been written, before the report.

    Raises:
        InputError: the model or the data refuse the point.
        FloatingPointError: training has diverged.
    """
    torch.set_num_threads(request.threads)
    for metric in request.metrics:
        register_metric(metric)
    keys = {**request.keys, **point, "checkpoint_dir": folder, "show_progress": False}
    config_class = OfflineConfig if _fits(data, point) else Config  # data that came through Ray
    config = config_class(request.model, request.dataset, None, keys, argv=[])
    init_seed(config["seed"], config["reproducibility"])
    data = data if _fits(data, point) else SharedData(config)
    train_data, valid_data, _ = data.loaders(config)
    init_seed(config["seed"], config["reproducibility"])
    trainer = get_trainer(config)(config, build(config, train_data._dataset))
    trainer.resumable = False  # a trial begins anew

    def after_validation(epoch: int, score: float) -> None:
        if os.path.exists(trainer.saved_model_file):  # a new one, which may have the score of the one before
            keep(trainer.saved_model_file)
            os.unlink(trainer.saved_model_file)  # a trial that is stopped early could not do it at its end
        loss = trainer.train_loss_dict.get(epoch)
        report({
            "epoch": epoch + 1, "score": float(score), "best_score": float(trainer.best_valid_score),
            "metrics": dict(trainer.last_result or {}),
            "loss": float(sum(loss) if isinstance(loss, (tuple, list)) else loss or 0.0),
        })  # fmt: skip

    try:
        trainer.fit(train_data, valid_data, verbose=False, saved=True, callback_fn=after_validation)
    finally:
        trainer.tensorboard.close()


def _fits(data: SharedData, point: dict[str, Any]) -> bool:
    # a random split is drawn with the seed; where order is by time the seed has no part in it
    order = data.dataset.config["eval_args"]["order"]
    return not (point.keys() & (data.keys | ({"seed"} if order == "RO" else set())))


def run_trial(setup: dict[str, Any], request: Request, data: SharedData, keeper: Any) -> None:
    """What Ray calls, in a folder of the trial's own. Failures are reported and not raised.

    Ray runs a trial again when it raises; that is right when a machine is lost, and useless when training diverges.
    One process runs trial after trial, since to import torch can take as long as to train a small model.
    """
    import ray
    from ray import tune

    gc.collect()  # what the trial before has left
    torch.cuda.empty_cache()
    os.environ.setdefault("TUNE_FUNCTION_THREAD_TIMEOUT_S", "60")  # for a trial that is stopped; by default 2
    last: dict[str, Any] = {}
    node, name = ray.get_runtime_context().get_node_id(), checkpoint_name(setup["number"])

    def report(found: dict[str, Any]) -> None:
        last.update(found)
        tune.report({**found, "node": node})

    def keep(path: str) -> None:
        with open(path, "rb") as file:
            ray.get(keeper.store.remote(name, file.read()))

    failure = ""
    try:
        train(setup["keys"], request, data, os.getcwd(), report, keep)
    except Exception as error:
        failure = reason(error)
    if not failure and not last:
        failure = "training ended without a validation."
    tune.report({"node": node, "failed": failure} if failure else {"node": node, **last, "ended": True})


def reason(error: BaseException) -> str:
    """One line that says why a trial failed."""
    cause = getattr(error, "cause", None)  # of an error in another process of Ray, whose own text is a traceback
    error = cause if isinstance(cause, BaseException) else error
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else "no message"
    known = isinstance(error, (ValueError, OSError, FloatingPointError))
    return text if known else f"{type(error).__name__}: {text}"
