"""Which keys exist, what kind of value each takes, and the sentence for those that do not fit."""

import difflib
import inspect
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import recbole
from recbole.utils import argument_list

from recbole_ext.config.values import read_yaml
from recbole_ext.errors import InputError

# Read by RecBole's core, but listed in none of its property files.
CORE_KEYS = {
    "model", "dataset", "config_files", "allow_unknown", "encoding", "numerical_features", "transform", "reg_weight",
    "embedding_size", "double_tower", "token_num_threshold", "ft_ratio", "eta", "beta", "save_step", "pretrain_epochs",
    "nproc", "world_size", "ip", "port", "offset", "local_rank", "convert_token_to_onehot", "alias_of_user_id",
    "alias_of_item_id", "benchmark_filename",
}  # fmt: skip

# Names that RecBole had before, or that people try: what to write today.
RENAMED = {
    "eval_setting": "eval_args",
    "training_neg_sample_num": "train_neg_sample_args",
    "neg_sampling": "train_neg_sample_args",
    "split_ratio": "eval_args",
    "leave_one_num": "eval_args",
    "group_by_user": "eval_args",
    "real_time_process": "nothing (RecBole dropped it)",
    "config_file_list": "config_files",
    "max_seq_length": "MAX_ITEM_LIST_LENGTH",
    "dropout_prob": "hidden_dropout_prob",
    "batch_size": "train_batch_size",
    "lr": "learning_rate",
}

POSITIVE = {"train_batch_size", "eval_batch_size", "MAX_ITEM_LIST_LENGTH", "learning_rate", "eval_memory_mb"}
NOT_NEGATIVE = {"epochs", "weight_decay", "stopping_step", "eval_step", "seed", "worker"}


def recbole_defaults(*files: str) -> dict[str, Any]:
    """The merged content of RecBole's own property files, e.g. `"overall.yaml"`; missing files count as empty."""
    folder = Path(recbole.__file__).parent / "properties"
    merged: dict[str, Any] = {}
    for file in files:
        if (folder / file).is_file():
            merged.update(read_yaml(str(folder / file)))
    return merged


def known_keys(model_class: type, defaults: Iterable[str]) -> set[str]:
    """All keys that something reads: property files, RecBole's core, and the source of the model's classes."""
    keys = set(defaults) | CORE_KEYS
    for name in ("general_arguments", "training_arguments", "evaluation_arguments", "dataset_arguments"):
        keys.update(getattr(argument_list, name))
    for cls in model_class.__mro__:
        module = sys.modules.get(cls.__module__)
        if module is None or cls.__module__.split(".")[0] in {"torch", "builtins"}:
            continue
        try:
            source = inspect.getsource(module)
        except (OSError, TypeError):  # a class typed into an interactive session has no file
            continue
        keys.update(re.findall(r"""config\[\s*["'](\w+)["']\s*\]""", source))
    return keys


def unknown_key_sentence(key: str, known: Iterable[str], model: str) -> str:
    """One sentence that says that nothing reads `key`, and which key was probably meant."""
    if key in RENAMED:
        return f"key '{key}' is not read by RecBole or {model}; it is called {RENAMED[key]} now."
    folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(key.lower(), folded, n=1, cutoff=0.6)
    hint = f"did you mean '{folded[near[0]]}'?" if near else "no known key resembles it."
    return f"key '{key}' is not read by RecBole or {model}; {hint} (allow_unknown: True lets keys of your own through.)"


def check_type(key: str, value: Any, default: Any) -> Any:
    """Hold a value against the kind of its default.

    Returns:
        The value; whole floats become integers where the default is one.

    Raises:
        InputError: it is of another kind, or out of range.
    """
    if value is None or default is None:
        return value
    wanted = None
    if isinstance(default, bool):
        wanted = None if isinstance(value, bool) else "True or False"
    elif isinstance(default, int):
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        wanted = None if isinstance(value, int) and not isinstance(value, bool) else "a whole number"
    elif isinstance(default, float):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        wanted = None if number and value == value and abs(value) != float("inf") else "a number"
    elif isinstance(default, dict):
        wanted = None if isinstance(value, dict) else "a mapping such as {'key': value}"
    if wanted:
        raise InputError(f"key '{key}' is {value!r}; it should be {wanted} (default: {default!r}).")
    if key in POSITIVE and value <= 0:
        raise InputError(f"key '{key}' is {value!r}; it should be above 0.")
    if key in NOT_NEGATIVE and value < 0:
        raise InputError(f"key '{key}' is {value!r}; it should not be negative.")
    if key.endswith("dropout_prob") and not 0 <= value < 1:
        raise InputError(f"key '{key}' is {value!r}; it should lie in [0, 1).")
    return value
