"""Checks of keys against each other, the model and the number of items.

`Config` runs the first group. A program may make a configuration only to read data, so training and evaluation run the
checks of their keys themselves.
"""

import importlib.util
import re
from logging import getLogger
from typing import Any

from recbole.model.abstract_recommender import AbstractRecommender
from recbole.utils import ModelType

from recbole_ext.config.metrics import PROBABILITY_METRICS, class_name, fits_modes, is_label_metric, result_names
from recbole_ext.config.negative_sampling import (
    KEY,
    check_training,
    draws_negatives,
    draws_unseen,
    labels_are_loaded,
    missing_labels,
    sample_count,
)
from recbole_ext.errors import InputError
from recbole_ext.model import contract
from recbole_ext.model.registry import is_known, name_of
from recbole_ext.utils.validators import Number, validate

# ------------------------------------------------------------------------ every configuration


def check_environment(settings: dict[str, Any], model_class: Any) -> None:
    """Refuse several processes, packages that are not installed, and an optimizer that does not fit the model."""
    if settings.get("nproc", 1) not in (None, 1):
        raise InputError(
            f"nproc is {settings['nproc']}, but this command or program runs in one process, as does each trial of a "
            f"search; leave it out, or train in several with recbole-ext run --nproc or torchrun."
        )
    if settings.get("world_size", -1) not in (None, -1, 1):
        raise InputError(f"world_size is {settings['world_size']}; torchrun sets it, so leave it out.")
    if settings["learner"] == "sparse_adam" and model_class.__module__.split(".")[0] in ("recbole", "recbole_ext"):
        raise InputError(f"learner is sparse_adam, but {model_class.__name__} has no sparse gradients; choose adam.")
    if settings.get("log_wandb") and importlib.util.find_spec("wandb") is None:
        raise InputError("log_wandb is True, but the package wandb is not installed.")


def check_loss_type(settings: dict[str, Any], model_class: Any) -> None:
    """Require `loss_type` for a class without `input_type`; refuse `repeatable: False` for sequential models."""
    if contract.input_type(model_class) is None and "loss_type" not in settings:
        name = model_class.__name__
        raise InputError(f"loss_type is missing, and {name} has no input_type; give loss_type: CE or BPR.")
    if model_class.type == ModelType.SEQUENTIAL and not settings["repeatable"]:
        raise InputError(
            "repeatable is False, but sequential models may recommend items again; leave it out. To leave seen items "
            "out, set exclude_history."
        )


def check_transform(settings: dict[str, Any], model_class: Any) -> None:
    """Refuse `transform` without histories, or without the key that the transformation reads."""
    required = {"mask_itemseq": "mask_ratio", "crop_itemseq": "eta", "reorder_itemseq": "beta"}
    name = settings.get("transform")
    if name is not None and model_class.type != ModelType.SEQUENTIAL:
        raise InputError(
            f"transform is {name}, which changes histories, but {settings['model']} has none; leave it out."
        )
    if name not in required:
        return
    key, length = required[name], settings["MAX_ITEM_LIST_LENGTH"]
    if settings.get(key) is None:
        raise InputError(f"transform is {name}, which needs a share between 0 and 1; give it as {key}.")
    share = validate(key, settings[key], Number("[0, 1]"))  # some models use eta and beta for other things
    if name == "mask_itemseq" and share * length < 1:
        raise InputError(
            f"transform is {name}, but {key} is {share:g}, less than one of {length} items (MAX_ITEM_LIST_LENGTH); "
            f"raise it."
        )


def check_history(settings: dict[str, Any], model_class: Any) -> None:
    """Refuse a `min_history` that is shorter than the model accepts."""
    if settings["MODEL_TYPE"] != ModelType.SEQUENTIAL or settings["min_history"] is None:
        return
    minimum = 0 if contract.accepts_empty_history(model_class) else contract.min_history(model_class)
    if settings["min_history"] < minimum:
        raise InputError(
            f"min_history is {settings['min_history']}, but {settings['model']} needs a history: give {minimum} or "
            f"more."
        )


