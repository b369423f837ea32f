"""Soak: hours of training, resuming, searching and recommending, in which processes are stopped at random moments.

Rounds follow each other in an order that the seed gives. A round is a training on the command line, by one process or
by several, or a search. It is stopped a few times by SIGKILL, SIGTERM or SIGINT, at a random moment, and resumed until
it is complete. Then nothing may be lost: its losses are those of a training that nobody stopped (bit for bit for one
process, to 1e-4 for several), all trials of a search are there with the scores of one that nobody stopped, and no
process and no file is left behind.

Meanwhile one process recommends, also for wrong input, and another one trains. Their resident memory must stay flat.

    python benchmarks/soak.py --minutes 120
"""

import argparse
import getpass
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import interrupts  # noqa: E402
from benchmarks.faults import words, write_data  # noqa: E402
from benchmarks.soak_processes import LIMIT, Background, Command, Failure, shared_memory  # noqa: E402
from recbole_ext.checkpoint.training_run import find_resume_state  # noqa: E402
from recbole_ext.tuning.journal import Journal  # noqa: E402
from recbole_ext.utils.versions import versions  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "soak.md"
NO_DROPOUT = {"hidden_dropout_prob": 0, "attn_dropout_prob": 0}  # for several processes, which draw it differently
MODELS: dict[str, dict] = {  # with their keys, and those for several processes
    **{model: {"one": {}, "several": NO_DROPOUT} for model in ("MEANTIME", "LightSANs", "TiSASRec", "SASRec")},
    "BST": {"one": {"mlp_hidden_size": "[16]"}, "several": {"mlp_hidden_size": "[16]", "hidden_dropout_prob": 0}},
}
KEYS = {
    "dataset": "shop", "data_path": "../data", "checkpoint_dir": "saved", "show_progress": False, "use_gpu": False,
    "MAX_ITEM_LIST_LENGTH": 8, "topk": "[5]", "valid_metric": "NDCG@5", "stopping_step": 10**6, "epochs": 20,
    "train_batch_size": 64, "eval_batch_size": 16,
}  # fmt: skip
STOPS = ["SIGKILL", "SIGKILL", "SIGTERM", "SIGINT", "SIGINT twice"]
STATUS = {"SIGTERM": (143, -15), "SIGINT": (130, -2), "SIGINT twice": (130, -2)}  # below 0: while Python starts
KEPT = ("ray", f"torchinductor_{getpass.getuser()}")  # Ray's logs, torch's cache
ROUNDS = {"training, one process": 4, "training, several processes": 4, "search": 2}  # with their weights


def saved(folder: Path) -> tuple[Path | None, list[float]]:
    """The checkpoint of a training, and the losses of its epochs; without an epoch None, and no losses."""
    for path in folder.glob("saved/*.pth"):
        if path.stat().st_size or path.with_suffix(".latest").exists():
            return path, find_resume_state(path).checkpoint["curves"]["train_loss"]
    return None, []


def results(folder: Path) -> dict[str, Any]:
    """The metrics of a training."""
    written = json.loads((folder / "result.json").read_text())
    return {name: written[name] for name in ("best_valid_result", "test_result")}


def scores(folder: Path) -> dict[int, float]:
    """The best score of each trial that has ended."""
    searches = folder.glob("tune_results/*")
    return {record["trial"]: record["best_score"] for path in searches for record in Journal(str(path)).records()}


