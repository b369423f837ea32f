"""Ending in order when the process is asked to (SIGINT, SIGTERM): between two epochs, or at once if asked again."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator


class SigtermReceived(BaseException):
    """The process was asked to end (SIGTERM)."""


class _Requests:
    """What was asked of this process, and whether it can wait for the end of an epoch."""

    training = False
    asked: type[BaseException] | None = None
    raised: type[BaseException] | None = None


REQUESTS = {"SIGINT": KeyboardInterrupt, "SIGTERM": SigtermReceived}


@contextlib.contextmanager
def graceful_signals() -> Iterator[None]:
    """Make exceptions of SIGINT and SIGTERM, so that no half-written file is left behind.

    During `epochs` the first of them waits for the end of the epoch. A signal that is ignored stays so.
    """
    if threading.current_thread() is not threading.main_thread():  # only that one may choose
        yield
        return

    def end(number: int, _: object) -> None:
        request = REQUESTS[signal.Signals(number).name]
        if _Requests.training and _Requests.asked is None:
            _Requests.asked = request
            print(
                "\nrecbole-ext: ending after this epoch; a second signal (Ctrl-C) ends at once",
                file=sys.stderr,
                flush=True,
            )
            return
        _Requests.raised = request
        raise request

    _Requests.raised, before = None, {}
    for number in (getattr(signal, name) for name in REQUESTS):
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def pending_signal() -> type[BaseException] | None:
    """What was raised at once, if anything: on its way through a library it may have become another error."""
    return _Requests.raised


@contextlib.contextmanager
def epochs() -> Iterator[None]:
    """While this lasts, a request to end waits for `stop_if_requested`."""
    _Requests.training, _Requests.asked = True, None
    try:
        yield
    finally:
        _Requests.training, _Requests.asked = False, None


def stop_if_requested(file: str | None = None) -> None:
    """End here if that was asked for.

    Args:
        file: from which training can go on, if there is one; the exception carries it.

    Raises:
        KeyboardInterrupt, SigtermReceived: by what was asked.
    """
    if _Requests.asked is not None:
        raise _Requests.asked(*[file] if file else [])
