"""Checks of keys against each other and against the model and the number of items."""

import importlib.util
import re
from logging import getLogger
from typing import Any

from recbole.model.abstract_recommender import AbstractRecommender
from recbole.utils import ModelType

from recbole_ext.errors import InputError
from recbole_ext.model import contract
from recbole_ext.utils.validators import Number, validate


def check_environment(final: dict[str, Any], model_class: Any) -> None:
    """Refuse several processes, packages that are not installed, and an optimizer that does not fit the model."""
    if final.get("nproc", 1) not in (None, 1) or final.get("world_size", -1) not in (None, -1, 1):
        raise InputError("nproc and world_size ask for several processes; recbole_ext trains in one.")
    if final["learner"] == "sparse_adam" and model_class.__module__.split(".")[0] in ("recbole", "recbole_ext"):
        raise InputError(f"learner is sparse_adam, but {model_class.__name__} has no sparse gradients; choose adam.")
    if final.get("log_wandb") and importlib.util.find_spec("wandb") is None:
        raise InputError("log_wandb is True, but the package wandb is not installed.")


def check_loss_type(final: dict[str, Any], model_class: Any) -> None:
    """Require `loss_type` for a class without `input_type`; refuse `repeatable: False` for sequential models."""
    if contract.input_type(model_class) is None and "loss_type" not in final:
        raise InputError(f"loss_type is missing, and {final['model']} has no input_type; give loss_type: CE or BPR.")
    if model_class.type == ModelType.SEQUENTIAL and not final["repeatable"]:
        raise InputError(
            "repeatable is False, but sequential models may recommend items again; leave it out. To leave seen items "
            "out, set exclude_history."
        )


def check_transform(final: dict[str, Any], model_class: Any) -> None:
    """Refuse `transform` without histories, or without the key that the transformation reads."""
    needs = {"mask_itemseq": "mask_ratio", "crop_itemseq": "eta", "reorder_itemseq": "beta"}
    name = final.get("transform")
    if name is not None and model_class.type != ModelType.SEQUENTIAL:
        raise InputError(f"transform is {name}, which changes histories, but {final['model']} has none; leave it out.")
    if name not in needs:
        return
    key, length = needs[name], final["MAX_ITEM_LIST_LENGTH"]
    if final.get(key) is None:
        raise InputError(f"transform is {name}, which needs a share between 0 and 1; give it as {key}.")
    share = validate(key, final[key], Number("[0, 1]"))  # other models give eta and beta other meanings
    if name == "mask_itemseq" and share * length < 1:
        raise InputError(
            f"transform is {name}, but {key} is {share:g}, less than one of {length} items (MAX_ITEM_LIST_LENGTH); "
            f"raise it."
        )


def check_history(final: dict[str, Any], model_class: Any) -> None:
    """Refuse a `min_history` that is shorter than the model accepts."""
    if final["MODEL_TYPE"] != ModelType.SEQUENTIAL or final["min_history"] is None:
        return
    shortest = 0 if contract.accepts_empty_history(model_class) else contract.min_history(model_class)
    if final["min_history"] < shortest:
        raise InputError(
            f"min_history is {final['min_history']}, but {final['model']} needs a history: give {shortest} or more."
        )


def check_files(final: dict[str, Any]) -> None:
    """Refuse `benchmark_filename` unless it lists two or three files."""
    files = final["benchmark_filename"]
    if files is None:
        return
    if len(files) not in (2, 3):
        raise InputError(
            f"benchmark_filename is {files}; it should be a list of three, e.g. [train, valid, test], or of two "
            f"without validation, e.g. [train, test]."
        )
    if len(files) == 2 and re.match("val|dev", files[1], re.IGNORECASE):
        raise InputError(
            f"benchmark_filename is {files}, and of two files the second is the test; to train without a test, add a "
            f"third file that holds a header only."
        )


def check_item_count(config: Any, n_items: int) -> None:
    """Refuse `topk` above the number of items, and sampled items where there is only one item.

    Args:
        config: the run's configuration.
        n_items: number of items, including the padding item.
    """
    if config["eval_type"].name == "RANKING" and max(config["topk"]) > n_items - 1:
        default = "" if "topk" in getattr(config, "given", ["topk"]) else " by default"
        raise InputError(
            f"topk is {max(config['topk'])}{default}, but the data set has only {n_items - 1} items; lower it."
        )
    draws = (config["train_neg_sample_args"] or {}).get("distribution") not in (None, "none")
    if draws and n_items < 3:
        raise InputError(f"train_neg_sample_args draws negatives, but the data set has only {n_items - 1} item.")
    sampled = [mode for mode in config["eval_args"]["mode"].values() if mode[:3] in ("uni", "pop")]
    if sampled and n_items < 3:
        raise InputError(f"eval_args mode is {sampled[0]}, but the data set has only {n_items - 1} item.")
    if sampled and int(sampled[0][3:]) > n_items - 2:
        getLogger().warning(
            f"eval_args mode is {sampled[0]}, but there are only {n_items - 2} items beside each target: candidates "
            f"repeat; mode full ranks all of them."
        )


def limit_eval_batch(config: Any, n_items: int) -> None:
    """Lower `eval_batch_size` so that the scores of a batch fit in `eval_memory_mb`.

    RecBole's sequential evaluation scores `eval_batch_size` rows against every item: at a million items its default
    asks for 15 GiB. A score costs about 16 bytes on its way through the collector; a model that cannot score all items
    at once gets each row repeated for every item, history included.
    """
    budget, modes = config["eval_memory_mb"], set(config["eval_args"]["mode"].values())
    if not budget or "labeled" in modes or config["eval_type"].name != "RANKING":
        return
    score = 16
    if config.model_class.full_sort_predict is AbstractRecommender.full_sort_predict and "full" in modes:
        score += 3 * 8 * config["MAX_ITEM_LIST_LENGTH"]  # lists of items, times and one more column
    rows = max(1, int(budget * 2**20 / (score * n_items)))
    # what eval_batch_size counts: rows, scores of all items (RecBole's other models), or sampled candidates
    whole = 1 if config["MODEL_TYPE"] == ModelType.SEQUENTIAL else n_items
    limit = rows * min(whole if mode == "full" else 1 + int(mode[3:]) for mode in modes)
    if limit < config["eval_batch_size"]:
        getLogger().info(
            f"eval_batch_size: {limit} instead of {config['eval_batch_size']}, for eval_memory_mb: {budget}."
        )
        config["eval_batch_size"] = limit
