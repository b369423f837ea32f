"""The paper's grid for MEANTIME on ml-100k, searched in a bounded time, from the default property file on.

    python benchmarks/search.py [--search_alg optuna] [--num_samples 40] [--time_budget 2400] [--more 1500] [--work DIR]

The first trial has the defaults, so all share protocol, seed and number of threads (one): leave-one-out in exact time
order, ranking over all items, NDCG@10 on the validation data. With `--more` the search is resumed for as many seconds
again; trials that the time had cut short are then done once more. Each step is a process of its own; finished ones in
`--work` are not repeated. Writes `benchmarks/results/search.md`.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "search.md"
METRIC = "ndcg@10"
REQUEST = ["--model=MEANTIME", "--dataset=ml-100k", "--show_progress=False", f"--valid_metric={METRIC.upper()}"]


def step(name: str, arguments: list[str], work: Path) -> dict:
    """Run the search, or read what an earlier call left."""
    target = work / f"{name}.json"
    if not target.exists():
        command = [sys.executable, "-m", "recbole_ext", "tune", *arguments, f"--json={target}"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        with open(target.with_suffix(".log"), "w") as log:
            subprocess.run(command, cwd=work, env=environment, stdout=log, stderr=subprocess.STDOUT, check=True)
    return json.loads(target.read_text())


def written(value: Any) -> str:
    return "+".join(value) if isinstance(value, list) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--search_alg", default="optuna")
    parser.add_argument("--num_samples", type=int, default=40)
    parser.add_argument("--time_budget", type=int, default=2400, help="seconds of the search")
    parser.add_argument("--more", type=int, default=0, help="seconds for which it is resumed")
    parser.add_argument("--work", type=Path, default=Path("search_runs"))
    options = parser.parse_args()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    asked = [f"--{name}={getattr(options, name)}" for name in ("search_alg", "num_samples", "time_budget")]
    found = step("search", [*REQUEST, *asked], work)
    if options.more:
        found = step("more", [f"--resume={found['folder']}", f"--time_budget={options.more}"], work)
        asked.append(f"--more={options.more}")
    trials = sorted(found["trials"], key=lambda one: -(one["best_score"] or 0.0))
    default = next(one for one in trials if one["trial"] == 1)
    count = {status: sum(one["status"] == status for one in trials) for status in ("finished", "stopped")}
    epochs, minutes = sum(one["epochs"] for one in trials), sum(one["seconds"] for one in trials) / 60
    rows = "\n".join(
        f"| {one['trial']} | {one['best_score'] or 0.0:.4f} | {one['status']} | {one['epochs']} | "
        f"{' | '.join(map(written, one['keys'].values()))} | {one['reason'] or ''} |"
        for one in trials
    )
    RESULTS.write_text(
        f"# The paper's grid for MEANTIME on ml-100k, searched for {options.time_budget + options.more} seconds\n\n"
        f"{date.today()}, {os.cpu_count()} CPU cores ({platform.machine()}), seed {found['config']['seed']}. "
        f"{len(trials)} trials: {count['finished']} came to their end, {count['stopped']} were stopped "
        f"before; {epochs} epochs, {minutes:.0f} minutes of trials with one thread each.\n"
        f"Versions: {', '.join(f'{key} {value}' for key, value in found['versions'].items())}.\n"
        f"Command: `python benchmarks/search.py {' '.join(asked).replace('=', ' ')}`\n\n"
        f"| | valid NDCG@10 | test NDCG@10 |\n|---|---:|---:|\n"
        f"| defaults (trial 1) | {default['best_score']:.4f} | not opened |\n"
        f"| best trial ({found['trial']}) | {found['best_valid_result'][METRIC]:.4f} | "
        f"{found['test_result'][METRIC]:.4f} |\n\n"
        f"All trials, best first:\n\n"
        f"| trial | valid NDCG@10 | | epochs | {' | '.join(found['keys'])} | |\n|{'---|' * (5 + len(found['keys']))}\n"
        f"{rows}\n"
    )
    print(RESULTS.read_text())


if __name__ == "__main__":
    main()
