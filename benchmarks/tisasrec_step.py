"""Time and memory of TiSASRec's training step, beside the same step that stores the embeddings of all pairs of events.

    python benchmarks/tisasrec_step.py [--batch 32] [--length 200] [--hidden 64] [--span 256] [--repeats 7]
                                       [--threads 2] [--seed 2020] [--device cpu] [--output FILE]

Both are the same model with the paper's loss; the baseline looks up the keys and the values of the intervals as
[B, T, T, H] tensors, as the formulas of the paper read. Steps (forward, backward, Adam) alternate in one process;
medians after a warm-up. The peak memory of each comes from a process of its own: what two steps add to the process
before them. Histories are full and span 1000 days. Writes `benchmarks/results/tisasrec_step.md`.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from recbole.data.interaction import Interaction  # noqa: E402
from torch import Tensor  # noqa: E402

from benchmarks import measure  # noqa: E402
from recbole_ext.model.tisasrec import attention  # noqa: E402
from tests.oracles.bare import DAY, bare_tisasrec  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "tisasrec_step.md"
ITEMS, DAYS, DROPOUT = 3416, 1000, 0.2
MODELS = ("ours", "plain")


def of_all_pairs(table: Tensor, interval: Tensor) -> Tensor:
    """Embeddings of the intervals, [n, S, d] at [B, T, T]: [B, n, T, T, d]."""
    return table[:, interval].transpose(0, 1)


def plain_logits(query: Tensor, table: Tensor, interval: Tensor) -> Tensor:
    return (query.unsqueeze(3) * of_all_pairs(table, interval)).sum(-1)


def plain_sum(weights: Tensor, table: Tensor, interval: Tensor) -> Tensor:
    return (weights.unsqueeze(-1) * of_all_pairs(table, interval)).sum(3)


def loss_of(model: torch.nn.Module, batch: Interaction, which: str) -> Tensor:
    """The loss, with the products of this formulation."""
    ours = attention.interval_logits, attention.sum_of_intervals
    if which == "plain":
        attention.interval_logits, attention.sum_of_intervals = plain_logits, plain_sum
    try:
        return model.calculate_loss(batch)
    finally:
        attention.interval_logits, attention.sum_of_intervals = ours


def build(options: argparse.Namespace) -> tuple[torch.nn.Module, Interaction]:
    """The model, and a batch."""
    torch.manual_seed(options.seed)
    model = bare_tisasrec(
        ITEMS, hidden_size=options.hidden, time_span=options.span, MAX_ITEM_LIST_LENGTH=options.length,
        hidden_dropout_prob=DROPOUT, attn_dropout_prob=DROPOUT,
    ).to(options.device)  # fmt: skip
    shape, device = (options.batch, options.length), options.device
    items = torch.randint(1, ITEMS + 1, shape, device=device)
    times = (torch.rand(shape, dtype=torch.float64, device=device) * DAYS * DAY).floor().sort(1).values
    return model, Interaction({
        "item_id_list": items[:, :-1], "item_id": items[:, -1], "timestamp_list": times[:, :-1],
        "timestamp": times[:, -1], "item_length": torch.full(shape[:1], options.length - 1, device=device),
    })  # fmt: skip


def step(which: str, options: argparse.Namespace) -> measure.Run:
    """A training step, as a function that does it once."""
    model, batch = build(options)
    return measure.training_step(lambda: loss_of(model, batch, which), model)


def main() -> None:
    parser = measure.arguments(__doc__.splitlines()[0], 7, batch=32, length=200, hidden=64, span=256)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.measure:
        measure.print_peak(step(options.measure, options), options.device)
        return
    peak = {which: measure.peak_of_process(__file__, options, which) for which in MODELS}
    took = measure.medians({which: step(which, options) for which in MODELS}, options.repeats, options.device)
    times = f"{took['plain']:.2f} s | {took['ours']:.2f} s | {took['plain'] / took['ours']:.1f} times faster"
    memory = f"{peak['plain']:,.0f} MiB | {peak['ours']:,.0f} MiB | {peak['ours'] / peak['plain']:.2f} of the memory"
    text = (
        f"# TiSASRec's training step\n\n"
        f"B = {options.batch}, N = {options.length}, H = {options.hidden}, k = {options.span}, 2 layers, 1 head, "
        f"{ITEMS} items; full windows over {DAYS} days; dropout {DROPOUT}; float32. The baseline, *plain*, is the same "
        f"model with [B, T, T, H] tensors of the embeddings of intervals. A training step is forward, backward and "
        f"Adam. Medians of {options.repeats} steps in turns in one process; peak memory is what two steps add to a "
        f"fresh process.\n\n"
        f"| training step | plain | ours | ratio |\n|---|---:|---:|---:|\n"
        f"| median time | {times} |\n| peak memory | {memory} |\n\n{measure.provenance(__file__, options)}"
    )
    print(text)
    (options.output or RESULTS).write_text(text)


if __name__ == "__main__":
    main()
