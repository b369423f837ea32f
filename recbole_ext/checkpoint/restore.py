"""Rebuild a model from a checkpoint: class, configuration and weights, with checks against the model and the data."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from recbole_ext.config.columns import without_item_vectors
from recbole_ext.config.known_keys import DERIVED, known_keys, unknown_key_sentence
from recbole_ext.errors import InputError, recbole_errors_as_input_error
from recbole_ext.model.registry import find_model, is_ours, name_of
from recbole_ext.utils.literals import to_builtin


def build(config: Any, dataset: Any) -> Any:
    """Build the model of a configuration on its device.

    Raises:
        InputError: the model does not accept the value of a key.
    """
    with recbole_errors_as_input_error(f"model {config['model']} with these keys and data"):
        return config.model_class(config, dataset).to(config["device"])


def resolve_class(checkpoint: dict[str, Any], model: type | None, path: str) -> type | str:
    """The class of a checkpoint's model, or its name in the registry.

    Args:
        checkpoint: the result of `load`.
        model: the class, if the caller provides it.
        path: of the checkpoint, for the message.

    Raises:
        InputError: the class is neither RecBole's nor of this package, and `model` is None.
    """
    package = checkpoint["class"].partition(".")[0]
    if model is None and package not in ("recbole", "recbole_ext"):
        raise InputError(
            f"the model of checkpoint {path} has your own class, {checkpoint['class']}; pass it as model=."
        )
    if model is not None:
        return model
    return f"recbole.{checkpoint['model']}" if package == "recbole" else checkpoint["model"]


def stored_keys(checkpoint: dict[str, Any], model: str | type, changes: dict[str, Any]) -> dict[str, Any]:
    """The configuration that a checkpoint was trained with, without device and folders, and with changes.

    Args:
        checkpoint: the result of `load`.
        model: the model's class or name.
        changes: keys to replace.

    Raises:
        InputError: `changes` is not a dictionary, or the model has no such key.
    """
    if not isinstance(changes, dict):
        raise InputError(f"config_dict is {changes!r}; it should be a dictionary of keys and values.")
    excluded = {
        "gpu_id",
        "checkpoint_dir",
        "log_dir",
        "valid_metric_bigger",
        *DERIVED,
    }  # the last two derive from other keys
    keys = {key: value for key, value in checkpoint["config"].items() if key not in excluded}
    model_class = find_model(model)
    if any(map(is_ours, model_class.__mro__)):
        keys = without_item_vectors(keys)
    valid_keys = known_keys(model_class, keys)
    for key in changes:
        if key == "model" or key not in valid_keys:
            raise InputError(unknown_key_sentence(key, valid_keys - {"model"}, name_of(model_class)))
    keys.update(changes, allow_unknown=True)  # the training may have allowed keys of the user
    del keys["model"]
    return keys


def build_config(config_class: type, checkpoint: dict[str, Any], model: str | type, changes: dict[str, Any]) -> Any:
    """A configuration of class `config_class` for the model of a checkpoint; see `stored_keys`."""
    keys = stored_keys(checkpoint, model, changes)
    return config_class(model, keys.pop("dataset"), None, keys, argv=[])


def set_device(config: Any, name: str | torch.device | None) -> None:
    """Let a configuration use the device with this name, if one is named; `InputError` if this machine lacks it."""
    if name is None:
        return
    try:
        device = torch.device(name)
        torch.empty(1, device=device).item()  # also fails on the device "meta", whose tensors have no values
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(f"device is {str(name)!r}, which this machine lacks: {str(error).splitlines()[0]}") from error
    config["device"], config["use_gpu"] = device, device.type != "cpu"


@contextlib.contextmanager
def naming_checkpoint(path: str | os.PathLike | None, changes: Iterable[str] = ()) -> Iterator[None]:
    """Name the checkpoint in errors about its keys.

    Args:
        path: of the checkpoint; None if the keys come from another source.
        changes: keys that the caller sets; errors about these do not concern the checkpoint.

    Raises:
        InputError: the error raised inside, with the path of the checkpoint before it unless it contains it.
    """
    try:
        yield
    except InputError as error:
        sentence = str(error)
        if path is None or not isinstance(changes, Iterable) or any(key in sentence for key in changes):
            raise
        stem, suffix = os.path.splitext(path)
        if any(f"{stem}{end}" in sentence for end in (".pth", ".latest", suffix)):
            raise
        raise InputError(f"checkpoint {os.fspath(path)}: {error}") from error


# -------------------------------------------------------------------- weights and optimizer


def load_weights(model: Any, checkpoint: dict[str, Any], path: str | os.PathLike) -> None:
    """Load the weights of a checkpoint into a model, and RecBole's `other_parameter`.

    Raises:
        InputError: names, shapes or types differ from the model's, or a weight is not a finite number.
    """
    name, model_weights = type(model).__name__, model.state_dict()
    for key, weights in checkpoint["state_dict"].items():
        if not weights.isfinite().all():
            raise InputError(f"checkpoint {path} has values in '{key}' that are not finite; train the model again.")
        if key in model_weights and model_weights[key].is_floating_point() != weights.is_floating_point():
            raise InputError(
                f"checkpoint {path} does not fit {name}: '{key}' is of {weights.dtype}, not {model_weights[key].dtype}."
            )
    initial = model.other_parameter()
    for key, value in checkpoint["other_parameter"].items():
        if key not in initial:
            raise InputError(f"checkpoint {path} does not fit {name}, which has no '{key}'.")
        if not _can_replace(initial[key], value):
            raise InputError(f"checkpoint {path} does not fit {name}, whose '{key}' has another type or shape.")
    try:
        model.load_state_dict(checkpoint["state_dict"])
    except RuntimeError as error:
        reason = " ".join(str(error).split("\n\t")[1:2]) or str(error)
        raise InputError(f"checkpoint {path} does not fit {name} as configured: {reason.strip()}") from error
    model.load_other_parameter(checkpoint["other_parameter"])


def _can_replace(initial: Any, value: Any) -> bool:
    """Whether a stored value has the type and shape of a model's initial value; None accepts all but text and bool."""
    if isinstance(initial, torch.Tensor):
        return isinstance(value, torch.Tensor) and (value.shape, value.dtype) == (initial.shape, initial.dtype)
    return type(value) is type(initial) if initial is not None else not isinstance(value, (str, bool))


