"""The exceptions of this package, and how errors inside RecBole become an `InputError`."""

import contextlib
import dis
import traceback
from collections.abc import Iterator
from types import TracebackType

# in the messages of torch's RuntimeErrors
OUT_OF_MEMORY = ("out of memory", "allocate memory", "Storage size calculation overflowed")


class InputError(ValueError):
    """The user's input is wrong.

    The message is one sentence: it names the file, line, field or key, the value, and what would be right. The command
    line prints it without a traceback and exits with status 2.

    Args:
        message: the sentence. Line breaks, e.g. in a value, become blanks.
    """

    def __init__(self, message: str):
        super().__init__(" ".join(message.splitlines()))


class SearchError(RuntimeError):
    """No trial of a search has a result; the message gives the reason of each trial."""


class ProcessLost(RuntimeError):
    """Another process of a training with several has ended, or does not answer.

    Attributes:
        file: the checkpoint from which the training can be resumed, if there is one.
    """

    file: str | None = None


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether Python or torch could not allocate memory."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in OUT_OF_MEMORY)


@contextlib.contextmanager
def recbole_errors_as_input_error(subject: str) -> Iterator[None]:
    """Turn errors in RecBole's code into an `InputError`.

    Other errors keep their type and traceback: those in code of this package that RecBole calls (they are bugs), those
    of files, and lack of memory.

    Args:
        subject: the input that RecBole gets, for the message, e.g. "these keys".

    Raises:
        InputError: RecBole refused the subject, or failed on it; the message says which.
    """
    try:
        yield
    except (InputError, SearchError, OSError):
        raise
    except Exception as error:
        origin = _origin(error.__traceback__)
        if origin is None or is_lack_of_memory(error):
            raise
        reason = " ".join(str(error).split()).rstrip(".")
        if isinstance(error, ModuleNotFoundError):
            message = f"RecBole needs the package '{error.name}' for {subject}, which is not installed"
        elif _raises(origin):
            message = f"RecBole refuses {subject}: {reason}"
        else:
            frame = traceback.extract_tb(origin, 1)[0]
            module = origin.tb_frame.f_globals["__name__"]
            message = f"RecBole fails on {subject}, in {frame.name} of {module} ({type(error).__name__}: {reason})"
        raise InputError(f"{message}.") from error


def _origin(trace: TracebackType | None) -> TracebackType | None:
    """The frame of RecBole in which an error started; None if it started in code of this package."""
    origin = None
    while trace is not None:
        package = trace.tb_frame.f_globals.get("__name__", "").partition(".")[0]
        if package in ("recbole", "recbole_ext"):
            origin = trace if package == "recbole" else None
        trace = trace.tb_next
    return origin


def _raises(trace: TracebackType) -> bool:
    """Whether the frame itself raised the error, rather than a function that it called."""
    code = trace.tb_frame.f_code.co_code
    return trace.tb_next is None and dis.opname[code[trace.tb_lasti]] == "RAISE_VARARGS"
