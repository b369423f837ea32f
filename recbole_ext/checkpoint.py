"""Checkpoints: plain values and tensors, written whole or not at all, read without unpickling objects."""

import os
import pickle
import random
import tempfile
import zipfile
from typing import Any

import numpy as np
import torch

from recbole_ext.errors import InputError

FORMAT = 1
REQUIRED = ("format", "model", "config", "state_dict", "tokens")


def save(state: dict[str, Any], path: str) -> None:
    """Write a checkpoint so that a crash at any moment leaves the previous one, or none, but never half of one."""
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(path)}.")
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def load(path: str, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a checkpoint of this package; no code in the file is ever run.

    Raises:
        InputError: the file is missing, damaged, holds pickled objects, or is not a checkpoint of this package.
    """
    if not os.path.isfile(path):
        raise InputError(f"there is no checkpoint {path}.")
    try:
        state = torch.load(path, map_location=device, weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(
            f"checkpoint {path} holds pickled objects, which could run code when loaded; it was not written by "
            f"recbole_ext (RecBole's own checkpoints load with RecBole only)."
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"checkpoint {path} is damaged: {str(error).splitlines()[0]}") from error
    missing = [key for key in REQUIRED if not isinstance(state, dict) or key not in state]
    if missing:
        raise InputError(f"{path} is not a checkpoint of recbole_ext: it has no '{missing[0]}'.")
    if state["format"] > FORMAT:
        raise InputError(
            f"checkpoint {path} has format {state['format']}; this version reads up to {FORMAT}: update recbole_ext."
        )
    return state


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
    states = {
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
