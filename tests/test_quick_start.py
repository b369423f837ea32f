"""From a request to a result, and from a checkpoint back to the model that gave it."""

import contextlib
import json
import logging
import os
import queue
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import recbole_ext
from recbole_ext import MEANTIME, InputError, Recommender, get_trainer, load_data_and_model, run_recbole
from recbole_ext.checkpoint import file as checkpoint

SMALL = {
    "epochs": 2, "train_batch_size": 16, "show_progress": False, "use_gpu": False, "MAX_ITEM_LIST_LENGTH": 8,
    "topk": [5], "valid_metric": "NDCG@5", "state": "warning",
}  # fmt: skip
TINY = {"hidden_size": 16, "inner_size": 16, "n_layers": 1}


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_waiting")]


@contextlib.contextmanager
def no_handlers():
    """Logging as it is on the command line: nobody has set it up."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    root.handlers = []
    try:
        yield
    finally:
        for handler in root.handlers:
            handler.close()
        root.handlers = before
        root.setLevel(level)


@pytest.fixture
def run(write_events, random_events):
    def run(model="MEANTIME", files=None, saved=True, inbox=None, **keys):
        path = write_events(random_events())
        small = {**SMALL, **(TINY if model not in ("Pop", "BPR", "DIN", "BST") else {}), "data_path": path}
        return run_recbole(model, "toy", files, {**small, **keys}, saved, inbox, argv=[])

    return run


# ---------------------------------------------------------------- the result


def test_the_result_has_recboles_keys_with_plain_numbers(run):
    result = run()
    assert list(result)[:4] == ["best_valid_score", "valid_score_bigger", "best_valid_result", "test_result"]
    assert result["valid_score_bigger"] is True
    assert type(result["best_valid_score"]) is float
    assert result["best_valid_result"]["ndcg@5"] == result["best_valid_score"]
    for part in ("best_valid_result", "test_result"):
        assert list(result[part]) == ["recall@5", "mrr@5", "ndcg@5", "hit@5", "precision@5"]
        assert {type(value) for value in result[part].values()} == {float}
    assert result["config"]["hidden_size"] == 16
    assert json.dumps(result["config"])
    assert os.path.dirname(result["checkpoint"]) == os.path.abspath("saved")


def test_a_model_may_be_given_as_a_class(run):
    assert run(MEANTIME)["test_result"] == run("MEANTIME")["test_result"]


def test_saved_false_keeps_no_checkpoint(run):
    result = run(saved=False)
    assert result["checkpoint"] is None
    assert os.listdir("saved") == []
    assert result["test_result"]


def test_a_queue_gets_the_result(run):
    inbox = queue.Queue()
    result = run(inbox=inbox)
    assert inbox.get_nowait() is result


def test_no_epochs_test_the_untrained_model_and_no_validation_tests_the_last(run):
    untrained = run(epochs=0)
    assert untrained["best_valid_result"] is None
    assert untrained["test_result"]
    unvalidated = run(eval_step=0)
    assert unvalidated["best_valid_result"] is None
    assert checkpoint.load(unvalidated["checkpoint"])["epoch"] == 1
    assert run(eval_args={"split": {"LS": "test_only"}})["best_valid_result"] is None
    assert run(eval_args={"split": {"LS": "valid_only"}})["test_result"] is None


def test_the_log_has_plain_numbers_and_each_run_its_own_file(run):
    with no_handlers():
        results = [run(seed=seed, state="info") for seed in (1, 2)]
    files = sorted(Path("log/MEANTIME").iterdir(), key=os.path.getmtime)
    assert len(files) == 2
    for file, result in zip(files, results, strict=True):
        text = file.read_text()
        assert "np.float64" not in text
        assert f"test result: {result['test_result']}" in text
        assert f"seed = {result['config']['seed']}" in text
        assert text.count("test result") == 1
    assert len(os.listdir("log_tensorboard")) == 2


def test_a_host_programs_log_handlers_are_left_alone(run):
    root, own = logging.getLogger(), logging.StreamHandler()
    root.addHandler(own)
    try:
        before = list(root.handlers)
        run()
        assert root.handlers == before
    finally:
        root.removeHandler(own)


def test_a_folder_that_cannot_be_written_is_refused_before_training(run, monkeypatch):
    Path("file").touch()
    monkeypatch.setattr("recbole_ext.quick_start.create_dataset", lambda config: pytest.fail("data was read"))
    with pytest.raises(InputError, match="checkpoints cannot be written to .*file"):
        run(checkpoint_dir="file/saved")
    Path("log").touch()
    with pytest.raises(InputError, match="the log of a run cannot be written"):
        run()


def test_values_that_only_the_model_can_refuse_are_sentences(run):
    for keys, sentence in (
        ({"hidden_size": 18}, "4 kernels"), ({"absolute_kernels": ["posiion"]}, "is .'posiion'.; it should be a list"),
        ({"absolute_kernels": [], "relative_kernels": []}, "both empty"), ({"MAX_ITEM_LIST_LENGTH": 1}, "in .2, inf"),
        ({"loss_type": "BPR"}, "should be one of CE, SSM, gBCE, BCE"), ({"query_time": "now"}, "one of target, last"),
        ({"topk": [500], "valid_metric": "NDCG@500"}, "topk is 500, but the data set has only 20 items"),
        ({"time_unit": "sec"}, "'time_unit' is 'sec'"), ({"history": "some"}, "'history' is 'some'"),
        ({"TIME_FIELD": "time"}, "has no column 'time'"), ({"threshold": {"stars": 3}}, "has no column 'stars'"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=sentence):
            run(**keys)
    with pytest.raises(InputError, match="loss_type"):
        run("SASRec", loss_type="XY")


# ---------------------------------------------------------------- the same again


@pytest.mark.parametrize("model", ["MEANTIME", "SASRec", "BPR"])
def test_two_runs_with_one_seed_have_the_same_losses_and_metrics(run, monkeypatch, model):
    seen = []

    def noting(trainer):
        class Noting(trainer):
            def _train_epoch(self, *args, **keys):
                loss = super()._train_epoch(*args, **keys)
                seen.append(loss)
                return loss

        return Noting

    monkeypatch.setattr("recbole_ext.quick_start.get_trainer", lambda config: noting(get_trainer(config)))
    results = [run(model, seed=seed, metric_decimal_place=15) for seed in (7, 7, 8)]
    assert seen[:2] == seen[2:4] != seen[4:]
    assert results[0]["test_result"] == results[1]["test_result"]
    assert results[0]["best_valid_result"] == results[1]["best_valid_result"]
    one, other, third = (checkpoint.load(result["checkpoint"])["state_dict"] for result in results)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not all(torch.equal(one[name], third[name]) for name in one)


OWN_MODEL = """
    from recbole.model.sequential_recommender import SASRec

    class Halved(SASRec):
        def __init__(self, config, dataset):
            super().__init__(config, dataset)
            self.share = config["share"]

        def full_sort_predict(self, interaction):
            return super().full_sort_predict(interaction) * self.share
