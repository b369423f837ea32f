"""`run_recbole` trains and tests a model; `load_data_and_model` restores it from a checkpoint."""

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from logging import CRITICAL, FileHandler, NullHandler, getLogger
from typing import Any

import pandas as pd
import torch
from recbole.data.transform import construct_transform
from recbole.utils import get_environment, get_flops, init_seed, set_color

from recbole_ext.checkpoint import file as checkpoint_file
from recbole_ext.checkpoint.restore import (
    build,
    build_config,
    compare_data,
    compare_keys,
    load_weights,
    naming_checkpoint,
    resolve_class,
    set_device,
    stored_keys,
)
from recbole_ext.checkpoint.training_run import find_resume_state
from recbole_ext.config import Config
from recbole_ext.config.checks import check_run
from recbole_ext.data import create_dataset, data_preparation
from recbole_ext.distributed import processes, restarts
from recbole_ext.distributed.training import check_keys
from recbole_ext.errors import InputError
from recbole_ext.evaluation.per_user import check_users, per_user_file, write_per_user
from recbole_ext.model import contract
from recbole_ext.model.registry import find_model, name_of
from recbole_ext.training.logs import check_log_dir, raise_errors, start_log_file
from recbole_ext.training.trainer import get_trainer
from recbole_ext.utils.literals import parse_arguments
from recbole_ext.utils.paths import check_outputs, writable_dir


@processes.joined()
def run_recbole(
    model: str | type | None = None,
    dataset: str | None = None,
    config_file_list: Sequence[str] | None = None,
    config_dict: dict[str, Any] | None = None,
    saved: bool = True,
    queue: Any = None,
    argv: Sequence[str] | None = None,
    resume: str | os.PathLike | None = None,
    per_user: str | os.PathLike | None = None,
) -> dict[str, Any]:
    """Train a model, choose the best epoch on the validation data, and evaluate it on the test data.

    Args:
        model: name or class of a model of this package or of RecBole, or your own class.
        dataset: name of the data set.
        config_file_list: YAML files with keys of RecBole and of the model.
        config_dict: keys as a dictionary.
        saved: whether to save the best epoch in a checkpoint and test it; otherwise the last epoch is tested.
        queue: if not `None`, the result is also put into it.
        argv: command-line arguments; `None` reads those of the running program, `[]` none.
        resume: a checkpoint whose run continues exactly where it ended; the checkpoint is overwritten. Its stored keys
            apply unless `config_dict` or `argv` change them, e.g. `{"epochs": 20}`.
        per_user: a file for the test metrics of each user.

    Returns:
        RecBole's result: `best_valid_score`, `valid_score_bigger`, `best_valid_result`, `test_result`; and
        `valid_sample`, with `eval_users` the metrics by which the epoch was chosen, as `users` of `all_users` and
        `result`, whereas `best_valid_result` is of all users;
        `checkpoint` and `per_user`, the paths of these files or `None`, `test_data`, which describes the test data of
        `per_user`, and `config`, the keys of the run.

    Raises:
        InputError: an argument, a key, a file or the data is wrong.
    """
    files = config_file_list if isinstance(config_file_list, (list, tuple)) else ()
    check_outputs({"per_user": per_user}, {"resume": resume, **{f"config file {file}": file for file in files}})
    per_user_path = per_user_file(per_user)
    if resume is None:
        config = Config(model, dataset, config_file_list, config_dict, argv)
        if (begun := restarts.to_resume(config["checkpoint_dir"])) is not None:
            resume, config = begun, _config_to_resume(begun, None, None, None, None, [], saved)
    else:
        config = _config_to_resume(resume, model, dataset, config_file_list, config_dict, argv, saved)
    with naming_checkpoint(resume):
        check_run(config)
        if processes.size() > 1:
            check_keys(config, get_trainer(config))
    if per_user_path is not None:
        check_users(config)
    writable_dir(config["checkpoint_dir"], "checkpoints")
    check_log_dir(config)
    init_seed(config["seed"], config["reproducibility"])
    _start_log(config)
    logger = getLogger()
    files = [f"--config_files={shlex.join(map(str, config_file_list))}"] if config_file_list else []
    logger.info(sys.argv if argv is None else [*files, *argv])
    logger.info(config)

    with naming_checkpoint(resume):
        with processes.first_goes_ahead():  # it may download the data, or write a prepared copy of them
            data = create_dataset(config)
        logger.info(data)
        train_data, valid_data, test_data = data_preparation(config, data)
        init_seed(config["seed"], config["reproducibility"])
        network = build(config, train_data._dataset)
    logger.info(network)
    _log_flops(network, data, config)

    trainer = get_trainer(config)(config, network)
    if resume is not None:
        trainer.resume_checkpoint(resume)
    if processes.size() > 1:
        logger.info(f"This run has {processes.size()} processes; train_batch_size is that of all together.")
    logger.info(_training_length(config, bool(valid_data), getattr(trainer, "start_epoch", 0)))
    score, valid_result = trainer.fit(train_data, valid_data, saved=saved, show_progress=config["show_progress"])
    valid_sample = trainer.describe_sample(valid_result)
    if valid_sample is not None:
        score, valid_result = trainer.validate_all_users(valid_data, saved, config["show_progress"])
    users = None
    if per_user_path is None:
        test_result = trainer.evaluate(test_data, load_best_model=saved, show_progress=config["show_progress"])
    else:
        test_result, users = trainer.evaluate_per_user(test_data, saved, show_progress=config["show_progress"])
    trainer.tensorboard.close()

    logger.info("The running environment of this training is as follows:\n" + get_environment(config).draw())
    if valid_sample is not None:
        logger.info(set_color("best valid ", "yellow") + f"of {trainer.user_sample}: {valid_sample['result']}")
    logger.info(set_color("best valid ", "yellow") + f": {valid_result}")
    logger.info(set_color("test result", "yellow") + f": {test_result}")
    restarts.forget(config["checkpoint_dir"])
    if users is not None and per_user_path is not None:
        if processes.is_first():
            write_per_user(users, per_user_path)
    elif per_user_path is not None:
        logger.warning(f"per_user: there is no test result, so {per_user_path} is not written.")
    result = {
        "best_valid_score": float(score),
        "valid_score_bigger": config["valid_metric_bigger"],
        "best_valid_result": valid_result,
        "test_result": test_result,
        "valid_sample": valid_sample,
        "checkpoint": trainer.saved_model_file if saved else None,
        "per_user": per_user_path if test_result is not None else None,
        "test_data": users.attrs["test_data"] if users is not None else None,
        "config": config.to_dict(),
    }
    if queue is not None:
        queue.put(result)
    return result


