"""The paper's grid for MEANTIME on ml-100k, searched in a bounded time, beside the default property file.

    python benchmarks/search.py [--time_budget 1000] [--num_samples 24] [--threads 2] [--work DIR]

The search and the run with the defaults have the same protocol and seed: leave-one-out in exact time order, ranking
over all items, NDCG@10 on the validation data. The best trial is then trained once more from its `best.yaml`. Every
step is a process of its own; finished ones in `--work` are not repeated. Writes `benchmarks/results/search.md`.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "search.md"
METRIC = "ndcg@10"
SHARED = ["--show_progress=False", f"--valid_metric={METRIC.upper()}"]


def step(name: str, arguments: list[str], options: argparse.Namespace, threads: int) -> dict:
    """Run the command once, or read what an earlier call left."""
    target = options.work / f"{name}.json"
    if not target.exists():
        options.work.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "recbole_ext", *arguments, *SHARED, f"--json={target}"]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
        with open(target.with_suffix(".log"), "w") as log:
            subprocess.run(command, cwd=options.work, env=environment, stdout=log, stderr=subprocess.STDOUT, check=True)
    return json.loads(target.read_text())


def row(name: str, result: dict) -> str:
    numbers = [result["best_valid_result"][METRIC], result["test_result"][METRIC]]
    return f"| {name} | {' | '.join(f'{number:.4f}' for number in numbers)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--time_budget", type=int, default=1000, help="seconds of the search")
    parser.add_argument("--num_samples", type=int, default=24)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of the run with the defaults")
    parser.add_argument("--work", type=Path, default=Path("search_runs"))
    options = parser.parse_args()
    options.work = options.work.resolve()
    model = ["--model=MEANTIME", "--dataset=ml-100k"]
    budget = [f"--time_budget={options.time_budget}", f"--num_samples={options.num_samples}"]
    found = step("search", ["tune", *model, *budget], options, threads=1)
    default = step("default", model, options, options.threads)
    again = step("again", [f"--config_files={found['folder']}/best.yaml"], options, threads=1)
    rows = [
        row("defaults", default),
        row(f"best of {len(found['trials'])} trials", found),
        row("the same from best.yaml", again),
    ]
    count = {status: sum(one["status"] == status for one in found["trials"]) for status in ("finished", "stopped")}
    epochs = sum(trial["epochs"] for trial in found["trials"])
    minutes = sum(trial["seconds"] for trial in found["trials"]) / 60
    keys = "\n".join(f"- `{key}: {value}`" for key, value in found["keys"].items())
    RESULTS.write_text(
        f"# The paper's grid for MEANTIME on ml-100k, searched for {options.time_budget} seconds\n\n"
        f"{date.today()}, {os.cpu_count()} CPU cores ({platform.machine()}), seed {found['config']['seed']}. "
        f"ASHA ended {len(found['trials'])} trials in the time: {count['finished']} came to their end, "
        f"{count['stopped']} were stopped before; {epochs} epochs, {minutes:.0f} minutes of trials with one thread "
        f"each.\nVersions: {', '.join(f'{key} {value}' for key, value in found['versions'].items())}.\n"
        f"Command: `python benchmarks/search.py --time_budget {options.time_budget} --num_samples "
        f"{options.num_samples} --threads {options.threads}`\n\n"
        "| | valid NDCG@10 | test NDCG@10 |\n|---|---:|---:|\n" + "\n".join(rows) + "\n\n"
        f"The best trial:\n\n{keys}\n"
    )
    print(RESULTS.read_text())


if __name__ == "__main__":
    main()
