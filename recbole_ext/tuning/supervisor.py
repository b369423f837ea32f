"""The command `tune` in a process of its own, watched by one that never loads Ray.

Ray's C++ code can crash, hang or drop a signal when a process is interrupted while Ray starts or shuts down. The
watching process turns each of these into an orderly end: the right exit status within seconds, and no process left.
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
from recbole_ext.utils.signals import REQUESTS, SigtermReceived, graceful_signals

GRACE = 5.0  # seconds from a request to end until the search is killed; records of trials are on the disk at any time
Command = Callable[[Sequence[str]], int]
SIGNALS = {getattr(signal, name) for name in REQUESTS}


def supervised(command: Command, argv: Sequence[str]) -> int:
    """Run a command in a new process and return its exit status.

    Args:
        command: a function that `multiprocessing` can import; it receives `argv` and returns an exit status.
        argv: arguments of the command line.

    Returns:
        the status of the command; 130 after SIGINT, 143 after SIGTERM, 1 if the process crashed.
    """
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(command, list(argv)))
    try:
        with graceful_signals():
            try:
                with _blocked_signals(), _quiet_tracker():  # the new process starts with the signals blocked, too
                    process.start()
                process.join()
            except (KeyboardInterrupt, SigtermReceived) as request:
                return _end(process, request)
    finally:
        remove_abandoned()
    status = process.exitcode
    if status is None or status < 0:
        print(
            f"recbole-ext: failed while running: the process of the search was ended by signal {-(status or 0)}; "
            f"continue with --resume",
            file=sys.stderr,
        )
        return 1
    return status


def _end(process: BaseProcess, request: BaseException) -> int:
    """Pass a request to end on, wait for a few seconds, and kill what is left. Returns the exit status."""
    number, word, status = signal.SIGINT, "interrupted", 130
    if isinstance(request, SigtermReceived):
        number, word, status = signal.SIGTERM, "terminated", 143
    family: list[psutil.Process] = []
    if process.pid is not None:
        try:
            search = psutil.Process(process.pid)
            family = search.children(recursive=True)
            search.send_signal(number)
            process.join(GRACE)
            family += search.children(recursive=True)
        except psutil.NoSuchProcess:  # it has ended by itself
            pass
        except (KeyboardInterrupt, SigtermReceived):  # asked a second time
            pass
        with _blocked_signals():
            process.kill()
            process.join()
            for member in family:
                with suppress(psutil.NoSuchProcess):
                    member.kill()
    if process.exitcode != status:  # otherwise it has said so itself
        print(f"recbole-ext: {word}; if the search had begun, tune --resume continues it", file=sys.stderr)
    return status


@contextmanager
def _blocked_signals() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back, for this process and for one that starts meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _quiet_tracker() -> Iterator[None]:
    """Keep Python's resource tracker, which starts here, from warning of semaphores that an interrupted search left."""
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, [before, "ignore:resource_tracker"]))
    try:
        yield
    finally:
        del os.environ["PYTHONWARNINGS"]
        if before is not None:
            os.environ["PYTHONWARNINGS"] = before


def _run(command: Command, argv: Sequence[str]) -> None:
    """What the new process does. It ends without the destructors of Ray's C++ code, which can crash."""
    os.setsid()  # Ctrl-C in a terminal reaches the watching process alone, which passes it on
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the command sets its own handler: no traceback
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
    """A folder that is removed at the end. One that a killed process left is removed by the next search."""
    remove_abandoned()
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-") as folder:
        yield folder


def remove_abandoned() -> None:
    """Remove the folders of processes that no longer exist."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        process = folder.name.removeprefix(PREFIX).partition("-")[0]
        if not is_alive(process):
            shutil.rmtree(folder, ignore_errors=True)