def _training_length(config: Config, has_validation: bool, trained_epochs: int) -> str:
    """How long training will take, for the log."""
    if trained_epochs >= config["epochs"]:
        return f"Training: {trained_epochs} epochs are done, and epochs is {config['epochs']}; nothing is left to train"
    if not has_validation or not config["eval_step"]:
        return f"Training: {config['epochs']} epochs without validation; the last epoch is tested"
    return (
        f"Training: until epoch {config['epochs']} at most; stops after more than {config['stopping_step']} "
        f"evaluations in a row that are below the best {config['valid_metric']}"
    )


def _config_to_resume(resume, model, dataset, files, config_dict, argv, saved) -> Config:
    """The stored configuration of a run, with the user's changes."""
    if files or not saved:
        argument = "config_files" if files else "saved=False"
        raise InputError(f"{argument} cannot be used with resume, which uses the stored keys and the same checkpoint.")
    latest = find_resume_state(resume)
    best, checkpoint = latest.best_file, latest.checkpoint
    model_class = resolve_class(checkpoint, model if isinstance(model, type) else None, latest.path)
    model_name = name_of(find_model(model_class))
    if isinstance(model, str) and model not in (model_class, model_name):
        raise InputError(f"checkpoint {best} is of {model_name}, not of {model}; leave --model out.")
    changes = {**(config_dict or {}), **parse_arguments(list(argv or []))}
    if dataset not in (None, checkpoint["config"]["dataset"]):
        raise InputError(f"checkpoint {best} is of {checkpoint['config']['dataset']}, not of {dataset}; leave it out.")
    folders = {
        "checkpoint_dir": os.path.dirname(os.path.abspath(best)), "log_dir": checkpoint["config"].get("log_dir", "."),
    }  # fmt: skip
    keys = {**folders, **stored_keys(checkpoint, model_class, changes)}
    with naming_checkpoint(best, changes):
        return Config(model_class, keys.pop("dataset"), None, keys, argv=[])


