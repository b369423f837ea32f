"""Time and memory of MEANTIME's training step and scoring, beside a plain formulation that makes [B, T, T, H] tensors.

    python benchmarks/meantime_step.py [--batch 32] [--length 200] [--hidden 64] [--repeats 7] [--threads 2]
                                       [--seed 2020] [--device cpu] [--output FILE]

Both models have the same parameters, kernels (position, day, sin, log) and dropout probabilities. Steps (forward,
backward, Adam) alternate in one process; medians after a warm-up. The peak memory of each comes from a process of its
own: what two steps add to the process before them. Histories are full and span 1000 days. Writes
`benchmarks/results/meantime_step.md`.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from recbole.data.interaction import Interaction  # noqa: E402

from benchmarks import measure  # noqa: E402
from tests.oracles.bare import DAY, bare_meantime, plain_like  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "meantime_step.md"
ITEMS, DAYS, DROPOUT, MASK_RATIO = 3416, 1000, 0.2, 0.2
MODELS = ("ours", "plain")
KINDS = {"step": "training step", "score": "scoring all items"}


def build(which: str, kind: str, options: argparse.Namespace) -> measure.Run:
    """A model with its batch, as a function that does one training step or scores the batch once."""
    torch.manual_seed(options.seed)
    model = bare_meantime(
        ITEMS, DAYS, hidden_size=options.hidden, inner_size=4 * options.hidden, MAX_ITEM_LIST_LENGTH=options.length,
        hidden_dropout_prob=DROPOUT, attn_dropout_prob=DROPOUT, mask_ratio=MASK_RATIO,
    ).to(options.device)  # fmt: skip
    shape, device = (options.batch, options.length), options.device
    items = torch.randint(1, ITEMS + 1, shape, device=device)
    times = (torch.rand(shape, dtype=torch.float64, device=device) * DAYS * DAY).floor().sort(1).values
    if which == "ours":
        window = Interaction({
            "item_id_list": items[:, :-1], "item_id": items[:, -1], "timestamp_list": times[:, :-1],
            "timestamp": times[:, -1], "item_length": torch.full(shape[:1], options.length - 1, device=device),
        })  # fmt: skip
        loss, score = lambda: model.calculate_loss(window), lambda: model.full_sort_predict(window)
    else:
        masked = model.mask_id
        real = torch.ones(shape, dtype=torch.bool, device=device)
        chosen = torch.rand(shape, device=device) < MASK_RATIO
        hidden = torch.where(chosen, masked, items)
        query = torch.cat([items[:, :-1], torch.full_like(items[:, -1:], masked)], dim=1)
        model = plain_like(model, dropout=DROPOUT)
        loss = lambda: model.loss(hidden, times, real, items, chosen)  # noqa: E731
        score = lambda: model.scores(model.encode(query, times, real)[:, -1])  # noqa: E731
    if kind == "step":
        return measure.training_step(loss, model)
    model.eval()
    return torch.no_grad()(score)


def table(results: dict[str, dict[str, dict[str, float]]]) -> str:
    lines = ["| | plain | ours | ratio |", "|---|---:|---:|---:|"]
    for kind, name in KINDS.items():
        took, peaks = results[kind]["seconds"], results[kind]["MiB"]
        times = f"{took['plain']:.3f} s | {took['ours']:.3f} s | {took['plain'] / took['ours']:.1f} times faster"
        memory = (
            f"{peaks['plain']:.0f} MiB | {peaks['ours']:.0f} MiB | {peaks['ours'] / peaks['plain']:.2f} of the memory"
        )
        lines += [f"| {name}, median time | {times} |", f"| {name}, peak memory | {memory} |"]
    return "\n".join(lines)


def main() -> None:
    options = measure.arguments(__doc__.splitlines()[0], 7, batch=32, length=200, hidden=64).parse_args()
    torch.set_num_threads(options.threads)
    if options.measure:
        measure.print_peak(build(*options.measure.split(","), options), options.device)
        return
    results: dict[str, dict[str, dict[str, float]]] = {}
    for kind in KINDS:
        memory = {which: measure.peak_of_process(__file__, options, f"{which},{kind}") for which in MODELS}
        runs = {which: build(which, kind, options) for which in MODELS}
        results[kind] = {"MiB": memory, "seconds": measure.medians(runs, options.repeats, options.device)}
    text = (
        f"# MEANTIME's step beside a plain formulation\n\n"
        f"B = {options.batch}, L = {options.length}, H = {options.hidden}, 2 layers, {ITEMS} items, kernels position, "
        f"day, sin, log; full histories over {DAYS} days; dropout {DROPOUT}; float32. A training step is forward, "
        f"backward and Adam. Medians of {options.repeats} steps in turns in one process; peak memory is what two "
        f"steps add to a fresh process.\n\n{table(results)}\n\n{measure.provenance(__file__, options)}"
    )
    print(text)
    (options.output or RESULTS).write_text(text)


if __name__ == "__main__":
    main()