"""
LOAD = """
    import json, sys
    from recbole_ext import get_trainer, load_data_and_model

    def test(path, **keys):
        config, model, data, train, valid, test = load_data_and_model(path, **keys)
        assert train._dataset.item_num == data.item_num and next(model.parameters()).device == config["device"]
        return get_trainer(config)(config, model).evaluate(test, load_best_model=False)

    paths, moved = json.loads(sys.argv[1]), {"data_path": sys.argv[2]}
    results = [test(path, config_dict=moved) for path in paths]
    from own_model import Halved
    results.append(test(sys.argv[3], model=Halved, config_dict=moved, device="cpu"))
    results.append(test(paths[0], config_dict=moved, device="cpu"))
    print(json.dumps(results))
"""


def test_a_checkpoint_gives_the_reported_metrics_in_a_fresh_process_with_the_data_moved(run, tmp_path, monkeypatch):
    (tmp_path / "own_model.py").write_text(textwrap.dedent(OWN_MODEL))
    (tmp_path / "keys.yaml").write_text("relative_kernels: [exp]\nabsolute_kernels: [day]\nmy_key: 5")
    monkeypatch.syspath_prepend(str(tmp_path))
    from own_model import Halved

    exact = {"metric_decimal_place": 15}
    results = [
        run(files=["keys.yaml"], allow_unknown=True, **exact), run("SASRec", loss_type="BPR", **exact),
        run("BERT4Rec", **exact), run("Pop", **exact), run("DIN", metrics=["AUC"], valid_metric="AUC", **exact),
        run(Halved, share=0.5, **exact),
    ]  # fmt: skip
    (tmp_path / "elsewhere").mkdir()
    shutil.move(tmp_path / "data" / "toy", tmp_path / "elsewhere" / "toy")
    paths = [os.path.join("kept", os.path.basename(result["checkpoint"])) for result in results]
    os.rename("saved", "kept")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LOAD), json.dumps(paths[:-1]), "elsewhere", paths[-1]],
        capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": f"{Path(recbole_ext.__file__).parents[1]}{os.pathsep}{tmp_path}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout.splitlines()[-1])
    reported = [result["test_result"] for result in results]
    assert loaded == [*reported, reported[0]]
    assert any(0 < value < 1 for value in reported[0].values())


# ---------------------------------------------------------------- loading that is refused


def test_loading_leaves_the_callers_folders_and_devices_alone(run, monkeypatch):
    path = run(checkpoint_dir="first", use_gpu=True, gpu_id="0")["checkpoint"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    config, *_ = load_data_and_model(path)
    assert config["checkpoint_dir"] == os.path.abspath("saved")
    assert not os.path.exists("saved")
    assert config["gpu_id"] == "3"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"


def test_loading_warns_of_nothing(run, caplog):
    path = run()["checkpoint"]
    caplog.clear()
    load_data_and_model(path)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_changed_data_is_refused(run, write_events, random_events):
    path = run()["checkpoint"]
    events = random_events()
    write_events(events[:-1] + [("new", "i1", 1.6e9), ("new", "i2", 1.6e9)])
    with pytest.raises(InputError, match=r"has 30 values of user_id in another order or number than the 31 of .*toy"):
        load_data_and_model(path)
    user, item, time = events[5]
    write_events([*events[:5], (user, item, time + 1), *events[6:]])
    with pytest.raises(InputError, match=r"the events of .*toy have changed since checkpoint"):
        load_data_and_model(path)
    shutil.rmtree("data")
    with pytest.raises(InputError, match="was not found"):
        load_data_and_model(path)


def test_changes_are_held_to_the_keys_there_are(run):
    path = run(own=1, allow_unknown=True)["checkpoint"]
    with pytest.raises(InputError, match="'topkk' is not read by MEANTIME; did you mean 'topk'"):
        load_data_and_model(path, config_dict={"topkk": [1]})
    with pytest.raises(InputError, match="key 'model' is not read"):
        load_data_and_model(path, config_dict={"model": "SASRec"})
    with pytest.raises(InputError, match="config_dict is 5"):
        load_data_and_model(path, config_dict=5)
    with pytest.raises(InputError, match="data set 'other' was not found"):
        load_data_and_model(path, config_dict={"dataset": "other"})
    config = load_data_and_model(path, config_dict={"topk": [1], "valid_metric": "NDCG@1", "own": 2})[0]
    assert (config["topk"], config["own"]) == ([1], 2)


def test_a_checkpoint_with_a_key_that_no_model_reads_any_more_still_loads(run):
    path = run()["checkpoint"]
    state = torch.load(path, weights_only=True)
    state["config"] |= {"n_heads": 4, "dropout_prob": 0.9, "CROP_ITEM_SEQ": "Crop_item_id_list"}
    torch.save(state, path)
    assert load_data_and_model(path)[0]["hidden_size"] == 16
    Recommender.load(path)
    run_recbole(config_dict={"epochs": 3}, argv=[], resume=path)


def test_a_missing_device_is_refused(run, monkeypatch):
    path = run()["checkpoint"]
    for device in ("cuda:99", "tpu", "", "meta"):
        with pytest.raises(InputError, match=f"device is '{device}', which this machine lacks"):
            load_data_and_model(path, device=device)


class Own(MEANTIME):
    pass


def test_a_model_that_recbole_has_too_stays_the_one_that_was_trained(run):
    for name, home in (("LightSANs", "recbole_ext"), ("recbole.LightSANs", "recbole")):
        model = load_data_and_model(run(name, k_interests=2)["checkpoint"])[1]
        assert type(model).__name__ == "LightSANs"
        assert type(model).__module__.partition(".")[0] == home


@pytest.mark.parametrize(
    ("model", "change"),
    [
        ("LightSANs", {"n_heads": 4}), ("LightSANs", {"hidden_act": "relu"}), ("SASRec", {"n_heads": 1}),
        ("MEANTIME", {"kernel_freq": 100.0}), ("BST", {"time_gap": "day"}),
    ],
)  # fmt: skip
def test_weights_do_not_run_as_another_model(run, model, change):
    path = run(model, **({"embedding_size": 8} if model == "BST" else {}))["checkpoint"]
    ((key, _),) = change.items()
    with pytest.raises(InputError, match=f"{key} is .*, but checkpoint .* was trained with .*; set it to that value"):
        load_data_and_model(path, config_dict=change)


def test_a_class_of_ones_own_has_to_be_given(run):
    path = run(Own)["checkpoint"]
    with pytest.raises(InputError, match=r"has your own class, tests\.test_quick_start\.Own; pass it as model="):
        load_data_and_model(path)
    assert type(load_data_and_model(path, model=Own)[1]) is Own


def test_a_checkpoint_cannot_make_recbole_unpickle_files_beside_it(run, tmp_path):
    class Payload:
        def __reduce__(self):
            return (open, (str(tmp_path / "marker"), "w"))

    import pickle

    for model, file in (("MEANTIME", "toy-for-MEANTIME-dataloader.pth"), ("Pop", "toy-Dataset.pth")):
        path = run(model)["checkpoint"]
        planted = os.path.join(os.path.dirname(path), file)
        Path(planted).write_bytes(pickle.dumps(Payload()))
        state = checkpoint.load(path)
        state["config"] |= {"dataset_save_path": planted, "dataloaders_save_path": planted}
        checkpoint.save(state, path)
        load_data_and_model(path, config_dict={"checkpoint_dir": os.path.dirname(path)})
    assert not (tmp_path / "marker").exists()


def test_a_planted_payload_is_refused_when_loading(run, tmp_path):
    class Payload:
        def __reduce__(self):
            return (open, (str(tmp_path / "marker"), "w"))

    path = run()["checkpoint"]
    torch.save({**checkpoint.load(path), "payload": Payload()}, path)
    with pytest.raises(InputError, match="contains pickled objects"):
        load_data_and_model(path)
    assert not (tmp_path / "marker").exists()
