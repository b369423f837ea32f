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
    temporary = _temporary(path, str(os.getpid()))
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
    """Remove what processes have left that were killed while they wrote `path`. None may be writing it now."""
    for file in glob.glob(_temporary(glob.escape(path), "*")):
        with contextlib.suppress(OSError):
            os.unlink(file)


def _temporary(path: str, process: str) -> str:
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(folder, f".{name}.{process}.part")
