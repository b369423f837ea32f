"""One trial: train with the keys of one configuration and report every validation. Runs in a worker process of Ray."""

import gc
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from recbole.utils import init_seed

from recbole_ext.checkpoint.restore import build
from recbole_ext.config import Config
from recbole_ext.config.config import OfflineConfig
from recbole_ext.config.metrics import register_metric
from recbole_ext.data import create_dataset, data_preparation
from recbole_ext.errors import recbole_errors_as_input_error
from recbole_ext.training.trainer import get_trainer
from recbole_ext.tuning.journal import checkpoint_name

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class TrialSetup:
    """What all trials of a search have in common.

    Attributes:
        model: name or class.
        dataset: name of the data set.
        keys: the user's keys; paths are absolute.
        threads: threads of one trial.
        metrics: classes that were passed to `register_metric`; a worker process has to register them, too.
    """

    model: str | type
    dataset: str
    keys: dict[str, Any] = field(default_factory=dict)
    threads: int = 1
    metrics: tuple[type, ...] = ()


class SharedData:
    """A data set that is read and split once, for all trials that differ only in other keys.

    A random split equals that of a run with the same seed.

    Args:
        config: configuration of one of the runs.

    Attributes:
        dataset: users, items and events.
        parts (list): the training, validation and test part.
        keys (set[str]): the keys that the data depends on. A run in which one of them differs has to read the files.

    Raises:
        InputError: the files, the filters or the split are invalid.
    """

    def __init__(self, config):
        init_seed(config["seed"], config["reproducibility"])
        recorder = _KeyRecorder(config)
        self.dataset: Any = create_dataset(recorder)
        self.dataset.makes_loaders = True
        with recbole_errors_as_input_error(f"eval_args {config['eval_args']} with data set '{config['dataset']}'"):
            self.parts: list = self.dataset.build()
        self.keys: set[str] = recorder.keys
        self._set_config(config)

    def fits(self, keys: dict[str, Any]) -> bool:
        """Whether a run with these keys can use the data."""
        # only a random split depends on the seed
        seed = {"seed"} if self.dataset.config["eval_args"]["order"] == "RO" else set()
        return not (keys.keys() & (self.keys | seed))

    def loaders(self, config) -> tuple:
        """Training, validation and test loader of a run, equal to those of `data_preparation` from the files."""
        self._set_config(config)
        self.dataset.build = lambda: self.parts  # data_preparation begins with the split
        try:
            return data_preparation(config, self.dataset)
        finally:
            del self.dataset.build

    def _set_config(self, config) -> None:
        for part in (self.dataset, *self.parts):
            part.config = config


class _KeyRecorder:
    """Wraps a configuration and records which of its keys are read."""

    def __init__(self, config):
        self.config, self.keys = config, set()

    def __getitem__(self, key):
        self.keys.add(key)
        return self.config[key]

    def __contains__(self, key):
        self.keys.add(key)
        return key in self.config

    def __setitem__(self, key, value):
        self.config[key] = value

    def __getattr__(self, name):
        if name.startswith("__"):  # copy and pickle look these up before `config` exists
            raise AttributeError(name)
        return getattr(self.config, name)


def train(
    keys: dict[str, Any],
    setup: TrialSetup,
    data: SharedData,
    folder: str,
    report: Report,
    store_checkpoint: Callable[[str], None],
) -> None:
    """Train a model and report each validation. The test data is not used.

    Args:
        keys: keys of this trial only.
        setup: what it has in common with the others.
        data: the shared data. If it depends on one of `keys`, the files are read again.
        folder: an empty folder for this trial.
        report: receives, after each validation, `epoch` (from 1), `score` (of `valid_metric`), `best_score` so far,
            `metrics` (all of them) and `loss` (of training).
        store_checkpoint: receives the path of each new best checkpoint, before the report.

    Raises:
        InputError: the model or the data do not accept the keys.
        FloatingPointError: training has diverged.
    """
    torch.set_num_threads(setup.threads)
    for metric in setup.metrics:
        register_metric(metric)
    config_class = OfflineConfig if data.fits(keys) else Config  # shared data needs no files on this node
    all_keys = {**setup.keys, **keys, "checkpoint_dir": folder, "show_progress": False}
    config = config_class(setup.model, setup.dataset, None, all_keys, argv=[])
    init_seed(config["seed"], config["reproducibility"])
    data = data if data.fits(keys) else SharedData(config)
    train_data, valid_data, _ = data.loaders(config)
    init_seed(config["seed"], config["reproducibility"])
    trainer = get_trainer(config)(config, build(config, train_data._dataset))
    trainer.save_latest = False  # a trial always starts from the beginning

    def after_validation(epoch: int, score: float) -> None:
        if os.path.exists(trainer.saved_model_file):  # this epoch is the best so far, or as good as the best
            store_checkpoint(trainer.saved_model_file)
            os.unlink(trainer.saved_model_file)  # now, because a trial that is stopped early runs no further code
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


def run_trial(config: dict[str, Any], setup: TrialSetup, data: SharedData, checkpoint_store: Any) -> None:
    """Run one trial; Ray calls this in a working directory of the trial.

    Failures are reported and not raised, because Ray would run the trial again. That is right after a lost node, but
    useless after a divergence. One process runs many trials, because importing torch can take as long as training a
    small model.

    Args:
        config: has `trial`, an element of `RemainingTrials.pending`.
        setup: what it has in common with the others.
        data: the shared data.
        checkpoint_store: handle of the `CheckpointStore`.
    """
    import ray
    from ray import tune

    trial = config["trial"]
    gc.collect()  # memory of the previous trial
    torch.cuda.empty_cache()
    os.environ.setdefault("TUNE_FUNCTION_THREAD_TIMEOUT_S", "60")  # time to stop after an epoch; Ray's default is 2
    last_report: dict[str, Any] = {}
    node, name = ray.get_runtime_context().get_node_id(), checkpoint_name(trial["number"])

    def report(result: dict[str, Any]) -> None:
        last_report.update(result)
        tune.report({**result, "node": node})

    def store_checkpoint(path: str) -> None:
        with open(path, "rb") as file:
            ray.get(checkpoint_store.store.remote(name, file.read()))

    failure = ""
    try:
        train(trial["keys"], setup, data, os.getcwd(), report, store_checkpoint)
    except Exception as error:
        failure = failure_reason(error)
    if not failure and not last_report:
        failure = "training ended without a validation."
    tune.report({"node": node, "failed": failure} if failure else {"node": node, **last_report, "ended": True})


def failure_reason(error: BaseException) -> str:
    """Why a trial failed, in one line."""
    cause = getattr(error, "cause", None)  # the error itself; the text of Ray's wrapper is a traceback
    error = cause if isinstance(cause, BaseException) else error
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else "no message"
    explains_itself = isinstance(error, (ValueError, OSError, FloatingPointError))
    return text if explains_itself else f"{type(error).__name__}: {text}"