def load_data_and_model(
    path: str,
    device: str | torch.device | None = None,
    model: type | None = None,
    config_dict: dict[str, Any] | None = None,
):
    """Rebuild everything that a checkpoint was trained on, in a fresh process, on any device.

    Args:
        path: a checkpoint of this package.
        device: device of the model; `None` means the one that the configuration selects on this machine.
        model: the class, for a model that is not part of this package or RecBole.
        config_dict: keys to change, e.g. `{"data_path": ...}` if the data has moved.

    Returns:
        config, model, data set, training, validation and test loader, as RecBole's function of this name. The model
        is in evaluation mode, without dropout; a trainer's `fit` returns to training mode.

    Raises:
        InputError: the checkpoint cannot be read, or the data is missing or has other users or items.
    """
    checkpoint = checkpoint_file.load(path)
    network_class = resolve_class(checkpoint, model, path)
    with naming_checkpoint(path, config_dict or {}):
        config = build_config(Config, checkpoint, network_class, config_dict or {})
    set_device(config, device)
    init_seed(config["seed"], config["reproducibility"])
    with naming_checkpoint(path, config_dict or {}):
        data = create_dataset(config)
        compare_data(checkpoint, data, config["data_path"], path)
        train_data, valid_data, test_data = data_preparation(config, data)
        network = build(config, train_data._dataset)
    compare_keys(checkpoint, config, contract.structural_keys(network), path)
    load_weights(network, checkpoint, path)
    return config, network.eval(), data, train_data, valid_data, test_data


def evaluate_checkpoint(
    path: str, model: type | None = None, config_dict: dict[str, Any] | None = None, per_user: bool = False
) -> tuple[Config, dict[str, float] | None, pd.DataFrame | None]:
    """Evaluate a checkpoint on its test data.

    Args:
        path, model, config_dict: as for `load_data_and_model`.
        per_user: whether to return the metrics of each user.

    Returns:
        the configuration, the metrics (None without test data), and the metrics of each user or None.
    """
    with _trainer_of(path, model, config_dict) as (trainer, _, test_data):
        evaluation = {"load_best_model": False, "show_progress": trainer.config["show_progress"]}
        if per_user:
            return trainer.config, *trainer.evaluate_per_user(test_data, **evaluation)
        return trainer.config, trainer.evaluate(test_data, **evaluation), None


def validate_checkpoint(
    path: str, model: type | None = None, config_dict: dict[str, Any] | None = None
) -> tuple[float, dict[str, float]]:
    """The score (of `valid_metric`) and the metrics of a checkpoint on its validation data, with all users.

    Args:
        path, model, config_dict: as for `load_data_and_model`; there must be validation data.
    """
    with _trainer_of(path, model, config_dict) as (trainer, valid_data, _):
        return trainer.validate_all_users(valid_data, False, trainer.config["show_progress"])


@contextlib.contextmanager
def _trainer_of(path: str, model: type | None, config_dict: dict[str, Any] | None) -> Iterator[tuple]:
    """A trainer for the evaluation of a checkpoint, and its validation and test data."""
    config, network, _, train_data, valid_data, test_data = load_data_and_model(path, None, model, config_dict)
    trainer = get_trainer(config)(config, network)
    trainer.eval_collector.data_collect(train_data)  # some metrics need counts of the training data
    yield trainer, valid_data, test_data
    trainer.tensorboard.close()  # RecBole's trainer starts a TensorBoard log, which would be empty
    shutil.rmtree(trainer.tensorboard.log_dir, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(trainer.tensorboard.log_dir))


def _start_log(config) -> None:
    """Start RecBole's log in a new file, unless the running program has set up logging itself."""
    root = getLogger()
    if not processes.is_first():
        config["show_progress"] = config["log_wandb"] = False
        root.addHandler(NullHandler())
        root.setLevel(CRITICAL)
        return
    for handler in [handler for handler in root.handlers if getattr(handler, "of_recbole_ext", False)]:
        root.removeHandler(handler)  # from the previous run; RecBole sets up logging only without handlers
        handler.close()
    if root.handlers:
        return
    start_log_file(config)
    for handler in root.handlers:
        handler.of_recbole_ext = True  # type: ignore[attr-defined]
        if isinstance(handler, FileHandler):
            raise_errors(handler)


def _log_flops(network, data, config) -> None:
    """Log RecBole's count of operations, if its library is installed and supports the model."""
    try:
        flops = get_flops(network, data, config["device"], getLogger(), construct_transform(config))
        getLogger().info(set_color("FLOPs", "blue") + f": {flops}")
    except Exception as error:  # this count must not end a run
        getLogger().info(set_color("FLOPs", "blue") + f": not counted ({type(error).__name__}: {error})")
