"""RecBole can do with the event log what it does with a data set of its own."""

import copy
import pickle
from logging import getLogger

import numpy as np
import pytest
import torch
from recbole.data.dataset import SequentialDataset
from recbole.data.transform import construct_transform
from recbole.utils import get_flops
from recbole.utils.case_study import full_sort_topk

from recbole_ext import EventLogDataset, get_trainer
from tests.data_checks import ALL_COLUMNS, RATED, TINY, histories


def test_columns_may_have_other_names(load, write_lines):
    path = write_lines("inter", "uid:token\tasin:token\twhen:float", "a\tx\t3", "a\ty\t2", "b\tx\t1", "b\tz\t9")
    keys = {"USER_ID_FIELD": "uid", "ITEM_ID_FIELD": "asin", "TIME_FIELD": "when", "data_path": path, **TINY}
    for model in ("SASRec", "MEANTIME"):
        dataset, train, *_ = load(model, **keys)
        assert set(dataset[np.arange(2)].columns) == {"uid", "asin", "when", "item_length", "asin_list", "when_list"}
        assert next(iter(train))["when_list"].dtype == torch.float64


def test_weights_of_items_are_preloaded_as_by_recbole(make_config, write_events, write_lines, random_events):
    path = write_events(random_events())
    write_lines("itememb", "iid:token\temb:float_seq", *(f"i{number}\t{number} {number + 1}" for number in range(15)))
    config = make_config(
        "MEANTIME", data_path=path, additional_feat_suffix=["itememb"], alias_of_item_id=["iid"],
        preload_weight={"iid": "emb"},
        load_col={"inter": ["user_id", "item_id", "timestamp"], "itememb": ["iid", "emb"]},
    )  # fmt: skip
    weights = [kind(config).get_preload_weight("iid") for kind in (SequentialDataset, EventLogDataset)]
    assert weights[0].any()
    assert np.array_equal(*weights)


@pytest.mark.parametrize("distribution", ["uniform", "popularity"])
@pytest.mark.parametrize("model", ["SASRec", "GRU4Rec"])
def test_negatives_are_sampled_for_training(model, distribution, load, random_events):
    sampling = {"distribution": distribution, "sample_num": 2}
    _, train, valid, _ = load(model, random_events(), loss_type="BPR", train_neg_sample_args=sampling)
    drawn = set()
    for batch in train:
        assert len(batch["neg_item_id"]) == len(batch["item_id"])
        assert len(batch["item_id"]) % 2 == 0
        assert (batch["neg_item_id"] > 0).all()
        assert (batch["neg_item_id"] != batch["item_id"]).all()
        drawn |= set(batch["neg_item_id"].tolist())
    assert len(drawn) > 10
    step(train.config, train, valid)


@pytest.mark.parametrize("mode", ["uni10", "pop10"])
def test_candidates_are_sampled_for_evaluation(mode, load, random_events):
    evaluation = {"split": {"LS": "valid_and_test"}, "mode": mode}
    _, train, valid, test = load(events=random_events(items=60), eval_args=evaluation)
    for loader in (valid, test):
        users = 0
        for batch, row, positive_row, positive_item in loader:
            users += len(positive_row)
            assert len(batch) == len(row) == 11 * len(positive_row)
            assert torch.equal(batch["item_id"][::11], positive_item)
        assert users == len(loader._dataset) == 30
    step(train.config, train, valid)


def test_labels_of_the_file_are_evaluated(load, write_events, random_events):
    path = write_events([(*event, number % 5 + 1) for number, event in enumerate(random_events())], RATED)
    _, train, valid, _ = load(
        "DIN", data_path=path, threshold={"rating": 3}, train_neg_sample_args=None, metrics=["AUC", "LogLoss"],
        valid_metric="AUC", eval_args={"split": {"RS": [0.6, 0.2, 0.2]}, "mode": "labeled"}, **ALL_COLUMNS,
    )  # fmt: skip
    batch = next(iter(train))
    assert set(batch["label"].tolist()) == {0.0, 1.0}
    assert "rating" not in batch
    result = step(train.config, train, valid)
    assert 0 <= result["auc"] <= 1


def step(config, train, valid) -> dict:
    """One training step and one evaluation."""
    torch.manual_seed(0)
    model = config.model_class(config, train._dataset).to(config["device"])
    trainer = get_trainer(config)(config, model)
    model.train()
    loss = model.calculate_loss(next(iter(train)))
    loss = sum(loss) if isinstance(loss, tuple) else loss
    loss.backward()
    assert torch.isfinite(loss)
    if config["model"] != "Pop":
        trainer.optimizer.step()
    trainer.eval_collector.data_collect(train)
    result = trainer.evaluate(valid, load_best_model=False)
    assert all(np.isfinite(value) for value in result.values())
    return result


