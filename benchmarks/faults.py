"""Faults: `kill -9` during training and saving, 100 times or as often as there is time, and damaged checkpoints.

Kills: one training of a model that is small in work and large in weights, so that much of its time goes into saving.
Each life of it is ended by SIGKILL: in a new process during imports and start, at a random moment, or while a file is
being written. After each, `--resume` is tried, for one more epoch; the next life goes on from there. At the end the
state is compared, bit for bit, with that of a training of as many epochs that nobody interrupted.

Damage: a checkpoint is truncated, loses bits, is planted with a pickle and so on. `load_data_and_model`,
`Recommender.load` and `--resume` are each asked to read it.

To save time, lives are forked from this process, which has imported everything, and do not measure the machine's load
for RecBole's log (a second each). Those that are killed during imports are new processes.
"""

import argparse
import contextlib
import importlib
import io
import json
import os
import pickle
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import numpy as np  # noqa: E402
import torch  # noqa: E402

from recbole_ext import Config, InputError, Recommender, load_data_and_model, quick_start  # noqa: E402
from recbole_ext.checkpoint import file as checkpoint  # noqa: E402
from recbole_ext.checkpoint import training_run  # noqa: E402
from recbole_ext.cli.entry import main as command  # noqa: E402
from recbole_ext.utils.versions import versions  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "faults.md"
KEYS = {
    "dataset": "shop", "data_path": "data", "checkpoint_dir": "saved", "show_progress": False, "use_gpu": False,
    "state": "warning", "MAX_ITEM_LIST_LENGTH": 8, "topk": "[5]", "valid_metric": "NDCG@5", "stopping_step": 10**6,
    "train_batch_size": 64, "n_layers": 1,
}  # fmt: skip
# 2 x 64 x inner_size weights, and twice as many numbers of Adam
LARGE = {"model": "MEANTIME", "hidden_size": 64, "inner_size": 16384}
TINY = {"model": "MEANTIME", "hidden_size": 16, "inner_size": 16}
EMPTY = "nothing to resume yet"
SENTENCE = re.compile(r"recbole-ext: .+\Z")


def words(keys: dict[str, Any], **more: Any) -> list[str]:
    return [f"--{key}={value}" for key, value in {**keys, **more}.items()]


def write_data(folder: Path, seed: int, users: int = 30) -> None:
    """Events of a few users with 20 items."""
    generator = np.random.default_rng(seed)
    (folder / "shop").mkdir(parents=True)
    lines = ["user_id:token\titem_id:token\ttimestamp:float"]
    for user in range(users):
        for _ in range(int(generator.integers(4, 13))):
            time_of = 1.6e9 + int(generator.integers(0, 40 * 86400))
            lines.append(f"u{user}\ti{generator.integers(20)}\t{time_of}")
    (folder / "shop" / "shop.inter").write_text("\n".join(lines) + "\n")


# -------------------------------------------------------------------- processes