def check_files(settings: dict[str, Any]) -> None:
    """Refuse `benchmark_filename` unless it lists two or three files."""
    files = settings["benchmark_filename"]
    if files is None:
        return
    if len(files) not in (2, 3):
        raise InputError(
            f"benchmark_filename is {files}; it should be a list of three, e.g. [train, valid, test], or of two "
            f"without validation, e.g. [train, test]."
        )
    if len(files) == 2 and re.match("val|dev", files[1], re.IGNORECASE):
        raise InputError(
            f"benchmark_filename is {files}, but the second of two files is the test; to train without a test, add a "
            f"third file that has only a header."
        )


# ------------------------------------------------------------------------ runs and evaluation, before data is read


def check_run(config: Any) -> None:
    """`check_training` and `check_evaluation`."""
    check_training(config)
    check_evaluation(config)


def check_evaluation(config: Any) -> None:
    """Refuse evaluation keys that contradict each other or the model.

    Raises:
        InputError: names the keys, their values, and what would be right.
    """
    metrics, modes = config["metrics"], set(config["eval_args"]["mode"].values())
    label_metrics = [metric for metric in metrics if is_label_metric(metric, modes)]
    rank_metrics = [metric for metric in metrics if metric not in label_metrics]
    _check_modes(config, modes)
    if config["eval_users"] and not config["USER_ID_FIELD"]:
        raise InputError(
            f"eval_users is {config['eval_users']}, but the data have no users, as USER_ID_FIELD is empty; leave "
            f"eval_users out."
        )
    if label_metrics and rank_metrics:
        raise InputError(
            f"metrics has {label_metrics[0]}, which measures labels, and {rank_metrics[0]}, which measures ranks; "
            f"choose metrics of one kind."
        )
    if label_metrics and "full" in modes:
        raise InputError(
            f"metrics has {label_metrics[0]}, which measures labels; set eval_args mode to labeled, or to uniN."
        )
    if rank_metrics and "labeled" in modes:
        raise InputError(
            f"metrics has {rank_metrics[0]}, which measures ranks, but eval_args mode labeled ranks nothing; choose "
            f"metrics such as AUC, or set mode to full."
        )
    _check_probabilities(config, label_metrics)
    valid, choices = config["valid_metric"], result_names(metrics, config["topk"], modes)
    if valid.lower() not in {choice.lower() for choice in choices}:
        metric = class_name(valid.partition("@")[0])
        fits = metric is None or fits_modes(metric, modes)
        mode_hint = "" if fits else f", or set eval_args mode to {'labeled' if 'full' in modes else 'full'}"
        raise InputError(
            f"valid_metric is '{valid}', which is not measured; choose one of {', '.join(choices)}{mode_hint}."
        )


def _check_modes(config: Any, modes: set[str]) -> None:
    sequential, not_full = config["MODEL_TYPE"] == ModelType.SEQUENTIAL, modes - {"full"}
    if sequential and config["eval_args"]["order"] != "TO":
        raise InputError(f"eval_args order is '{config['eval_args']['order']}'; sequential models need 'TO'.")
    if config["exclude_history"] and not_full and sequential:
        raise InputError(
            f"exclude_history is True, but eval_args mode is {min(not_full)}; exclude_history only works where all "
            f"items are ranked: set mode to full."
        )
    if "labeled" not in modes:
        return
    if len(modes) > 1:
        raise InputError(
            f"eval_args mode is {config['eval_args']['mode']}; validation and test must both be labeled, or neither."
        )
    if sequential and draws_negatives(config):
        raise InputError(
            f"{KEY} is {config[KEY]}, which makes every event a positive, but eval_args mode labeled measures labels; "
            f"set it to None, so that the model learns the labels."
        )
    if not labels_are_loaded(config):
        raise InputError(missing_labels("eval_args mode labeled", f"load_col loads '{config['LABEL_FIELD']}'"))


