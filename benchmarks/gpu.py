"""What a GPU does: the results of the CPU, times of steps and scoring, shares of its rates, and whether it waits.

    python benchmarks/gpu.py [--batch 256] [--length 200] [--hidden 64] [--users 2000] [--items 3416] [--repeats 20]
                             [--minutes 7] [--seed 2020] [--device cuda] [--output FILE]

Every model reads the same generated events. `results`: loss, gradients and scores beside those of the CPU, in float32
without dropout; it exits with 1 if they differ by more than 0.001 of their largest value. `times`: a step is forward,
backward and Adam on one batch. `epoch`: the trainer with its loader, beside the same number of steps on one batch; and
how often a step waits for the GPU, as torch reports it. No model is begun after `--minutes`; the page then says so.
Writes `benchmarks/results/gpu.md`. Without a GPU or RecBole it says what is missing and exits with 3. `--device cpu`
tries the script itself.
"""

import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
MISSING, DIFFERENT = 3, 1


def stop(sentence: str) -> None:
    """End the script with a sentence that says what is missing."""
    print(f"gpu.py: {sentence}", file=sys.stderr)
    raise SystemExit(MISSING)


try:
    import torch

    from benchmarks import gpu_runs, measure
except ImportError as error:
    stop(f"{error.name} is missing; install it, or put its wheel into .whl and start benchmarks/gpu.sh.")

RESULTS = ROOT / "benchmarks" / "results" / "gpu.md"
TOLERANCE = 1e-3  # of the largest value


def page(found: dict[str, dict[str, dict[str, float]]], rates: dict[str, float], left_out: list[str]) -> str:
    """The results as Markdown tables, without the lines on machine and command."""
    lines = ["| model | largest difference from the CPU: loss | gradients | scores |", "|---|---:|---:|---:|"]
    for name, parts in found.items():
        lines.append(f"| {name} | " + " | ".join(f"{parts['results'][part]:.1e}" for part in gpu_runs.COMPARED) + " |")
    lines += ["", "Relative to the largest value. In float32, without dropout.", ""]
    lines += ["| model | type | step | share of product rate | scoring | share of bandwidth |"]
    lines += ["|---|---|---:|---:|---:|---:|"]
    for name, parts in found.items():
        for kind in gpu_runs.TYPES:
            times = parts[kind]
            lines.append(
                f"| {name} | {kind} | {1e3 * times['step']:.2f} ms | {times['product_share']:.1%} | "
                f"{1e3 * times['scoring']:.2f} ms | {times['bandwidth_share']:.1%} |"
            )
    measured = ", ".join(f"{value:.3g} {gpu_runs.UNITS[name]} ({name})" for name, value in rates.items())
    lines += ["", f"Rates that this device reaches: {measured}. {gpu_runs.SHARES}", ""]
    lines += ["| model | step of an epoch with its loader | beside steps on one batch | waits for a result in a step |"]
    lines += ["|---|---:|---:|---:|"]
    for name, parts in found.items():
        epoch = parts["epoch"]
        waits = "not counted" if epoch["waits"] < 0 else f"{epoch['waits']:.0f}"
        lines.append(f"| {name} | {1e3 * epoch['step']:.2f} ms | {epoch['ratio']:.2f} times | {waits} |")
    if left_out:
        lines += ["", f"Not begun, for lack of time: {', '.join(left_out)}."]
    return "\n".join(lines)


def main() -> None:
    parser = measure.arguments(
        __doc__.splitlines()[0], 20, batch=256, length=200, hidden=64, users=2000, items=3416, minutes=7
    )
    parser.set_defaults(device="cuda")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        stop(f"there is no GPU: torch {torch.__version__} finds no CUDA device.")
    torch.set_num_threads(options.threads)
    begin, found, left_out = time.monotonic(), {}, []
    rates = gpu_runs.rates(options.device)
    for name in gpu_runs.MODELS:
        if time.monotonic() - begin > 60 * options.minutes:
            left_out.append(name)
            continue
        found[name] = gpu_runs.measure_model(name, options, rates)
        print(f"{name}: {found[name]}", flush=True)
    text = (
        f"# On a GPU\n\nB = {options.batch}, L = {options.length}, H = {options.hidden}, {options.items} items, "
        f"{options.users} users with generated events; other keys are the defaults.\n\n"
        f"{page(found, rates, left_out)}\n\n{measure.provenance(__file__, options)}"
    )
    print(text)
    (options.output or RESULTS).write_text(text)
    wrong = [name for name, parts in found.items() if max(parts["results"].values()) > TOLERANCE]
    if wrong:
        print(f"gpu.py: the results of {', '.join(wrong)} are not those of the CPU.", file=sys.stderr)
        raise SystemExit(DIFFERENT)


if __name__ == "__main__":
    main()
