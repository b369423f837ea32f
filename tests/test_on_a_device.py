"""Whole runs on the simulated device: train, validate, test, resume, recommend, explain, export, and a search trial.

The models draw nothing on the device here, so results are those of the CPU.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from recbole.trainer import Trainer

from recbole_ext import Config, Recommender, run_recbole
from recbole_ext.training import step_checkpoints
from recbole_ext.tuning.trial import SharedData, TrialSetup, train
from tests.simulated_device import DEVICE, SimulatedTensor, Waits, simulated_device
from tests.training.test_resume import files, same

pytestmark = pytest.mark.usefixtures("no_waiting")

MODELS = {
    "MEANTIME": {"hidden_size": 16, "inner_size": 16, "n_layers": 1, "objective": "next"},
    "LightSANs": {"hidden_size": 16, "inner_size": 16, "n_heads": 2, "k_interests": 3},
    "BST": {"embedding_size": 8, "mlp_hidden_size": [16]},
    "TiSASRec": {"hidden_size": 16, "n_layers": 1, "time_span": 16},
    "SASRec": {"hidden_size": 16, "inner_size": 16, "n_layers": 1},
}
COLUMNS = ["user_id:token", "item_id:token", "timestamp:float", "rating:float"]
LABELED = {"mode": "labeled"}
LABELS = {"threshold": {"rating": 3}, "metrics": ["AUC", "LogLoss"], "valid_metric": "AUC", "eval_args": LABELED}


@contextlib.contextmanager
def on_device() -> Iterator[Waits]:
    """Configurations choose the simulated device in this block, as they choose a GPU that is there."""
    choose_usual = Config._init_device

    def choose(config: Config) -> None:
        choose_usual(config)
        config.final_config_dict["device"] = DEVICE

    with mock.patch.object(Config, "_init_device", choose), simulated_device() as waits:
        yield waits


@pytest.fixture
def events(random_events) -> list[tuple]:
    return [(*event, number % 5 + 1) for number, event in enumerate(random_events())]


@pytest.fixture
def keys_of(write_events, events):
    """Keys of a small run without dropout."""

    def make(model: str, **keys) -> dict:
        dropout = {} if model == "BST" else {"attn_dropout_prob": 0.0}
        return {
            "data_path": write_events(events, COLUMNS), "epochs": 2, "train_batch_size": 16, "show_progress": False,
            "state": "warning", "MAX_ITEM_LIST_LENGTH": 8, "topk": [5], "valid_metric": "NDCG@5", "use_gpu": False,
            "metric_decimal_place": 12, "hidden_dropout_prob": 0.0, **dropout, **MODELS[model], **keys,
        }  # fmt: skip

    return make


@pytest.fixture
def run(keys_of):
    def run(model: str, **keys) -> dict:
        return run_recbole(model, "toy", None, keys_of(model, **keys), argv=[])

    return run


def close(found: dict, right: dict, tolerance: float = 1e-3) -> None:
    assert found.keys() == right.keys()
    for name, value in right.items():
        assert found[name] == pytest.approx(value, abs=tolerance), name


RUNS = [
    *((model, {}) for model in MODELS), ("BST", LABELS), ("MEANTIME", {"objective": "cloze", "exclude_history": True}),
    ("TiSASRec", {"eval_args": {"mode": "uni9"}}), ("LightSANs", {"metrics": ["NDCG", "AveragePopularity"]}),
    ("SASRec", {"ema_decay": 0.9, "eval_users": 10}), ("BST", {"eval_args": {"mode": "uni5-unseen"}}),
]  # fmt: skip


@pytest.mark.parametrize(("model", "keys"), RUNS, ids=[" ".join([model, *keys]) for model, keys in RUNS])
def test_a_run_has_the_metrics_of_the_cpu(run, model, keys):
    right = run(model, **keys)
    with on_device() as waits:
        found = run(model, **keys)
    assert waits.of_results
    for name in ("best_valid_result", "test_result"):
        close(found[name], right[name])


def test_metrics_of_each_user_are_those_of_the_cpu(keys_of, tmp_path):
    tables = []
    for number, block in enumerate((contextlib.nullcontext(), on_device())):
        path = tmp_path / f"{number}.csv"
        with block:
            run_recbole("LightSANs", "toy", None, keys_of("LightSANs"), argv=[], per_user=path)
        tables.append(pd.read_csv(path, sep=None, engine="python"))
    assert list(tables[0]) == list(tables[1])
    assert len(tables[0]) == len(tables[1]) > 0


@pytest.mark.parametrize("model", MODELS)
def test_two_and_two_epochs_are_four_bit_for_bit(run, model, monkeypatch):
    """And a step of a resumed training waits once, as any other."""
    train_epoch, counts = Trainer._train_epoch, []

    def counted(trainer, batches, *args):
        before = sum(waits.of_results.values())
        loss = train_epoch(trainer, batches, *args)
        counts.append((sum(waits.of_results.values()) - before, len(batches)))
        return loss

    monkeypatch.setattr(Trainer, "_train_epoch", counted)
    dropout = {"hidden_dropout_prob": 0.2, "ema_decay": 0.9, "clip_grad_norm": {"max_norm": 1.0}}
    with on_device() as waits:
        straight = run(model, epochs=4, **dropout)
        half = run(model, epochs=2, **dropout)
        whole = run_recbole(resume=half["checkpoint"], config_dict={"epochs": 4}, argv=[])
        same(files(straight), files(whole))
    assert straight["test_result"] == whole["test_result"]
    assert len(counts) == 8
    if model != "SASRec":  # RecBole's own class
        assert all(waited == steps for waited, steps in counts), counts


def test_an_epoch_goes_on_where_it_ended(run, monkeypatch):
    class Killed(BaseException):
        pass

    def write_and_end(trainer, *args):
        write(trainer, *args)
        raise Killed

    write = step_checkpoints.StepCheckpoints._write_step
    with on_device():
        straight = run("MEANTIME")
        before = set(Path("saved").glob("*.pth"))
        with monkeypatch.context() as patch:
            patch.setattr(step_checkpoints.StepCheckpoints, "_write_step", write_and_end)
            with pytest.raises(Killed):
                run("MEANTIME", checkpoint_minutes=1e-9)
        (written,) = set(Path("saved").glob("*.pth")) - before
        whole = run_recbole(resume=str(written), config_dict={"checkpoint_minutes": None}, argv=[])
    assert straight["test_result"] == whole["test_result"]


@pytest.mark.parametrize("model", MODELS)
def test_a_checkpoint_recommends_and_explains_on_either_device(run, events, model, tmp_path):
    """Trained on the device, served on the CPU and on the device."""
    with on_device():
        path = run(model, epochs=1)["checkpoint"]
    histories = pd.DataFrame(events, columns=[column.partition(":")[0] for column in COLUMNS])
    served, found = {"cpu": contextlib.nullcontext(), DEVICE: on_device()}, []
    for device, block in served.items():
        with block:
            recommender = Recommender.load(path, device=device)
            assert isinstance(next(recommender.model.parameters()), SimulatedTensor) == (device == DEVICE)
            best = recommender.recommend(histories, k=5)
            few = recommender.recommend(histories, k=5, items=["i1", "i3", "i5"], exclude_seen=False)
            effects = recommender.explain(histories, "u1")
            vectors = []
            if model not in ("BST", "SASRec"):
                vectors = [recommender.item_vectors(), recommender.user_vectors(histories)]
            found.append((best, few, effects, vectors))
    (best, few, effects, vectors), (best2, few2, effects2, vectors2) = found
    pd.testing.assert_frame_equal(best, best2, rtol=1e-4, atol=1e-5)
    pd.testing.assert_frame_equal(few, few2, rtol=1e-4, atol=1e-5)
    pd.testing.assert_frame_equal(effects.events, effects2.events, rtol=1e-3, atol=1e-5)
    for one, other in zip(vectors, vectors2, strict=True):
        np.testing.assert_allclose(one.vectors, other.vectors, atol=1e-5)


def test_a_search_trial_runs_on_the_device(keys_of, tmp_path):
    reports: list[dict] = []
    with on_device():
        setup = TrialSetup("LightSANs", "toy", keys_of("LightSANs"), 1)
        data = SharedData(Config("LightSANs", "toy", None, setup.keys, argv=[]))
        train({"learning_rate": 0.01}, setup, data, str(tmp_path / "trial"), reports.append, lambda path: None)
    assert [report["epoch"] for report in reports] == [1, 2]
    assert all(np.isfinite(report["score"]) and report["loss"] > 0 for report in reports)


def test_a_device_that_is_not_there_is_refused(run):
    path = run("SASRec", epochs=1)["checkpoint"]
    with pytest.raises(Exception, match="device is 'meta', which this machine lacks"):
        Recommender.load(path, device="meta")
    assert torch.device("meta") == DEVICE
