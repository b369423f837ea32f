"""The search space: the keys that vary and the distribution of each.

learning_rate: {loguniform: [3e-4, 3e-3]}        # any number in the range, uniform on a log scale
hidden_dropout_prob: {uniform: [0.1, 0.5]}       # any number in the range
MAX_ITEM_LIST_LENGTH: {quniform: [20, 100, 10]}  # a multiple of 10, both ends included
n_layers: {randint: [1, 4]}                      # an integer, both ends included
hidden_size: {choice: [16, 32, 64]}              # one of the list
loss_type: {grid: [CE, BPR]}                     # every value of the list, combined with all other grids
"""

import math
import numbers
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from recbole_ext.config.paths import properties_dir
from recbole_ext.errors import InputError
from recbole_ext.utils.literals import parse_literal, read_yaml

DISTRIBUTIONS = {  # with the arguments of each
    "choice": "a list of values",
    "grid": "a list of values",
    "uniform": "[low, high], two numbers with low < high",
    "loguniform": "[low, high], two numbers with 0 < low < high",
    "quniform": "[low, high, q], three numbers with a multiple of q between low and high",
    "randint": "[low, high], two integers with low <= high",
}
HYPER_TEST_NUMBERS = {"uniform": 2, "loguniform": 2, "quniform": 3}  # arguments in a file like RecBole's hyper.test
# Keys that define what is measured, on which data, and where and how long a trial runs. Trials that differ in one of
# them cannot be compared.
NOT_SEARCHED = {
    "model", "dataset", "data_path", "checkpoint_dir", "log_dir", "config_files", "benchmark_filename", "eval_args",
    "metrics", "topk", "valid_metric", "valid_metric_bigger", "metric_decimal_place", "eval_step", "repeatable",
    "eval_users", "use_gpu", "gpu_id", "show_progress", "state", "allow_unknown", "nproc", "world_size", "encoding",
    "field_separator", "seq_separator", "epochs", "user_inter_num_interval", "item_inter_num_interval", "val_interval",
    "rm_dup_inter", "filter_inter_by_user_or_item", "exclude_history", "threshold", "min_history", "load_col",
    "unload_col", "checkpoint_minutes", "data_cache",
}  # fmt: skip


@dataclass(frozen=True)
class Distribution:
    """The values that a key may take.

    Attributes:
        kind: one of `DISTRIBUTIONS`.
        args: the arguments of the distribution, as in the file.
        choices: all values of a discrete distribution; None for a continuous one.
    """

    kind: str
    args: tuple
    choices: tuple | None

    def sample(self, generator: np.random.Generator) -> Any:
        """Draw one value."""
        if self.choices is not None:
            return self.choices[generator.integers(len(self.choices))]
        low, high = self.args
        if self.kind == "uniform":
            return round_value(generator.uniform(low, high), low, high)
        return round_value(math.exp(generator.uniform(math.log(low), math.log(high))), low, high)

    def contains(self, value: Any) -> bool:
        """Whether the distribution can produce the value."""
        if self.choices is not None:
            return value in self.choices
        low, high = self.args
        return isinstance(value, numbers.Real) and low <= value <= high

    def to_dict(self) -> dict[str, list]:
        """The distribution as in a YAML file."""
        return {self.kind: list(self.args)}


Space = dict[str, Distribution]


def round_value(value: float, low: float, high: float) -> float:
    """Round a sampled value to six significant digits, within its range. More digits do not change a result."""
    return min(max(float(f"{value:.6g}"), low), high)


def format_value(value: Any) -> str:
    """The value of a key as a short text: `0.001235`, `sin+log`, `none` for an empty list."""
    if isinstance(value, (list, tuple)):
        return "+".join(map(format_value, value)) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# ---------------------------------------------------------------------- reading


def read_space(space: str | os.PathLike | dict | None, model: str) -> tuple[dict[str, Any], str]:
    """Read a search space without checking its values.

    Args:
        space: a YAML file, a file in the format of RecBole's `hyper.test`, a dictionary, or None for the space that
            comes with the package.
        model: name of the model, for the space that comes with the package.

    Returns:
        `{key: {kind: arguments}}` and a name of the source for error messages.

    Raises:
        InputError: the file does not exist or cannot be read.
    """
    if isinstance(space, dict):
        return {str(key): value for key, value in space.items()}, "the search space"
    if space is None:
        default = properties_dir() / "search" / f"{model}.yaml"
        if not default.is_file():
            raise InputError(f"there is no default search space for {model}; pass one with --space=FILE.")
        return read_yaml(str(default)), f"search space {default}"
    if not isinstance(space, (str, os.PathLike)) or not os.fspath(space):
        raise InputError(f"space is {space!r}; it should be the name of a file.")
    path = os.path.expanduser(os.fspath(space))
    if path.lower().endswith((".yaml", ".yml")):
        try:
            return read_yaml(path), f"search space {path}"
        except InputError as error:
            raise InputError(str(error).replace("config file", "search space", 1)) from error
    return read_hyper_test(path), f"search space {path}"


