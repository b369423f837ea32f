"""Shared by the accuracy scripts: run the command, one process per run, and write the table of results."""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
Results = dict[str, list[dict]]  # name in the table -> a result of each seed


def arguments(description: str, runs: dict[str, list[str]]) -> argparse.ArgumentParser:
    """The options that the scripts share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seeds", type=int, nargs="+", default=[2020, 2021, 2022])
    parser.add_argument("--models", nargs="+", default=list(runs), help="names in the table, or how they begin")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--finished", action="store_true", help="start no run; put those in --work that are finished into the table"
    )
    parser.add_argument("--work", type=Path, required=True, help="folder of the runs; finished ones are not repeated")
    parser.add_argument("--data_path", type=os.path.abspath, help="where the data set lies, if not in RecBole")
    return parser


def run_all(runs: dict[str, list[str]], common: list[str], options: argparse.Namespace) -> Results:
    """Run the command with `common` and each run's own arguments for each seed."""
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    results: Results = {}
    for name, own in runs.items():
        if any(name.startswith(part) for part in options.models):
            found = [_run(name, [*common, *own], seed, options, work) for seed in options.seeds]
            if any(found):
                results[name] = [result for result in found if result]
                print(name, [result["test_result"] for result in results[name]], flush=True)
    return results


def _run(name: str, words: list[str], seed: int, options: argparse.Namespace, work: Path) -> dict | None:
    target = work / f"{''.join(char if char.isalnum() else '_' for char in name)}-{seed}.json"
    if not target.exists():
        if options.finished:
            return None
        words = [word.replace("properties/", f"{ROOT}/properties/") for word in words]
        command = [sys.executable, "-m", "recbole_ext", *words, "--show_progress=False", f"--seed={seed}"]
        environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads), "PYTHONPATH": str(ROOT)}
        with open(target.with_suffix(".log"), "w") as log:
            subprocess.run(
                [*command, f"--json={target}.part"],
                cwd=work, env=environment, stdout=log, stderr=subprocess.STDOUT, check=True,
            )  # fmt: skip
        os.replace(f"{target}.part", target)
    return json.loads(target.read_text())


def measure(
    script: str, title: str, runs: dict[str, list[str]], common: list[str], metrics: list[str], valid: str
) -> None:
    """What a script does: run the models as its command line asks, and write `results/<script>.md`.

    Args:
        script: its file.
        title: of the results.
        runs: name in the table -> arguments.
        common: arguments of all runs.
        metrics: of the test data, for the table.
        valid: metric of the validation data, for the table.
    """
    options = arguments(title, runs).parse_args()
    place = [f"--data_path={options.data_path}"] if options.data_path else []
    results = run_all(runs, [*place, *common], options)
    (ROOT / "benchmarks" / "results" / f"{Path(script).stem}.md").write_text(
        f"# {title}\n\n{table(results, metrics, valid, runs)}\n\nCommon arguments: `{' '.join(common)}`\n\n"
        f"{provenance(script, results, options)}"
    )


def table(results: Results, metrics: list[str], valid: str, runs: dict[str, list[str]]) -> str:
    """Mean and standard deviation of the metrics, and arguments."""
    head = ["model", "seeds", *(f"test {metric}" for metric in metrics), f"valid {valid}", "arguments"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, found in results.items():
        cells = [name, str(len(found))]
        for metric in metrics:
            cells.append(_mean([result["test_result"][metric.lower()] for result in found]))
        cells.append(_mean([result["best_valid_result"][valid.lower()] for result in found]))
        words = f"`{' '.join(runs[name])}`" if runs[name] else "none"
        lines.append(f"| {' | '.join(cells)} | {words} |")
    return "\n".join(lines)


def _mean(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.4f}{spread}"


def provenance(script: str, results: Results, options: argparse.Namespace) -> str:
    """Date, hardware, versions and command, as the last lines of a results file."""
    versions = next(iter(results.values()))[0]["versions"]
    seeds, more = " ".join(map(str, options.seeds)), " --data_path FOLDER" if options.data_path else ""
    more += f" --threads {options.threads}"
    return (
        f"Mean ± standard deviation over the seeds {seeds}; the epoch that is best on the validation data is tested.\n"
        f"{date.today()}, {os.cpu_count()} CPU cores ({platform.machine()}). Versions: "
        f"{', '.join(f'{key} {value}' for key, value in versions.items())}.\n"
        f"Command: `python benchmarks/{Path(script).name} --work FOLDER{more} --seeds {seeds}`\n"
    )
