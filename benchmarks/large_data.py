"""From the file of a large data set to the first training batch: a first start, a second start, and an older version.

    python benchmarks/large_data.py [--baseline FOLDER] [--events 20000000] [--users 140000] [--items 27000]
                                    [--length 200] [--repeats 1] [--seed 2020] [--output FILE]

Events are random, with popular and rare items. MEANTIME's data, leave-one-out. Each start is a process of its own; the
second one finds the prepared copy that the first one has written. FOLDER is a checkout of another version of this
package, for its first start. Writes `benchmarks/results/large_data.md`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, os.environ.get("RECBOLE_EXT_FOLDER", str(ROOT)))

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "large_data.md"
PART = 10**6  # events that are written at once
FIRST, SECONDS = 1_500_000_000, 100_000_000


def write(folder: Path, options: argparse.Namespace) -> None:
    """Write `events/events.inter`."""
    generator = np.random.default_rng(options.seed)
    share = np.arange(1, options.items + 1) ** -0.8
    share /= share.sum()
    (folder / "events").mkdir()
    with open(folder / "events" / "events.inter", "w") as file:
        file.write("user_id:token\titem_id:token\ttimestamp:float\n")
        for begin in range(0, options.events, PART):
            count = min(PART, options.events - begin)
            users, items = generator.integers(0, options.users, count), generator.choice(options.items, count, p=share)
            times = generator.integers(FIRST, FIRST + SECONDS, count)
            pd.DataFrame({"user": users, "item": items, "time": times}).to_csv(
                file, sep="\t", index=False, header=False
            )


def start(folder: str, options: argparse.Namespace) -> None:
    """Make the loaders and the first batch; print seconds, those of the processor, and the peak of memory in MiB."""
    import recbole_ext
    from benchmarks.measure import resident

    keys = {
        "data_path": folder, "load_col": {"inter": ["user_id", "item_id", "timestamp"]}, "use_gpu": False,
        "MAX_ITEM_LIST_LENGTH": options.length, "state": "warning", "eval_args": {"split": {"LS": "valid_and_test"}},
    }  # fmt: skip
    config = recbole_ext.Config("MEANTIME", "events", None, keys, argv=[])
    begin, worked = time.perf_counter(), time.process_time()
    train, _, _ = recbole_ext.data_preparation(config, recbole_ext.create_dataset(config))
    next(iter(train))
    print(json.dumps([time.perf_counter() - begin, time.process_time() - worked, resident("VmHWM")]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    numbers = {"events": 20_000_000, "users": 140_000, "items": 27_000, "length": 200, "repeats": 1, "seed": 2020}
    for key, default in numbers.items():
        parser.add_argument(f"--{key}", type=int, default=default)
    parser.add_argument("--baseline", help="a checkout of another version")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        start(options.measure, options)
        return
    found: dict[str, list] = {}
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), options)
            if options.baseline:
                found.setdefault("first start, baseline", []).append(of_process(folder, options, options.baseline))
            for name in ("first start", "second start"):
                found.setdefault(name, []).append(of_process(folder, options, str(ROOT)))
    lines = ["| | seconds | processor seconds | peak memory of the process |", "|---|---:|---:|---:|"]
    for name, values in found.items():
        seconds, worked, peak = map(statistics.median, zip(*values, strict=True))
        lines.append(f"| {name} | {seconds:.1f} | {worked:.1f} | {peak:,.0f} MiB |")
    table = "\n".join(lines)
    from benchmarks.measure import provenance

    options.baseline, options.threads, options.device = options.baseline and "FOLDER", 1, "cpu"
    (options.output or RESULTS).write_text(
        f"# {options.events:,} events: from the file to the first batch\n\n{options.users:,} users, {options.items:,} "
        f"items, histories of {options.length}. Medians of {options.repeats}.\n\n{table}\n\n"
        f"{provenance(__file__, options)}"
    )
    print(table)


def of_process(folder: str, options: argparse.Namespace, version: str) -> list[float]:
    """What a start prints, with the package in the folder `version`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RECBOLE_EXT_FOLDER": version, "PYTHONPATH": version}
    command = [sys.executable, __file__, f"--measure={folder}", f"--length={options.length}"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
