"""The processes of `benchmarks/soak.py`: commands that are stopped, and those that run all the time."""

import multiprocessing
import os
import random
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil

from benchmarks import interrupts, soak_serving
from benchmarks.faults import words, write_data

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 600  # seconds, of a command
FLAT = 4  # MiB by which a process may grow in the second half of the time
TRAINED = re.compile(r"epoch (\d+) training")


class Failure(Exception):
    """Something was lost, left or wrong."""


class Command:
    """A command that runs in a folder, with the processes that it starts and its output.

    Attributes:
        status: its exit status; None while it runs.
    """

    def __init__(self, folder: Path, arguments: list[str]):
        self.mark, self.status = secrets.token_hex(8), None
        self.log = folder / f"{self.mark}.txt"
        environment = {
            **os.environ, interrupts.MARK: self.mark, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
            "TMPDIR": str(folder.parent / "tmp"),
        }  # fmt: skip
        with open(self.log, "w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "recbole_ext", *arguments], cwd=folder, env=environment, stdout=output,
                stderr=subprocess.STDOUT,
            )  # fmt: skip

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def trained(self) -> list[int]:
        """The epochs whose training the log reports, counted from 0."""
        return [int(number) for number in TRAINED.findall(self.output())]

    def wait(self, seconds: float, epochs: int | None = None) -> None:
        """Wait that long, or until it has ended or has trained so many epochs."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            if epochs is not None and len(self.trained()) >= epochs:
                return
            time.sleep(0.05)

    def stop(self, how: str, draw: random.Random) -> str:
        """Send a signal to the command or to one of the processes that train; returns what was done."""
        victims = [psutil.Process(self.process.pid)]
        if how != "SIGINT twice":
            victims += [child for child in victims[0].children(recursive=True) if is_training(child)]
        number = getattr(signal, how.split()[0])
        chosen = draw.randrange(len(victims))
        victims[chosen].send_signal(number)
        if how == "SIGINT twice":
            self.wait(draw.uniform(0, 0.5))
            self.process.send_signal(number)
        return f"{how} to {'one of the processes' if chosen else 'the command'}"

    def end(self) -> int:
        """Wait for its end and for that of the processes that it has started; returns the exit status."""
        try:
            self.status = self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            raise Failure(f"did not end within {LIMIT} s") from None
        finally:
            end = time.monotonic() + 60
            while (left := interrupts.marked(self.mark)) and time.monotonic() < end and self.status is not None:
                time.sleep(0.2)
            names = [" ".join(process.cmdline())[:80] for process in left]
            for process in left:
                process.kill()
        if left:
            raise Failure(f"left {len(left)} processes: {'; '.join(names)}")
        return self.status


def is_training(process: psutil.Process) -> bool:
    """Whether a process trains, or runs a search; those of Ray do not."""
    line = " ".join(process.cmdline())
    return "recbole_ext" in line or "spawn_main" in line or line.startswith("ray::run_trial")


def shared_memory() -> set[str]:
    """Files of shared memory that no process has mapped."""
    files, mapped = {file.name: file.stat().st_ino for file in Path("/dev/shm").iterdir()}, set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:  # by number, since a semaphore is mapped under another name
            mapped |= {int(line.split()[4]) for line in maps.read_text().splitlines() if "/dev/shm/" in line}
        except OSError:  # it has ended
            continue
    return {name for name, number in files.items() if number not in mapped and Path("/dev/shm", name).exists()}


class Memory:
    """The resident memory of a process, in MiB, a value every second."""

    def __init__(self, process: int):
        self.process = psutil.Process(process)
        self.samples: list[tuple[float, float]] = []  # hours, MiB

    def sample(self) -> None:
        try:
            self.samples.append((time.monotonic() / 3600, self.process.memory_info().rss / 2**20))
        except psutil.NoSuchProcess:
            return

    def second_half(self) -> tuple[float, float]:
        """The slope in MiB an hour, and by how many MiB the process has grown at this slope."""
        hours, values = np.array(self.samples).T
        late = hours >= (hours[0] + hours[-1]) / 2
        slope = float(np.polyfit(hours[late] - hours[0], values[late], 1)[0])
        return slope, slope * float(np.ptp(hours[late]))

    def row(self, name: str) -> str:
        values = [value for _, value in self.samples]
        numbers = [values[0], values[len(values) // 2], values[-1], max(values), self.second_half()[0]]
        return f"| {name} | {' | '.join(f'{number:.1f}' for number in numbers)} |"


class Background:
    """The process that recommends and the one that trains, with samples of their memory."""

    def __init__(self, folder: Path, checkpoints: list[str], keys: dict, seed: int):
        context = multiprocessing.get_context("spawn")
        self.counts, self.stop, self.queue = context.Array("q", 2), context.Event(), context.Queue()
        given = (checkpoints, seed, self.counts, self.stop, self.queue)
        self.server = context.Process(target=soak_serving.serve, args=given, daemon=True)
        self.server.start()
        (folder / "long" / "tmp").mkdir(parents=True)
        write_data(folder / "long" / "data", 0, users=200)
        (folder / "long" / "run").mkdir()
        self.training = Command(folder / "long" / "run", words({**keys, "epochs": 10**6}))
        self.memory = {"recommending": Memory(self.server.pid), "training": Memory(self.training.process.pid)}
        self.ending = threading.Event()
        self.sampling = threading.Thread(target=self.sample)
        self.sampling.start()

    def sample(self) -> None:
        while not self.ending.wait(1):
            for memory in self.memory.values():
                memory.sample()

    def end(self) -> list[str]:
        """End both; returns what was wrong."""
        self.ending.set()
        self.sampling.join()
        failures = []
        if not self.server.is_alive():
            failures.append(f"recommending: the process ended with {self.server.exitcode}")
        if self.training.process.poll() is not None:
            failures.append(f"long training: ended by itself: {self.training.output()[-300:]}")
        self.stop.set()
        while not self.queue.empty():
            failures.append(f"recommending: {self.queue.get()}")
        self.server.join(60)
        self.training.process.terminate()
        if self.training.end() != 143:
            failures.append(f"long training: status {self.training.status} after SIGTERM")
        for name, memory in self.memory.items():
            slope, grown = memory.second_half()
            if grown > FLAT:
                failures.append(f"{name}: memory grows by {slope:.1f} MiB an hour, {grown:.1f} MiB in the second half")
        return failures
