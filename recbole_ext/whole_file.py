"""Files that are written whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from typing import BinaryIO


@contextlib.contextmanager
def write_whole(path: str) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` once everything is written and on the disk.

    If the block or the disk fails, what stood at `path` before still stands there, and nothing else is left.
    """
    folder, name = os.path.split(os.path.abspath(path))
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.part")
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
