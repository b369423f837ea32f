"""Files that are written whole or not at all."""

import contextlib
import glob
import os
from collections.abc import Iterator
from typing import BinaryIO


@contextlib.contextmanager
def write_whole(path: str) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` once everything is written and on the disk.

    If the block or the disk fails, what stood at `path` before still stands there, and nothing else is left.
    """
    temporary = unfinished(path, str(os.getpid()))
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def remove_unfinished(path: str) -> None:
    """Remove what processes have left that were killed while they wrote `path`; of those that live, it stays."""
    for file in glob.glob(unfinished(glob.escape(path), "*")):
        if not is_alive(file.split(".")[-2]):
            with contextlib.suppress(OSError):
                os.unlink(file)


def is_alive(process: str) -> bool:
    """Whether another process of this machine has that number.

    This process's own number counts as dead: in containers a killed process has often had the same one.
    """
    if os.name != "posix" or not process.isdecimal() or int(process) == os.getpid():
        return False
    try:
        os.kill(int(process), 0)  # signal 0 asks, and does nothing
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def unfinished(path: str, process: str) -> str:
    """The name of a file while a process writes it."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(folder, f".{name}.{process}.part")
