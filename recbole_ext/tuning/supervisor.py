"""Runs the command `tune` in a child process. The parent process never loads Ray.

Ray's C++ code can crash, hang or lose a signal when a process is interrupted while Ray starts or shuts down. The parent
handles these cases: the command ends within seconds, with the right exit status, and leaves no process behind.
"""

import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil

from recbole_ext.utils.atomic_write import is_alive
from recbole_ext.utils.signals import REQUESTS, SigtermReceived, graceful_signals, outcome

GRACE = 5.0  # seconds between a signal and the kill of the search; no result is lost, since the journal is on the disk
Command = Callable[[Sequence[str]], int]
SIGNALS = {getattr(signal, name) for name in REQUESTS}


def supervised(command: Command, argv: Sequence[str]) -> int:
    """Run a command in a child process and return its exit status.

    Args:
        command: a function that `multiprocessing` can import; it takes `argv` and returns an exit status.
        argv: arguments of the command line.

    Returns:
        the exit status of the command; 130 after SIGINT, 143 after SIGTERM, 1 if the process crashed.
    """
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(command, list(argv)))
    try:
        with graceful_signals():
            try:
                with _blocked_signals(), _quiet_tracker():  # the child inherits the blocked signals
                    process.start()
                process.join()
            except (KeyboardInterrupt, SigtermReceived) as request:
                return _stop(process, request)
    finally:
        remove_abandoned()
    status = process.exitcode or 0
    if -status in SIGNALS:  # sent to that process alone, before it could handle them
        return _say_stopped(-status)
    if status < 0:
        print(
            f"recbole-ext: failed while running: signal {-status} has ended the process of the search; continue with "
            f"--resume",
            file=sys.stderr,
        )
        return 1
    return status


def _say_stopped(number: int) -> int:
    word, status = outcome(number)
    print(f"recbole-ext: {word}; if the search had started, tune --resume continues it", file=sys.stderr)
    return status


def _stop(process: BaseProcess, request: BaseException) -> int:
    """Forward the signal, wait a few seconds, and kill all processes that are left. Returns the exit status."""
    number = signal.SIGTERM if isinstance(request, SigtermReceived) else signal.SIGINT
    descendants: list[psutil.Process] = []
    if process.pid is not None:
        try:
            search = psutil.Process(process.pid)
            descendants = search.children(recursive=True)
            search.send_signal(number)
            process.join(GRACE)
            descendants += search.children(recursive=True)
        except psutil.NoSuchProcess:  # it has already ended
            pass
        except (KeyboardInterrupt, SigtermReceived):  # a second signal
            pass
        with _blocked_signals():
            process.kill()
            process.join()
            for descendant in descendants:
                with suppress(psutil.NoSuchProcess):
                    descendant.kill()
    status = outcome(number)[1]
    # otherwise it has printed its own message
    return status if process.exitcode == status else _say_stopped(number)


@contextmanager
def _blocked_signals() -> Iterator[None]:
    """Block SIGINT and SIGTERM in this process and in a process that starts in this block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _quiet_tracker() -> Iterator[None]:
    """Python's resource tracker, which starts here, shall not warn about semaphores of an interrupted search."""
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, [before, "ignore:resource_tracker"]))
    try:
        yield
    finally:
        del os.environ["PYTHONWARNINGS"]
        if before is not None:
            os.environ["PYTHONWARNINGS"] = before


def _run(command: Command, argv: Sequence[str]) -> None:
    """Run the command in the child. It exits without the destructors of Ray's C++ code, which can crash."""
    os.setsid()  # Ctrl-C in a terminal reaches only the parent, which forwards it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback before the command sets its own handler
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    status = command(argv)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(143)


PREFIX = "recbole-ext-tune-"


@contextmanager
def scratch_folder() -> Iterator[str]:
    """A temporary folder. If the process is killed, the next search removes it."""
    remove_abandoned()
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-") as folder:
        yield folder


def remove_abandoned() -> None:
    """Remove the temporary folders of processes that no longer exist."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        process = folder.name.removeprefix(PREFIX).partition("-")[0]
        if not is_alive(process):
            shutil.rmtree(folder, ignore_errors=True)
