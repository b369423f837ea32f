"""From what a checkpoint holds back to the class, the keys and the device of its model."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from recbole_ext.config.columns import without_item_vectors
from recbole_ext.config.known_keys import DERIVED, known_keys, unknown_key_sentence
from recbole_ext.errors import InputError, recbole_errors_as_input_error
from recbole_ext.model.registry import find_model, is_ours, name_of


def build(config: Any, dataset: Any) -> Any:
    """The model of a configuration on its device; `InputError` for a value that only the model can refuse."""
    with recbole_errors_as_input_error(f"model {config['model']} with these keys and data"):
        return config.model_class(config, dataset).to(config["device"])


@contextlib.contextmanager
def naming_checkpoint(path: str | os.PathLike | None, changes: Iterable[str] = ()) -> Iterator[None]:
    """Name the checkpoint in what is refused about the keys that it holds.

    Args:
        path: of the checkpoint; None where the keys come from elsewhere.
        changes: keys that the caller gave, whose mistakes are not the checkpoint's.

    Raises:
        InputError: what was raised inside, with the path before it unless it is there.
    """
    try:
        yield
    except InputError as error:
        sentence = str(error)
        if path is None or any(key in sentence for key in changes):
            raise
        stem = os.path.splitext(path)[0]
        if any(f"{stem}{suffix}" in sentence for suffix in (".pth", ".latest", os.path.splitext(path)[1])):
            raise
        raise InputError(f"checkpoint {os.fspath(path)}: {error}") from error


def class_of(state: dict[str, Any], model: type | None, path: str) -> type | str:
    """The model's class, or the name that it is known by; `InputError` where it is a user's own and not given."""
    home = state["class"].partition(".")[0]
    if model is None and home not in ("recbole", "recbole_ext"):
        raise InputError(f"checkpoint {path} is of a class of your own, {state['class']}; give it as model=.")
    return model if model is not None else (f"recbole.{state['model']}" if home == "recbole" else state["model"])


def keys_of(state: dict[str, Any], network_class: str | type, changes: dict[str, Any]) -> dict[str, Any]:
    """What the checkpoint was trained with, but for what belongs to the machine and the folder of that run."""
    if not isinstance(changes, dict):
        raise InputError(f"config_dict is {changes!r}; it should be a dictionary of keys and values.")
    dropped = {"gpu_id", "checkpoint_dir", "log_dir", "valid_metric_bigger", *DERIVED}  # the last follow from others
    keys = {key: value for key, value in state["config"].items() if key not in dropped}
    model_class = find_model(network_class)
    if any(map(is_ours, model_class.__mro__)):
        keys = without_item_vectors(keys)
    known = known_keys(model_class, keys)
    for key in changes:
        if key == "model" or key not in known:
            raise InputError(unknown_key_sentence(key, known - {"model"}, name_of(model_class)))
    keys.update(changes, allow_unknown=True)  # keys of the user's own that the training let through
    del keys["model"]
    return keys


def config_of(kind: type, state: dict[str, Any], network_class: str | type, changes: dict[str, Any]) -> Any:
    """A configuration, of class `kind`, for the model of a checkpoint, with changes."""
    keys = keys_of(state, network_class, changes)
    return kind(network_class, keys.pop("dataset"), None, keys, argv=[])


def device_named(name: str | torch.device) -> torch.device:
    """The device of that name; `InputError` if this machine lacks it."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device).item()  # "meta" has no numbers
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(f"device is {str(name)!r}, which this machine lacks: {str(error).splitlines()[0]}") from error
    return device
