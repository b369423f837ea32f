"""An accuracy table, from the data to the figures:

    python benchmarks/accuracy.py --table=ml-100k --work FOLDER [--data_path FOLDER] [--seeds 2020 2021 2022]

Each row and seed of the table (see accuracy_tables.py) is a run of its own, in its own folder below --work. Finished
runs are not repeated, and interrupted ones are resumed from their last epoch: call the same command again. Several
calls may share --work: a run that another call has begun is left to it. `log.txt` in the folder of a run shows its
progress. Writes accuracy_NAME.md from all finished runs of the table, into benchmarks/results or --output.
"""

import argparse
import contextlib
import fcntl
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.accuracy_tables import COUNTED, TABLES, Table  # noqa: E402
from recbole_ext import InputError, compare  # noqa: E402
from recbole_ext.checkpoint.training_run import read_run  # noqa: E402
from recbole_ext.utils.atomic_write import write_whole  # noqa: E402
from recbole_ext.utils.wording import quoted  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
PARTS = {"benchmark", "config", "test_result", "versions"}  # of a result.json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", choices=list(TABLES), required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder of the runs; finished ones are not repeated")
    parser.add_argument("--data_path", type=os.path.abspath, help="folder of the data sets, if they are not in RecBole")
    parser.add_argument("--seeds", type=int, nargs="+", default=[2020, 2021, 2022])
    parser.add_argument("--rows", nargs="+", default=[""], help="beginnings of the names of the rows to run")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--finished", action="store_true", help="start no run; write the table of the finished ones")
    parser.add_argument("--epochs", type=int, help="instead of those of the table, to try it; the table then says so")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the table")
    options = parser.parse_args()
    try:
        make(options)
    except InputError as error:
        parser.exit(2, f"accuracy.py: {error}\n")


def make(options: argparse.Namespace) -> None:
    """Run what is missing of the table, and write its page.

    Raises:
        InputError: a row does not exist, a result cannot be read, or no run has finished.
    """
    table, folder = TABLES[options.table], options.work.resolve() / options.table
    for part in options.rows:
        if not any(name.startswith(part) for name in table.rows):
            raise InputError(f"no row of {options.table} begins with '{part}'; the rows are {quoted(table.rows, 20)}.")
    options.output.mkdir(parents=True, exist_ok=True)
    for seed in options.seeds:
        for name in table.rows:
            if not options.finished and any(name.startswith(part) for part in options.rows):
                run(table, name, seed, folder, options)
    found = {name: finished(folder, name) for name in table.rows}
    found = {name: results for name, results in found.items() if results}
    if not found:
        raise InputError(f"there is no finished run in {folder}.")
    path = options.output / f"accuracy_{options.table.replace('-', '_')}.md"
    path.write_text(page(options.table, found, folder), encoding="utf-8")
    print(f"{path}:\n\n{path.read_text(encoding='utf-8')}")


# -------------------------------------------------------------------- runs


def folder_of(folder: Path, name: str, seed: int) -> Path:
    return folder / f"{''.join(character if character.isalnum() else '_' for character in name)}-{seed}"


def run(table: Table, name: str, seed: int, folder: Path, options: argparse.Namespace) -> None:
    """Train and test a row with a seed, or resume it; its folder then has `result.json` and `users.csv`."""
    place = folder_of(folder, name, seed)
    place.mkdir(parents=True, exist_ok=True)
    with locked(place) as lock:
        if lock is None:
            print(f"{name}, seed {seed}: another process is at it", flush=True)
        elif not (place / "result.json").exists():
            _run(table, name, seed, place, options, lock)


