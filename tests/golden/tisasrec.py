"""Reference values of TiSASRec, from the plain formulation in float64.

`python -m tests.golden.tisasrec` writes the files `tisasrec_*.npz` again; they should change only with the model's
definition.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from recbole_ext.model import TiSASRec
from tests.oracles.bare import bare_tisasrec, randomise, sequences
from tests.oracles.tisasrec import encode, intervals

FOLDER = Path(__file__).parent
ITEMS, LENGTHS, POSITIONS, LIMIT, UNIT = 25, [9, 1, 6, 4], 9, 30, 2.0  # lengths of histories
FILES = {"tisasrec_personalised": None, "tisasrec_global": UNIT}  # seconds of an interval


def model_of(name: str) -> TiSASRec:
    """The model of a reference file, in float64, with its own initial weights."""
    return bare_tisasrec(
        ITEMS, time_interval=name.removeprefix("tisasrec_"), interval_unit=UNIT, time_span=LIMIT, hidden_size=8,
        n_heads=2, n_layers=2, MAX_ITEM_LIST_LENGTH=POSITIONS + 1, loss_type="CE", reg_weight=0.01,
    ).double()  # fmt: skip


def write(name: str) -> None:
    """Write a reference file: weights, histories, scores after the last event, and gradients of their sum."""
    model = model_of(name)
    randomise(model, seed=1)
    items, time, length = sequences(LENGTHS, ITEMS, 200.0, 7)
    weights, scores = dict(model.named_parameters()), []
    for row, count in enumerate(LENGTHS):
        interval = intervals(time[row, :count].tolist(), LIMIT, FILES[name])
        state = encode(weights, items[row, :count], interval, POSITIONS, 2, 2, 1e-8)[-1]
        scores.append(weights["item_embedding.weight"] @ state)
    torch.stack(scores).sum().backward()
    arrays: dict[str, Tensor] = {"in/items": items, "in/time": time, "in/length": length}
    arrays["out/scores"] = torch.stack(scores).detach()
    for parameter, values in weights.items():
        assert values.grad is not None
        arrays |= {f"param/{parameter}": values.detach(), f"grad/{parameter}": values.grad}
    np.savez(FOLDER / f"{name}.npz", **{key: values.numpy() for key, values in arrays.items()})


if __name__ == "__main__":
    for file in FILES:
        write(file)
