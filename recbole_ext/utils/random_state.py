"""The state of all random generators that training draws from."""

import random
from typing import Any

import numpy as np
import torch


def random_states() -> dict[str, Any]:
    """States of all random generators that training draws from, as tensors and plain values."""
    _, keys, position, has_gauss, cached = np.random.get_state()
    version, words, gauss = random.getstate()
    states: dict[str, Any] = {
        "python": {"version": version, "words": list(words), "gauss": gauss},
        "numpy": {
            "keys": torch.from_numpy(np.asarray(keys, dtype=np.int64)), "position": int(position),
            "has_gauss": int(has_gauss), "cached": float(cached),
        },
        "torch": torch.get_rng_state(),
    }  # fmt: skip
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def restore_random(states: dict[str, Any]) -> None:
    """Put all random generators where `random_states` found them; what `load` returned is known to be right."""
    python, own = states["python"], states["numpy"]
    random.setstate((python["version"], tuple(python["words"]), python["gauss"]))
    keys = own["keys"].cpu().numpy().astype(np.uint32)
    np.random.set_state(("MT19937", keys, own["position"], own["has_gauss"], own["cached"]))
    torch.set_rng_state(states["torch"].cpu())
    if "cuda" in states and torch.cuda.is_available():
        for number, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(state.cpu(), number)