@pytest.mark.parametrize(
    "model",
    [
        "SASRec", "GRU4Rec", "BERT4Rec", "DIN", "Pop", "Caser", "SRGNN", "FEARec", "FPMC", "LightSANs", "MEANTIME",
        "TiSASRec",
    ],
)  # fmt: skip
def test_models_train_and_are_evaluated(model, load, write_events, write_lines, random_events):
    path = write_events(random_events())
    write_lines(
        "item", "item_id:token\ttags:token_seq", *(f"i{number}\tt{number % 3} t{number % 2}" for number in range(20))
    )
    keys = {"eval_args": {"split": {"LS": "valid_and_test"}, "mode": "uni5" if model == "DIN" else "full"}}
    dataset, train, valid, _ = load(model, data_path=path, metrics=["NDCG"], **keys, **ALL_COLUMNS)
    assert isinstance(dataset, EventLogDataset) == (model != "Pop")
    result = step(train.config, train, valid)
    assert result["ndcg@5"] > 0


@pytest.mark.parametrize("model", ["SASRec", "MEANTIME"])
def test_matrices_and_counters_count_training_events(model, load, random_events):
    events = random_events()
    dataset, train, *_ = load(model, events)
    data = train._dataset
    users = dataset.field2id_token["user_id"][1:]
    counts = [sum(event[0] == user for event in events) for user in users]
    assert data.inter_matrix("csr").sum(1).A1.tolist() == [0, *(count - 2 for count in counts)]
    assert dataset.inter_matrix("coo", "timestamp").nnz == len(events)
    assert data.user_counter == {user: count - 3 for user, count in enumerate(counts, 1)}
    assert sum(data.item_counter.values()) == sum(counts) - 3 * len(users)
    matrix, _, lengths = data.history_item_matrix()
    assert lengths.tolist() == [0, *(count - 3 for count in counts)]
    assert matrix.shape[0] == dataset.user_num
    matrix, _, lengths = data.history_user_matrix()
    assert lengths.sum() == sum(counts) - 3 * len(users)
    assert data.avg_actions_of_users == np.mean([count - 3 for count in counts])
    with pytest.raises(ValueError, match="not defined"):
        data.counter("nothing")


def test_the_matrix_of_filtered_histories_counts_each_target_once(load, write_events, random_events):
    events = [(*event, number % 2) for number, event in enumerate(random_events())]
    path = write_events(events, (*RATED[:3], "label:float"))
    labels = {
        "metrics": ["LogLoss"], "valid_metric": "LogLoss", "train_neg_sample_args": None,
        "eval_args": {"split": {"RS": [0.6, 0.2, 0.2]}, "mode": "labeled"},
    }  # fmt: skip
    dataset, *_ = load("DIN", data_path=path, history="positive", **labels, **ALL_COLUMNS)
    assert dataset.inter_matrix("csr").sum() == len(dataset)
    assert set(dataset.inter_feat["label"].tolist()) == {0, 1}


@pytest.mark.parametrize("model", ["SASRec", "MEANTIME"])
def test_the_case_study_finds_the_best_items_of_users(model, load):
    dataset, train, _, test = load(model)
    network = train.config.model_class(train.config, train._dataset)
    users = dataset.token2id("user_id", ["u3", "u1"])
    scores, items = full_sort_topk(users, network, test, k=5)
    assert scores.shape == items.shape == (2, 5)
    assert (items > 0).all()


@pytest.mark.parametrize("model", ["SASRec", "MEANTIME"])
def test_operations_are_counted(model, load):
    dataset, train, *_ = load(model)
    network = train.config.model_class(train.config, train._dataset)
    assert get_flops(network, dataset, torch.device("cpu"), getLogger(), construct_transform(train.config)) > 0


def test_a_data_set_describes_itself(load):
    dataset, *_ = load()
    assert "The number of users" in str(dataset)
    assert str(dataset) == repr(dataset)
    assert str(len(dataset)) in str(dataset)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))])
@pytest.mark.parametrize("model", ["SASRec", "MEANTIME"])
def test_data_sets_are_copied_and_pickled(model, again, load):
    data = load(model)[1]._dataset
    other = again(data)
    assert len(other) == len(data)
    batch, same = data[np.arange(4)], other[np.arange(4)]
    assert all(torch.equal(batch[name], same[name]) for name in batch.columns)


def test_loaders_work_in_several_processes(load, random_events):
    events = random_events()
    alone, many = (list(load(events=events, worker=worker, shuffle=False)[1]) for worker in (0, 2))
    assert len(alone) == len(many)
    for batch, same in zip(alone, many, strict=True):
        assert all(torch.equal(batch[name], same[name]) for name in batch.columns)


def test_pickles_of_earlier_runs_are_neither_written_nor_taken_up(load, random_events, tmp_path, caplog):
    keys = {"save_dataset": True, "save_dataloaders": True, "checkpoint_dir": str(tmp_path / "saved"), "state": "info"}
    events = random_events()
    dataset, *_ = load(events=events, **keys)
    assert not list(tmp_path.glob("saved/**/*.pth"))
    assert "save_dataset, save_dataloaders: ignored" in caplog.text
    for name in ("toy-SequentialDataset.pth", "toy-EventLogDataset.pth", "toy-for-SASRec-dataloader.pth"):
        (tmp_path / "saved").mkdir(exist_ok=True)
        (tmp_path / "saved" / name).write_bytes(b"no pickle")
    again, train, *_ = load(events=events, **keys)
    assert histories(again) == histories(dataset)
    assert train.config["save_dataloaders"] is True
    assert train.config["dataloaders_save_path"] is None