def fork(work: Callable[[], int], log: Path) -> int:
    """Run `work` in a copy of this process, whose output goes to a file; returns its number."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    status = 70
    try:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1), os.dup2(handle, 2)
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush(), sys.stderr.flush()
        os._exit(status)


def ended(child: int) -> int:
    """The exit status of a process; that of one that a signal ended is its number below 0."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def told(log: Path) -> str:
    """The last line of what a process said."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""


def without_folder(sentence: str, folder: Path) -> str:
    return sentence.replace(f"{folder}/", "").replace(str(folder), ".")


def import_what_a_run_imports(folder: Path) -> None:
    """So that copies of this process need not; nothing is trained here, after which no copy could train."""

    def work() -> int:
        status = command(words({**KEYS, **TINY}, checkpoint_dir="warm", epochs=1))
        Path("modules.json").write_text(json.dumps(list(sys.modules)))
        return status

    log = folder / "warm.txt"
    if ended(fork(work, log)):
        raise RuntimeError(log.read_text())
    for name in json.loads(Path("modules.json").read_text()):
        if name not in sys.modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


@contextlib.contextmanager
def working_folder(seed: int, users: int = 30) -> Iterator[Path]:
    """A temporary working folder with data, in a process whose copies can train at once."""
    torch.set_num_threads(1)
    quick_start.get_environment = lambda config: type("Table", (), {"draw": staticmethod(lambda: "not measured")})
    Config("MEANTIME", "ml-100k", argv=[])  # imports what a start imports
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        write_data(folder / "data", seed, users)
        os.chdir(folder)
        try:
            import_what_a_run_imports(folder)
            yield folder
        finally:
            os.chdir(here)


# -------------------------------------------------------------------- kills


class Killed:
    """One training, ended again and again.

    Attributes:
        outcomes: (moment of the kill, what `--resume` came to) -> how often.
        failures: what should not have been.
        left: kills after which an unfinished file lay beside the checkpoint.
    """

    def __init__(self, folder: Path, generator: np.random.Generator, pace: dict[str, float]):
        self.folder, self.generator, self.pace = folder, generator, pace
        self.saved, self.log = folder / "saved", folder / "output.txt"
        self.outcomes: Counter = Counter()
        self.failures: list[str] = []
        self.left = self.remained = 0

    def checkpoint(self) -> Path | None:
        """The file that training can go on from, if there is one; a reservation is empty."""
        files = sorted(self.saved.glob("*.pth"))
        return files[-1] if files else None

    def life(self, moment: str) -> None:
        """Start or go on, and kill it at some moment."""
        file = self.checkpoint()
        arguments = [f"--resume={file}"] if file else words({**KEYS, **LARGE})
        arguments += ["--epochs=1000000"]
        if moment == "imports and start":
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            process = subprocess.Popen(
                [sys.executable, "-m", "recbole_ext", *arguments],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment,
            )  # fmt: skip
            time.sleep(self.generator.uniform(0, self.pace["imports"]))
            process.kill()
            process.wait()
            return
        child = fork(lambda: command(arguments), self.log)
        if moment == "any":
            time.sleep(self.generator.uniform(0, self.pace["start"] + 3 * self.pace["epoch"]))
        else:  # in a save: once its unfinished file is seen
            limit = time.monotonic() + 60
            while not list(self.saved.glob(".*.part")) and time.monotonic() < limit:
                time.sleep(0.0005)
            time.sleep(self.generator.uniform(0, self.pace["save"]))
        os.kill(child, signal.SIGKILL)
        if ended(child) != -signal.SIGKILL:
            self.failures.append(f"a life ended by itself: {told(self.log)}")

    def resume(self) -> tuple[str, int]:
        """What `--resume` for one more epoch comes to, and the epochs there are now."""
        file = self.checkpoint()
        if file is None:  # killed before it had a file: the path that it would have had
            file, done = self.saved / "MEANTIME.pth", 0
        else:
            done = training_run.find_resume_state(file).checkpoint["epoch"] + 1 if file.stat().st_size else 0
        status = ended(fork(lambda: command([f"--resume={file}", f"--epochs={done + 1}"]), self.log))
        said = told(self.log)
        if status == 0 and done:
            now = training_run.find_resume_state(file).checkpoint["epoch"] + 1
            if now == done + 1:
                return "resumed", now
        elif status == 2 and not done and SENTENCE.match(said) and ("is empty" in said or "there is no" in said):
            file.unlink(missing_ok=True)
            return EMPTY, 0
        self.failures.append(f"--resume after {done} epochs ended with status {status}: {said}")
        return "failed", done

    def parts(self) -> int:
        return len(list(self.saved.glob(".*.part")))

    def times(self, moments: list[str], limit: float) -> int:
        """End it at each of these moments, as long as there is time; returns the epochs that were trained in all."""
        epochs = 0
        for number, moment in enumerate(moments, 1):
            if time.time() > limit:
                break
            self.life(moment)
            self.left += self.parts() > 0
            outcome, epochs = self.resume()
            if outcome == "resumed":
                self.remained += self.parts()
            self.outcomes[moment, outcome] += 1
            print(f"{number}/{len(moments)} {moment}: {outcome}, {epochs} epochs", flush=True)
        return epochs


def measured(folder: Path) -> dict[str, float]:
    """Seconds that things take here, from an uninterrupted training of a few epochs."""
    saves: list[float] = []
    stamps: list[float] = []
    save = checkpoint.save

    def timed(*given: Any) -> None:
        begin = time.perf_counter()
        save(*given)
        saves.append(time.perf_counter() - begin)
        stamps.append(time.perf_counter())

    def work() -> int:
        begin = time.perf_counter()
        checkpoint.save = timed
        status = command(words({**KEYS, **LARGE}, checkpoint_dir="pace", epochs=6))
        epochs = np.diff(stamps)
        size = max(file.stat().st_size for file in Path("pace").glob("*"))
        pace = {
            "start": stamps[0] - begin, "epoch": float(np.median(epochs)), "save": float(np.median(saves)),
            "share": float(sum(saves[1:]) / epochs.sum()), "size": size / 2**20,
        }  # fmt: skip
        Path("pace.json").write_text(json.dumps(pace))
        return status

    log = folder / "pace.txt"
    if ended(fork(work, log)):
        raise RuntimeError(told(log))
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import recbole_ext.training.trainer"], check=True,
                   env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    return {**json.loads(Path("pace.json").read_text()), "imports": time.perf_counter() - begin}


def different(one: Any, other: Any, where: str = "") -> Iterator[str]:
    """Where two states differ."""
    if type(one) is not type(other):
        yield where
    elif isinstance(one, dict):
        if one.keys() != other.keys():
            yield where
        for key in one.keys() & other.keys():
            yield from different(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, (list, tuple)):
        if len(one) != len(other):
            yield where
        for place, members in enumerate(zip(one, other, strict=False)):
            yield from different(*members, f"{where}[{place}]")
    elif isinstance(one, torch.Tensor):
        if one.dtype != other.dtype or not torch.equal(one, other):
            yield where
    elif one != other and not (one != one and other != other):
        yield where


def compared(folder: Path, killed: Killed, epochs: int) -> list[str]:
    """Where the state after all kills differs from that of a training without any."""
    log = folder / "straight.txt"
    if ended(fork(lambda: command(words({**KEYS, **LARGE}, checkpoint_dir="straight", epochs=epochs)), log)):
        raise RuntimeError(told(log))
    (straight,) = (folder / "straight").glob("*.pth")
    apart = []
    # the best and the latest epoch
    for load in (checkpoint.load, lambda path: training_run.find_resume_state(path).checkpoint):
        one, other = (
            {key: value for key, value in load(str(path)).items() if key not in ("run", "config")}
            for path in (killed.checkpoint(), straight)
        )
        apart += list(different(one, other))
    return apart


def kills(folder: Path, options: argparse.Namespace) -> list[str]:
    """The lines about kills; raises if training cannot be started at all."""
    count, generator = options.kills, np.random.default_rng(options.seed)
    limit = time.time() + 60 * options.minutes
    pace = measured(folder)
    print(pace, flush=True)
    moments = ["imports and start"] * (count // 10) + ["in a save"] * (count * 3 // 10)
    moments += ["any"] * (count - len(moments))
    moments = [moments[place] for place in generator.permutation(count)]
    killed = Killed(folder, generator, pace)
    epochs = killed.times(moments, limit)
    count = sum(killed.outcomes.values())
    apart = compared(folder, killed, epochs)
    lines = [
        f"One training of {epochs} epochs, killed {count} times. A checkpoint has {pace['size']:.0f} MiB; an epoch "
        f"takes {pace['epoch']:.2f} s, {pace['share']:.0%} of it in saving.",
        "",
        "| killed | times | resumed | nothing to resume yet | failed |",
        "|---|---:|---:|---:|---:|",
    ]
    for moment, name in (("imports and start", "a new process, during imports and start"),
                         ("any", "at a random moment"), ("in a save", "while a checkpoint was written")):  # fmt: skip
        row = [killed.outcomes[moment, outcome] for outcome in ("resumed", EMPTY, "failed")]
        lines.append(f"| {name} | {sum(row)} | {' | '.join(map(str, row))} |")
    lines += [
        "",
        f"An unfinished file lay beside the checkpoint after {killed.left} of the kills; of those, {killed.remained} "
        "were left after a training that was resumed.",
        "",
        "The state after the last epoch and that of the best one (weights, optimiser, random numbers, metrics), beside "
        f"those of a training of {epochs} epochs that nobody interrupted: "
        f"{'the same, bit for bit' if not apart else 'DIFFERENT in ' + ', '.join(apart[:5])}.",
    ]
    return lines + [f"FAILED: {without_folder(failure, folder)}" for failure in killed.failures]


# -------------------------------------------------------------------- damage


class Payload:
    """An object whose unpickling makes a file."""

    def __init__(self, path: Path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def small_run(folder: Path, name: str, **keys: Any) -> Path:
    """A checkpoint of two epochs."""
    log = folder / f"{name}.txt"
    if ended(fork(lambda: command(words({**KEYS, **TINY, **keys}, checkpoint_dir=name, epochs=2)), log)):
        raise RuntimeError(told(log))
    (file,) = (folder / name).glob("*.pth")
    return file


def damages(folder: Path, whole: Path, other: Path, generator: np.random.Generator) -> Iterator[tuple[str, Path]]:
    """A name and a damaged file, one after the other; each is gone when the next one is asked for."""
    path, content = folder / "damaged.pth", whole.read_bytes()
    state, of_other = checkpoint.load(whole), checkpoint.load(other)

    def saved(values: Any) -> Path:
        torch.save(values, path)
        return path

    for place in generator.integers(1, len(content), 20):
        path.write_bytes(content[:place])
        yield "truncated at a random place", path
    for place, bit in zip(generator.integers(0, len(content), 100), generator.integers(0, 8, 100), strict=True):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(bit)
        path.write_bytes(damaged)
        yield "one random bit flipped", path
    for key in ("extra", "state_dict", "config"):
        payload = Payload(folder / "planted")
        planted = {**state, "extra": payload} if key == "extra" else {**state, key: {**state[key], "more": payload}}
        yield "a planted pickle, inside", saved(planted)
    with open(path, "wb") as file:
        pickle.dump({**state, "more": Payload(folder / "planted")}, file)
    yield "a planted pickle, bare", path
    yield "weights of another model", saved({**state, "state_dict": of_other["state_dict"]})
    yield "a newer format", saved({**state, "format": checkpoint.FORMAT + 1})
    path.write_bytes(b"")
    yield "an empty file", path
    path.write_text("a text\n")
    yield "a text file", path
    path.unlink(missing_ok=True)
    path.mkdir()
    yield "a folder", path
    if path.is_dir():
        path.rmdir()
    yield "no file", path
    for value in (float("nan"), float("inf")):
        name = next(name for name, weights in state["state_dict"].items() if weights.is_floating_point())
        weights = state["state_dict"][name].clone()
        weights.view(-1)[-1] = value
        yield "weights that are no numbers", saved({**state, "state_dict": {**state["state_dict"], name: weights}})
    for key in state:
        yield f"without '{key}'", saved({name: value for name, value in state.items() if name != key})
        yield f"'{key}' of another kind", saved({**state, key: ["something else"]})


READERS = ("load_data_and_model", "Recommender.load", "--resume")


def asked(path: Path, more: list[str]) -> dict[str, list]:
    """What each reader makes of a file: `[status, sentence]`, status 0 where it was read, 2 for a sentence, 1 else."""
    answers: dict[str, list] = {}
    for name, read in (("load_data_and_model", load_data_and_model), ("Recommender.load", Recommender.load)):
        try:
            read(str(path), "cpu")
            answers[name] = [0, ""]
        except InputError as error:
            answers[name] = [2, str(error)]
        except BaseException as error:
            answers[name] = [1, f"{type(error).__name__}: {error}"]
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        status = command([f"--resume={path}", "--epochs=3", *more])
    answers["--resume"] = [status, said.getvalue().strip().removeprefix("recbole-ext: ")]
    return answers


def damage(folder: Path, seed: int) -> list[str]:
    """The lines about damaged checkpoints."""
    whole = small_run(folder, "small")
    other = small_run(folder, "other", model="LightSANs")
    right = checkpoint.load(whole)
    found: dict[str, list] = {}  # way -> count, answers of each reader, example of a sentence
    failures: list[str] = []

    def every() -> Iterator[tuple[str, Path, list[str]]]:
        yield "LightSANs' checkpoint, with `--model=MEANTIME`", other, ["--model=MEANTIME"]
        for name, path in damages(folder, whole, other, np.random.default_rng(seed)):
            yield name, path, []

    answer = folder / "answer.json"
    for way, path, more in every():
        harmless = False
        with contextlib.suppress(InputError):
            harmless = "bit" in way and not list(different(checkpoint.load(path), right))
        answer.unlink(missing_ok=True)

        def work(path: Path = path, more: list[str] = more) -> int:
            answer.write_text(json.dumps(asked(path, more)))
            return 0

        status = ended(fork(work, folder / "asked.txt"))
        answers = json.loads(answer.read_text()) if not status else dict.fromkeys(READERS, [status, "crashed"])
        if harmless:
            way = "the same, where nothing is read and the content is the same"
        row = found.setdefault(way, [0, {reader: Counter() for reader in READERS}, ""])
        row[0] += 1
        for reader, (code, sentence) in answers.items():
            sentence = without_folder(sentence, folder)
            row[1][reader][code] += 1
            row[2] = row[2] or (sentence if code == 2 else "")
            if code not in (0, 2) or "\n" in sentence:
                failures.append(f"{way}, {reader}: status {code}, {sentence.splitlines()[-1] if sentence else ''}")
            if code == 0 and not harmless and ("bit" in way or "truncated" in way or "planted" in way):
                failures.append(f"{way}, {reader}: was read")
        for file in folder.glob("damaged*"):  # and the state beside it, if it was resumed
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    if (folder / "planted").exists():
        failures.append("a planted pickle ran")
    names = {0: "read", 2: "refused", 1: "FAILED"}
    lines = [f"| damage | files | {' | '.join(f'`{reader}`' for reader in READERS)} | what it says |"]
    lines.append("|---|---:|---|---|---|---|")
    for way, (count, readers, sentence) in found.items():
        cells = [
            ", ".join(f"{names.get(code, code)} {number}" for code, number in sorted(readers[reader].items()))
            for reader in READERS
        ]
        lines.append(f"| {way} | {count} | {' | '.join(cells)} | {sentence.replace('|', '/')} |")
    return lines + [""] + [f"FAILED: {failure}" for failure in failures]


# -------------------------------------------------------------------- the page


def provenance(command: str, begin: float) -> str:
    """Date, hardware, time since `begin`, versions and command."""
    listed = ", ".join(f"{key} {value}" for key, value in versions().items())
    return (
        f"{date.today()}, {os.cpu_count()} CPU cores ({platform.machine()}), 1 thread, busy with other work; "
        f"{sum(os.times()[:4]) / 60:.0f} CPU minutes in {(time.time() - begin) / 60:.0f} minutes. "
        f"Versions: {listed}.\n"
        f"Command: `{command}`"
    )


def page(path: Path, part: str, text: str) -> str:
    """The page with one of its parts replaced, and the other one as it was."""
    before = path.read_text() if path.exists() else ""
    parts = dict(re.findall(r"^## (.*?)\n\n(.*?)\s*(?=^## |\Z)", before, flags=re.DOTALL | re.MULTILINE))
    parts[part] = text
    return "# Faults\n\n" + "\n\n".join(f"## {name}\n\n{parts[name]}" for name in sorted(parts)) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=["kills", "damage"], required=True)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=60, help="no more kills after that")
    parser.add_argument("--seed", type=int, default=2020)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    begin = time.time()
    with working_folder(options.seed) as folder:
        lines = damage(folder, options.seed) if options.part == "damage" else kills(folder, options)
    title = {"damage": "Damaged checkpoints", "kills": "Training that is killed"}[options.part]
    command = (
        f"python benchmarks/faults.py --part {options.part} --kills {options.kills} --minutes {options.minutes:g} "
        f"--seed {options.seed}"
    )
    text = "\n".join(lines).strip() + "\n\n" + provenance(command, begin)
    options.output.write_text(page(options.output, title, text))
    print(text)


if __name__ == "__main__":
    main()
