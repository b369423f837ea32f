"""Checkpoints: plain values and tensors, written whole or not at all, read without unpickling objects."""

import os
import pickle
import zipfile
from collections.abc import Iterable
from typing import Any

import torch

from recbole_ext.checkpoint.schema import check_content
from recbole_ext.errors import InputError
from recbole_ext.utils.atomic_write import DeferredErrors, write_whole
from recbole_ext.utils.literals import to_builtin

FORMAT = 1


def save(state: dict[str, Any], path: str) -> None:
    """Write a checkpoint so that a crash at any moment leaves the previous one, or none, but never half of one.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with write_whole(path) as file:
        target: Any = DeferredErrors(file)
        torch.save(state, target)
        target.check()


def load(path: str | os.PathLike, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a checkpoint of this package; no code in the file is ever run.

    Raises:
        InputError: the file is missing, damaged, holds pickled objects, or is not a checkpoint of this package.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"the checkpoint is {path!r}; it should be the path of a file.")
    path = os.path.expanduser(path)
    if os.path.isdir(path):
        raise InputError(f"{path} is a folder; name the checkpoint in it, a file that ends in .pth.")
    if not os.path.isfile(path):
        raise InputError(f"there is no checkpoint {path}.")
    if os.path.getsize(path) == 0:  # a run reserves its file before the first epoch
        raise InputError(f"checkpoint {path} is empty: its run ended before an epoch was saved; start it anew.")
    try:
        with zipfile.ZipFile(path) as archive:  # torch itself does not look at the checksums of the archive it writes
            damaged = archive.testzip()
            names = archive.namelist()
        if not any(name.endswith("/data.pkl") for name in names):
            raise zipfile.BadZipFile("no archive of torch")
        if damaged is not None:
            raise zipfile.BadZipFile(f"the checksum of {damaged} is wrong")
        state = torch.load(path, map_location=device, weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(
            f"checkpoint {path} holds pickled objects, which could run code when loaded; it was not written by "
            f"recbole_ext (RecBole's own checkpoints load with RecBole only)."
        ) from error
    except Exception as error:  # whatever zipfile, zlib and torch make of bytes that are not theirs
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InputError(f"{path} is not a checkpoint of recbole_ext, or it is damaged: {reason}.") from error
    if isinstance(state, dict) and isinstance(state.get("format"), int) and state["format"] > FORMAT:
        raise InputError(
            f"checkpoint {path} has format {state['format']}; this version reads up to {FORMAT}: update recbole_ext."
        )
    check_content(state, path)
    return state


def load_weights(model: Any, state: dict[str, Any], path: str | os.PathLike) -> None:
    """Give a model the weights of a checkpoint, and what else it keeps.

    Raises:
        InputError: the model has others, or of another shape or type; or some are not finite numbers.
    """
    name, own = type(model).__name__, model.state_dict()
    for key, weights in state["state_dict"].items():
        if not weights.isfinite().all():
            raise InputError(f"checkpoint {path} holds values in '{key}' that are not numbers; train the model anew.")
        if key in own and own[key].is_floating_point() != weights.is_floating_point():
            raise InputError(
                f"checkpoint {path} does not fit {name}: '{key}' is of {weights.dtype}, not {own[key].dtype}."
            )
    kept = model.other_parameter()
    for key, value in state["other_parameter"].items():
        if key not in kept:
            raise InputError(f"checkpoint {path} does not fit {name}, which keeps no '{key}'.")
        if not _alike(value, kept[key]):
            raise InputError(f"checkpoint {path} does not fit {name}, whose '{key}' is of another type or shape.")
    try:
        model.load_state_dict(state["state_dict"])
    except RuntimeError as error:
        reason = " ".join(str(error).split("\n\t")[1:2]) or str(error)
        raise InputError(f"checkpoint {path} does not fit {name} as configured: {reason.strip()}") from error
    model.load_other_parameter(state["other_parameter"])


def _alike(value: Any, fresh: Any) -> bool:
    """Whether a value can take the place of what a model kept before it was trained; None is open to all but texts."""
    if isinstance(fresh, torch.Tensor):
        return isinstance(value, torch.Tensor) and (value.shape, value.dtype) == (fresh.shape, fresh.dtype)
    return type(value) is type(fresh) if fresh is not None else not isinstance(value, (str, bool))


def check_optimizer(optimizer: Any, state: dict[str, Any], path: str | os.PathLike) -> None:
    """See to it that an optimizer can go on from its state in a checkpoint.

    Raises:
        InputError: the state is of other parameters, or contradicts itself: an entry lacks a value that others have,
            or a value has neither the shape of its parameter nor that of the same value of other parameters.
    """
    stored = state["optimizer"]
    groups, own = stored.get("param_groups", []), optimizer.param_groups
    if "state" not in stored or [len(group["params"]) for group in groups] != [len(group["params"]) for group in own]:
        raise InputError(f"checkpoint {path} holds no state of this optimizer; start the training anew.")
    weights = {number: weight for group, mine in zip(groups, own, strict=True)
               for number, weight in zip(group["params"], mine["params"], strict=True)}  # fmt: skip
    names = sorted({name for values in stored["state"].values() for name in values})
    forms: dict[str, str] = {}
    for number, values in stored["state"].items():
        shape = weights[number].shape
        for name in names:
            form = _form(values.get(name), shape)
            if form == "other" or (shape and forms.setdefault(name, form) != form):
                raise InputError(
                    f"checkpoint {path} holds no state of this optimizer: '{name}' of parameter {number} does not fit; "
                    f"start the training anew."
                )


def _form(value: Any, shape: torch.Size) -> str:
    """How a value of an optimizer's state belongs to a parameter of a shape; "other" if it does not."""
    if not isinstance(value, torch.Tensor):
        return "other" if value is None else "number"
    if not value.isfinite().all():
        return "other"
    if value.shape == shape and value.is_floating_point():
        return "weight"
    return "other" if value.shape else "scalar"


