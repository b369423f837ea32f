"""An accuracy table, from the data to the figures:

    python benchmarks/accuracy.py --table=ml-100k --work FOLDER [--data_path FOLDER] [--seeds 2020 2021 2022]

Each row and seed of the table (see accuracy_tables.py) is a run of its own, in its own folder below --work. Finished
runs are not repeated, and interrupted ones are resumed from their last epoch: call the same command again. Calls with
different `--rows` or `--seeds` may share --work, on two machines, for example. Writes
benchmarks/results/accuracy_NAME.md from all finished runs of the table.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.accuracy_tables import COUNTED, TABLES, Table  # noqa: E402
from recbole_ext import InputError, compare  # noqa: E402
from recbole_ext.checkpoint.training_run import read_run  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"


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
    table, folder = TABLES[options.table], options.work.resolve() / options.table
    for seed in options.seeds:
        for name in table.rows:
            if not options.finished and any(name.startswith(part) for part in options.rows):
                run(table, name, seed, folder, options)
    found = {name: finished(folder, name) for name in table.rows}
    found = {name: results for name, results in found.items() if results}
    if not found:
        sys.exit(f"there is no finished run in {folder}")
    path = options.output / f"accuracy_{options.table.replace('-', '_')}.md"
    path.write_text(page(options.table, found, folder), encoding="utf-8")
    print(f"{path}:\n\n{path.read_text(encoding='utf-8')}")


# -------------------------------------------------------------------- runs


def folder_of(folder: Path, name: str, seed: int) -> Path:
    return folder / f"{''.join(character if character.isalnum() else '_' for character in name)}-{seed}"


def run(table: Table, name: str, seed: int, folder: Path, options: argparse.Namespace) -> None:
    """Train and test a row with a seed, or resume it; its folder then has `result.json` and `users.csv`."""
    place = folder_of(folder, name, seed)
    if (place / "result.json").exists():
        return
    place.mkdir(parents=True, exist_ok=True)
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
    begun = time.time()
    try:
        with open(place / "log.txt", "a") as log:
            subprocess.run(
                [sys.executable, *program, *arguments, *outputs],
                cwd=place, env=environment, stdout=log, stderr=subprocess.STDOUT, check=True,
            )  # fmt: skip
    finally:
        with open(place / "seconds", "a") as seconds:  # a line for each part of an interrupted run
            seconds.write(f"{time.time() - begun:.1f}\n")
    result = json.loads((place / "run.json").read_text())
    result["benchmark"] = {
        "seconds": sum(map(float, (place / "seconds").read_text().split())), "hardware": hardware(options.threads),
        **epochs_of(result), "epochs_option": options.epochs,
    }  # fmt: skip
    (place / "run.json").write_text(json.dumps(result, indent=2))
    os.replace(place / "run.json", place / "result.json")
    print(f"{name}, seed {seed}: {result['test_result']}", flush=True)


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
    """The results of a row by seed."""
    stem = folder_of(folder, name, 0).name.removesuffix("0")
    paths = sorted(folder.glob(f"{stem}*/result.json"))
    return {int(path.parent.name.removeprefix(stem)): json.loads(path.read_text()) for path in paths}


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