def read_hyper_test(path: str) -> dict[str, Any]:
    """Read a file with lines `key kind arguments`, as in RecBole's `hyper.test`.

    Raises:
        InputError: the file cannot be read or a line has another form; the message names file and line.
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
        where = f"search space {path} line {number}"
        words = line.split(maxsplit=2)
        if len(words) < 3:
            raise InputError(
                f"{where} is '{line.strip()}'; it should be `key distribution values`, e.g. `n_layers choice [1,2]`."
            )
        key, kind, text = words
        if key in space:
            raise InputError(f"{where}: key '{key}' appears twice.")
        space[key] = {kind: _hyper_test_arguments(kind, text, where)}
    return space


def _hyper_test_arguments(kind: str, text: str, where: str) -> list:
    if kind == "choice":
        values = _literal(text, where)
        if not isinstance(values, (list, tuple)) or not values:
            raise InputError(f"{where}: choice is {text!r}; it should be a list such as [64,96,128].")
        return list(values)
    if kind not in HYPER_TEST_NUMBERS:
        raise InputError(
            f"{where}: unknown distribution '{kind}'; it should be choice, {', '.join(HYPER_TEST_NUMBERS)}."
        )
    values = [_literal(part, where) for part in text.split(",")]
    count = HYPER_TEST_NUMBERS[kind]
    if len(values) != count or not all(isinstance(value, (int, float)) for value in values):
        raise InputError(f"{where}: {kind} is '{text}'; it should be {count} numbers, separated by commas.")
    if kind == "loguniform":  # RecBole writes the exponents of e
        try:
            return [math.exp(exponent) for exponent in values]
        except OverflowError as error:
            raise InputError(f"{where}: loguniform is '{text}'; its ends are exponents of e, e.g. -8,0.") from error
    return values


def _literal(text: str, where: str) -> Any:
    try:
        return parse_literal(text)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


# ---------------------------------------------------------------------- checking


def check_space(entries: dict[str, Any], source: str, config: Any) -> Space:
    """Check every key and value of a space against what the model accepts.

    Args:
        entries, source: the result of `read_space`.
        config: configuration of the model. Keys from its command line or dictionary are fixed; they are left out of
            the space.

    Raises:
        InputError: the space is empty, a key is unknown or cannot be searched, or a distribution or value is invalid.
    """
    if not entries:
        raise InputError(f"{source} is empty; it should contain lines such as `hidden_size: {{choice: [32, 64]}}`.")
    fixed = {**config.variable_config_dict, **config.cmd_config_dict}
    space = {}
    for key, entry in entries.items():
        if key in NOT_SEARCHED:
            raise InputError(f"{source} has '{key}', which must be equal in all trials; set it outside the space.")
        try:
            distribution = _distribution(key, entry, config)
        except InputError as error:
            raise InputError(f"{source}: {error}") from error
        if key not in fixed:
            space[key] = distribution
    if not space:
        raise InputError(f"every key of {source} has a fixed value ({', '.join(entries)}); remove the value of one.")
    return space


def _distribution(key: str, entry: Any, config: Any) -> Distribution:
    """Check an entry `{kind: arguments}` of a space."""
    if not isinstance(entry, dict) or len(entry) != 1 or next(iter(entry)) not in DISTRIBUTIONS:
        raise InputError(
            f"'{key}' is {entry!r}; it should be one of {', '.join(DISTRIBUTIONS)} with values, {{choice: [1, 2]}}."
        )
    ((kind, args),) = entry.items()
    if not isinstance(args, (list, tuple)) or not args or not _are_valid_arguments(kind, args):
        raise InputError(f"'{key}' has {kind} {args!r}; it should be {DISTRIBUTIONS[kind]}.")
    if kind in ("uniform", "loguniform"):
        for fraction in (0, 0.38196601, 1):  # both ends, and a number in between that is not an integer
            config.validated(key, round_value(args[0] + fraction * (args[1] - args[0]), *args))
        return Distribution(kind, tuple(args), None)
    if kind == "randint":
        args = tuple(map(int, args))
        values: Iterable = range(args[0], args[1] + 1)
    else:
        values = _multiples(*args) if kind == "quniform" else args
    choices = tuple(config.validated(key, value) for value in values)
    return Distribution(kind, choices if kind in ("choice", "grid") else tuple(args), choices)


def _are_valid_arguments(kind: str, args: list | tuple) -> bool:
    if kind in ("choice", "grid"):
        return True
    are_numbers = all(isinstance(value, numbers.Real) and not isinstance(value, bool) for value in args)
    if not are_numbers or len(args) != (3 if kind == "quniform" else 2) or not all(map(math.isfinite, args)):
        return False
    low, high = args[:2]
    if kind == "randint":
        return low == int(low) and high == int(high) and low <= high < low + 1e6
    if kind == "quniform":
        return args[2] > 0 and (high - low) / args[2] < 1e6 and bool(_multiples(*args))
    return low < high and (kind == "uniform" or low > 0)


def _multiples(low: float, high: float, q: float) -> list[float]:
    """The multiples of q from low to high; integers if all of them are."""
    slack = 1e-9  # 0.3 / 0.1 is slightly less than 3
    factors = range(math.ceil(low / q - slack), math.floor(high / q + slack) + 1)
    values = [float(f"{factor * q:.12g}") for factor in factors]
    return [int(value) for value in values] if all(value.is_integer() for value in values) else values
