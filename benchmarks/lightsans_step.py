"""Time and memory of LightSANs' training step and scoring, beside RecBole's class, and their growth with the length.

    python benchmarks/lightsans_step.py [--repeats 7] [--threads 2] [--seed 2020] [--device cpu] [--output FILE]

The same settings, dropout and batches for both; steps (forward, backward, Adam) alternate in one process; medians after
a warm-up. The peak memory of each comes from a process of its own: what two steps add to the process before them.
Histories are full, except where said: RecBole's class computes padding, ours does not. Importing RecBole's models makes
torch look for NaN after every step of every backward pass; that is off here, and on for "RecBole as it comes". Writes
`benchmarks/results/lightsans_step.md`.
"""

import argparse
import sys
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from recbole.data.interaction import Interaction  # noqa: E402
from recbole.model.sequential_recommender.lightsans import LightSANs as RecBoleLightSANs  # noqa: E402

from benchmarks import measure  # noqa: E402
from recbole_ext import LightSANs  # noqa: E402
from recbole_ext.config import properties_file  # noqa: E402
from recbole_ext.utils.literals import read_yaml  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "lightsans_step.md"
ITEMS = 3416  # of ML-1M
MODELS = ("ours", "RecBole", "RecBole as it comes")
FIELDS = {
    "USER_ID_FIELD": "user_id", "ITEM_ID_FIELD": "item_id", "ITEM_LIST_LENGTH_FIELD": "item_length",
    "LIST_SUFFIX": "_list", "NEG_PREFIX": "neg_",
}  # fmt: skip
# name in the table -> rows, length, interests, kind, whether histories are full, bfloat16
CASES = {
    "training step, L=50, K=5": (512, 50, 5, "step", True, False),
    "training step, L=50, K=5, histories of 1 to 50": (512, 50, 5, "step", False, False),
    "training step, L=50, K=5, bfloat16": (512, 50, 5, "step", True, True),
    "training step, L=200, K=20": (512, 200, 20, "step", True, False),
    "scoring all items, L=50, K=5": (512, 50, 5, "score", True, False),
    "scoring all items, L=50, K=5, histories of 1 to 50": (512, 50, 5, "score", False, False),
    "scoring all items, L=200, K=20": (512, 200, 20, "score", True, False),
}


def build(which: str, case: str, options: argparse.Namespace) -> measure.Run:
    """A model with its batch, as a function that does one training step or scores the batch once."""
    rows, length, interests, kind, full, bfloat16 = CASES[case]
    torch.manual_seed(options.seed)
    device = torch.device(options.device)
    sizes = {"MAX_ITEM_LIST_LENGTH": length, "k_interests": interests, "device": device}
    config = {**read_yaml(properties_file("LightSANs")), **FIELDS, **sizes}
    cls = LightSANs if which == "ours" else RecBoleLightSANs
    model = cls(config, SimpleNamespace(num=lambda field: ITEMS + 1)).to(device)
    lengths = torch.full((rows,), length) if full else torch.arange(rows) % length + 1
    items = torch.randint(1, ITEMS + 1, (rows, length)).masked_fill_(torch.arange(length) >= lengths.unsqueeze(1), 0)
    columns = {"item_id_list": items, "item_length": lengths, "item_id": torch.randint(1, ITEMS + 1, (rows,))}
    batch = Interaction(columns).to(device)

    def loss() -> torch.Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bfloat16):
            return model.calculate_loss(batch)

    if kind == "step":
        step = measure.training_step(loss, model)

        def checked() -> None:
            with torch.autograd.set_detect_anomaly(True):
                step()

        return checked if which == MODELS[2] else step
    model.eval()
    return torch.no_grad()(lambda: model.full_sort_predict(batch))


def main() -> None:
    options = measure.arguments(__doc__.splitlines()[0], 7).parse_args()
    torch.autograd.set_detect_anomaly(False)
    torch.set_num_threads(options.threads)
    if options.measure:
        measure.print_peak(build(*options.measure.split(",", 1), options), options.device)
        return
    lines = [
        "| B=512, H=64 | RecBole as it comes | RecBole | ours | faster than RecBole | memory: RecBole | ours | share |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for case in CASES:
        took = measure.medians(
            {which: build(which, case, options) for which in MODELS}, options.repeats, options.device
        )
        memory = {which: measure.peak_of_process(__file__, options, f"{which},{case}") for which in MODELS[:2]}
        seconds = [f"{took[which]:.3f} s" for which in MODELS[::-1]]
        mebibytes = [f"{memory[which]:.0f} MiB" for which in MODELS[1::-1]]
        faster, share = took["RecBole"] / took["ours"], memory["ours"] / memory["RecBole"]
        cells = [case, *seconds, f"{faster:.1f} times", *mebibytes, f"{share:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    table = "\n".join(lines)
    text = (
        f"# LightSANs' step beside RecBole's\n\n"
        f"{ITEMS} items, 2 layers, 2 heads, H = 64, inner 256, dropout 0.5, float32 unless said. A training step is "
        f"forward, backward and Adam. Medians of {options.repeats} steps in turns in one process; peak memory is what "
        f"two steps add to a fresh process.\n\n{table}\n\n{measure.provenance(__file__, options)}"
    )
    (options.output or RESULTS).write_text(text)


if __name__ == "__main__":
    main()
