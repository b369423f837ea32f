"""Time and memory of MEANTIME's training step with a large catalogue: all items, or only those that a batch reads.

    python benchmarks/large_catalogue_step.py [--items 1000000] [--batch 64] [--length 50] [--hidden 64]
                                              [--negatives 256] [--repeats 5] [--threads 1] [--seed 2020]
                                              [--device cpu] [--output FILE]

The same model (objective next, property file) with the softmax over all items and Adam, with sampled softmax and Adam,
and with sampled softmax and `sparse_updates`. A step is forward, backward and the optimizer; windows are full. Each
model has a process of its own, for its median time and then for the peak memory of the whole process. Writes
`benchmarks/results/large_catalogue_step.md`.
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from recbole.data.interaction import Interaction  # noqa: E402

from benchmarks import measure  # noqa: E402
from recbole_ext.training.lazy_adam import LazyAdam  # noqa: E402
from tests.oracles.bare import DAY, bare_meantime  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "large_catalogue_step.md"
DAYS, DROPOUT = 1000, 0.2
MODELS = {
    "all items, Adam": {"loss_type": "CE"},
    "sampled softmax, Adam": {"loss_type": "SSM"},
    "sampled softmax, sparse_updates": {"loss_type": "SSM", "sparse_updates": True, "learner": "adam"},
}


def build(name: str, options: argparse.Namespace) -> measure.Run:
    """A model with its batch, as a function that does one training step."""
    torch.manual_seed(options.seed)
    keys = MODELS[name]
    model = bare_meantime(
        options.items, DAYS, objective="next", hidden_size=options.hidden, inner_size=4 * options.hidden,
        MAX_ITEM_LIST_LENGTH=options.length, num_negatives=options.negatives, hidden_dropout_prob=DROPOUT,
        attn_dropout_prob=DROPOUT, **keys,
    ).to(options.device)  # fmt: skip
    shape, device = (options.batch, options.length), options.device
    items = torch.randint(1, options.items + 1, shape, device=device)
    times = (torch.rand(shape, dtype=torch.float64, device=device) * DAYS * DAY).floor().sort(1).values
    window = Interaction({
        "item_id_list": items[:, :-1], "item_id": items[:, -1], "timestamp_list": times[:, :-1],
        "timestamp": times[:, -1], "item_length": torch.full(shape[:1], options.length - 1, device=device),
    })  # fmt: skip
    optimizer = LazyAdam if "sparse_updates" in keys else torch.optim.Adam
    return measure.training_step(lambda: model.calculate_loss(window), model, optimizer)


def main() -> None:
    parser = measure.arguments(
        __doc__.splitlines()[0], 5, items=1_000_000, batch=64, length=50, hidden=64, negatives=256
    )
    parser.set_defaults(threads=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.measure:
        seconds = measure.medians({"": build(options.measure, options)}, options.repeats, options.device)[""]
        print(json.dumps((seconds, measure.peak_of_this_process(options.device))))
        return
    results = {name: measure.of_process(__file__, options, name) for name in MODELS}
    first = next(iter(results.values()))[0]
    lines = ["| | time | faster | peak memory of the process |", "|---|---:|---:|---:|"]
    for name, (seconds, peak) in results.items():
        lines.append(f"| {name} | {seconds:.3f} s | {first / seconds:.1f} times | {peak:,.0f} MiB |")
    table = "\n".join(lines)
    text = (
        f"# MEANTIME's step with a large catalogue\n\n"
        f"{options.items:,} items, B = {options.batch}, L = {options.length}, H = {options.hidden}, 2 layers, "
        f"{options.negatives} negatives, objective next; full histories; dropout {DROPOUT}; float32. A training step "
        f"is forward, backward and the optimizer. Medians of {options.repeats} steps after one to warm up, each "
        f"in a process of its own; the peak is that of the whole process, libraries included.\n\n{table}\n\n"
        f"{measure.provenance(__file__, options)}"
    )
    print(text)
    (options.output or RESULTS).write_text(text)


if __name__ == "__main__":
    main()
