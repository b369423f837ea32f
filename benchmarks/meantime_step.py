"""Time and memory of MEANTIME's training step and scoring, beside a plain formulation that makes [B, T, T, H] tensors.

    python benchmarks/meantime_step.py [--batch 32] [--length 200] [--hidden 64] [--repeats 7] [--threads 2]
                                       [--device cpu] [--seed 2020] [--output FILE]

Both models have the same parameters, kernels (position, day, sin, log) and dropout probabilities. Steps (forward,
backward, Adam) alternate in one process; medians after a warm-up. The peak memory of each comes from a process of its
own: what two steps add to the process before them. Histories are full and span 1000 days. Writes
`benchmarks/results/meantime_step.md`.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from recbole.data.interaction import Interaction  # noqa: E402

from tests.oracles.bare import DAY, bare_meantime, plain_like  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "meantime_step.md"
ITEMS, DAYS, DROPOUT, MASK_RATIO = 3416, 1000, 0.2, 0.2
MODELS = ("ours", "plain")
KINDS = {"step": "training step", "score": "scoring all items"}


def build(which: str, kind: str, options: argparse.Namespace) -> Callable[[], None]:
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
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    @torch.no_grad()
    def score_all() -> None:
        score()

    model.train(kind == "step")
    return step if kind == "step" else score_all


def seconds(run: Callable[[], None], device: str) -> float:
    begin = time.perf_counter()
    run()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def time_both(kind: str, options: argparse.Namespace) -> dict[str, float]:
    """Median seconds of each model, taken in turns."""
    runs = {which: build(which, kind, options) for which in MODELS}
    taken: dict[str, list[float]] = {which: [] for which in MODELS}
    for turn in range(options.repeats + 1):
        for which, run in runs.items():
            passed = seconds(run, options.device)
            if turn > 0:  # the first turn warms up
                taken[which].append(passed)
    return {which: statistics.median(values) for which, values in taken.items()}


def resident(field: str) -> float:
    """Memory of this process in MiB: `VmRSS` now, `VmHWM` at most so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise OSError(f"/proc/self/status has no {field}")


def peak(which: str, kind: str, options: argparse.Namespace) -> float:
    """MiB that two runs add at most to what model, batch and libraries take; called in a process of its own."""
    run = build(which, kind, options)
    if options.device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run(), run()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    before = resident("VmRSS")
    run(), run()
    return resident("VmHWM") - before


def peak_of_process(which: str, kind: str, options: argparse.Namespace) -> float:
    given = {key: value for key, value in vars(options).items() if key not in ("measure", "output")}
    arguments = [f"--{key}={value}" for key, value in given.items()]
    command = [sys.executable, __file__, *arguments, f"--measure={which},{kind}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout))


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


def report(results: dict[str, dict[str, dict[str, float]]], options: argparse.Namespace) -> str:
    import recbole

    command = ["python benchmarks/meantime_step.py"]
    command += [f"--{key} {vars(options)[key]}" for key in ("batch", "length", "hidden", "repeats", "threads")]
    command += [f"--{key} {vars(options)[key]}" for key in ("device", "seed")]
    device = f"{os.cpu_count()} CPU cores ({platform.machine()}), {options.threads} thread{'s' * (options.threads != 1)}"
    if options.device != "cpu":
        device = torch.cuda.get_device_name()
    return (
        f"# MEANTIME's step beside a plain formulation\n\n"
        f"B = {options.batch}, L = {options.length}, H = {options.hidden}, 2 layers, {ITEMS} items, kernels position, "
        f"day, sin, log; full histories over {DAYS} days; dropout {DROPOUT}; float32. A training step is forward, "
        f"backward and Adam. Medians of {options.repeats} steps in turns in one process; peak memory is what two "
        f"steps add to a fresh process.\n\n{table(results)}\n\n"
        f"{date.today()}, {device}. Versions: Python {platform.python_version()}, torch {torch.__version__}, "
        f"RecBole {recbole.__version__}.\nCommand: `{' '.join(command)}`\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=200)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=2020)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--measure", help=argparse.SUPPRESS)  # model,kind: print the peak memory of this process
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.measure:
        print(json.dumps(peak(*options.measure.split(","), options)))
        return
    results: dict[str, dict[str, dict[str, float]]] = {}
    for kind in KINDS:
        memory = {which: peak_of_process(which, kind, options) for which in MODELS}
        results[kind] = {"MiB": memory, "seconds": time_both(kind, options)}
    text = report(results, options)
    print(text)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text)


if __name__ == "__main__":
    main()
