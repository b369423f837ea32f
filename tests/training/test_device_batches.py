"""Training on a device: a step waits for it once, for the loss, and learns what it learns on the CPU."""

import copy

import pytest
import torch
from torch import Tensor

from recbole_ext import create_dataset, data_preparation, get_trainer
from recbole_ext.model import batching
from recbole_ext.training.device_batches import BatchesOnDevice, read_once
from tests.simulated_device import DEVICE, Waits, simulated_device

LABELS = {
    "threshold": {"rating": 3}, "metrics": ["AUC"], "valid_metric": "AUC", "eval_args": {"mode": "labeled"},
    "train_neg_sample_args": None,
}  # fmt: skip
DRAWS = {"train_neg_sample_args": {"distribution": "uniform", "sample_num": 1}}
SAMPLED = ("SSM", "gBCE", "BCE")
RUNS = [
    *(("MEANTIME", {"loss_type": loss}) for loss in ("CE", *SAMPLED)),
    *(("MEANTIME", {"loss_type": loss, "objective": "next"}) for loss in ("CE", *SAMPLED)),
    ("MEANTIME", {"pad_class": True, "query_time": "last"}),
    ("MEANTIME", {"objective": "next", "architecture": "sasrec", "query_time": "last"}),
    ("MEANTIME", {"relative_kernels": ["exp", "log"]}),
    *(("LightSANs", {"loss_type": loss}) for loss in ("CE", *SAMPLED)),
    ("LightSANs", {"loss_type": "BPR", **DRAWS}),
    *(("LightSANs", {"attention": kind}) for kind in ("full", "linformer", "performer", "linear", "synthesizer")),
    ("LightSANs", {"position": "relative"}),
    ("LightSANs", {"recbole_compat": True}),
    ("TiSASRec", {"loss_type": "BCE"}),
    ("TiSASRec", {"loss_type": "CE", "time_interval": "global"}),
    *(("TiSASRec", {"loss_type": loss, "negative_distribution": "mixed"}) for loss in SAMPLED),
    ("TiSASRec", {"loss_type": "SSM", "negative_distribution": "in_batch"}),
    ("BST", LABELS),
    ("BST", {**LABELS, "n_layers": 2, "user_id_feature": True}),
    ("BST", {**LABELS, "output": "flatten", "history_features": ["label"]}),
    ("BST", DRAWS),
]  # fmt: skip


@pytest.fixture
def learn(make_config, write_events, random_events):
    """Train for an epoch on a device: the weights, the loss, what the CPU waited for, and the number of steps."""
    columns = ["user_id:token", "item_id:token", "timestamp:float", "rating:float"]
    events = [(*event, number % 5 + 1) for number, event in enumerate(random_events())]

    def learn(model: str, device: torch.device, **keys) -> tuple[dict[str, Tensor], float, Waits, int]:
        dropout = {"hidden_dropout_prob": 0.0, **({} if model == "BST" else {"attn_dropout_prob": 0.0})}
        config = make_config(model, data_path=write_events(events, columns), **{**dropout, **keys}, epochs=1)
        train, *_ = data_preparation(config, create_dataset(config))
        torch.manual_seed(0)
        network = config.model_class(config, train._dataset)
        config["device"] = device
        with simulated_device() as waits:
            trainer = get_trainer(config)(config, network.to(device))
            waits.clear()
            trainer.fit(train, saved=bool(keys.get("checkpoint_minutes")))
            waits = copy.deepcopy(waits)
            weights = {name: values.cpu() for name, values in network.state_dict().items()}
        return weights, trainer.train_loss_dict[0], waits, len(train)

    return learn


def names(runs: list[tuple[str, dict]]) -> list[str]:
    return [" ".join([model, *(f"{key}-{value}" for key, value in keys.items() if isinstance(value, (str, bool)))])
            for model, keys in runs]  # fmt: skip


@pytest.mark.parametrize(("model", "keys"), RUNS, ids=names(RUNS))
def test_a_step_waits_once_and_learns_what_the_cpu_learns(learn, model, keys):
    right, loss, *_ = learn(model, torch.device("cpu"), **keys)
    weights, found, waits, steps = learn(model, DEVICE, **keys)
    assert sum(waits.of_results.values()) == steps, waits
    assert not +waits.of_copies
    assert found == pytest.approx(loss, rel=1e-4)
    for name, values in weights.items():
        assert torch.allclose(values, right[name], atol=2e-3), name  # Adam's first steps are as long for any gradient


@pytest.mark.parametrize("model", ["MEANTIME", "LightSANs", "TiSASRec", "BST"])
def test_buckets_of_similar_length_add_no_wait(learn, model, monkeypatch):
    for name in ("MAX_PAIRS", "MAX_POSITIONS"):
        monkeypatch.setattr(batching, name, (2**6, 2**20))
    keys = {**LABELS, "n_layers": 2} if model == "BST" else {"time_span": 8} if model == "TiSASRec" else {}
    _, loss, waits, steps = learn(model, DEVICE, **keys)
    assert sum(waits.of_results.values()) == steps, waits
    assert loss == pytest.approx(learn(model, torch.device("cpu"), **keys)[1], rel=1e-4)


def test_clipping_and_averaging_and_dropout_add_no_wait(learn):
    keys = {"clip_grad_norm": {"max_norm": 1.0}, "ema_decay": 0.9, "hidden_dropout_prob": 0.2, "attn_dropout_prob": 0.2}
    *_, waits, steps = learn("MEANTIME", DEVICE, **keys)
    assert sum(waits.of_results.values()) == steps, waits


def test_checkpoints_within_an_epoch_add_no_wait_to_a_step(learn):
    *_, waits, steps = learn("MEANTIME", DEVICE, checkpoint_minutes=1000.0)
    assert waits.of_results["_local_scalar_dense"] == steps, waits


def test_a_loss_that_is_no_number_ends_training(learn, monkeypatch):
    monkeypatch.setattr("recbole_ext.MEANTIME.calculate_loss", lambda self, _: self.item_bias.sum() * torch.nan)
    with pytest.raises(FloatingPointError, match="diverged"):
        learn("MEANTIME", DEVICE)


def test_the_value_of_a_loss_is_read_once():
    with simulated_device() as waits:
        loss = torch.ones(3, requires_grad=True, device=DEVICE).sum()
        assert [read_once(loss).item(), read_once(loss).item(), float(loss.item())] == [3, 3, 3]
        loss.backward()
    assert sum(waits.of_results.values()) == 1


def test_batches_on_a_device_are_those_of_the_loader(make_model):
    _, train, *_ = make_model("LightSANs")
    right = list(train)
    with simulated_device() as waits:
        batches = BatchesOnDevice(train, DEVICE, "item_length")
        assert len(batches) == len(right)
        assert batches.sampler is train.sampler
        found = list(batches)
        assert not +waits.of_copies
        for batch in found:
            assert {values.device for values in batch.interaction.values()} == {DEVICE}
    assert sum(len(batch) for batch in found) == sum(len(batch) for batch in right)
