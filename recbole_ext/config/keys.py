"""Which keys exist, and the sentence for those that do not."""

import inspect
import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import recbole
from recbole.utils import argument_list

from recbole_ext.config.schema import KINDS
from recbole_ext.wording import nearest

READS = re.compile(r"""config\[\s*["'](\w+)["']\s*\]|["'](\w+)["']\s+(?:not\s+)?in\s+(?:self\.)?config\b""")
CORE = ("config", "data", "evaluator", "sampler", "trainer", "utils")  # RecBole's own folders that read keys

# Names that RecBole had before, or that people try: what to write today.
RENAMED = {
    "eval_setting": "eval_args",
    "training_neg_sample_num": "train_neg_sample_args",
    "neg_sampling": "train_neg_sample_args",
    "split_ratio": "eval_args",
    "leave_one_num": "eval_args",
    "group_by_user": "eval_args",
    "config_file_list": "config_files",
    "max_seq_length": "MAX_ITEM_LIST_LENGTH",
    "dropout_prob": "hidden_dropout_prob",
    "batch_size": "train_batch_size",
    "lr": "learning_rate",
    "device": "use_gpu or gpu_id",
    "local_rank": "nothing, for one run is one process",
}


def known_keys(model_class: type, defaults: Iterable[str]) -> set[str]:
    """All keys that something reads: property files, RecBole's core, and the source of the model's classes."""
    keys = set(defaults) | set(KINDS) | _core_keys()
    for cls in model_class.__mro__:
        module = sys.modules.get(cls.__module__)
        if module is None or cls.__module__.split(".")[0] in {"torch", "builtins"}:
            continue
        try:
            keys |= _read_in(inspect.getsource(module))
        except (OSError, TypeError):  # a class typed into an interactive session has no file
            continue
    return keys


@cache
def _core_keys() -> frozenset[str]:
    keys = {"nproc", "world_size", "ip", "port"}
    for name in ("general_arguments", "training_arguments", "evaluation_arguments", "dataset_arguments"):
        keys.update(getattr(argument_list, name))
    for folder in CORE:
        for file in (Path(recbole.__file__).parent / folder).rglob("*.py"):
            keys |= _read_in(file.read_text(encoding="utf-8"))
    return frozenset(keys)


def _read_in(source: str) -> set[str]:
    return {one or other for one, other in READS.findall(source)}


def unknown_key_sentence(key: str, known: Iterable[str], model: str) -> str:
    """One sentence that says that nothing reads `key`, and which key was probably meant."""
    if key in RENAMED:
        return f"key '{key}' is not read by RecBole or {model}; write {RENAMED[key]}."
    near = nearest(key, known)
    hint = f"did you mean '{near}'?" if near else "no known key resembles it."
    return f"key '{key}' is not read by RecBole or {model}; {hint} (allow_unknown: True lets keys of your own through.)"
