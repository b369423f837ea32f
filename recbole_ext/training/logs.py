"""`log_dir`: a folder for RecBole's `log` and `log_tensorboard`, which are otherwise in the working directory."""

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import recbole.utils.utils
from recbole.utils import init_logger

from recbole_ext.distributed import processes
from recbole_ext.utils.atomic_write import named_errors
from recbole_ext.utils.paths import writable_dir


def check_log_dir(config: Any) -> None:
    """Create the folders of a run's logs; `InputError` if they cannot be written."""
    for folder in (os.path.join("log", config["model"]), "log_tensorboard"):
        writable_dir(os.path.join(_folder(config), folder), "the log of a run")


def start_log_file(config: Any) -> None:
    """Let RecBole set up logging, with its file in `log_dir`."""
    working_dir = os.getcwd()
    os.makedirs(_folder(config), exist_ok=True)
    os.chdir(_folder(config))  # RecBole opens a relative path
    try:
        init_logger(config)
    finally:
        os.chdir(working_dir)


@contextlib.contextmanager
def tensorboard_in_log_dir(config: Any) -> Iterator[None]:
    """Trainers created in this context write TensorBoard's files to `log_dir`."""
    module: Any = recbole.utils.utils
    original = module.SummaryWriter
    module.SummaryWriter = (
        (lambda path: original(os.path.join(_folder(config), path))) if processes.is_first() else NoTensorBoard
    )
    try:
        yield
    finally:
        module.SummaryWriter = original


def _folder(config: Any) -> str:
    return config["log_dir"] or "."  # RecBole's own Config has no such key


def raise_errors(handler: logging.FileHandler) -> None:
    """Make a handler raise errors of its file, instead of printing a traceback for each line of the log."""
    original = handler.handleError

    def handle(record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]  # which `emit` caught
        if not isinstance(error, OSError):
            original(record)
            return
        with named_errors(handler.baseFilename):
            raise error

    handler.handleError = handle  # type: ignore[method-assign]


class NoTensorBoard:
    """A writer that writes nothing, in place of a `SummaryWriter`, of the processes that do not log."""

    def __init__(self, log_dir: str):
        self.log_dir = log_dir

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **keywords: None


TENSORBOARD = "the log for TensorBoard"


@contextlib.contextmanager
def tensorboard_errors() -> Iterator[None]:
    """Name the log for TensorBoard in errors of its file, whose tracebacks its thread no longer prints."""
    _silence_writing_threads()
    with named_errors(TENSORBOARD):
        yield


class TensorBoardLog:
    """TensorBoard's writer, whose errors name the log.

    The first error ends its thread; later calls raise that error again.

    Args:
        writer: a `SummaryWriter`.
    """

    def __init__(self, writer: Any):
        self.writer = writer

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.writer, name)
        return tensorboard_errors()(member) if callable(member) else member


def _silence_writing_threads() -> None:
    original = threading.excepthook
    if getattr(original, "of_recbole_ext", False):
        return

    def hook(arguments: threading.ExceptHookArgs) -> None:
        of_tensorboard = type(arguments.thread).__module__.startswith("tensorboard.")
        if not (of_tensorboard and isinstance(arguments.exc_value, OSError)):
            original(arguments)

    hook.of_recbole_ext = True  # type: ignore[attr-defined]
    threading.excepthook = hook
