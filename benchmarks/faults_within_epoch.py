"""Faults within an epoch: `kill -9` again and again during one long epoch with `checkpoint_minutes`.

Each life of one training is ended by SIGKILL: a new process during imports, a life during its start, at a random
moment between its steps, or while a checkpoint is being written. The next life goes on with `--resume`. The epoch is
long enough that it does not end before the last kill. At last it is finished, and the state is compared, bit for bit,
with that of a training that nobody interrupted and that stored nothing within the epoch.

The epoch is scaled down: about a minute instead of hours, with checkpoints every fraction of a second instead of
every few minutes.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from faults import (
    KEYS,
    RESULTS,
    ROOT,
    different_states,
    ended,
    fork,
    import_what_a_run_imports,
    page,
    prepare_process,
    provenance,
    told,
    without_folder,
    words,
    write_data,
)

from recbole_ext import LightSANs
from recbole_ext.checkpoint import file as checkpoint
from recbole_ext.checkpoint import training_run
from recbole_ext.cli.entry import main as command

TINY = {**KEYS, "model": "LightSANs", "hidden_size": 16, "inner_size": 16, "n_heads": 1, "train_batch_size": 4,
        "epochs": 1}  # fmt: skip
MOMENTS = {
    "imports": "a new process, during imports", "start": "during the start, before the first step or soon after",
    "any": "at a random moment between steps", "save": "while a checkpoint was written",
}  # fmt: skip


def train(*arguments: str) -> int:
    """A training that leaves a file `stepping` when its first step begins."""
    calculate, begun = LightSANs.calculate_loss, []

    def marking(model, interaction):
        if not begun:
            Path("stepping").touch()
            begun.append(True)
        return calculate(model, interaction)

    LightSANs.calculate_loss = marking
    return command(list(arguments))


class KilledWithinEpoch:
    """One epoch, ended again and again.

    Attributes:
        outcomes: (moment of the kill, whether the next life went on) -> how often.
        lost: for each kill, the seconds of steps after the state that is on the disk.
        failures: what should not have been.
    """

    def __init__(self, folder: Path, generator: np.random.Generator, pace: dict[str, float], seconds: float):
        self.generator, self.pace, self.seconds = generator, pace, seconds
        self.saved, self.log, self.stepping = folder / "saved", folder / "output.txt", folder / "stepping"
        self.outcomes: Counter = Counter()
        self.lost: list[float] = []
        self.failures: list[str] = []
        self.waiting: list[str] = []  # moments of kills after which no life has made a step
        self.left = 0

    def latest(self) -> Path | None:
        return next(iter(self.saved.glob("*.latest")), None)

    def arguments(self) -> list[str]:
        """Those of the next life."""
        file = self.latest()
        if file:
            return [f"--resume={file.with_suffix('.pth')}"]
        shutil.rmtree(self.saved, ignore_errors=True)  # a reserved name, perhaps with an unfinished file
        return words(TINY, checkpoint_minutes=self.seconds / 60)

    def batches(self) -> int:
        """The batches of the state on the disk."""
        file = self.latest()
        return training_run.find_resume_state(file).checkpoint["partial"]["batches"] if file else 0

    def wait(self, child: int, seen) -> bool:
        """Wait until something is seen; False if the process ended before."""
        while not seen():
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return False
            time.sleep(0.0005)
        return True

    def kill_in_imports(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "recbole_ext", *self.arguments()], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        time.sleep(self.generator.uniform(0, self.pace["imports"]))
        process.kill()
        process.wait()
        self.lost.append(0.0)

    def kill(self, moment: str) -> bool:
        """One life and its end; False if it ended by itself."""
        if moment == "imports":
            self.kill_in_imports()
            self.waiting.append(moment)
            return True
        self.stepping.unlink(missing_ok=True)
        arguments, resumable, before = self.arguments(), self.latest() is not None, self.batches()
        child = fork(lambda: train(*arguments), self.log)
        if moment == "start":
            time.sleep(self.generator.uniform(0, self.pace["start"]))
        elif self.wait(child, self.stepping.exists):
            if not resumable:  # the first life is not ended before there is something to go on from
                self.wait(child, lambda: self.latest() is not None)
            if moment == "any":
                time.sleep(self.generator.uniform(0, 3 * self.seconds))
            elif self.wait(child, lambda: list(self.saved.glob(".*.part"))):
                time.sleep(self.generator.uniform(0, self.pace["save"]))
        os.kill(child, signal.SIGKILL)
        status, now = ended(child), time.time()
        if self.stepping.exists():
            for earlier in self.waiting:
                self.outcomes[earlier, "resumed" if resumable else "nothing to resume yet"] += 1
            self.waiting.clear()
        if status != -signal.SIGKILL:
            self.failures.append(f"a life ended by itself with status {status}: {told(self.log)}")
            return False
        file = self.latest()
        if self.stepping.exists():
            begin = self.stepping.stat().st_mtime
            self.lost.append(now - max(begin, file.stat().st_mtime if file else begin))
        else:
            self.lost.append(0.0)
        self.left += bool(list(self.saved.glob(".*.part")))
        if self.batches() < before:
            self.failures.append(f"the state went back from {before} to {self.batches()} batches")
        self.waiting.append(moment)
        return True

    def finish(self) -> int:
        """The last life, which nobody ends; its exit status."""
        resumable = self.latest() is not None
        status = ended(fork(lambda: command(self.arguments()), self.log))
        for earlier in self.waiting:
            outcome = "failed" if status else "resumed" if resumable else "nothing to resume yet"
            self.outcomes[earlier, outcome] += 1
        if status:
            self.failures.append(f"the last life ended with status {status}: {told(self.log)}")
        return status


def measured(folder: Path, steps: int) -> dict[str, float]:
    """Seconds that things take here, from the training that nobody interrupts; it stays in `straight`."""
    begin = time.time()
    log = folder / "straight.txt"
    if ended(fork(lambda: train(*words(TINY, checkpoint_dir="straight")), log)):
        raise RuntimeError(log.read_text())
    first, (file,) = (folder / "stepping").stat().st_mtime, (folder / "straight").glob("*.pth")
    pace = {"start": first - begin, "epoch": file.stat().st_mtime - first}
    state, begin = checkpoint.load(file), time.time()
    for _ in range(5):
        checkpoint.save(state, str(folder / "saved_once.pth"))
    pace["save"] = (time.time() - begin) / 5
    pace["step"] = pace["epoch"] / steps
    begin = time.time()
    subprocess.run([sys.executable, "-c", "import recbole_ext.training.trainer"], check=True,
                   env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    return {**pace, "imports": time.time() - begin}


def kills(folder: Path, options: argparse.Namespace) -> list[str]:
    """The lines about kills; raises if training cannot be started at all."""
    count, generator = options.kills, np.random.default_rng(options.seed)
    pace = measured(folder, options.steps)
    print(pace, flush=True)
    moments = ["imports"] * (count // 10) + ["start"] * (count // 10) + ["save"] * (count * 3 // 10)
    moments += ["any"] * (count - len(moments))
    killed = KilledWithinEpoch(folder, generator, pace, options.seconds)
    for number, place in enumerate(generator.permutation(count), 1):
        if not killed.kill(moments[place]):
            break
        lost, batches = killed.lost[-1], killed.batches()
        print(f"{number}/{count} {moments[place]}: {lost:.2f} s lost, {batches} batches", flush=True)
    reached, done = killed.batches(), len(killed.lost)
    finished = killed.finish() == 0
    (straight,) = (folder / "straight").glob("*.pth")
    apart = different_states(next(killed.saved.glob("*.pth")), straight) if finished else ["it was not finished"]
    lines = [
        f"One epoch of {options.steps} steps of a tiny LightSANs ({pace['epoch']:.0f} s without interruption, "
        f"{1000 * pace['step']:.1f} ms a step, {1000 * pace['save']:.0f} ms a save), killed {done} times, all of them "
        f"within that epoch; the last kill left {reached} steps on the disk. `checkpoint_minutes` is "
        f"{options.seconds / 60:.3g} ({options.seconds:g} s). It is scaled down: not an epoch of an hour.",
        "",
        "| killed | times | resumed | nothing to resume yet | failed |",
        "|---|---:|---:|---:|---:|",
    ]
    for moment, name in MOMENTS.items():
        row = [killed.outcomes[moment, outcome] for outcome in ("resumed", "nothing to resume yet", "failed")]
        lines.append(f"| {name} | {sum(row)} | {' | '.join(map(str, row))} |")
    lines += [
        "",
        f"Steps lost by a kill, in seconds since the last state was on the disk or, if later, since the first step of "
        f"that life: at most {max(killed.lost):.2f} s, median {np.median(killed.lost):.2f} s, beside "
        f"{options.seconds:g} s between two checkpoints, to which the save and the step under way are added. "
        f"{sum(lost > options.seconds for lost in killed.lost)} kills lost more than {options.seconds:g} s.",
        "",
        f"An unfinished file lay beside the checkpoint after {killed.left} kills, and after the finished training "
        f"{len(list(killed.saved.glob('.*.part')))}.",
        "",
        "The state at the end (losses, metrics, weights, optimiser, random numbers), beside that of a training that "
        f"nobody interrupted: {'the same, bit for bit' if not apart else 'DIFFERENT in ' + ', '.join(apart[:5])}.",
    ]
    return lines + [f"FAILED: {without_folder(failure, folder)}" for failure in killed.failures]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--steps", type=int, default=6000, help="of the epoch, which has to outlast the kills")
    parser.add_argument("--seconds", type=float, default=0.3, help="between two checkpoints (60 checkpoint_minutes)")
    parser.add_argument("--seed", type=int, default=2020)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.output = options.output.resolve()
    prepare_process()
    begin, here = time.time(), os.getcwd()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        # a step has 4 rows; a row is an event of a user, but for the first and those of validation and test
        write_data(folder / "data", options.seed, users=options.steps * 4 // 20, events=(23, 24))
        os.chdir(folder)
        import_what_a_run_imports(folder)
        lines = kills(folder, options)
        os.chdir(here)
    command_line = f"faults_within_epoch.py --kills {options.kills} --steps {options.steps} "
    command_line += f"--seconds {options.seconds:g} --seed {options.seed}"
    text = "\n".join(lines).strip() + "\n\n" + provenance(command_line, begin)
    options.output.write_text(page(options.output, "Training that is killed within an epoch", text))
    print(text)


if __name__ == "__main__":
    main()
