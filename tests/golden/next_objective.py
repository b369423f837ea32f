"""Reference values of `objective: next`, from the plain formulation in float64.

`python -m tests.golden.next_objective` writes the files `next_*.npz` again; they should change only with the model's
definition.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from recbole_ext.model import MEANTIME
from tests.oracles.bare import DAY, bare_meantime, plain_like, randomise, sequences

FOLDER = Path(__file__).parent
ITEMS, DAYS, LENGTHS = 25, 101, [9, 2, 6, 4]  # lengths of windows: events and the target
KEYS = {
    "next_sasrec_target": {"architecture": "sasrec", "query_time": "target"},
    "next_bert4rec_last": {"architecture": "bert4rec", "query_time": "last"},
}


def model_of(name: str) -> MEANTIME:
    """The model of a reference file, in float64, with its own initial weights."""
    keys: dict[str, Any] = {
        "objective": "next", "absolute_kernels": ["position", "day"], "relative_kernels": ["sin", "log"],
        "hidden_size": 8, "inner_size": 12, "MAX_ITEM_LIST_LENGTH": 9, **KEYS[name],
    }  # fmt: skip
    return bare_meantime(ITEMS, DAYS, **keys).double()


def write(name: str) -> None:
    """Write a reference file: weights, windows, scores of the last target, mean loss of all targets, gradients."""
    model = model_of(name)
    randomise(model, seed=1)
    plain = plain_like(model)
    items, time, length = sequences(LENGTHS, ITEMS, 100 * DAY, 7)
    scores, losses = [], []
    for row, count in enumerate(LENGTHS):
        query_time = time[row, 1:count] if KEYS[name]["query_time"] == "target" else time[row, : count - 1]
        states = plain.scores(plain.encode_next(items[row, : count - 1], time[row, : count - 1], query_time))
        scores.append(states[-1])
        losses.append(F.cross_entropy(states[:, 1:], items[row, 1:count] - 1, reduction="none"))
    loss = torch.cat(losses).mean()
    loss.backward()
    arrays = {"in/items": items, "in/time": time, "in/length": length}
    arrays |= {"out/scores": torch.stack(scores).detach(), "out/loss": loss.detach()}
    for parameter, weights in plain.named_parameters():
        arrays[f"param/{parameter}"] = weights.detach()
        arrays[f"grad/{parameter}"] = torch.zeros_like(weights) if weights.grad is None else weights.grad
    np.savez(FOLDER / f"{name}.npz", config=json.dumps(KEYS[name]), **{key: v.numpy() for key, v in arrays.items()})


if __name__ == "__main__":
    for file in KEYS:
        write(file)
