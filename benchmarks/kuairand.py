"""Clicks of KuaiRand-Pure, 14 days: BST, BST without time gaps, and RecBole's DIN and WideDeep, by the same command.

    python benchmarks/kuairand.py --data_path FOLDER [--seeds 2020 2021 2022] [--threads 2] [--work DIR]

The same columns, events and split for all (`properties/dataset/kuairand-pure-14d.yaml`); the epoch with the best AUC on
the validation data is tested. Finished runs in `--work` are not repeated. Writes `benchmarks/results/kuairand.md`.
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
RESULTS = ROOT / "benchmarks" / "results" / "kuairand.md"
COMMON = [
    "--dataset=kuairand-pure-14d", "--embedding_size=16", "--train_batch_size=1024", "--eval_batch_size=8192",
    "--epochs=10", "--stopping_step=3", "--min_history=0", "--MAX_ITEM_LIST_LENGTH=20",
]  # fmt: skip
CONTEXT = "--context_features=[tab, duration_ms]"
# name in the table -> arguments; DIN and WideDeep choose their columns themselves
RUNS = {
    "BST": ["--model=BST", CONTEXT],
    "BST without time gaps": ["--model=BST", CONTEXT, "--time_gap=none"],
    "DIN": ["--model=DIN"],
    "WideDeep": ["--model=WideDeep"],
}
METRICS = ("auc", "gauc", "logloss")


def run(name: str, arguments: list[str], seed: int, options: argparse.Namespace) -> dict:
    """Run the command once, or read what an earlier call left; the result with GAUC of the test data."""
    target = options.work / f"{name.replace(' ', '_')}-{seed}.json"
    if not target.exists():
        command = [sys.executable, "-m", "recbole_ext", f"--data_path={options.data_path}", "--show_progress=False"]
        command += [*COMMON, *arguments, f"--seed={seed}", f"--json={target}.part"]
        if "BST" not in name and "DIN" not in name:  # keys of sequential models
            command = [word for word in command if "min_history" not in word and "MAX_ITEM" not in word]
        environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads), "PYTHONPATH": str(ROOT)}
        with open(target.with_suffix(".log"), "w") as log:
            subprocess.run(command, cwd=options.work, env=environment, stdout=log, stderr=log, check=True)
        os.replace(f"{target}.part", target)
    return json.loads(target.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_path", required=True, type=os.path.abspath)
    parser.add_argument("--seeds", type=int, nargs="+", default=[2020, 2021, 2022])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--work", type=Path, default=Path("kuairand_runs"))
    options = parser.parse_args()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    lines, versions = ["| model | test AUC | test GAUC | test LogLoss | arguments |", "|---" * 5 + "|"], {}
    for name, arguments in RUNS.items():
        results = [run(name, arguments, seed, options) for seed in options.seeds]
        cells = []
        for metric in METRICS:
            values = [result["test_result"][metric] for result in results]
            cells.append(f"{statistics.mean(values):.4f} ± {statistics.stdev(values) if len(values) > 1 else 0:.4f}")
        lines.append(f"| {name} | {' | '.join(cells)} | `{' '.join(arguments)}` |")
        versions = results[0]["versions"]
        print(lines[-1], flush=True)
    seeds = " ".join(map(str, options.seeds))
    RESULTS.write_text(
        f"# Clicks of KuaiRand-Pure, 14 days\n\n{date.today()}, {os.cpu_count()} CPU cores ({platform.machine()}); "
        f"mean ± standard deviation over the seeds {seeds}.\nVersions: "
        f"{', '.join(f'{key} {value}' for key, value in versions.items())}.\nCommon arguments: `{' '.join(COMMON)}`\n"
        f"Command: `python benchmarks/kuairand.py --data_path FOLDER --seeds {seeds} --threads {options.threads}`\n\n"
        + "\n".join(lines)
        + "\n"
    )


if __name__ == "__main__":
    main()