@contextlib.contextmanager
def locked(place: Path) -> Iterator[int | None]:
    """Hold the folder of a run: yields the lock's file descriptor, or None if another process holds it.

    The training inherits the descriptor, and so holds the folder even if this process is killed.
    """
    with open(place / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield file.fileno()


def _run(table: Table, name: str, seed: int, place: Path, options: argparse.Namespace, lock: int) -> None:
    checkpoint = checkpoint_to_resume(place)
    arguments = [*table.common, *table.rows[name], f"--seed={seed}", f"--checkpoint_dir={place / 'saved'}"]
    if options.epochs is not None and not counted(arguments):
        arguments = [*(one for one in arguments if not is_length(one)), f"--epochs={options.epochs}"]
    if checkpoint is None:
        arguments += [f"--data_path={options.data_path}"] if options.data_path else []
    else:  # it has the other keys; the number of epochs may have grown since
        arguments = [f"--resume={checkpoint}", *filter(is_length, arguments)]
    program = [str(ROOT / "benchmarks" / "counted_pairs.py")] if counted(arguments) else ["-m", "recbole_ext"]
    arguments = [argument for argument in arguments if argument != COUNTED]
    outputs = ["--show_progress=False", f"--json={place / 'run.json'}", f"--per_user={place / 'users.csv'}"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads), "PYTHONPATH": str(ROOT)}
    print(f"{name}, seed {seed}: {'resumed' if checkpoint else 'started'}", flush=True)
    add_seconds(place)
    (place / "begun").touch()
    with open(place / "log.txt", "a") as log:
        done = subprocess.run(
            [sys.executable, *program, *arguments, *outputs],
            cwd=place, env=environment, stdout=log, stderr=subprocess.STDOUT, pass_fds=[lock],
        )  # fmt: skip
    if done.returncode:
        sys.exit(f"accuracy.py: {name}, seed {seed} failed with status {done.returncode}; see {place / 'log.txt'}")
    add_seconds(place)
    result = json.loads((place / "run.json").read_text())
    result["benchmark"] = {
        "seconds": sum(map(float, (place / "seconds").read_text().split())), "hardware": hardware(options.threads),
        **epochs_of(result), "epochs_option": options.epochs,
    }  # fmt: skip
    with write_whole(str(place / "result.json")) as file:
        file.write(json.dumps(result, indent=2).encode())
    (place / "run.json").unlink()
    print(f"{name}, seed {seed}: {result['test_result']}", flush=True)


def add_seconds(place: Path) -> None:
    """Add the time of the last part of a run to the file `seconds`: from its start until it last wrote its log.

    A part whose processes were killed is added before the next one begins.
    """
    begun = place / "begun"
    if begun.exists():
        with open(place / "seconds", "a") as seconds:
            seconds.write(f"{max(0, (place / 'log.txt').stat().st_mtime - begun.stat().st_mtime):.1f}\n")
        begun.unlink()


def counted(arguments: list[str]) -> bool:
    return COUNTED in arguments


def is_length(argument: str) -> bool:
    return argument.startswith("--epochs=")


def checkpoint_to_resume(place: Path) -> Path | None:
    """The checkpoint of an interrupted run; None if it has not finished an epoch, and its folder is then empty."""
    for checkpoint in sorted((place / "saved").glob("*.pth")):
        if checkpoint.stat().st_size or checkpoint.with_suffix(".latest").exists():
            return checkpoint
    shutil.rmtree(place / "saved", ignore_errors=True)
    return None


def epochs_of(result: dict) -> dict:
    """Numbers of epochs: trained, and up to the best one."""
    training = read_run(result["checkpoint"])
    return {"epochs": len(training.train_loss), "best_epoch": training.best_epoch}


def hardware(threads: int) -> str:
    import torch

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU ({platform.machine()})"
    return f"{name}, {threads} of {os.cpu_count()} cores"


def finished(folder: Path, name: str) -> dict[int, dict]:
    """The results of a row by seed.

    Raises:
        InputError: a file is not the result of a run.
    """
    stem = folder_of(folder, name, 0).name.removesuffix("0")
    results = {}
    for path in sorted(folder.glob(f"{stem}*/result.json")):
        seed = path.parent.name.removeprefix(stem)
        if re.fullmatch(r"\d+", seed):  # other folders are copies
            results[int(seed)] = read_result(path)
    return results