def unaveraged_weights(model: Any, checkpoint: dict[str, Any], path: str | os.PathLike) -> dict[str, torch.Tensor]:
    """The weights of a training with `ema_decay`, by name, from which it resumes.

    Raises:
        InputError: they are missing, do not fit the model, or are not finite numbers.
    """
    stored = checkpoint.get("unaveraged_weights", {})
    for name, weights in model.named_parameters():
        if (
            name not in stored
            or (stored[name].shape, stored[name].dtype) != (weights.shape, weights.dtype)
            or not stored[name].isfinite().all()
        ):
            raise InputError(
                f"checkpoint {path} has no valid weights before averaging of '{name}'; start the training again."
            )
    return stored


def check_optimizer(optimizer: Any, checkpoint: dict[str, Any], path: str | os.PathLike) -> None:
    """Check that an optimizer can load its state from a checkpoint.

    Raises:
        InputError: the state belongs to other parameters, lacks a value for some of them, or holds a value whose shape
            is neither its parameter's nor that of the same value of other parameters.
    """
    stored = checkpoint["optimizer"]
    stored_groups, groups = stored.get("param_groups", []), optimizer.param_groups
    sizes = [[len(group["params"]) for group in side] for side in (stored_groups, groups)]
    if "state" not in stored or sizes[0] != sizes[1]:
        raise InputError(f"checkpoint {path} has no state of this optimizer; start the training again.")
    parameters = {number: parameter for stored_group, group in zip(stored_groups, groups, strict=True)
                  for number, parameter in zip(stored_group["params"], group["params"], strict=True)}  # fmt: skip
    names = sorted({name for values in stored["state"].values() for name in values})
    expected_forms: dict[str, str] = {}
    for number, values in stored["state"].items():
        shape = parameters[number].shape
        for name in names:
            form = _form(values.get(name), shape)
            if form == "invalid" or (shape and expected_forms.setdefault(name, form) != form):
                raise InputError(
                    f"checkpoint {path} has no state of this optimizer: '{name}' of parameter {number} does not fit; "
                    f"start the training again."
                )


def _form(value: Any, shape: torch.Size) -> str:
    """The form of a value in an optimizer's state: number, scalar tensor, shaped like its parameter, or invalid."""
    if not isinstance(value, torch.Tensor):
        return "invalid" if value is None else "number"
    if not value.isfinite().all():
        return "invalid"
    if value.shape == shape and value.is_floating_point():
        return "weight"
    return "invalid" if value.shape else "scalar"


# -------------------------------------------------------------------- configuration and data


def compare_keys(checkpoint: dict[str, Any], config: Any, keys: Iterable[str], path: str | os.PathLike) -> None:
    """Check that keys have the values that a checkpoint was trained with; `InputError` names the first difference.

    A checkpoint that is older than a key was trained with what is the key's default now.
    """
    stored = {**getattr(config, "internal_config_dict", {}), **checkpoint["config"]}
    for key in keys:
        trained_with, value = stored.get(key), to_builtin(config[key])
        if key in stored and trained_with != value:
            raise InputError(
                f"{key} is {value!r}, but checkpoint {path} was trained with {trained_with!r}; set it to that value."
            )


def compare_data(checkpoint: dict[str, Any], dataset: Any, source: str, path: str | os.PathLike) -> None:
    """Check that a data set has the users, items and events that a checkpoint was trained on.

    Args:
        checkpoint: the result of `load`.
        dataset: the data set to compare.
        source: of the data set, for the message.
        path: of the checkpoint, for the message.

    Raises:
        InputError: they differ.
    """
    for field, tokens in checkpoint["tokens"].items():
        tokens_now = dataset.field2id_token.get(field, [])
        if list(map(str, tokens_now)) != tokens:
            raise InputError(
                f"checkpoint {path} has {len(tokens) - 1} values of {field} in another order or number than the "
                f"{len(tokens_now) - 1} of {source}; use the data that it was trained on."
            )
    digest = checkpoint.get("data_digest")
    if digest and digest != getattr(dataset, "digest", digest):
        raise InputError(
            f"the events of {source} have changed since checkpoint {path} was trained on them; use the original data."
        )
