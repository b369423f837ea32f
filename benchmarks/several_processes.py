"""Training and evaluation by two processes with one thread each beside one process with two threads.

    python benchmarks/several_processes.py --data_path FOLDER --dataset ml-1m [--epochs 3] [--processes 2]

Each run is a training by the command line, on CPUs, with the same batches; the runs take turns, `--repeats` times.
Seconds are those of RecBole's log, without the first epoch, in which memory is allocated: the median over epochs and
repeats. Dropout is 0, so metrics should be the same. Needs as many free cores as processes; writes
`benchmarks/results/several_processes.md`.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "several_processes.md"
sys.path.insert(0, str(ROOT))

from benchmarks.measure import provenance  # noqa: E402

MODELS = {
    "MEANTIME, masks": ["--model=MEANTIME"],
    "MEANTIME, `objective: next`, sampled softmax": [
        "--model=MEANTIME", "--objective=next", "--loss_type=SSM", "--num_negatives=256",
    ],
    "LightSANs": ["--model=LightSANs"],
    "SASRec of RecBole": ["--model=SASRec"],
}  # fmt: skip
NO_DROPOUT = ["--hidden_dropout_prob=0", "--attn_dropout_prob=0"]
SECONDS = re.compile(r"epoch \d+ (training|evaluating).*?time.*?: ([\d.]+)s")


def run(model: list[str], processes: int, threads: int, options: argparse.Namespace) -> tuple[dict, list, list]:
    """Train once; returns the test metrics, and the seconds of training and of evaluation of each epoch."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, str(ROOT / "run_recbole_ext.py"), *model, *NO_DROPOUT, f"--dataset={options.dataset}",
            f"--data_path={Path(options.data_path).resolve()}", f"--epochs={options.epochs}", f"--nproc={processes}",
            "--use_gpu=False", "--show_progress=False", "--json=result.json", "--eval_step=1", "--stopping_step=1000",
            f"--train_batch_size={options.batch}", f"--eval_batch_size={options.eval_batch}",
            f"--MAX_ITEM_LIST_LENGTH={options.length}",
        ]  # fmt: skip
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
        (log,) = Path(folder).glob("log/*/*.log")
        plain = re.sub(r"\x1b\[[\d;]*m", "", log.read_text())
        seconds: dict[str, list[float]] = {"training": [], "evaluating": []}
        for part, value in SECONDS.findall(plain):
            seconds[part].append(float(value))
        result = json.loads((Path(folder) / "result.json").read_text())["test_result"]
    return result, seconds["training"][1:], seconds["evaluating"][1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_path", required=True)
    parser.add_argument("--dataset", default="ml-1m")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--eval_batch", type=int, default=512)
    parser.add_argument("--length", type=int, default=50)
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    options = parser.parse_args()
    count = options.processes
    rows = [
        f"| model | | one process, {count} threads | {count} processes, one thread each | ratio | same metrics |",
        "|---|---|---:|---:|---:|---|",
    ]
    for name in options.models:
        results: dict[int, dict] = {}
        seconds: dict[tuple[int, int], list[float]] = {(place, part): [] for place in range(2) for part in range(2)}
        for _ in range(options.repeats):
            for place, (processes, threads) in enumerate(((1, count), (count, 1))):
                results[place], *parts = run(MODELS[name], processes, threads, options)
                for part, values in enumerate(parts):
                    seconds[place, part] += values
        for part, what in enumerate(("training, seconds an epoch", "evaluation, seconds")):
            alone, several = (statistics.median(seconds[place, part]) for place in range(2))
            same = "yes" if results[0] == results[1] else "no"
            rows.append(f"| {name} | {what} | {alone:.2f} | {several:.2f} | {alone / several:.2f} | {same} |")
        print("\n".join(rows[-2:]), flush=True)
    options.data_path, options.device, options.threads = "FOLDER", "cpu", count
    text = ["# Several processes", "", *rows, "", provenance(__file__, options)]
    RESULTS.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
