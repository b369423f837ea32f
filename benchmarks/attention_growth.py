"""How time and memory of LightSANs' training step grow with the length of histories, for each kind of attention.

    python benchmarks/attention_growth.py [--rows 32] [--interests 20] [--repeats 3] [--threads 2] [--seed 2020]
                                          [--device cpu] [--output FILE]

One model with each choice in the same place: the paper's (low_rank with decoupled positions), its attention among items
alone (low_rank, positions added), and full, linformer, performer, linear and synthesizer with positions added.
Histories are full. Kinds alternate in one process; medians after a warm-up; peak memory from a process each. Writes
`benchmarks/results/attention_growth.md`, from which `docs/figures.py` draws the figure.
"""

import argparse
import sys
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from recbole.data.interaction import Interaction  # noqa: E402

from benchmarks import measure  # noqa: E402
from benchmarks.lightsans_step import FIELDS, ITEMS  # noqa: E402
from recbole_ext import LightSANs  # noqa: E402
from recbole_ext.config import properties_file  # noqa: E402
from recbole_ext.utils.literals import read_yaml  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "attention_growth.md"
LENGTHS = (50, 100, 200, 400, 700, 1000)
KINDS = {
    "low_rank, decoupled positions": ("low_rank", "decoupled"),
    "low_rank": ("low_rank", "absolute"),
    "full": ("full", "absolute"),
    "linformer": ("linformer", "absolute"),
    "performer": ("performer", "absolute"),
    "linear": ("linear", "absolute"),
    "synthesizer": ("synthesizer", "absolute"),
}


def build(name: str, length: int, options: argparse.Namespace) -> measure.Run:
    """A model with a batch of full histories, as a function that does one training step."""
    attention, position = KINDS[name]
    torch.manual_seed(options.seed)
    keys = {
        "attention": attention, "position": position, "MAX_ITEM_LIST_LENGTH": length, "k_interests": options.interests,
        "device": torch.device(options.device),
    }  # fmt: skip
    config = {**read_yaml(properties_file("LightSANs")), **FIELDS, **keys}
    model = LightSANs(config, SimpleNamespace(num=lambda field: ITEMS + 1)).to(options.device)
    columns = {
        "item_id_list": torch.randint(1, ITEMS + 1, (options.rows, length)),
        "item_length": torch.full((options.rows,), length), "item_id": torch.randint(1, ITEMS + 1, (options.rows,)),
    }  # fmt: skip
    batch = Interaction(columns).to(options.device)
    return measure.training_step(lambda: model.calculate_loss(batch), model)


def table(numbers: dict[str, list[float]], digits: int) -> str:
    lines = [f"| L | {' | '.join(map(str, LENGTHS))} |", "|---" + "|---:" * len(LENGTHS) + "|"]
    lines += [f"| {name} | {' | '.join(f'{value:.{digits}f}' for value in row)} |" for name, row in numbers.items()]
    return "\n".join(lines)


def main() -> None:
    options = measure.arguments(__doc__.splitlines()[0], 3, rows=32, interests=20).parse_args()
    torch.set_num_threads(options.threads)
    torch.autograd.set_detect_anomaly(False)
    if options.measure:
        name, length = options.measure.rsplit(",", 1)
        measure.print_peak(build(name, int(length), options), options.device)
        return
    times: dict[str, list[float]] = {name: [] for name in KINDS}
    memory: dict[str, list[float]] = {name: [] for name in KINDS}
    for length in LENGTHS:
        took = measure.medians({name: build(name, length, options) for name in KINDS}, options.repeats, options.device)
        for name in KINDS:
            times[name].append(took[name])
            memory[name].append(measure.peak_of_process(__file__, options, f"{name},{length}"))
        print(length, {name: (round(took[name], 3), round(memory[name][-1])) for name in KINDS}, flush=True)
    target = options.output or RESULTS
    target.write_text(
        f"# Growth of attention with the length of histories\n\n"
        f"A training step of LightSANs with {options.rows} full histories, K = {options.interests}, 2 layers, H = 64, "
        f"{ITEMS} items, float32: forward, backward, Adam. Medians of {options.repeats} steps in turns; peak memory is "
        f"what two steps add to a fresh process.\n\n![growth](../../docs/images/attention_growth.svg)\n\n"
        f"Seconds:\n\n{table(times, 3)}\n\nPeak memory, MiB:\n\n{table(memory, 0)}\n\n"
        f"{measure.provenance(__file__, options)}"
    )


if __name__ == "__main__":
    main()
