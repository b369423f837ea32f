"""Checks of the user's paths: valid names, writable files, no output over an input."""

import importlib.util
import os
import tempfile
from collections.abc import Mapping
from typing import Any

from recbole_ext.errors import InputError
from recbole_ext.utils.atomic_write import unfinished

ATOMIC = (".inter", ".user", ".item", ".kg", ".link", ".net")  # RecBole's files


def absolute(path: str, purpose: str) -> str:
    """The absolute path, with `~` resolved.

    Raises:
        InputError: the name has a NUL character, or cannot be encoded in the locale of this process.
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
    """Refuse an output file that is an input file, a data file, or another output file.

    Files are compared, not paths: links and other spellings count as the same file.

    Args:
        outputs: paths of the files to write, by option; None, `-` and other values that are no paths are skipped.
        inputs: paths of the files to read, by option.

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
        return os.path.samefile(one, other)  # includes hard links, and other capitals on a disk that ignores them
    except OSError:  # one of them does not exist yet
        return os.path.normcase(os.path.realpath(one)) == os.path.normcase(os.path.realpath(other))


def check_suffix(path: Any, supported: tuple[str, ...], option: str) -> str:
    """The suffix of the file that an option names, in lower case.

    Raises:
        InputError: the value is not a path with one of the supported suffixes, or the package for it is not installed.
    """
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
    suffix = os.path.splitext(name)[1].lower()
    if suffix not in supported or os.path.isdir(name):
        suffixes = " or ".join(supported)
        raise InputError(f"{option} is {path!r}; it should be the name of a file that ends in {suffixes}.")
    if suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise InputError(f"{option} is {path!r}, which needs the package pyarrow: pip install pyarrow.")
    return suffix


def writable_file(path: str, purpose: str) -> str:
    """The absolute path of a file, after a check that it can be written. Of a link, the file that it points to.

    Raises:
        InputError: it cannot; the message names what was to be written (`purpose`).
    """
    path = absolute(path, purpose)
    if os.path.isdir(path):
        raise InputError(f"{purpose} cannot be written to {path}, which is a folder; name a file.")
    if os.path.exists(path) and not os.path.isfile(path):
        # the file is written beside it and then renamed, which would replace the device, also /dev/null
        raise InputError(f"{purpose} cannot be written to {path}, which is a device or a pipe; name a file.")
    if os.path.islink(path):
        path = os.path.realpath(path)
    folder, name = os.path.split(path)
    path = os.path.join(writable_dir(folder, purpose), name)
    try:
        os.stat(unfinished(path, str(os.getpid())))  # the longest name that is used for it
    except FileNotFoundError:
        pass
    except OSError as error:
        raise InputError(f"{purpose} cannot be written to {path}: {error.strerror}.") from error
    return path


def writable_dir(path: str, purpose: str) -> str:
    """The absolute path of a folder, which is created if missing, after a check that files can be written there.

    Raises:
        InputError: it cannot be created or written; the message names what was to be written (`purpose`).
    """
    folder = absolute(path, purpose)
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise InputError(f"{purpose} cannot be written to {folder}: {error.strerror}.") from error
