"""`kill -9` within a long epoch, 100 times: what `checkpoint_minutes` keeps.

    python benchmarks/step_kills.py [--kills 100] [--minutes 0.05] [--users 20000] [--seed 2020] [--output FILE]

One training of a small model, whose epoch is many small batches. Each life of it ends by SIGKILL: in a new process
during imports and start, at a random moment, or while a checkpoint is written. The next life resumes it. At the end
the epoch is completed, and losses, weights, optimiser and random numbers are compared, bit for bit, with those of a
training that nobody interrupted. Lost time is what lies between the last checkpoint and the kill; of a life that wrote
none, between its first batch and the kill. Lives are forked, as in `faults.py`. Writes
`benchmarks/results/step_kills.md`.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import numpy as np  # noqa: E402

from benchmarks import faults  # noqa: E402
from recbole_ext.checkpoint import training_run  # noqa: E402
from recbole_ext.cli.entry import main as command  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "step_kills.md"
KEYS = {**faults.KEYS, **faults.TINY, "train_batch_size": 2, "train_window": 1, "eval_users": 100}
BEGUN = "begun"  # a file that a life writes before its first batch


class Training:
    """One training, ended again and again.

    Attributes:
        outcomes: (moment of the kill, whether the life wrote a checkpoint) -> how often.
        lost: seconds of training that each kill cost.
        failures: what should not have been.
    """

    def __init__(self, folder: Path, minutes: float, generator: np.random.Generator):
        self.folder, self.minutes, self.generator = folder, minutes, generator
        self.saved, self.log = folder / "saved", folder / "output.txt"
        self.outcomes: Counter = Counter()
        self.lost: list[float] = []
        self.failures: list[str] = []

    def arguments(self) -> list[str]:
        found = sorted(self.saved.glob("*.pth"))
        if found and self.written():
            return [f"--resume={found[0]}", "--epochs=1000000"]
        for file in found:  # an empty one, which reserves the name
            file.unlink()
        return faults.words(KEYS, epochs=1000000, checkpoint_minutes=self.minutes)

    def written(self) -> float:
        """When the latest complete checkpoint was written; 0 if there is none."""
        complete = [*self.saved.glob("*.pth"), *self.saved.glob("*.latest")]
        return max((file.stat().st_mtime for file in complete if file.stat().st_size), default=0.0)

    def progress(self) -> tuple[int, int]:
        """Complete epochs, and batches of the next one, in the latest checkpoint."""
        found = sorted(self.saved.glob("*.pth"))
        if not found or not self.written():
            return 0, 0
        state = training_run.find_resume_state(found[0]).checkpoint
        return state["epoch"] + 1, state.get("partial", {}).get("batches", 0)

    def life(self, moment: str) -> None:
        """Start or go on, and kill it at some moment."""
        before, arguments, begin = self.progress(), self.arguments(), time.time()
        if moment == "imports and start":
            process = subprocess.Popen(
                [sys.executable, "-m", "recbole_ext", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
            time.sleep(self.generator.uniform(0, 4))
            process.kill()
            process.wait()
        else:
            self.begun().unlink(missing_ok=True)
            child = faults.fork(lambda: train(arguments, self.begun()), self.log)
            self.wait(lambda: self.begun().exists())
            if moment == "any":
                time.sleep(self.generator.uniform(0, 2 * 60 * self.minutes))
            else:
                self.wait(lambda: bool(list(self.saved.glob(".*.part"))))
                time.sleep(self.generator.uniform(0, 0.01))
            os.kill(child, signal.SIGKILL)
            killed = time.time()
            if faults.ended(child) != -signal.SIGKILL:
                self.failures.append(f"a life ended by itself: {faults.told(self.log)}")
            elif self.begun().exists():
                self.lost.append(killed - max(self.written(), self.begun().stat().st_mtime))
        after = self.progress()
        self.outcomes[moment, self.written() > begin] += 1
        if after < before:
            self.failures.append(f"the latest checkpoint went back from {before} to {after} (epochs, batches)")

    def begun(self) -> Path:
        return self.folder / BEGUN

    def wait(self, until) -> None:
        limit = time.monotonic() + 120
        while not until() and time.monotonic() < limit:
            time.sleep(0.0005)


def train(arguments: list[str], begun: Path) -> int:
    """The command line, which tells by a file that the first batch of this process begins."""
    from recbole_ext.training.step_checkpoints import StepCheckpoints

    first = StepCheckpoints._train_epoch

    def telling(self, *given, **keys):
        begun.touch()
        StepCheckpoints._train_epoch = first
        return first(self, *given, **keys)

    StepCheckpoints._train_epoch = telling
    return command(arguments)


def completed(folder: Path, arguments: list[str], log: Path) -> float:
    """Run the command line to its end; returns the seconds."""
    begin = time.time()
    if faults.ended(faults.fork(lambda: command(arguments), log)):
        raise RuntimeError(faults.told(log))
    return time.time() - begin


def measure(folder: Path, options: argparse.Namespace) -> list[str]:
    generator = np.random.default_rng(options.seed)
    training = Training(folder, options.minutes, generator)
    moments = ["imports and start"] * (options.kills // 10) + ["in a save"] * (options.kills * 3 // 10)
    moments += ["any"] * (options.kills - len(moments))
    for number, place in enumerate(generator.permutation(options.kills), 1):
        training.life(moments[place])
        print(f"{number}/{options.kills} {moments[place]}: {training.progress()}", flush=True)
    epochs = training.progress()[0] + 1
    (checkpoint,) = training.saved.glob("*.pth")
    completed(folder, [f"--resume={checkpoint}", f"--epochs={epochs}"], training.log)
    keys = {**KEYS, "checkpoint_dir": "straight", "epochs": epochs}
    seconds = completed(folder, faults.words(keys), folder / "straight.txt") / epochs
    (straight,) = (folder / "straight").glob("*.pth")
    one, other = (
        {key: value for key, value in training_run.find_resume_state(path).checkpoint.items()
         if key not in ("run", "config")}
        for path in (checkpoint, straight)
    )  # fmt: skip
    apart = list(faults.different(one, other))
    lines = [
        f"One training of {epochs} epochs of {seconds:.0f} s, {options.users:,} users, with "
        f"checkpoint_minutes {options.minutes:g} ({60 * options.minutes:g} s), killed {options.kills} times.",
        "",
        "| killed | times | of these, after this process had written a checkpoint |",
        "|---|---:|---:|",
    ]
    for moment, name in (("imports and start", "a new process, during imports and start"),
                         ("any", "at a random moment"), ("in a save", "while a checkpoint was written")):  # fmt: skip
        row = [training.outcomes[moment, has_written] for has_written in (True, False)]
        lines.append(f"| {name} | {sum(row)} | {row[0]} |")
    lines += [
        "",
        f"Failures: {len(training.failures)}. A kill cost {np.median(training.lost):.1f} s of training in the median "
        f"and {max(training.lost):.1f} s at most.",
        "",
        "Losses of all epochs, weights, optimiser and random numbers, beside those of a training that nobody "
        f"interrupted: {'the same, bit for bit' if not apart else 'DIFFERENT in ' + ', '.join(apart[:5])}.",
    ]
    return lines + [f"FAILED: {faults.without_folder(failure, folder)}" for failure in training.failures]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=0.05, help="checkpoint_minutes")
    parser.add_argument("--users", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=2020)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    begin = time.time()
    with faults.working_folder(options.seed, options.users) as folder:
        lines = measure(folder, options)
    command = (
        f"python benchmarks/step_kills.py --kills {options.kills} --minutes {options.minutes:g} "
        f"--users {options.users} --seed {options.seed}"
    )
    text = "\n".join(["# Kills within an epoch", "", *lines, "", faults.provenance(command, begin)])
    options.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
