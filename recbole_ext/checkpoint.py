"""Checkpoints: plain values and tensors, written whole or not at all, read without unpickling objects."""

import hashlib
import os
import pickle
import random
import zipfile
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from recbole_ext.config.values import plain
from recbole_ext.errors import InputError
from recbole_ext.whole_file import write_whole

FORMAT = 1
# Optional, in "data":
# "trained_items": which items have training events, a bool tensor [items and padding], or None;
# "item_names": None, or a dictionary of "column" (str) and "names" (a list of str, one for each item and the padding,
#     '' for an item without a name).
HOLDS = {
    "format": int, "model": str, "class": str, "config": dict, "tokens": dict, "state_dict": dict,
    "other_parameter": dict, "optimizer": dict, "epoch": int, "cur_step": int, "best_valid_score": float,
    "best_valid_result": dict,
}  # fmt: skip


def save(state: dict[str, Any], path: str) -> None:
    """Write a checkpoint so that a crash at any moment leaves the previous one, or none, but never half of one.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    try:
        with write_whole(path) as file:
            torch.save(state, file)
    except (OSError, RuntimeError) as error:
        cause = error if isinstance(error, OSError) else error.__context__
        if not isinstance(cause, OSError):  # torch reports a failed write as an error of its own
            raise
        raise OSError(cause.errno, f"checkpoint cannot be written: {cause.strerror}", path) from error


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
    except (zipfile.BadZipFile, RuntimeError, EOFError, OSError, ValueError, KeyError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise InputError(f"{path} is not a checkpoint of recbole_ext, or it is damaged: {reason}.") from error
    _check(state, path)
    return state


def _check(state: Any, path: str) -> None:
    if isinstance(state, dict) and isinstance(state.get("format"), int) and state["format"] > FORMAT:
        raise InputError(
            f"checkpoint {path} has format {state['format']}; this version reads up to {FORMAT}: update recbole_ext."
        )
    for key, kind in HOLDS.items():
        if not isinstance(state, dict) or not isinstance(state.get(key), kind):
            raise InputError(f"{path} is not a checkpoint of recbole_ext: it has no '{key}' of the right kind.")
    if not all(isinstance(state["config"].get(key), str) for key in ("model", "dataset")):
        raise InputError(f"{path} is not a checkpoint of recbole_ext: its config names no model and data set.")
    if not all(isinstance(tokens, list) for tokens in state["tokens"].values()):
        raise InputError(f"{path} is not a checkpoint of recbole_ext: its tokens are no lists.")


def load_weights(model: Any, state: dict[str, Any], path: str | os.PathLike) -> None:
    """Give a model what a checkpoint holds for it; `InputError` if that is of another shape, or no numbers."""
    for name, weights in state["state_dict"].items():
        if isinstance(weights, torch.Tensor) and weights.is_floating_point() and not weights.isfinite().all():
            raise InputError(f"checkpoint {path} holds values in '{name}' that are not numbers; train the model anew.")
    for name in state["other_parameter"].keys() - model.other_parameter().keys():
        raise InputError(f"checkpoint {path} does not fit {type(model).__name__}, which keeps no '{name}'.")
    try:
        model.load_state_dict(state["state_dict"])
    except RuntimeError as error:
        reason = " ".join(str(error).split("\n\t")[1:2]) or str(error)
        raise InputError(
            f"checkpoint {path} does not fit {type(model).__name__} as configured: {reason.strip()}"
        ) from error
    model.load_other_parameter(state["other_parameter"])


def compare_keys(state: dict[str, Any], config: Any, keys: Iterable[str], path: str | os.PathLike) -> None:
    """See to it that keys are what a checkpoint was trained with; `InputError` for the first that is not."""
    for key in keys:
        was, now = state["config"].get(key), plain(config[key])
        if key in state["config"] and was != now:
            raise InputError(f"{key} is {now!r}, but checkpoint {path} was trained with {was!r}; leave it as it was.")


def structure(model: Any) -> tuple[str, ...]:
    """Keys that decide what the weights of a model mean, without a change of their shapes."""
    return getattr(model, "structure", ("n_heads", "hidden_act"))


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


def data_digest(dataset: Any) -> str:
    """A number that changes with the events of a data set: any value of any column that is loaded, or their order.

    Args:
        dataset: as RecBole's `create_dataset` returns it, before it is split.
    """
    digest = hashlib.sha256(repr(getattr(dataset, "time_origin", None)).encode())
    for field in sorted(dataset.inter_feat):
        digest.update(field.encode())
        values = dataset.inter_feat[field]
        if values.dtype == object:  # sequences
            digest.update(np.array([len(value) for value in values]).tobytes())
            values = np.concatenate([np.ravel(value) for value in values])
        digest.update(np.asarray(values, dtype=np.float64).tobytes())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    import platform

    import pandas
    import recbole

    from recbole_ext import __version__

    return {
        "recbole_ext": __version__, "recbole": recbole.__version__, "torch": str(torch.__version__),
        "numpy": np.__version__, "pandas": pandas.__version__, "python": platform.python_version(),
    }  # fmt: skip


def random_states() -> dict[str, Any]:
    """States of all random generators that training draws from, as tensors and plain values."""
    _, keys, position, has_gauss, cached = np.random.get_state()
    version, words, gauss = random.getstate()
    states: dict[str, Any] = {
        "python": {"version": version, "words": list(words), "gauss": gauss},
        "numpy": {
            "keys": torch.from_numpy(np.asarray(keys, dtype=np.int64)), "position": int(position),
            "has_gauss": int(has_gauss), "cached": float(cached),
        },
        "torch": torch.get_rng_state(),
    }  # fmt: skip
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def restore_random(states: dict[str, Any]) -> None:
    """Put all random generators where `random_states` found them."""
    python, own = states["python"], states["numpy"]
    random.setstate((python["version"], tuple(python["words"]), python["gauss"]))
    keys = own["keys"].cpu().numpy().astype(np.uint32)
    np.random.set_state(("MT19937", keys, own["position"], own["has_gauss"], own["cached"]))
    torch.set_rng_state(states["torch"].cpu())
    if "cuda" in states and torch.cuda.is_available():
        for number, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(state.cpu(), number)


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