class Soak:
    """The rounds.

    Attributes:
        rounds: kind of a round -> how many.
        stops: (kind of a round, how it was stopped) -> how often.
        epochs, trials: how many were compared with those that nobody stopped.
        failures: what was wrong.
    """

    def __init__(self, folder: Path, draw: random.Random):
        self.folder, self.draw = folder, draw
        self.rounds: Counter = Counter()
        self.stops: Counter = Counter()
        self.failures: list[str] = []
        self.epochs = self.trials = 0
        self.references: dict[str, Any] = {}  # name of a run that nobody stopped -> what it came to
        (folder / "tmp").mkdir()
        write_data(folder / "data", 0)
        self.shared_memory = shared_memory()

    def new_folder(self, name: str) -> Path:
        shutil.rmtree(self.folder / name, ignore_errors=True)
        (self.folder / name).mkdir()
        return self.folder / name

    def round(self, kind: str) -> None:
        """A round of this kind; what is wrong becomes a failure."""
        folder = self.new_folder("round")
        try:
            self.search(folder) if kind == "search" else self.training(folder, kind)
            self.check_leftovers(folder)
        except Exception as error:
            told = str(error) if isinstance(error, Failure) else traceback.format_exc()
            self.failures.append(f"{kind} {sum(self.rounds.values()) + 1}: {told}")
            print(f"FAILED: {told}", flush=True)
            for log in sorted(folder.glob("*.txt"), key=lambda path: path.stat().st_mtime):
                print(f"--- {log.name}\n{log.read_text()[-1500:]}", flush=True)
        self.rounds[kind] += 1

    def stopped(self, command: Command, kind: str) -> str:
        """Stop a command at a random moment; returns how, empty if it has ended before."""
        if kind == "search" or self.draw.random() < 0.4:  # also while it starts
            command.wait(self.draw.uniform(0, 40 if kind == "search" else 15))
        else:
            command.wait(LIMIT, epochs=self.draw.randint(1, 12))
            command.wait(self.draw.uniform(0, 0.3))
        how = self.draw.choice(STOPS)
        if command.process.poll() is not None:
            return ""
        done = command.stop(how, self.draw)
        self.stops[kind, done] += 1
        return how

    def ended(self, command: Command, how: str) -> int:
        """The exit status, which has to be the one that belongs to how the command was stopped."""
        status = command.end()
        expected = (0, 1, -9) if how == "SIGKILL" else (0, *STATUS.get(how, ()))
        if status not in expected or "Traceback" in command.output():
            raise Failure(f"status {status} after {how or 'no signal'}: {command.output()[-300:]}")
        return status

    # ---------------------------------------------------------------- training

    def reference(self, model: str, several: bool = False) -> tuple[list[float], dict]:
        """Losses and results of a training by one process that nobody stops; its folder stays."""
        kind = "several" if several else "one"
        name = f"{model}-{kind}"
        if name not in self.references:
            folder = self.new_folder(name)
            self.ended(
                Command(folder, [*words({**KEYS, "model": model, **MODELS[model][kind]}), "--json=result.json"]), ""
            )
            self.references[name] = saved(folder)[1], results(folder)
        return self.references[name]

    def training(self, folder: Path, kind: str) -> None:
        draw, several = self.draw, kind == "training, several processes"
        model = draw.choice(list(MODELS))
        losses, result = self.reference(model, several)
        keys = {"model": model, **MODELS[model]["several" if several else "one"]}
        minutes = draw.choice([[], ["--checkpoint_minutes=0.001"]])
        file, done = saved(folder)
        left = draw.randint(1, 3)  # stops
        while True:
            counts = ([2, 3] if left == 0 else [1, 2, 3]) if several else [1]
            arguments = [f"--resume={file}", f"--epochs={KEYS['epochs']}"] if file else words({**KEYS, **keys})
            command = Command(folder, [*arguments, *minutes, f"--nproc={draw.choice(counts)}", "--json=result.json"])
            how = self.stopped(command, kind) if left else ""
            status = self.ended(command, how)
            file, now = saved(folder)
            self.check_epochs(command.trained(), how, done, now)
            if file is None:
                shutil.rmtree(folder / "saved", ignore_errors=True)
            done, left = now, max(left - 1, 0)
            if status == 0 and how == "":
                break
        tolerance = 1e-4 if several else 0
        same = [math.isclose(*pair, rel_tol=0, abs_tol=tolerance) for pair in zip(done, losses, strict=True)]
        self.epochs += len(same)
        if not all(same):
            epoch = same.index(False)
            raise Failure(f"{keys}: loss of epoch {epoch} is {done[epoch]!r}, not {losses[epoch]!r}")
        if not several and results(folder) != result:
            raise Failure(f"{keys}: the results are {results(folder)}, not {result}")
        if parts := list(folder.glob("saved/.*.part")):
            raise Failure(f"unfinished files are left: {[part.name for part in parts]}")

    def check_epochs(self, trained: list[int], how: str, before: list[float], now: list[float]) -> None:
        """No epoch that was finished is lost, and none is trained again."""
        if now[: len(before)] != before:
            raise Failure(f"losses of finished epochs have changed from {before} to {now}")
        if trained and trained[0] != len(before):
            raise Failure(f"resumed with epoch {trained[0]} after {len(before)} epochs")
        # the last one may not have been saved before a kill
        finished = (trained[-1] if how in ("SIGKILL", "SIGINT twice") else trained[-1] + 1) if trained else 0
        if len(now) < finished:
            raise Failure(f"{finished} epochs were finished, {len(now)} are in the checkpoint after {how}")

    # ---------------------------------------------------------------- searches

    def search(self, folder: Path) -> None:
        """A search without a scheduler, whose trials do not depend on the moment when they run."""
        arguments = [*interrupts.ARGUMENTS, "--scheduler=none"]
        if "search" not in self.references:
            reference = self.new_folder("search")
            interrupts.write_data(reference)
            self.ended(Command(reference, arguments), "")
            self.references["search"] = scores(reference)
        interrupts.write_data(folder)
        done: dict[int, float] = {}
        left = self.draw.randint(1, 2)  # stops
        while True:
            started = [path.parent for path in folder.glob("tune_results/*/search.yaml")]
            command = Command(folder, ["tune", f"--resume={started[0]}"] if started else arguments)
            how = self.stopped(command, "search") if left else ""
            status = self.ended(command, how)
            now = scores(folder)
            if not done.items() <= now.items():
                raise Failure(f"trials were lost: {done} before, {now} after {how}")
            done, left = now, max(left - 1, 0)
            if status == 0 and how == "":
                break
        self.trials += len(done)
        if done != self.references["search"]:
            raise Failure(f"the scores of the trials are {done}, not {self.references['search']}")
        (started,) = folder.glob("tune_results/*")
        missing = [name for name in ("best.yaml", "trials.csv", "report.html") if not (started / name).is_file()]
        if missing:
            raise Failure(f"the search has no {missing}")

    # ---------------------------------------------------------------- afterwards

    def check_leftovers(self, folder: Path) -> None:
        """No temporary files and no shared memory, apart from Ray's logs and torch's cache."""
        files = [path.name for path in (self.folder / "tmp").iterdir() if path.name not in KEPT]
        files += shared_memory() - self.shared_memory
        files += [path.name for path in folder.rglob("*.part")]
        if files:
            shutil.rmtree(self.folder / "tmp")
            (self.folder / "tmp").mkdir()
            raise Failure(f"files are left: {files}")


