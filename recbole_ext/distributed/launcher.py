"""`--nproc`: starts the processes of a run on this machine, and ends them together.

The processes find each other by a file in a temporary folder and talk over the loopback interface, so nothing of this
machine can be reached from others.
"""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from recbole_ext.distributed.environment import CHECKPOINT, FILE_STORE, LOST, PARENT
from recbole_ext.utils.signals import REQUESTS, outcome

GRACE = 15.0  # seconds that the others have to end after one has failed; then they are killed
POLL = 0.05  # seconds


def launch(count: int, argv: Sequence[str]) -> int:
    """Run the command line in several processes and return the exit status.

    SIGINT and SIGTERM go to the first process, which tells the others; a second signal ends those at once.

    Args:
        count: number of processes.
        argv: arguments, without `--nproc`.
    """
    with tempfile.TemporaryDirectory(prefix="recbole-ext-") as folder:
        reader, writer = os.pipe()
        received: list[int] = []
        before = {number: signal.signal(number, lambda number, _: received.append(number)) for number in _signals()}
        children: list[subprocess.Popen] = []
        try:
            for rank in range(count):
                children.append(_start(rank, count, argv, folder, reader))
            os.close(reader)
            return _watch(children, received, Path(folder))
        finally:
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                child.wait()
            os.close(writer)
            for number, handler in before.items():
                signal.signal(number, handler)


def _signals() -> list[int]:
    numbers = [getattr(signal, name) for name in REQUESTS]
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def _start(rank: int, count: int, argv: Sequence[str], folder: str, reader: int) -> subprocess.Popen:
    environment = {
        **os.environ, "RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(count), FILE_STORE: os.path.join(folder, "store"), PARENT: str(reader),
    }  # fmt: skip
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    environment.setdefault("OMP_NUM_THREADS", str(max(1, cores // count)))
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    if loopback:
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            environment.setdefault(variable, loopback)
    # a session of its own: Ctrl-C in a terminal reaches only this process, which forwards it
    return subprocess.Popen(
        [sys.executable, "-m", "recbole_ext", *argv], env=environment, pass_fds=[reader], start_new_session=True
    )


def _watch(children: list[subprocess.Popen], received: list[int], folder: Path) -> int:
    """Wait until all processes have ended, or one of them has failed; returns the exit status of the run."""
    forwarded, deadline = 0, None
    while any(child.poll() is None for child in children):
        while forwarded < len(received):
            children[0].send_signal(received[forwarded])
            for child in children[1:] if forwarded else []:
                child.kill()  # they write nothing
            forwarded += 1
        failed = any(child.poll() for child in children)
        if failed and deadline is None:
            deadline = time.monotonic() + GRACE
        if deadline is not None and time.monotonic() > deadline:
            break
        time.sleep(POLL)
    return _status([child.poll() for child in children], folder, received)


def _status(statuses: list[int | None], folder: Path, received: Sequence[int] = ()) -> int:
    """The exit status of the run; says a sentence if no process could. None is the status of one that has not ended."""
    said = [status for status in statuses if status is not None and status > 0 and status != LOST]
    if said:
        return min(said)  # 1 or 2 before 130 or 143
    if not any(statuses) and None not in statuses:
        return 0
    ended = [(rank, -status) for rank, status in enumerate(statuses) if status is not None and status < 0]
    stopped = [*received, *(number for _, number in ended if number in _signals())]
    if stopped:  # before a process could handle it
        word, status = outcome(stopped[0])
        print(f"recbole-ext: {word}", file=sys.stderr)
        return status
    if ended:
        rank, number = ended[0]
        what = f"process {rank} of {len(statuses)} was ended by {signal.Signals(number).name}"
    else:
        silent = [str(rank) for rank, status in enumerate(statuses) if status is None]
        what = f"process {' and '.join(silent) or '0'} of {len(statuses)} has not answered"
    hint = ""
    with contextlib.suppress(OSError):
        hint = f"; resume the run with --resume={shlex.quote((folder / CHECKPOINT).read_text())}"
    print(f"recbole-ext: failed while running: {what}, so the others have ended{hint}", file=sys.stderr)
    return 1
