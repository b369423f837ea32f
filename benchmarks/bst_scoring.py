"""Time and memory of BST's scores of all items on ml-100k, beside RecBole's way for models that have none.

    python benchmarks/bst_scoring.py [--rows 16] [--length 50] [--repeats 3] [--threads 2] [--seed 2020] [--output FILE]

RecBole's way repeats every request once per item and calls `predict` in parts of `eval_batch_size`. The same model with
the same random weights, the same test rows of ml-100k, in turns in one process. Writes
`benchmarks/results/bst_scoring.md`.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from recbole.data.interaction import Interaction  # noqa: E402

from benchmarks import measure  # noqa: E402
from recbole_ext import BST, Config, create_dataset, data_preparation  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "bst_scoring.md"
WAYS = ("ours", "repeated")
CASES = {"one block, target": (1, "target"), "two blocks, target": (2, "target"), "one block, flatten": (1, "flatten")}


def build(way: str, case: str, options: argparse.Namespace) -> measure.Run:
    """A model with a batch of requests, as a function that scores all items of ml-100k for each."""
    layers, output = CASES[case]
    keys = {
        "n_layers": layers, "output": output, "MAX_ITEM_LIST_LENGTH": options.length, "embedding_size": 32,
        "gap_embedding_size": 32, "show_progress": False, "state": "warning", "use_gpu": options.device != "cpu",
        "eval_batch_size": 4096,
    }  # fmt: skip
    config = Config("BST", "ml-100k", None, keys, argv=[])
    torch.manual_seed(options.seed)
    train, _, test = data_preparation(config, create_dataset(config))
    model = BST(config, train._dataset).to(options.device).eval()
    batch = next(iter(test))[0][: options.rows].to(options.device)

    def repeated() -> torch.Tensor:
        count, items = len(batch), model.n_items
        rows = batch.repeat_interleave(items)
        rows.update(Interaction({"item_id": torch.arange(items, device=options.device).repeat(count)}))
        parts = [model.predict(rows[begin : begin + 4096]) for begin in range(0, len(rows), 4096)]
        return torch.cat(parts).view(count, items)

    with torch.no_grad():
        torch.testing.assert_close(repeated()[:, 1:], model.full_sort_predict(batch)[:, 1:], rtol=0, atol=1e-5)
    return torch.no_grad()(repeated if way == "repeated" else lambda: model.full_sort_predict(batch))


def main() -> None:
    options = measure.arguments(__doc__.splitlines()[0], 3, rows=16, length=50).parse_args()
    torch.set_num_threads(options.threads)
    if options.measure:
        measure.print_peak(build(*options.measure.split(",", 1), options), options.device)
        return
    lines = ["| model | repeated | ours | faster |", "|---|---:|---:|---:|"]
    for case in CASES:
        took = measure.medians({way: build(way, case, options) for way in WAYS}, options.repeats, options.device)
        cells = [case, f"{took['repeated']:.2f} s", f"{took['ours']:.3f} s"]
        lines.append(f"| {' | '.join(cells)} | {took['repeated'] / took['ours']:.1f} times |")
        print(lines[-1], flush=True)
    table = "\n".join(lines)
    (options.output or RESULTS).write_text(
        f"# BST's scores of all items beside RecBole's way\n\n{options.rows} test rows of ml-100k with histories of up "
        f"to {options.length}, all 1,682 items, embedding_size 32, MLP 1024-512-256. Medians of {options.repeats} runs "
        f"in turns; both give the same scores to 1e-5.\n\n{table}\n\n{measure.provenance(__file__, options)}"
    )


if __name__ == "__main__":
    main()
