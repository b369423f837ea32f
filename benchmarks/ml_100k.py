"""Accuracy on ml-100k: MEANTIME and LightSANs beside RecBole's models, all through the same command.

    python benchmarks/ml_100k.py [--seeds 2020 2021 2022] [--models MEANTIME SASRec ...] [--threads 2] [--work DIR]

Leave-one-out in exact time order, ranking over all items, seen items kept. Every run is a process of its own; finished
runs in `--work` are not repeated. Writes `benchmarks/results/ml_100k.md`.
"""

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
RESULTS = ROOT / "benchmarks" / "results" / "ml_100k.md"

# RecBole's models learn from one example per event, MEANTIME from windows: with histories of 20 and 10 epochs they take
# the time that MEANTIME takes, and twice that
SHORT = ["--MAX_ITEM_LIST_LENGTH=20", "--train_batch_size=256", "--epochs=10"]

# name in the table -> arguments beyond the data set's and models' defaults
RUNS = {
    "MEANTIME, time of the target known": ["--model=MEANTIME"],
    "MEANTIME, time of the target unknown": ["--model=MEANTIME", "--query_time=last"],
    "SASRec": ["--model=SASRec", *SHORT],
    "BERT4Rec": ["--model=BERT4Rec", *SHORT],
    "LightSANs": ["--model=LightSANs", *SHORT],
    "LightSANs of RecBole": ["--model=recbole.LightSANs", *SHORT],
}
METRICS = ("ndcg@10", "recall@10", "mrr@10")


def path_of(name: str, seed: int, work: Path) -> Path:
    return work / f"{''.join(char if char.isalnum() else '_' for char in name)}-{seed}.json"


def run(name: str, arguments: list[str], seed: int, threads: int, work: Path) -> dict:
    """Run the command once, or read what an earlier call left."""
    target = path_of(name, seed, work)
    if not target.exists():
        work.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "recbole_ext", "--dataset=ml-100k", "--show_progress=False"]
        command += [*arguments, f"--seed={seed}", f"--json={target}"]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
        with open(target.with_suffix(".log"), "w") as log:
            subprocess.run(command, cwd=work, env=environment, stdout=log, stderr=subprocess.STDOUT, check=True)
    return json.loads(target.read_text())


def row(name: str, arguments: list[str], results: list[dict]) -> str:
    cells = [name, str(len(results))]
    for metric in METRICS:
        values = [result["test_result"][metric] for result in results]
        spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
        cells.append(f"{statistics.mean(values):.4f}{spread}")
    cells.append(f"{statistics.mean([result['best_valid_result']['ndcg@10'] for result in results]):.4f}")
    return f"| {' | '.join(cells)} | `{' '.join(arguments)}` |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[2020, 2021, 2022])
    parser.add_argument(
        "--models", nargs="+", default=list(RUNS), help="names in the table, or the words they begin with"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--finished", action="store_true", help="start no run; put those in --work that are finished into the table"
    )
    parser.add_argument("--work", type=Path, default=Path("ml_100k_runs"))
    options = parser.parse_args()
    work = options.work.resolve()
    rows, versions = [], {}
    for name, arguments in RUNS.items():
        if not any(name.startswith(part) for part in options.models):
            continue
        seeds = [seed for seed in options.seeds if not options.finished or path_of(name, seed, work).exists()]
        results = [run(name, arguments, seed, options.threads, work) for seed in seeds]
        if not results:
            continue
        rows.append(row(name, arguments, results))
        versions = results[0]["versions"]
        print(rows[-1], flush=True)
    head = [
        "model",
        "seeds",
        *(f"test {metric.upper().replace('RECALL', 'Recall')}" for metric in METRICS),
        "valid NDCG@10",
        "arguments",
    ]
    RESULTS.write_text(
        f"# ml-100k: next item, leave-one-out, all items ranked\n\n"
        f"{date.today()}, {os.cpu_count()} CPU cores ({platform.machine()}), "
        f"seeds {', '.join(map(str, options.seeds))}; mean ± standard deviation "
        f"of the test metrics of the epoch that is best on the validation data.\n"
        f"Versions: {', '.join(f'{key} {value}' for key, value in versions.items())}.\n"
        f"Command: `python benchmarks/ml_100k.py --seeds {' '.join(map(str, options.seeds))}`\n\n"
        + "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows])
        + "\n"
    )


if __name__ == "__main__":
    main()
