"""Atomic writes: a file is complete, or it stays as it was."""

import contextlib
import glob
import os
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO


class WriteError(OSError):
    """A file that could not be written, on a full disk for example; made as OSError(errno, reason, path) is."""

    def __str__(self) -> str:
        return f"{self.filename} cannot be written: {self.strerror}"


@contextlib.contextmanager
def named_errors(path: str) -> Iterator[None]:
    """Make a `WriteError` with the name of the file of errors that have none, as those of `write` and `flush`.

    Args:
        path: of the file, or what it is.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise WriteError(error.errno, error.strerror or str(error), path) from error


@contextlib.contextmanager
def write_whole(path: str) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` once all is written and synced to disk.

    If the block or the disk fails, `path` stays as it was and the temporary file is removed.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    temporary = unfinished(path, str(os.getpid()))
    try:
        with named_errors(path):
            with open(temporary, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


class DeferredErrors:
    """A file that stores errors instead of raising them: torch's writer aborts the process on an exception.

    After the first error nothing is written; `check` raises it.
    """

    def __init__(self, file: BinaryIO):
        self.file = file
        self.error: BaseException | None = None

    def write(self, data: Any) -> int:
        self._try(self.file.write, data)
        return len(data)

    def flush(self) -> None:
        self._try(self.file.flush)

    def check(self) -> None:
        """Raise the first error, if any: of the disk, or the exception of a signal."""
        if self.error is not None:
            raise self.error

    def _try(self, action: Callable[..., Any], *arguments: Any) -> None:
        if self.error is None:
            try:
                action(*arguments)
            except BaseException as error:
                self.error = error


def remove_unfinished(path: str) -> None:
    """Remove temporary files of processes that were killed while they wrote `path`; those of live processes stay."""
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
