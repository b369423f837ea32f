"""Time and memory of scoring all items with BST on ml-100k, compared with RecBole's method for such models.

    python benchmarks/bst_scoring.py [--rows 16] [--length 50] [--repeats 3] [--threads 2] [--seed 2020] [--output FILE]

RecBole's method repeats every request once per item and calls `predict` in chunks of `eval_batch_size`, which encodes
the history once per pair. Both methods use the same random weights and test rows and alternate in one process; peak
memory is measured in separate processes. "MLP alone" is the lower bound of every exact method: the layers after the
first one, once per pair of request and item. RecBole's DIN is timed with RecBole's method, too. Writes
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
from recbole_ext import Config, create_dataset, data_preparation  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "bst_scoring.md"
AT_ONCE = 4096  # rows of one call of `predict`
PAPER = [1024, 512, 256]
# name in the table -> blocks, output, MLP
CASES = {
    "one block, target": (1, "target", PAPER),
    "one block, target, MLP 64-32": (1, "target", [64, 32]),
    "two blocks, target": (2, "target", PAPER),
    "one block, flatten": (1, "flatten", PAPER),
}
DIN = "DIN of RecBole"


def build(way: str, case: str, options: argparse.Namespace) -> measure.Run:
    """A model with a batch of requests, as a function that scores all items of ml-100k for each."""
    keys = {
        "MAX_ITEM_LIST_LENGTH": options.length, "show_progress": False, "state": "warning", "eval_batch_size": AT_ONCE,
        "use_gpu": options.device != "cpu", "embedding_size": 32,
    }  # fmt: skip
    if case != DIN:
        layers, output, mlp = CASES[case]
        keys |= {"n_layers": layers, "output": output, "gap_embedding_size": 32, "mlp_hidden_size": mlp}
    config = Config("DIN" if case == DIN else "BST", "ml-100k", None, keys, argv=[])
    torch.manual_seed(options.seed)
    train, _, test = data_preparation(config, create_dataset(config))
    model = config.model_class(config, train._dataset).to(options.device).eval()
    batch = next(iter(test))[0][: options.rows].to(options.device)

    if way == "repeated" and case != DIN:
        model._together = lambda: False  # `predict` would find the repetitions

    def repeated() -> torch.Tensor:
        count, items = len(batch), model.n_items
        rows = batch.repeat_interleave(items)
        rows.update(Interaction({"item_id": torch.arange(items, device=options.device).repeat(count)}))
        parts = [model.predict(rows[begin : begin + AT_ONCE]) for begin in range(0, len(rows), AT_ONCE)]
        return torch.cat(parts).view(count, items)

    def ours() -> torch.Tensor:
        return model.full_sort_predict(batch)

    def mlp_alone() -> None:
        pairs = torch.randn(AT_ONCE, model.mlp[0].out_features, device=options.device)
        for begin in range(0, len(batch) * model.n_items, AT_ONCE):
            model._deep(pairs[: len(batch) * model.n_items - begin])

    return torch.no_grad()({"repeated": repeated, "ours": ours, "MLP alone": mlp_alone}[way])


def check(case: str, options: argparse.Namespace) -> None:
    """Both ways give the same scores."""
    repeated, ours = (build(way, case, options)()[:, 1:] for way in ("repeated", "ours"))
    torch.testing.assert_close(repeated, ours, rtol=0, atol=1e-5)


def main() -> None:
    options = measure.arguments(__doc__.splitlines()[0], 3, rows=16, length=50).parse_args()
    torch.autograd.set_detect_anomaly(False)
    torch.set_num_threads(options.threads)
    if options.measure:
        measure.print_peak(build(*options.measure.split(";"), options), options.device)
        return
    lines = [
        "| model | RecBole's way | ours | faster | MLP alone | memory: RecBole's way | ours |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for case in (*CASES, DIN):
        ways = ("repeated",) if case == DIN else ("repeated", "ours", "MLP alone")
        if case != DIN:
            check(case, options)
        took = measure.medians({way: build(way, case, options) for way in ways}, options.repeats, options.device)
        memory = [measure.peak_of_process(__file__, options, f"{way};{case}") for way in ways[:2]]
        seconds = [f"{took[way]:.3f} s" for way in ways]
        mebibytes = [f"{number:.0f} MiB" for number in memory]
        if case == DIN:
            cells = [case, *seconds, "", "", "", *mebibytes, ""]
        else:
            faster = f"{took['repeated'] / took['ours']:.1f} times"
            cells = [case, *seconds[:2], faster, seconds[2], *mebibytes]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    table = "\n".join(lines)
    (options.output or RESULTS).write_text(
        f"# BST's scores of all items beside RecBole's way\n\n{options.rows} test rows of ml-100k with histories of up "
        f"to {options.length}, all 1,682 items, embedding_size 32, MLP 1024-512-256 unless said. Medians of "
        f"{options.repeats} runs in turns; both ways give the same scores to 1e-5; peak memory is what two runs add to "
        f"a fresh process.\n\n{table}\n\n{measure.provenance(__file__, options)}"
    )


if __name__ == "__main__":
    main()
