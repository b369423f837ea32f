"""Parse two token columns and one number of a large file and number the tokens: this package, pandas, pyarrow, polars.

    python benchmarks/readers.py [--events 5000000] [--users 140000] [--items 27000] [--seed 2020] [--output FILE]

Needs pyarrow and polars. Each reader works in a process of its own, with one thread. Writes
`benchmarks/results/readers.md`.
"""

import argparse
import importlib.metadata
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "readers.md"
HEADER = ["user_id", "item_id", "timestamp"]


def of_pandas(data: bytes, kind: str) -> None:
    from recbole_ext.data.files.parsing import parse

    frame = parse(data, b"\t", 3, HEADER, {"user_id": kind, "item_id": kind, "timestamp": np.float64})
    for name in HEADER[:2]:
        pd.unique(frame[name].cat.codes) if kind == "category" else pd.factorize(frame[name])


def of_pyarrow(data: bytes) -> None:
    import pyarrow
    from pyarrow import csv

    token = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    table = csv.read_csv(
        pyarrow.py_buffer(data), csv.ReadOptions(use_threads=False, column_names=HEADER, skip_rows=1),
        csv.ParseOptions(delimiter="\t", quote_char=False),
        csv.ConvertOptions(column_types={"user_id": token, "item_id": token, "timestamp": pyarrow.float64()}),
    )  # fmt: skip
    table.unify_dictionaries().combine_chunks()


def of_polars(data: bytes) -> None:
    import polars

    kinds = {"user_id": polars.Categorical, "item_id": polars.Categorical, "timestamp": polars.Float64}
    table = polars.read_csv(
        io.BytesIO(data), separator="\t", quote_char=None, new_columns=HEADER, schema_overrides=kinds
    )
    for name in HEADER[:2]:
        table[name].to_physical().to_numpy()


READERS = {
    "pandas, text in blocks as categories (this package)": lambda data: of_pandas(data, "category"),
    "pandas, text as Python's strings": lambda data: of_pandas(data, object),
    "pyarrow, dictionaries": of_pyarrow,
    "polars, categories": of_polars,
}


def read(name: str, path: str) -> None:
    """Print the seconds of the processor and the peak of memory in MiB."""
    from benchmarks.measure import resident

    data = Path(path).read_bytes()
    begin = time.process_time()
    READERS[name](data)
    print(json.dumps([time.process_time() - begin, resident("VmHWM")]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for key, default in {"events": 5_000_000, "users": 140_000, "items": 27_000, "seed": 2020}.items():
        parser.add_argument(f"--{key}", type=int, default=default)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--read", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read(*options.read)
        return
    from benchmarks.large_data import write
    from benchmarks.measure import provenance

    lines = ["| reader | processor seconds | peak memory of the process |", "|---|---:|---:|"]
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), options)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
        for name in READERS:
            command = [sys.executable, __file__, "--read", name, f"{folder}/events/events.inter"]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
            seconds, peak = json.loads(done.stdout.splitlines()[-1])
            lines.append(f"| {name} | {seconds:.1f} | {peak:,.0f} MiB |")
    table = "\n".join(lines)
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("pandas", "pyarrow", "polars"))
    options.threads, options.device = 1, "cpu"
    del options.read
    options.output.write_text(
        f"# Parsers for large files\n\n{options.events:,} events; two token columns and a number are parsed, and the "
        f"tokens numbered. One run each, {versions}.\n\n{table}\n\n{provenance(__file__, options)}"
    )
    print(table)


if __name__ == "__main__":
    main()
