"""SIGINT and SIGTERM stop training after the current epoch or step; a second signal stops at once."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator


class SigtermReceived(BaseException):
    """The process received SIGTERM."""


class _Requests:
    """State of the process: whether it is training, and the signals that it received, as exception classes."""

    training = False
    unit = "epoch"  # that a first signal waits for
    asked: type[BaseException] | None = None
    raised: type[BaseException] | None = None


WORKER_GRACE = 30  # seconds
REQUESTS = {"SIGINT": KeyboardInterrupt, "SIGTERM": SigtermReceived}


def outcome(number: int) -> tuple[str, int]:
    """The word and the exit status of a command that this signal, SIGINT or SIGTERM, has ended."""
    return ("terminated", 143) if number == signal.SIGTERM else ("interrupted", 130)


@contextlib.contextmanager
def graceful_signals() -> Iterator[None]:
    """Turn SIGINT and SIGTERM into exceptions, so that no half-written file is left behind.

    During `epochs`, the first signal waits for the end of the epoch; during `steps`, for the end of the step. Ignored
    signals stay ignored.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield
        return

    def end(number: int, _: object) -> None:
        request = REQUESTS[signal.Signals(number).name]
        if _Requests.training and _Requests.asked is None:
            _Requests.asked = request
            print(
                f"\nrecbole-ext: ending after this {_Requests.unit}; a second signal (Ctrl-C) ends at once",
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


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Within this context, SIGTERM ends the process at once, also in C++ code, where no handler of Python runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def pending_signal() -> type[BaseException] | None:
    """The exception class of a signal that was raised at once, which a library may have replaced by another error."""
    return _Requests.raised


@contextlib.contextmanager
def epochs() -> Iterator[None]:
    """Within this context, the first signal waits for `stop_if_requested`."""
    _Requests.training, _Requests.asked = True, None
    try:
        yield
    finally:
        _Requests.training, _Requests.asked = False, None


@contextlib.contextmanager
def steps() -> Iterator[None]:
    """Within this context, the first signal waits for the end of a step: `stop_if_requested` is called after each."""
    _Requests.unit = "step"
    try:
        yield
    finally:
        _Requests.unit = "epoch"


def requested() -> int:
    """The number of the signal for which `stop_if_requested` would raise; 0 for none."""
    return next((int(getattr(signal, name)) for name, kind in REQUESTS.items() if kind is _Requests.asked), 0)


def adopt(number: float) -> None:
    """Act as if this process had received a signal that another one of its run has received; 0 for none."""
    if number:
        _Requests.asked = REQUESTS[signal.Signals(int(number)).name]


def stop_if_requested(file: str | None = None) -> None:
    """Raise the exception of a signal that was received during this epoch or step.

    Args:
        file: checkpoint from which training can be resumed; the argument of the exception.

    Raises:
        KeyboardInterrupt: after SIGINT.
        SigtermReceived: after SIGTERM.
    """
    if _Requests.asked is not None:
        raise _Requests.asked(*[file] if file else [])


def leave_to_parent(_: int) -> None:
    """Prepare a worker process of a loader for signals to the whole process group, such as Ctrl-C; a `worker_init_fn`.

    The parent decides when to stop, and needs its workers until then. SIGINT is ignored, and SIGTERM ends the worker
    after `WORKER_GRACE`, because torch also ends workers by SIGTERM. A worker whose parent has died ends by itself.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "alarm"):  # not on Windows
        signal.signal(signal.SIGTERM, lambda *_: signal.alarm(WORKER_GRACE))
