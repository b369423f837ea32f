"""Errors of writing a log, on a full disk for example: raised where the log is written, with the name of the file."""

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

from recbole_ext.whole_file import named_errors


def raise_errors(handler: logging.FileHandler) -> None:
    """Have a handler raise an error of its file, instead of printing a traceback for each line of the log."""

    usual = handler.handleError

    def handle(record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]  # what `emit` caught
        if not isinstance(error, OSError):
            usual(record)
            return
        with named_errors(handler.baseFilename):
            raise error

    handler.handleError = handle  # type: ignore[method-assign]


TENSORBOARD = "the log for TensorBoard"


@contextlib.contextmanager
def tensorboard_errors() -> Iterator[None]:
    """Name the log for TensorBoard in errors of its file; its thread prints no traceback of them, now and later."""
    _silence_writing_threads()
    with named_errors(TENSORBOARD):
        yield


class TensorBoardLog:
    """TensorBoard's writer, whose errors say what could not be written.

    Its thread ends with the first error, and later calls raise that error again.

    Args:
        writer: a `SummaryWriter`.
    """

    def __init__(self, writer: Any):
        self.writer = writer

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.writer, name)
        return tensorboard_errors()(member) if callable(member) else member


def _silence_writing_threads() -> None:
    usual = threading.excepthook
    if getattr(usual, "of_recbole_ext", False):
        return

    def hook(arguments: threading.ExceptHookArgs) -> None:
        of_tensorboard = type(arguments.thread).__module__.startswith("tensorboard.")
        if not (of_tensorboard and isinstance(arguments.exc_value, OSError)):
            usual(arguments)

    hook.of_recbole_ext = True  # type: ignore[attr-defined]
    threading.excepthook = hook
