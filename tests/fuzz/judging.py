"""What an outcome is: a result, one sentence, or a finding; and where cases run."""

import contextlib
import io
import os
import random
import re
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from recbole_ext import InputError
from recbole_ext.cli.entry import main
from tests.fuzz.oracle import Refused

FAILURES = (FloatingPointError, MemoryError)  # a diverged training, too little memory: the input was not wrong
PLACE = re.compile(r'File "[^"]*?(recbole_ext/[\w/]+\.py)", line \d+, in (\S+)')


class Finding(AssertionError):
    """An outcome that is neither right nor one sentence.

    Attributes:
        key: exception type and location, or the name of the rule that was broken.
    """

    def __init__(self, key: str, detail: str):
        super().__init__(f"{key}\n{detail}")
        self.key, self.detail = key, detail


def check_sentence(sentence: str, names: list[str]) -> None:
    """A refusal is one sentence, and names a file, line, field or key of the input."""
    if "\n" in sentence or "\r" in sentence or not sentence.endswith((".", "?", ")", "..")):
        raise Finding("sentence: more or less than one", sentence)
    if not any(name and name in sentence for name in names):
        raise Finding("sentence: names nothing", f"{sentence!r}, none of {names}")


def attempt(action: Callable[[], Any], names: list[str]) -> tuple[str, Any]:
    """Outcome and result of an action: "right", "refused" (the result is the sentence) or "failed"."""
    try:
        return "right", action()
    except InputError as error:
        check_sentence(str(error), names)
        return "refused", str(error)
    except FAILURES as error:
        return "failed", str(error)
    except Exception as error:
        raise Finding(f"{type(error).__name__} in {_location(traceback.format_exc())}", _tail()) from error


def command(argv: list[str], names: list[str]) -> tuple[str, str]:
    """The same of the command line: its exit status and what it wrote agree."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(argv)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise Finding(
            f"{type(error).__name__} left the command line: {_location(traceback.format_exc())}", _tail()
        ) from error
    text = err.getvalue()
    if "Traceback (most recent call last)" in text:
        kind = re.findall(r"^([\w.]+)(?::|$)", text.split("recbole-ext:")[0], re.MULTILINE)
        raise Finding(f"{kind[-1] if kind else '?'} in {_location(text)}", text[-1500:])
    if status == 2:
        sentence = text[text.rfind("recbole-ext: ") :].strip()
        check_sentence(sentence, names)
        return "refused", sentence
    if status == 1:
        return "failed", text
    if status != 0:
        raise Finding(f"exit status {status}", text[-1500:])
    return "right", out.getvalue()


def agree(outcome: str, found: Any, expected: Any, is_right: Callable[[Any], bool]) -> None:
    if expected is None:
        return
    if isinstance(expected, Refused):
        if outcome != "refused":
            raise Finding(f"accepted: {expected}", f"{str(found)[:1500]}")
        if expected.line and not re.search(r"\S+\.(inter|item|csv|parquet|txt)\b.* (line|row) \d+", found):
            raise Finding("sentence: names no file and line", f"{found!r}, refused as: {expected}")
    elif outcome == "refused":
        raise Finding(f"refused what is right: {_gist(found)}", found)
    elif outcome == "right" and not is_right(expected):
        raise Finding("wrong result", f"found {found}\nright {expected}")


def _gist(sentence: str) -> str:
    """The last words of a sentence, which depend least on names and values."""
    return " ".join(word for word in sentence.split()[-8:] if word.isascii() and word[:-1].isalpha())


def _location(text: str) -> str:
    places = PLACE.findall(text)
    return " ".join(places[-1]) if places else "no file of recbole_ext"


def _tail() -> str:
    return traceback.format_exc()[-1500:]


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """A finding instead of a case without end; the seconds are those of this process, however busy the machine is."""

    def end(*_: Any) -> None:
        raise Finding("no end", f"after {seconds:g} s of computing")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextlib.contextmanager
def workspace() -> Iterator[Path]:
    """A temporary working directory, without what makes a run slow or its outcome depend on the one before."""
    before, states = os.getcwd(), (random.getstate(), np.random.get_state(), torch.get_rng_state())
    with (
        tempfile.TemporaryDirectory(prefix="fuzz", ignore_cleanup_errors=True) as folder,
        mock.patch("recbole_ext.quick_start.get_environment") as environment,  # RecBole measures for a second
        warnings.catch_warnings(),
        limited(60),
    ):
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("error", module="recbole_ext")
        environment.return_value.draw.return_value = "environment"
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)
            random.setstate(states[0])
            np.random.set_state(states[1])
            torch.set_rng_state(states[2])
            torch.autograd.set_detect_anomaly(False)  # RecBole's models turn it on: slow