def _check_probabilities(config: Any, label_metrics: list[str]) -> None:
    metric = next((metric for metric in label_metrics if metric in PROBABILITY_METRICS), None)
    if metric is None or contract.predicts_probabilities(config.model_class):
        return
    known = is_known(config.model_class)
    hint = "" if known else ", or set predicts_probabilities = True in the class if it predicts probabilities"
    raise InputError(
        f"metrics has {metric}, which measures probabilities, but the predictions of {name_of(config.model_class)} are "
        f"scores without bounds; choose AUC or GAUC, or a model of clicks such as BST or DIN{hint}."
    )


# ------------------------------------------------------------------------ data


def check_item_count(config: Any, n_items: int) -> None:
    """Refuse `topk` above the number of items, and sampled items if there is only one item.

    Args:
        config: the run's configuration.
        n_items: number of items, including the padding item.
    """
    longest, ranks = max(config["topk"]), config["eval_type"].name == "RANKING"
    if ranks and longest > n_items - 1:
        default = "" if "topk" in getattr(config, "user_keys", ["topk"]) else " by default"
        raise InputError(
            f"topk is {longest}{default}, but the data set has only {n_items - 1} items; set "
            f"topk to {n_items - 1} or less."
        )
    for mode in set(config["eval_args"]["mode"].values()):
        drawn = sample_count(mode)
        if ranks and 0 < drawn < longest:
            getLogger().warning(
                f"topk is {longest}, but mode {mode} ranks a target among {drawn} other items, so "
                f"that every target is in the list, and the metrics say little; set topk to {drawn} or less."
            )
    if draws_negatives(config) and n_items < 3:
        raise InputError(f"train_neg_sample_args draws negatives, but the data set has only {n_items - 1} item.")
    sampled = [mode for mode in config["eval_args"]["mode"].values() if sample_count(mode)]
    if sampled and n_items < 3:
        raise InputError(f"eval_args mode is {sampled[0]}, but the data set has only {n_items - 1} item.")
    repeating = [mode for mode in sampled if sample_count(mode) > n_items - 2 and not draws_unseen(mode)]
    if repeating:
        getLogger().warning(
            f"eval_args mode is {repeating[0]}, but only {n_items - 2} items can be sampled for a target, so "
            f"candidates repeat; mode full ranks each item once."
        )


def limit_eval_batch(config: Any, n_items: int) -> None:
    """Lower `eval_batch_size` so that the scores of a batch fit in `eval_memory_mb`.

    RecBole's sequential evaluation scores `eval_batch_size` rows against every item: with a million items its default
    needs 15 GiB. A score takes about 16 bytes, copies in the collector included. For a model that cannot score all
    items at once, RecBole repeats each row, with its history, for every item.
    """
    budget, modes = config["eval_memory_mb"], set(config["eval_args"]["mode"].values())
    if not budget or "labeled" in modes or config["eval_type"].name != "RANKING":
        return
    score_bytes = 16
    if config.model_class.full_sort_predict is AbstractRecommender.full_sort_predict and "full" in modes:
        score_bytes += 3 * 8 * config["MAX_ITEM_LIST_LENGTH"]  # lists of items, times and one more column
    rows = max(1, int(budget * 2**20 / (score_bytes * n_items)))
    # eval_batch_size counts rows (sequential models), scores of all items (others), or sampled candidates
    per_row = 1 if config["MODEL_TYPE"] == ModelType.SEQUENTIAL else n_items
    limit = rows * min(per_row if mode == "full" else 1 + sample_count(mode) for mode in modes)
    if limit < config["eval_batch_size"]:
        getLogger().info(
            f"eval_batch_size: {limit} instead of {config['eval_batch_size']}, for eval_memory_mb: {budget}."
        )
        config["eval_batch_size"] = limit
