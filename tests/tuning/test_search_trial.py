"""A trial, without Ray: what it reports, what it reads, and that its score is that of a run with its keys."""

from pathlib import Path

import pytest
import torch

from recbole_ext import Config, load_data_and_model, run_recbole
from recbole_ext.errors import InputError
from recbole_ext.quick_start import validate_checkpoint
from recbole_ext.tuning import trial
from recbole_ext.tuning.trial import SharedData, TrialSetup, train

pytestmark = pytest.mark.usefixtures("no_waiting")
MODELS = {
    "MEANTIME": {"hidden_size": 16, "inner_size": 32, "n_layers": 1},
    "LightSANs": {"hidden_size": 16, "inner_size": 32, "n_layers": 1, "n_heads": 2, "k_interests": 3},
    "BST": {"embedding_size": 8, "n_layers": 1, "mlp_hidden_size": [16]},
    "TiSASRec": {"hidden_size": 16, "n_layers": 1},
}


@pytest.fixture
def keys(write_events, random_events):
    """Keys of a small run on the toy data set."""
    return {
        "data_path": write_events(random_events()), "epochs": 3, "train_batch_size": 16, "show_progress": False,
        "state": "warning", "MAX_ITEM_LIST_LENGTH": 8, "topk": [5], "valid_metric": "NDCG@5", "use_gpu": False,
    }  # fmt: skip


@pytest.fixture
def start(keys, tmp_path):
    """Train a trial; returns its reports and the checkpoints that it handed over."""

    def start(model, point, data=None, **more):
        setup = TrialSetup(model, "toy", {**keys, **MODELS.get(model, {}), **more}, 1)
        data = data or SharedData(Config(model, "toy", None, setup.keys, argv=[]))
        reports, checkpoints = [], []

        def keep(path):
            checkpoints.append(tmp_path / f"kept-{len(checkpoints)}.pth")
            checkpoints[-1].write_bytes(Path(path).read_bytes())

        train(point, setup, data, str(tmp_path / "trial"), reports.append, keep)
        return reports, checkpoints

    return start


@pytest.mark.parametrize("model", MODELS)
def test_trial_reports_the_scores_of_a_run_with_the_same_keys(start, keys, model):
    reports, checkpoints = start(model, {"learning_rate": 0.01})
    assert [report["epoch"] for report in reports] == [1, 2, 3]
    best = [report["best_score"] for report in reports]
    assert best == [max(report["score"] for report in reports[: n + 1]) for n in range(3)]
    assert all(report["metrics"]["ndcg@5"] == report["score"] for report in reports)
    assert all(report["loss"] > 0 for report in reports)

    run = run_recbole(model, "toy", None, {**keys, **MODELS[model], "learning_rate": 0.01}, argv=[])
    assert run["best_valid_score"] == best[-1]
    state = torch.load(run["checkpoint"], weights_only=True)["state_dict"]
    kept = torch.load(checkpoints[-1], weights_only=True)["state_dict"]
    assert all(torch.equal(kept[name], state[name]) for name in state)
    assert load_data_and_model(str(checkpoints[-1]))[0]["learning_rate"] == 0.01


def test_trial_is_validated_on_the_users_of_a_run(start, keys):
    reports, checkpoints = start("MEANTIME", {"learning_rate": 0.01}, eval_users=8, checkpoint_minutes=1e-9)
    more = {**MODELS["MEANTIME"], "learning_rate": 0.01, "eval_users": 8}
    run = run_recbole("MEANTIME", "toy", None, {**keys, **more}, argv=[])
    assert run["valid_sample"]["result"]["ndcg@5"] == reports[-1]["best_score"]
    assert validate_checkpoint(str(checkpoints[-1])) == (run["best_valid_score"], run["best_valid_result"])
    assert not list(Path("trial").glob("*.latest"))


def test_trial_does_not_use_the_test_data(start, monkeypatch):
    scored = []
    loaders = SharedData.loaders

    def watched(self, config):
        found = loaders(self, config)
        for loader, name in zip(found, ("train", "valid", "test"), strict=True):
            collate = loader.collate_fn
            loader.collate_fn = lambda index, name=name, collate=collate: scored.append(name) or collate(index)
        return found

    monkeypatch.setattr(SharedData, "loaders", watched)
    start("MEANTIME", {})
    assert set(scored) == {"train", "valid"}


def test_trial_reads_the_files_only_if_its_keys_change_the_data(start, keys, monkeypatch):
    config = Config("MEANTIME", "toy", None, {**keys, **MODELS["MEANTIME"]}, argv=[])
    data = SharedData(config)
    assert {"MAX_ITEM_LIST_LENGTH", "train_window", "time_unit"} <= data.keys
    assert not {"learning_rate", "hidden_size", "train_batch_size", "eval_batch_size", "topk"} & data.keys
    read = []
    monkeypatch.setattr(trial, "SharedData", lambda config: read.append(config) or SharedData(config))
    first, _ = start("MEANTIME", {"learning_rate": 0.01}, data)
    again, _ = start("MEANTIME", {"learning_rate": 0.01}, data)
    assert not read
    assert first == again
    start("MEANTIME", {"MAX_ITEM_LIST_LENGTH": 5}, data)
    assert [config["MAX_ITEM_LIST_LENGTH"] for config in read] == [5]


def test_trial_with_shared_data_needs_no_files(start, keys):
    config = Config("MEANTIME", "toy", None, {**keys, **MODELS["MEANTIME"]}, argv=[])
    data = SharedData(config)
    for file in Path(keys["data_path"]).rglob("*.inter"):
        file.unlink()
    assert len(start("MEANTIME", {}, data)[0]) == 3
    with pytest.raises(InputError, match="was not found"):
        start("MEANTIME", {"MAX_ITEM_LIST_LENGTH": 5}, data)


def test_trial_ignores_the_arguments_of_the_worker_process(start, monkeypatch):
    monkeypatch.setattr("sys.argv", ["worker", "--node-ip-address=127.0.0.1", "--epochs=1"])
    assert len(start("MEANTIME", {})[0]) == 3


def test_failure_reason_of_a_diverged_trial(start):
    with pytest.raises(FloatingPointError, match="not a number") as caught:
        start("MEANTIME", {"learning_rate": 1e6})
    assert trial.failure_reason(caught.value).startswith("the training loss is not a number")
    assert trial.failure_reason(RuntimeError("CUDA out of memory.\nmore")) == "RuntimeError: CUDA out of memory."
    assert trial.failure_reason(MemoryError()) == "MemoryError: no message"


def test_trial_leaves_no_checkpoint_in_its_folder(start, tmp_path):
    start("MEANTIME", {})
    assert not list((tmp_path / "trial").rglob("*.pth"))
