"""Time and memory of a training step for long histories: MEANTIME with both objectives, and LightSANs.

    python benchmarks/long_histories.py [--rows 8] [--repeats 3] [--threads 1] [--seed 2020] [--device cpu]
                                        [--output FILE]

Property files; histories are full. A step is forward, backward and Adam. Each model and length has a process of its
own, for its median time and then for the peak memory of the whole process. Writes
`benchmarks/results/long_histories.md`.
"""

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from recbole.data.interaction import Interaction  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from benchmarks import measure  # noqa: E402
from recbole_ext import LightSANs  # noqa: E402
from tests.oracles.bare import DAY, bare_config, bare_meantime  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "long_histories.md"
ITEMS, DAYS, DROPOUT, INTERESTS = 3416, 1000, 0.2, 20
LENGTHS = (50, 200, 500, 1000, 2000)
MODELS = {
    "MEANTIME, objective cloze": {"objective": "cloze"},
    "MEANTIME, objective next": {"objective": "next", "architecture": "sasrec", "inner_size": 64},
    "LightSANs": {"k_interests": INTERESTS},
}
# not in the package: a measurement of what torch.utils.checkpoint around each block would save
RECOMPUTED = "MEANTIME, objective next, blocks computed again in backward"
MODELS[RECOMPUTED] = MODELS["MEANTIME, objective next"]


def build(name: str, length: int, options: argparse.Namespace) -> measure.Run:
    """A model with a batch of full histories, as a function that does one training step."""
    torch.manual_seed(options.seed)
    keys = {
        "hidden_dropout_prob": DROPOUT,
        "attn_dropout_prob": DROPOUT,
        "MAX_ITEM_LIST_LENGTH": length,
        **MODELS[name],
    }
    if name == "LightSANs":
        config = bare_config("LightSANs", {**keys, "device": torch.device(options.device)})
        model = LightSANs(config, SimpleNamespace(num=lambda field: ITEMS + 1)).to(options.device)
    else:
        model = bare_meantime(ITEMS, DAYS, **keys).to(options.device)
    if name == RECOMPUTED:
        for block in model.blocks:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    shape = options.rows, length
    times = (torch.rand(shape, dtype=torch.float64) * DAYS * DAY).floor().sort(1).values
    items = torch.randint(1, ITEMS + 1, shape)
    batch = Interaction({
        "item_id_list": items[:, :-1], "item_id": items[:, -1], "timestamp_list": times[:, :-1],
        "timestamp": times[:, -1], "item_length": torch.full(shape[:1], length - 1),
    }).to(options.device)  # fmt: skip
    return measure.training_step(lambda: model.calculate_loss(batch), model)


def table(numbers: dict[str, list[float]], digits: int) -> str:
    lines = [f"| L | {' | '.join(map(str, LENGTHS))} |", "|---" + "|---:" * len(LENGTHS) + "|"]
    lines += [f"| {name} | {' | '.join(f'{value:,.{digits}f}' for value in row)} |" for name, row in numbers.items()]
    return "\n".join(lines)


def main() -> None:
    parser = measure.arguments(__doc__.splitlines()[0], 3, rows=8)
    parser.set_defaults(threads=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.measure:
        name, length = options.measure.rsplit(",", 1)
        step = build(name, int(length), options)
        seconds = measure.medians({"": step}, options.repeats, options.device)[""]
        print(json.dumps((seconds, measure.peak_of_this_process(options.device))))
        return
    seconds: dict[str, list[float]] = {name: [] for name in MODELS}
    memory: dict[str, list[float]] = {name: [] for name in MODELS}
    for length in LENGTHS:
        for name in MODELS:
            taken, peak = measure.of_process(__file__, options, f"{name},{length}")
            seconds[name].append(taken)
            memory[name].append(peak)
    (options.output or RESULTS).write_text(
        f"# Training steps for long histories\n\n{options.rows} full histories of L events, H = 64, 2 layers, {ITEMS} "
        f"items, K = {INTERESTS}, dropout {DROPOUT}, float32: forward, backward, Adam. MEANTIME learns from all events "
        f"of a window in one step (cloze: from a fifth of them), LightSANs from the last one. Medians of "
        f"{options.repeats} steps; peak memory of the process, libraries included.\n\n"
        f"Seconds:\n\n{table(seconds, 3)}\n\nPeak memory, MiB:\n\n{table(memory, 0)}\n\n"
        f"{measure.provenance(__file__, options)}"
    )


if __name__ == "__main__":
    main()
