"""The exceptions of this package, and how errors inside RecBole become an `InputError`."""

import contextlib
import dis
import traceback
from collections.abc import Iterator
from types import TracebackType

# words of torch's RuntimeErrors
LACK_OF_MEMORY = ("out of memory", "allocate memory", "Storage size calculation overflowed")


class InputError(ValueError):
    """The user's input is wrong.

    The message is one sentence: it names the file, line, field or key, the value, and what would be right. The command
    line prints it without a traceback and exits with status 2.

    Args:
        message: the sentence. Line breaks in it, e.g. from a value, become blanks.
    """

    def __init__(self, message: str):
        super().__init__(" ".join(message.splitlines()))


class SearchError(RuntimeError):
    """No trial of a search has a result; the message gives the reason of each trial."""


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether Python or torch could not allocate memory."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in LACK_OF_MEMORY)


@contextlib.contextmanager
def recbole_errors_as_input_error(subject: str) -> Iterator[None]:
    """Turn errors that RecBole's code raises into an `InputError`; other errors pass unchanged.

    RecBole also calls code of this package. An error in that code is a bug and keeps its traceback, as do lack of
    memory and errors of files.

    Args:
        subject: the input of RecBole, for the message, e.g. "these keys".

    Raises:
        InputError: RecBole refused the subject, or failed on it; the message says which.
    """
    try:
        yield
    except (InputError, SearchError, OSError):
        raise
    except Exception as error:
        place = _innermost(error.__traceback__)
        if place is None or is_lack_of_memory(error):
            raise
        reason = " ".join(str(error).split()).rstrip(".")
        if isinstance(error, ModuleNotFoundError):
            said = f"RecBole needs the package '{error.name}' for {subject}, which is not installed"
        elif _raises(place):
            said = f"RecBole refuses {subject}: {reason}"
        else:
            frame = traceback.extract_tb(place, 1)[0]
            module = place.tb_frame.f_globals["__name__"]
            said = f"RecBole fails on {subject}, in {frame.name} of {module} ({type(error).__name__}: {reason})"
        raise InputError(f"{said}.") from error


def _innermost(trace: TracebackType | None) -> TracebackType | None:
    """The frame of RecBole in which an error began; None if it began in code of this package."""
    found = None
    while trace is not None:
        package = trace.tb_frame.f_globals.get("__name__", "").partition(".")[0]
        if package in ("recbole", "recbole_ext"):
            found = trace if package == "recbole" else None
        trace = trace.tb_next
    return found


def _raises(trace: TracebackType) -> bool:
    """Whether the frame itself raised the error, rather than a function that it called."""
    code = trace.tb_frame.f_code.co_code
    return trace.tb_next is None and dis.opname[code[trace.tb_lasti]] == "RAISE_VARARGS"
