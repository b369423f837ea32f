"""A small search for each model on ml-100k: that it ends, stops trials early, and that best.yaml gives its score again.

    python benchmarks/search_models.py [--num_samples 8] [--work DIR]

Models are tiny and trained for three epochs, so the scores mean nothing by themselves. Every step is a process of its
own; finished ones in `--work` are not repeated. Writes `benchmarks/results/search_models.md`.
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
RESULTS = ROOT / "benchmarks" / "results" / "search_models.md"
SHARED = [
    "--dataset=ml-100k", "--epochs=3", "--grace_period=1", "--inner_size=16", "--MAX_ITEM_LIST_LENGTH=10",
    "--train_batch_size=1024", "--show_progress=False", "--state=warning",
]  # fmt: skip
MODELS = {
    "MEANTIME": ["--hidden_size=24"],
    "LightSANs": ["--hidden_size=16"],
    "BST": [
        "--embedding_size=8", "--mlp_hidden_size=[16]", "--n_layers=1", "--metrics=[NDCG]", "--topk=10",
        "--valid_metric=NDCG@10", "--eval_args={'mode':'uni100'}", "--learner=adam",
    ],
}  # fmt: skip


def step(name: str, arguments: list[str], work: Path) -> dict:
    """Run the command once, or read what an earlier call left."""
    target = work / f"{name}.json"
    if not target.exists():
        work.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "recbole_ext", *arguments, f"--json={target}"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        with open(target.with_suffix(".log"), "w") as log:
            subprocess.run(command, cwd=work, env=environment, stdout=log, stderr=subprocess.STDOUT, check=True)
    return json.loads(target.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num_samples", type=int, default=8)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--work", type=Path, default=Path("search_model_runs"))
    options = parser.parse_args()
    work, rows, versions = options.work.resolve(), [], {}
    for model in options.models:
        arguments = ["tune", f"--model={model}", f"--num_samples={options.num_samples}", *MODELS[model], *SHARED]
        found = step(model, arguments, work)
        again = step(f"{model}-again", [f"--config_files={found['folder']}/best.yaml", "--show_progress=False"], work)
        count = [
            sum(one["status"] == status for one in found["trials"]) for status in ("finished", "stopped", "failed")
        ]
        scores = f"{found['best_valid_score']} | {again['best_valid_score']}"
        rows.append(f"| {model} | {' | '.join(map(str, count))} | {scores} |")
        versions = found["versions"]
    RESULTS.write_text(
        f"# A search of {options.num_samples} trials for each model on ml-100k\n\n"
        f"{date.today()}, {os.cpu_count()} CPU cores ({platform.machine()}), tiny models, three epochs, ASHA from the "
        f"first one on; the last column is a run with the search's `best.yaml` in a process of its own.\n"
        f"Versions: {', '.join(f'{key} {value}' for key, value in versions.items())}.\n"
        f"Command: `python benchmarks/search_models.py --num_samples {options.num_samples}`\n\n"
        "| model | finished | stopped early | failed | best validation score | the same from best.yaml |\n"
        "|---|---:|---:|---:|---:|---:|\n" + "\n".join(rows) + "\n"
    )
    print(RESULTS.read_text())


if __name__ == "__main__":
    main()
