"""Write and read one checkpoint file: atomically, with plain values and tensors only, and without running its code."""

import os
import pickle
import zipfile
from typing import Any

import torch

from recbole_ext.checkpoint.content import check_content
from recbole_ext.errors import InputError
from recbole_ext.utils.atomic_write import DeferredErrors, write_whole

FORMAT = 1  # a new number means a new file of that format in tests/checkpoint/old_formats


def save(checkpoint: dict[str, Any], path: str) -> None:
    """Write a checkpoint atomically: a crash leaves the previous file unchanged.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with write_whole(path) as file:
        target: Any = DeferredErrors(file)
        torch.save(checkpoint, target)
        target.check()


def load(path: str | os.PathLike, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a checkpoint of this package and check its content. Code in the file is never executed.

    Args:
        path: the file.
        device: the device that the tensors are loaded to.

    Raises:
        InputError: the file is missing or damaged, contains pickled objects, or is not a checkpoint of this package.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"the checkpoint is {path!r}; it should be the path of a file.")
    path = os.path.expanduser(path)
    if os.path.isdir(path):
        raise InputError(f"{path} is a folder; name the checkpoint in it, a file that ends in .pth.")
    if not os.path.isfile(path):
        raise InputError(f"there is no checkpoint {path}.")
    if os.path.getsize(path) == 0:  # a run reserves its file before the first epoch
        raise InputError(
            f"checkpoint {path} is empty: its run ended before an epoch was saved; start the training again."
        )
    try:
        _check_archive(path)
        checkpoint = torch.load(path, map_location=device, weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(
            f"checkpoint {path} contains pickled objects, which can run code when loaded; it was not written by "
            f"recbole_ext (only RecBole loads RecBole's own checkpoints)."
        ) from error
    except Exception as error:  # zipfile, zlib and torch raise many types of errors for damaged bytes
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InputError(f"{path} is not a checkpoint of recbole_ext, or it is damaged: {reason}.") from error
    if isinstance(checkpoint, dict) and isinstance(checkpoint.get("format"), int) and checkpoint["format"] > FORMAT:
        raise InputError(
            f"checkpoint {path} has format {checkpoint['format']}; this version reads up to {FORMAT}: update "
            f"recbole_ext."
        )
    check_content(checkpoint, path)
    return checkpoint


def _check_archive(path: str) -> None:
    """Check that the file is an archive of torch with correct checksums, which torch does not verify."""
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
        names = archive.namelist()
    if not any(name.endswith("/data.pkl") for name in names):
        raise zipfile.BadZipFile("it is not an archive of torch")
    if damaged is not None:
        raise zipfile.BadZipFile(f"the checksum of {damaged} is wrong")