def read_result(path: Path) -> dict:
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        result = None
    if not isinstance(result, dict) or not result.keys() >= PARTS:
        raise InputError(f"{path} is damaged; remove it, and call again to resume its run.")
    return result


# -------------------------------------------------------------------- the page


def page(name: str, found: dict[str, dict[int, dict]], folder: Path) -> str:
    """The results file: command, versions, a row for each model, and differences."""
    table = TABLES[name]
    results = [result for by_seed in found.values() for result in by_seed.values()]
    versions = sorted({", ".join(f"{key} {value}" for key, value in one["versions"].items()) for one in results})
    return (
        f"# {table.title}\n\n"
        f"Command: `python benchmarks/accuracy.py --table={name} --work FOLDER`, {date.today()}{cap(results)}\n"
        f"Versions: {'; '.join(versions)}.\n"
        f"Arguments of all rows: `{' '.join(table.common)}`\n"
        f"The epoch that is best on the validation data ({table.valid}) is tested; mean ± standard deviation over the "
        f"seeds. Minutes are those of the whole run, on average; other programs may have run at the same time.\n\n"
        f"{rows(table, found)}\n\n{differences(table, found, folder)}"
    )


def cap(results: list[dict]) -> str:
    """What to say of runs with `--epochs`."""
    limits = {one["benchmark"].get("epochs_option") for one in results} - {None}
    return f"; **some rows have --epochs={min(limits)}**" if limits else ""


def rows(table: Table, found: dict[str, dict[int, dict]]) -> str:
    metrics = [*(f"test {metric}" for metric in table.metrics), f"valid {table.valid}"]
    head = ["model", *metrics, "time of the target", "seeds", "epochs, the best", "minutes", "hardware", "arguments"]
    lines = [f"| {' | '.join(head)} |", f"|---{'|---:' * len(metrics)}{'|---' * 6}|"]
    for name, by_seed in found.items():
        results = list(by_seed.values())
        cells = [mean([one["test_result"][metric.lower()] for one in results]) for metric in table.metrics]
        cells.append(mean([(one["best_valid_result"] or {}).get(table.valid.lower()) for one in results]))
        known = results[0]["config"].get("query_time")
        cells.append({"target": "known", "last": "unknown"}.get(known, "not read"))
        cells.append(" ".join(map(str, sorted(by_seed))))
        benchmarks = [one["benchmark"] for one in results]
        cells.append("; ".join(f"{one['epochs']}, {one['best_epoch']}" for one in benchmarks))
        cells.append(f"{statistics.mean(one['seconds'] for one in benchmarks) / 60:.1f}")
        cells.append("; ".join(sorted({one["hardware"] for one in benchmarks})))
        cells.append(f"`{' '.join(table.rows[name]) or 'none'}`")
        lines.append(f"| {' | '.join([name, *cells])} |")
    return "\n".join(lines)


def mean(values: list) -> str:
    if None in values:
        return "none"
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.4f}{spread}"


def differences(table: Table, found: dict[str, dict[int, dict]], folder: Path) -> str:
    """Each row's difference from the first one over the test users, by `recbole_ext.compare`."""
    files = {
        name: [folder_of(folder, name, seed) / "result.json" for seed in by_seed] for name, by_seed in found.items()
    }
    try:
        comparison = compare(files, metrics=table.metrics[0])
    except InputError as error:
        return f"Differences: {error}\n"
    head, cells = comparison.cells(table.metrics[0].lower())
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells)]
    warnings = "".join(f"- {warning}\n" for warning in comparison.warnings)
    return (
        f"Paired bootstrap over {comparison.users:,} test users, which does not cover the choice of the seeds; the "
        f"last column is corrected for the number of differences.\n\n" + "\n".join(lines) + f"\n\n{warnings}"
    )


if __name__ == "__main__":
    main()
