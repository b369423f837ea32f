"""A search space: which keys vary, and between which values.

learning_rate: {loguniform: [3e-4, 3e-3]}    # any number between, each power of ten equally likely
hidden_dropout_prob: {uniform: [0.1, 0.5]}   # any number between
MAX_ITEM_LIST_LENGTH: {quniform: [20, 100, 10]}  # a multiple of 10, both ends included
n_layers: {randint: [1, 4]}                  # a whole number, both ends included
hidden_size: {choice: [16, 32, 64]}          # one of these
loss_type: {grid: [CE, BPR]}                 # each of these, with every other grid
"""

import math
import numbers
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from recbole_ext.config.paths import properties_dir
from recbole_ext.errors import InputError
from recbole_ext.tuning import space as hyper_test
from recbole_ext.utils.literals import parse_literal, read_yaml

WAYS = {  # what each takes
    "choice": "a list of values",
    "grid": "a list of values",
    "uniform": "[low, high], two numbers, the first below the second",
    "loguniform": "[low, high], two numbers above 0, the first below the second",
    "quniform": "[low, high, q], three numbers with a multiple of q between low and high",
    "randint": "[low, high], two whole numbers, the first not above the second",
}
# what is measured, on which data, where and for how long: trials that differ in it cannot be compared
NOT_SEARCHED = {
    "model", "dataset", "data_path", "checkpoint_dir", "log_dir", "config_files", "benchmark_filename", "eval_args",
    "metrics", "topk", "valid_metric", "valid_metric_bigger", "metric_decimal_place", "eval_step", "repeatable",
    "use_gpu", "gpu_id", "show_progress", "state", "allow_unknown", "nproc", "world_size", "encoding",
    "field_separator", "seq_separator", "epochs", "user_inter_num_interval", "item_inter_num_interval", "val_interval",
    "rm_dup_inter", "filter_inter_by_user_or_item", "exclude_history", "threshold", "min_history", "load_col",
    "unload_col",
}  # fmt: skip


@dataclass(frozen=True)
class Domain:
    """The values that a key may take.

    Attributes:
        way: one of `WAYS`.
        values: what stands behind it in the file.
        members: all values, where they can be counted.
    """

    way: str
    values: tuple
    members: tuple | None

    def sample(self, generator: np.random.Generator) -> Any:
        """Draw one value."""
        if self.members is not None:
            return self.members[generator.integers(len(self.members))]
        low, high = self.values
        if self.way == "uniform":
            return rounded(generator.uniform(low, high), low, high)
        return rounded(math.exp(generator.uniform(math.log(low), math.log(high))), low, high)

    def has(self, value: Any) -> bool:
        """Whether the value is one of those."""
        if self.members is not None:
            return value in self.members
        low, high = self.values
        return isinstance(value, numbers.Real) and low <= value <= high

    def to_dict(self) -> dict[str, list]:
        return {self.way: list(self.values)}


Space = dict[str, Domain]


def rounded(value: float, low: float, high: float) -> float:
    """Six digits: what a person would write down, and all that a search can tell apart."""
    return min(max(float(f"{value:.6g}"), low), high)


def read_space(space: str | os.PathLike | dict | None, model: str) -> tuple[dict[str, Any], str]:
    """The keys of a space with what is to be tried, and a name of the source for messages.

    Args:
        space: a YAML file, a file in the form of RecBole's `hyper.test`, a dictionary, or None for ours.
        model: whose space ours would be.

    Raises:
        InputError: there is no such file, or it cannot be read.
    """
    if isinstance(space, dict):
        return {str(key): value for key, value in space.items()}, "the search space"
    if space is None:
        ours = properties_dir() / "search" / f"{model}.yaml"
        if not ours.is_file():
            raise InputError(f"there is no search space of ours for {model}; give one with --space=FILE.")
        return read_yaml(str(ours)), f"search space {ours}"
    if not isinstance(space, (str, os.PathLike)) or not os.fspath(space):
        raise InputError(f"space is {space!r}; it should be the name of a file.")
    path = os.path.expanduser(os.fspath(space))
    if path.lower().endswith((".yaml", ".yml")):
        try:
            return read_yaml(path), f"search space {path}"
        except InputError as error:
            raise InputError(str(error).replace("config file", "search space", 1)) from error
    return hyper_test.read(path), f"search space {path}"


