"""One epoch of MEANTIME on a large catalogue, by the command line, from the atomic file to the test metrics.

    python benchmarks/large_catalogue_epoch.py [--items 1000000] [--users 60000] [--length 50] [--batch 64]
                                               [--negatives 256] [--eval_users 2000] [--threads 2] [--seed 2020]
                                               [--output FILE]

Events are random: every user has `--length` of them and two more, every item at least one. With that many items
`loss_type: auto` is sampled softmax with `sparse_updates`. Writes `benchmarks/results/large_catalogue_epoch.md`.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

from benchmarks import measure  # noqa: E402
from benchmarks.large_data import FIRST, SECONDS  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "large_catalogue_epoch.md"
TIMES = re.compile(r"epoch 0 (training|evaluating) \[time: ([\d.]+)s")


def write(folder: Path, options: argparse.Namespace) -> None:
    """Write `catalogue/catalogue.inter`.

    Raises:
        SystemExit: there are fewer events than items.
    """
    generator = np.random.default_rng(options.seed)
    events = options.users * (options.length + 2)
    if events < options.items:
        sys.exit(f"{events:,} events cannot name {options.items:,} items; raise --users or --length")
    # popular and rare items: the logarithm of the rank is uniform
    popular = np.exp(generator.uniform(0, np.log(options.items), events - options.items)).astype(np.int64)
    items = generator.permutation(np.concatenate([np.arange(options.items), popular]))
    users = np.repeat(np.arange(options.users), options.length + 2)
    times = generator.integers(FIRST, FIRST + SECONDS, events)
    (folder / "catalogue").mkdir()
    pd.DataFrame({"user_id:token": users, "item_id:token": items, "timestamp:float": times}).to_csv(
        folder / "catalogue" / "catalogue.inter", sep="\t", index=False
    )


def main() -> None:
    parser = measure.arguments(
        __doc__.splitlines()[0], 1, items=1_000_000, users=60_000, length=50, batch=64, negatives=256, eval_users=2000
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, options)
        command = [
            sys.executable, str(ROOT / "run_recbole_ext.py"), "--model=MEANTIME", "--objective=next",
            "--dataset=catalogue", f"--data_path={folder}", "--use_gpu=False", "--epochs=1", "--show_progress=False",
            f"--MAX_ITEM_LIST_LENGTH={options.length}", f"--train_window={options.length}",
            f"--train_batch_size={options.batch}", f"--num_negatives={options.negatives}",
            f"--eval_users={options.eval_users}", f"--seed={options.seed}", "--valid_metric=NDCG@10",
            "--exclude_history=True", "--json=result.json",
        ]  # fmt: skip
        begin = time.perf_counter()
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": str(options.threads)}, check=True, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        whole = time.perf_counter() - begin
        config = json.loads((folder / "result.json").read_text())["config"]
    seconds = {part: float(value) for part, value in TIMES.findall(re.sub(r"\x1b\[[\d;]*m", "", done.stdout))}
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    rest = whole - sum(seconds.values())
    table = "\n".join([
        "| | seconds |",
        "|---|---:|",
        f"| training, {options.users:,} windows of {options.length} | {seconds['training']:.0f} |",
        f"| validation, {options.eval_users:,} users | {seconds['evaluating']:.0f} |",
        f"| the rest: reading, saving, validation and test of all {options.users:,} users | {rest:.0f} |",
        f"| the whole command | {whole:.0f} |",
    ])  # fmt: skip
    (options.output or RESULTS).write_text(
        f"# One epoch of MEANTIME on a large catalogue\n\n{options.items:,} items, {options.users:,} users with "
        f"{options.length + 2} random events each, batches of {options.batch}, loss {config['loss_type']} with "
        f"{options.negatives} negatives, sparse_updates {config['sparse_updates']}, hidden_size "
        f"{config['hidden_size']}, {config['n_layers']} layers.\n\n{table}\n\n"
        f"Peak memory of the process: {peak:,.0f} MiB.\n\n{measure.provenance(__file__, options)}"
    )
    print(table)


if __name__ == "__main__":
    main()
