"""Recommendations from a catalogue of a million items: users per second and peak memory of the whole process.

Each model has random weights in a checkpoint of its own, which a fresh process loads with `Recommender.load`; then it
recommends to users with random histories. Memory is what the process takes at most, Python and torch included.
"""

import json
import math
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import torch  # noqa: E402

from benchmarks import measure  # noqa: E402
from recbole_ext import Recommender  # noqa: E402
from recbole_ext.checkpoint import file as checkpoint  # noqa: E402
from recbole_ext.config.config import OfflineConfig  # noqa: E402
from recbole_ext.data.description import DatasetDescription  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "serving.md"
MODELS = ("MEANTIME", "LightSANs", "SASRec", "BST")
FIRST, DAYS = 1.6e9, 365


def store(name: str, path: Path, options) -> None:
    """Write a checkpoint of a model with random weights that knows `options.items` items."""
    keys = {"MAX_ITEM_LIST_LENGTH": options.length, "use_gpu": options.device != "cpu", "state": "warning"}
    config = OfflineConfig(name, "ml-100k", None, keys, argv=[])
    kinds = {"user_id": "token", "item_id": "token", "timestamp": "float", "timestamp_list": "float_seq"}
    tokens = {"user_id": ["[PAD]", "u"], "item_id": ["[PAD]", *map(str, range(options.items))]}
    data = {
        "columns": {
            column: {
                "type": kind, "source": column if kind == "token" else "inter", "length": 1,
                "values": len(tokens.get(column, [0])),
            }
            for column, kind in kinds.items()
        },
        "vocabularies": {}, "tables": {"user": {}, "item": {}}, "extremes": {"timestamp": [0.0, DAYS * 86400.0]},
        "normalised": {}, "first_time": FIRST,
    }  # fmt: skip
    torch.manual_seed(options.seed)
    model = config.model_class(config, DatasetDescription(config, data, tokens, FIRST))
    checkpoint.save({
        "format": checkpoint.FORMAT, "model": name,
        "class": f"{type(model).__module__}.{name}", "config": {**config.to_dict(), "model": name}, "epoch": 0,
        "cur_step": 0, "best_valid_score": -math.inf, "best_valid_result": {}, "state_dict": model.state_dict(),
        "other_parameter": {}, "optimizer": {}, "tokens": tokens, "time_origin": FIRST, "data": data,
    }, str(path))  # fmt: skip


def histories(users: int, options) -> pd.DataFrame:
    """Random events of new users, 1 to `length` each."""
    generator = np.random.default_rng(options.seed)
    count = generator.integers(1, options.length + 1, users)
    return pd.DataFrame({
        "user_id": np.repeat([f"new {user}" for user in range(users)], count),
        "item_id": generator.integers(0, options.items, count.sum()),
        "timestamp": FIRST + generator.integers(0, DAYS * 86400, count.sum()),
    })  # fmt: skip


def serve(path: str, users: int, options) -> None:
    """Load the checkpoint and recommend; print seconds of both, CPU seconds of the latter, and the peak in MiB."""
    begin = time.perf_counter()
    recommender = Recommender.load(path, options.device)
    loaded, worked = time.perf_counter(), time.process_time()
    found = recommender.recommend(histories(users, options), k=options.k, show_progress=False)
    done, worked = time.perf_counter(), time.process_time() - worked
    if len(found) != users * options.k:
        raise ValueError(f"{len(found)} recommendations instead of {users * options.k}")
    print(json.dumps([loaded - begin, done - loaded, worked, measure.resident("VmHWM")]))


def main() -> None:
    options = measure.arguments(__doc__.splitlines()[0], 1, items=10**6, users=1000, k=100, length=50).parse_args()
    torch.set_num_threads(options.threads)
    if options.measure:
        path, users = options.measure.rsplit(",", 1)
        serve(path, int(users), options)
        return
    lines = ["| model | users | load | users per second | users per CPU second | peak memory |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            users = options.users if name != "BST" else max(1, options.users // 1000)
            path = Path(folder) / f"{name}.pth"
            store(name, path, options)
            load, took, worked, peak = measure.of_process(__file__, options, f"{path},{users}")
            path.unlink()
            lines.append(
                f"| {name} | {users:,} | {load:.1f} s | {users / took:.2g} | {users / worked:.2g} | {peak:,.0f} MiB |"
            )
            print(lines[-1], flush=True)
    table = "\n".join(lines)
    (options.output or RESULTS).write_text(
        f"# Recommendations from {options.items:,} items\n\nRandom weights, the models' default sizes, new users with "
        f"random histories of 1 to {options.length} events, k={options.k}, seen items left out. Users per second "
        f"include reading the DataFrame of histories, and time in which others had the processor; those per CPU "
        f"second do not. Peak memory is that of the process, Python, torch and the checkpoint included. "
        f"BST scores each pair of user and item by an MLP of 1024-512-256; for catalogues of this size its place is "
        f"behind another model, with `items=` as candidates.\n\n{table}\n\n"
        f"{measure.provenance(__file__, options)}"
    )


if __name__ == "__main__":
    main()
