"""Checks that the models' options share; each raises `InputError` with the key, the value and what would be right."""

from collections.abc import Iterable, Sequence
from typing import Any

from recbole_ext.errors import InputError


def check_whole(config: Any, keys: Iterable[str]) -> None:
    """The keys are whole numbers, at least 1."""
    for key in keys:
        if not isinstance(config[key], int) or config[key] < 1:
            raise InputError(f"{key} is {config[key]!r}; it should be a whole number, at least 1.")


def check_choice(key: str, value: Any, names: Sequence[str]) -> None:
    """The value of the key is one of `names`."""
    if value not in names:
        raise InputError(f"{key} is {value!r}; it should be one of {', '.join(names)}.")


def check_times(dataset: Any, name: str, model: str) -> None:
    """The histories of a data set have times; in files that bring their own, they may lack."""
    exact = hasattr(dataset, "time_origin")  # RecBole's own data sets do not tell of lists here
    if exact and name not in getattr(dataset, "field2type", {name: ...}):
        raise InputError(f"{model} needs the times of histories, but no column '{name}' is loaded; add it.")


def or_none(value: Any) -> Any:
    """YAML and the command line read the word none as nothing: where it is a choice, the word again."""
    return "none" if value is None else value