def page(options: argparse.Namespace, soak: Soak, background: Background, minutes: float) -> list[str]:
    listed = ", ".join(f"{key} {value}" for key, value in versions().items())
    requests, refused = background.counts
    compared = f"{soak.epochs} epochs and {soak.trials} trials were compared with those of runs that nobody stopped."
    lines = [
        "# Soak", "",
        f"{date.today()}, {minutes:.0f} minutes, {os.cpu_count()} CPU cores, busy with other work. Versions: {listed}.",
        f"Command: `python benchmarks/soak.py --minutes {options.minutes:g} --seed {options.seed}`", "",
        f"{sum(soak.rounds.values())} rounds, stopped {sum(soak.stops.values())} times; {compared} "
        f"Failures: {len(soak.failures)}.", "",
        "| round | rounds |", "|---|---:|", *(f"| {kind} | {soak.rounds[kind]} |" for kind in ROUNDS), "",
        "| round | stopped by | times |", "|---|---|---:|",
        *(f"| {kind} | {how} | {count} |" for (kind, how), count in sorted(soak.stops.items())), "",
        f"Meanwhile one process answered {requests:,} requests, {refused:,} of them wrong ones, which it refused; "
        f"another one trained MEANTIME for {len(background.training.trained()):,} epochs. Resident memory in MiB; the "
        "slope is a line through the second half, in MiB an hour:", "",
        "| process | at its start | half of the time | end | maximum | slope |", "|---|---:|---:|---:|---:|---:|",
        *(memory.row(name) for name, memory in background.memory.items()),
    ]  # fmt: skip
    if soak.failures:
        lines += ["", *(f"- FAILED: {' '.join(failure.split())[:500]}" for failure in soak.failures)]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120, help="no new round after that; two more to prepare")
    parser.add_argument("--seed", type=int, default=2020)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in the background
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        soak = Soak(Path(name), draw)
        for model in MODELS:
            soak.reference(model)
        checkpoints = [str(saved(soak.folder / f"{model}-one")[0]) for model in MODELS]
        background = Background(soak.folder, checkpoints, {**KEYS, "model": "MEANTIME"}, options.seed)
        begin = time.monotonic()
        try:
            soak.shared_memory = shared_memory()
            while time.monotonic() - begin < 60 * options.minutes:
                kind = draw.choices(list(ROUNDS), list(ROUNDS.values()))[0]
                soak.round(kind)
                print(
                    f"{(time.monotonic() - begin) / 60:.1f} minutes: {kind}, {len(soak.failures)} failures", flush=True
                )
        except KeyboardInterrupt:
            print("interrupted: the page has the rounds so far", flush=True)
        finally:
            soak.failures += background.end()
        lines = page(options, soak, background, (time.monotonic() - begin) / 60)
    text = "\n".join(lines) + "\n"
    options.output.write_text(text.replace(name, "."))
    print(text)
    return int(bool(soak.failures))


if __name__ == "__main__":
    sys.exit(main())
