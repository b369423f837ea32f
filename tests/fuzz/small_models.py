"""Small models and their data, trained once in a process."""

import functools
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from recbole.data.interaction import Interaction

from recbole_ext import Recommender, run_recbole
from tests.fuzz.judging import workspace
from tests.fuzz.values import BASE, ITEMS

SMALL: dict[str, dict[str, Any]] = {
    "MEANTIME": {"hidden_size": 8, "inner_size": 8},
    "LightSANs": {"hidden_size": 8, "inner_size": 8, "k_interests": 2},
    "BST": {"embedding_size": 4, "gap_embedding_size": 4, "inner_size": 8, "n_heads": 2, "mlp_hidden_size": [8]},
    "TiSASRec": {"hidden_size": 8, "time_span": 8},
    "SASRec": {"hidden_size": 8, "inner_size": 8}, "SASRecF": {"hidden_size": 8, "inner_size": 8},
    "GRU4Rec": {"embedding_size": 8, "hidden_size": 8}, "BPR": {"embedding_size": 8}, "Pop": {},
    "DIN": {"embedding_size": 4, "mlp_hidden_size": [8]},
}  # fmt: skip
QUICK = {
    "epochs": 1,
    "topk": [1],
    "valid_metric": "MRR@1",
    "train_batch_size": 32,
    "show_progress": False,
    "use_gpu": False,
}
WIDTH = 4  # of the histories of the small models
SERVED: dict[str, dict[str, Any]] = {
    "MEANTIME": {},
    "LightSANs": {"time_unit": "ms"},
    "BST": {
        "context_features": ["device"], "history": "positive", "min_history": 0, "train_neg_sample_args": None,
        "eval_args": {"mode": "labeled"}, "metrics": ["LogLoss"], "valid_metric": "LogLoss",
        "load_col": {"inter": ["user_id", "item_id", "timestamp", "label", "device"]},
    },
}  # fmt: skip


def write_small_data(folder: Path, per_second: int = 1) -> str:
    """A data set `toy` with a column of each type; returns its `data_path`."""
    draw = random.Random(0)
    lines = [
        "user_id:token\titem_id:token\ttimestamp:float\trating:float\tlabel:float\tdevice:token\ttag:token\twords:token_seq"
    ]
    for user in range(10):
        for event in range(6):
            time = (BASE - 86400 * 9 + user * 500 + event * 3600) * per_second
            item = ITEMS[(user + event) % len(ITEMS)] if event < 2 else draw.choice(ITEMS)
            lines.append(
                f"u{user}\t{item}\t{time}\t{draw.randint(1, 5)}\t{(user + event) % 2}\t"
                f"{draw.choice(['phone', 'desk'])}\t{draw.choice('pqr')}\t{' '.join(draw.choices('stv', k=2))}"
            )
    (folder / "toy").mkdir(exist_ok=True)
    (folder / "toy" / "toy.inter").write_text("\n".join(lines) + "\n", encoding="utf-8")
    items = [f"{item}\t{draw.choice('pqr')}\t{draw.randint(1, 9)}" for item in ITEMS]
    (folder / "toy" / "toy.item").write_text(
        "\n".join(["item_id:token\tcolour:token\tprice:float", *items]) + "\n", encoding="utf-8"
    )
    return str(folder)


@dataclass(frozen=True)
class Served:
    """A trained model, its checkpoint, and scores that are computed without the reader of histories."""

    path: str
    state: dict[str, Any]
    recommender: Recommender
    unit: str

    @functools.cached_property
    def tokens(self) -> list[str]:
        """Items by their ids."""
        return self.state["tokens"]["item_id"]

    @functools.cached_property
    def users(self) -> list[str]:
        """Users by their ids."""
        return self.state["tokens"]["user_id"]

    @torch.inference_mode()
    def scores(self, request: Any) -> dict[str, float]:
        """The score of every item for a request of the oracle."""
        width, origin = WIDTH, self.state["time_origin"]
        items = [self.tokens.index(item) for item in request.items[-width:]]
        times = [time - origin for time in request.times[-width:]]
        padding = [0] * (width - len(items))
        batch = {
            "user_id": torch.tensor([self.users.index(request.user) if request.user in self.users else 0]),
            "timestamp": torch.tensor([request.now - origin], dtype=torch.float64),
            "item_length": torch.tensor([len(items)]), "item_id_list": torch.tensor([items + padding]),
            "timestamp_list": torch.tensor([times + padding], dtype=torch.float64),
        }  # fmt: skip
        if "context_features" in self.state["config"]:
            known = self.state["data"]["vocabularies"]["device"]
            device = request.last["device"]
            batch["device"] = torch.tensor([known.index(device) if device in known[1:] else 0])
        scores = self.recommender.model.full_sort_predict(Interaction(batch)).view(-1)
        return dict(zip(self.tokens[1:], scores[1:].tolist(), strict=True))


FOLDER = tempfile.TemporaryDirectory(prefix="fuzz-models", ignore_cleanup_errors=True)


@functools.cache
def served(model: str) -> Served:
    """A small model of that name, trained once."""
    unit = SERVED[model].get("time_unit", "s")
    folder = Path(FOLDER.name) / model
    folder.mkdir()
    data_path = write_small_data(folder, 1000 if unit == "ms" else 1)
    keys = QUICK | SMALL[model] | {"data_path": data_path, "MAX_ITEM_LIST_LENGTH": WIDTH, "checkpoint_dir": str(folder)}
    with workspace():
        path = run_recbole(model, "toy", None, keys | SERVED[model], argv=[])["checkpoint"]
        return Served(path, torch.load(path, weights_only=True), Recommender.load(path, device="cpu"), unit)