def compare_keys(state: dict[str, Any], config: Any, keys: Iterable[str], path: str | os.PathLike) -> None:
    """See to it that keys are what a checkpoint was trained with; `InputError` for the first that is not."""
    for key in keys:
        was, now = state["config"].get(key), to_builtin(config[key])
        if key in state["config"] and was != now:
            raise InputError(f"{key} is {now!r}, but checkpoint {path} was trained with {was!r}; leave it as it was.")


def compare_data(state: dict[str, Any], dataset: Any, place: str, path: str | os.PathLike) -> None:
    """See to it that users, items and events are those that a checkpoint was trained on.

    Args:
        state: what `load` returned.
        dataset: the data set of today.
        place: where that comes from, for the message.
        path: of the checkpoint, for the message.

    Raises:
        InputError: they are not.
    """
    for field, tokens in state["tokens"].items():
        known = dataset.field2id_token.get(field, [])
        if list(map(str, known)) != tokens:
            raise InputError(
                f"checkpoint {path} knows {len(tokens) - 1} values of {field} in another order or number than the "
                f"{len(known) - 1} of {place}; use the data it was trained on."
            )
    if state.get("data_digest") and state["data_digest"] != getattr(dataset, "digest", state["data_digest"]):
        raise InputError(
            f"the events of {place} have changed since checkpoint {path} was trained on them; use the data as it was."
        )


def latest_file(path: str) -> str:
    """Where the state of a run's latest epoch lies, beside the checkpoint of its best one."""
    return f"{path.removesuffix('.pth')}.latest"


def newest(path: str | os.PathLike, device: torch.device | str = "cpu") -> tuple[str, str, dict[str, Any]]:
    """What a run that ended goes on from.

    Args:
        path: its checkpoint, or the state of its latest epoch beside it.
        device: where tensors go.

    Returns:
        the path of the checkpoint, the path of the newer of the two, and what that holds.

    Raises:
        InputError: there is no checkpoint, or one of the files is not one.
    """
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise InputError(f"resume is {path!r}; it should be the path of a checkpoint.")
    best = os.path.expanduser(path)
    if best.endswith(".latest"):
        best = best.removesuffix(".latest") + ".pth"
    latest = latest_file(best)
    if os.path.isfile(latest) and os.path.isfile(best) and os.path.getsize(best) == 0:  # no epoch was validated yet
        return best, latest, load(latest, device)
    state = load(best, device)
    if os.path.isfile(latest):
        newer = load(latest, device)
        if newer.get("run") == state.get("run") and newer["epoch"] > state["epoch"]:  # else: of another run, or older
            return best, latest, newer
    return best, best, state
