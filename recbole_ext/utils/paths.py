"""Paths that a user gives: absolute, writable, and no output over an input."""

import os
import tempfile
from collections.abc import Mapping
from typing import Any

from recbole_ext.errors import InputError
from recbole_ext.utils.atomic_write import unfinished

ATOMIC = (".inter", ".user", ".item", ".kg", ".link", ".net")  # RecBole's files


def absolute(path: str, purpose: str) -> str:
    """The path from the root, `~` resolved.

    Raises:
        InputError: no file can be called that, or its name is no text in the locale of this process.
    """
    try:
        path = os.path.abspath(os.path.expanduser(path))
        path.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{purpose}: {path!r} cannot be read in this locale; set PYTHONUTF8=1.") from error
    if "\0" in path:
        raise InputError(f"{purpose}: {path!r} has a NUL character; no file can be called that.")
    return path


def check_outputs(outputs: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
    """See to it that no file to write is a file to read, a data file, or another file to write.

    A file is known under any spelling of its path, and through links.

    Args:
        outputs: paths by the option that gives them; what is no path (None, `-`, an option without a value) is skipped.
        inputs: the same of the files that are read.

    Raises:
        InputError: names the two options, or the suffix of a data file.
    """
    read = {option: path for option, path in inputs.items() if _is_path(path)}
    written: dict[str, Any] = {}
    for option, path in outputs.items():
        if not _is_path(path):
            continue
        suffix = os.path.splitext(os.path.realpath(os.path.expanduser(path)))[1].lower()
        if suffix in ATOMIC:
            raise InputError(f"{option} is {str(path)!r}, but {suffix} files hold data of RecBole; name another file.")
        for other, place in {**read, **written}.items():
            if _same_file(path, place):
                what = "would overwrite the file" if other in read else "is the same file as that"
                raise InputError(f"{option} is {str(path)!r}, which {what} of {other}; name another file.")
        written[option] = path


def _is_path(path: Any) -> bool:
    return isinstance(path, (str, os.PathLike)) and os.fspath(path) not in ("", "-") and "\0" not in os.fspath(path)


def _same_file(one: Any, other: Any) -> bool:
    one, other = os.path.expanduser(one), os.path.expanduser(other)
    try:
        return os.path.samefile(one, other)  # hard links, and other capitals where the disk makes no difference
    except OSError:  # one of them is not there yet
        return os.path.normcase(os.path.realpath(one)) == os.path.normcase(os.path.realpath(other))


def writable_file(path: str, purpose: str) -> str:
    """The path of a file to write, as an absolute path, after trying whether its folder and its name allow that.

    Raises:
        InputError: they do not; the message says what was to be written (`purpose`).
    """
    path = absolute(path, purpose)
    if os.path.isdir(path):
        raise InputError(f"{purpose} cannot be written to {path}, which is a folder; name a file.")
    folder, name = os.path.split(path)
    path = os.path.join(writable_dir(folder, purpose), name)
    try:
        os.stat(unfinished(path, str(os.getpid())))  # the longest name that it gets
    except FileNotFoundError:
        pass
    except OSError as error:
        raise InputError(f"{purpose} cannot be written to {path}: {error.strerror}.") from error
    return path


def writable_dir(path: str, purpose: str) -> str:
    """The folder as an absolute path, made if need be, after trying to write a file there.

    Raises:
        InputError: it cannot be made or written; the message says what was to be written (`purpose`).
    """
    folder = absolute(path, purpose)
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise InputError(f"{purpose} cannot be written to {folder}: {error.strerror}.") from error
