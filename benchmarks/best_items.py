"""The 100 best of a million items by inner product: users per second of one thread.

    python benchmarks/best_items.py --others PYTHON [--items 1000000] [--users 256] [--hidden 64] [--k 100]
                                    [--repeats 5] [--threads 1] [--seed 2020] [--output FILE]

Against the matrix product alone, sorted chunks of 65,536 items (this package until 2026-12), `implicit`'s top k
and faiss' flat index. PYTHON is that of another environment, with `pip install implicit faiss-cpu`. All find the same
items for the same random vectors. Turns alternate, each in a process of its own. Seconds are those of the processor, so
that other programs disturb them less. Writes `benchmarks/results/best_items.md`.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "best_items.md"
OLD_CHUNK = 2**16
HERE = ("product", "product, bfloat16", "chunks", "scores", "bounds")
NAMES = {
    "product": "the product alone, float32",
    "product, bfloat16": "the product alone, bfloat16",
    "chunks": "all scores of 65,536 items, then `topk`",
    "scores": "blocks and a threshold",
    "bounds": "bounds in bfloat16, then exact scores",
    "implicit": "`implicit.cpu.topk`",
    "faiss": "faiss' `IndexFlatIP`",
}
Search = Callable[[], Any]  # returns ids [B, k], or nothing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    numbers = {"items": 10**6, "users": 256, "hidden": 64, "k": 100, "repeats": 5, "threads": 1, "seed": 2020}
    for key, default in numbers.items():
        parser.add_argument(f"--{key}", type=int, default=default)
    parser.add_argument("--others", help="a Python with implicit and faiss")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured(options)))
        return
    seconds: dict[str, list[float]] = {name: [] for name in NAMES if name in HERE or options.others}
    found: dict[str, int] = {}
    for _ in range(options.repeats):
        for name, values in seconds.items():
            taken, found[name] = of_process(name, options)
            values.append(taken)
    digests = {digest for digest in found.values() if digest}
    if len(digests) != 1:
        sys.exit(f"the methods do not find the same items: {found}")
    path = options.output or RESULTS
    path.write_text(page({name: statistics.median(values) for name, values in seconds.items()}, options))
    print(path.read_text())


def of_process(name: str, options: argparse.Namespace) -> list:
    python = sys.executable if name in HERE else options.others
    keys = ("items", "users", "hidden", "k", "threads", "seed")
    command = [python, __file__, f"--measure={name}", *(f"--{key}={getattr(options, key)}" for key in keys)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])


def measured(options: argparse.Namespace) -> tuple[float, int]:
    """Processor seconds of the second of two searches, and a sum over the items that it finds."""
    generator = np.random.default_rng(options.seed)
    table = generator.standard_normal((options.items, options.hidden), dtype=np.float32)
    users = generator.standard_normal((options.users, options.hidden), dtype=np.float32)
    search = (here if options.measure in HERE else others)(table, users, options)
    search()
    begin = time.process_time()
    ids = search()
    taken = time.process_time() - begin
    weights = np.arange(1, options.k + 1)
    return taken, 0 if ids is None else int((np.sort(np.asarray(ids)).astype(np.int64) @ weights).sum())


def here(table: np.ndarray, users: np.ndarray, options: argparse.Namespace) -> Search:
    import torch

    from recbole_ext.evaluation.best_items import BLOCK_SCORES, UpperBounds, best_items, product_scores

    torch.set_num_threads(options.threads)
    items, requests = torch.from_numpy(table), torch.from_numpy(users)
    name, block = options.measure, BLOCK_SCORES // options.users

    def product() -> None:
        columns = requests.T.to(rows.dtype)
        for begin in range(0, len(rows), block):
            torch.mm(rows[begin : begin + block], columns)

    def chunks() -> torch.Tensor:
        best = requests.new_zeros(options.users, 0), requests.new_zeros(options.users, 0, dtype=torch.int64)
        for begin in range(0, len(items), OLD_CHUNK):
            scores, ids = (requests @ items[begin : begin + OLD_CHUNK].T).topk(options.k)
            scores, ids = torch.cat([best[0], scores], 1), torch.cat([best[1], ids + begin], 1)
            scores, order = scores.topk(options.k)
            best = scores, ids.gather(1, order)
        return best[1]

    def search() -> torch.Tensor:
        none = torch.zeros(2, 0, dtype=torch.int64)
        return best_items(
            product_scores(requests, items, None), slice(0, len(items)), options.k, (none[0], none[1]),
            requests=options.users, chunk=OLD_CHUNK, users=None if bounds is None else bounds.of_users(requests),
        ).items  # fmt: skip

    rows = items.bfloat16() if name == "product, bfloat16" else items
    bounds = UpperBounds(items, None) if name == "bounds" else None
    return chunks if name == "chunks" else product if name.startswith("product") else search


def others(table: np.ndarray, users: np.ndarray, options: argparse.Namespace) -> Search:
    if options.measure == "implicit":
        from implicit.cpu.topk import topk

        return lambda: topk(table, users, options.k, num_threads=options.threads)[0]
    import faiss

    faiss.omp_set_num_threads(options.threads)
    index = faiss.IndexFlatIP(options.hidden)
    index.add(table)
    return lambda: index.search(users, options.k)[1]


def page(seconds: dict[str, float], options: argparse.Namespace) -> str:
    from benchmarks.measure import provenance

    lines = ["| method | users per processor second | of the float32 product |", "|---|---:|---:|"]
    for name, taken in seconds.items():
        share = seconds["product"] / taken
        lines.append(f"| {NAMES[name]} | {options.users / taken:.0f} | {share:.2f} |")
    table = "\n".join(lines)
    options.others, options.device = "PYTHON", "cpu"  # results name no paths
    return (
        f"# The {options.k} best of {options.items:,} items\n\n"
        f"{options.hidden} features, random vectors, {options.users} users at once. All methods find the same items. "
        f"Medians of {options.repeats} alternating turns.\n\n{table}\n\n{provenance(__file__, options)}"
    )


if __name__ == "__main__":
    main()