def check_space(entries: dict[str, Any], source: str, config: Any) -> Space:
    """Hold every key and value of a space against what the model takes.

    Args:
        entries: what `read_space` returned.
        source: its name, for messages.
        config: configuration that the values are to go into. Keys that its command line or dictionary gives are
            settled: they are left out of the space.

    Raises:
        InputError: the space is empty, a key is unknown or not searched, a way or a value is wrong.
    """
    if not entries:
        raise InputError(f"{source} is empty; it should hold lines such as `hidden_size: {{choice: [32, 64]}}`.")
    settled = {**config.variable_config_dict, **config.cmd_config_dict}
    space = {}
    for key, entry in entries.items():
        if key in NOT_SEARCHED:
            raise InputError(f"{source} has '{key}', which all trials share; give it as a key instead.")
        try:
            domain = _domain(key, entry, config)
        except InputError as error:
            raise InputError(f"{source}: {error}") from error
        if key not in settled:
            space[key] = domain
    if not space:
        raise InputError(f"every key of {source} is given already ({', '.join(entries)}); leave one of them out.")
    return space


def _domain(key: str, entry: Any, config: Any) -> Domain:
    if not isinstance(entry, dict) or len(entry) != 1 or next(iter(entry)) not in WAYS:
        raise InputError(
            f"'{key}' is {entry!r}; it should be one of {', '.join(WAYS)} with values, {{choice: [1, 2]}}."
        )
    ((way, values),) = entry.items()
    members: tuple | None = None
    if not isinstance(values, (list, tuple)) or not values or not _well_formed(way, values):
        raise InputError(f"'{key}' has {way} {values!r}; it should be {WAYS[way]}.")
    if way in ("choice", "grid"):
        members = tuple(config.validated(key, value) for value in values)
        return Domain(way, members, members)
    if way == "randint":
        values = tuple(map(int, values))
        members = tuple(config.validated(key, value) for value in range(values[0], values[1] + 1))
    elif way == "quniform":
        members = tuple(config.validated(key, value) for value in _multiples(*values))
    else:
        for part in (0, 0.38196601, 1):  # the ends, and a number between that is not whole
            config.validated(key, rounded(values[0] + part * (values[1] - values[0]), *values))
    return Domain(way, tuple(values), members)


def _well_formed(way: str, values: list | tuple) -> bool:
    if way in ("choice", "grid"):
        return True
    good = all(isinstance(value, numbers.Real) and not isinstance(value, bool) for value in values)
    if not good or len(values) != (3 if way == "quniform" else 2) or not all(map(math.isfinite, values)):
        return False
    low, high = values[:2]
    if way == "randint":
        return low == int(low) and high == int(high) and low <= high < low + 1e6
    if way == "quniform":
        return values[2] > 0 and (high - low) / values[2] < 1e6 and bool(_multiples(*values))
    return low < high and (way == "uniform" or low > 0)


def _multiples(low: float, high: float, q: float) -> list[float]:
    """The multiples of q from low to high; whole if they are."""
    slack = 1e-9  # 0.3 / 0.1 is less than 3
    counts = range(math.ceil(low / q - slack), math.floor(high / q + slack) + 1)
    found = [float(f"{count * q:.12g}") for count in counts]
    return [int(value) for value in found] if all(value.is_integer() for value in found) else found


NUMBERS = {"uniform": 2, "loguniform": 2, "quniform": 3}


def read(path: str) -> dict[str, Any]:
    """The space of a file: `{key: {way: values}}`.

    Raises:
        InputError: the file cannot be read, or a line is not `key way values`; the message names file and line.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = file.read().splitlines()
    except (OSError, ValueError) as error:
        raise InputError(f"search space {path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    space: dict[str, Any] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        words = line.split(maxsplit=2)
        where = f"search space {path} line {number}"
        if len(words) < 3:
            raise InputError(f"{where} is '{line.strip()}'; it should be a key, a way and values, separated by blanks.")
        if words[0] in space:
            raise InputError(f"{where}: key '{words[0]}' appears twice.")
        space[words[0]] = {words[1]: _values(words[1], words[2], where)}
    return space


def _values(way: str, text: str, where: str) -> list:
    if way == "choice":
        values = _literal(text, where)
        if not isinstance(values, (list, tuple)) or not values:
            raise InputError(f"{where}: choice is {text!r}; it should be a list such as [64,96,128].")
        return list(values)
    if way not in NUMBERS:
        raise InputError(f"{where}: '{way}' is no way to search; it should be one of choice, {', '.join(NUMBERS)}.")
    found = [_literal(part, where) for part in text.split(",")]
    if len(found) != NUMBERS[way] or not all(isinstance(one, (int, float)) for one in found):
        raise InputError(f"{where}: {way} is '{text}'; it should be {NUMBERS[way]} numbers with commas between.")
    if way == "loguniform":
        try:
            return [math.exp(end) for end in found]
        except OverflowError as error:
            raise InputError(f"{where}: loguniform is '{text}'; its ends are exponents of e, e.g. -8,0.") from error
    return found


def _literal(text: str, where: str) -> Any:
    try:
        return parse_literal(text)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
