"""Labelled events without users and items, for click models that read other columns."""

import numpy as np
import pytest

from recbole_ext import InputError, Recommender, create_dataset, load_data_and_model, run_recbole

IDS = {"USER_ID_FIELD": None, "ITEM_ID_FIELD": None}
COLUMNS = {"load_col": {"inter": ["label", "age", "job", "tags"]}}
LABELS = {"metrics": ["AUC", "LogLoss"], "valid_metric": "AUC", "eval_args": {"mode": "labeled"}}


@pytest.fixture
def data_path(write_lines) -> str:
    draw = np.random.default_rng(0).integers
    rows = (f"{draw(2)}\t{draw(20, 60)}\tj{draw(5)}\tt{draw(4)} t{draw(4)}" for _ in range(200))
    return write_lines("inter", "label:float\tage:float\tjob:token\ttags:token_seq", *rows)


@pytest.mark.parametrize("model", ["WideDeep", "FM", "LR", "DeepFM"])
def test_click_models_are_trained_loaded_and_resumed(no_waiting, data_path, model):
    keys = {**IDS, **COLUMNS, **LABELS, "data_path": data_path, "epochs": 1, "use_gpu": False, "show_progress": False}
    result = run_recbole(model, "toy", None, keys, argv=[])
    assert 0 <= result["test_result"]["auc"] <= 1
    config, network, dataset, train, _, test = load_data_and_model(result["checkpoint"])
    assert type(network).__name__ == model
    resumed = run_recbole(config_dict={"epochs": 2}, argv=[], resume=result["checkpoint"])
    assert resumed["config"]["epochs"] == 2
    with pytest.raises(InputError, match="it does not use histories"):
        Recommender.load(result["checkpoint"])


@pytest.mark.parametrize(
    ("model", "keys", "sentence"),
    [
        ("FM", {"USER_ID_FIELD": None}, "USER_ID_FIELD is empty and ITEM_ID_FIELD is 'item_id'; name both"),
        ("FM", {"ITEM_ID_FIELD": None}, "ITEM_ID_FIELD is empty and USER_ID_FIELD is 'user_id'; name both"),
        ("BPR", {**IDS, **LABELS, "metrics": ["AUC"]}, "are empty, but BPR needs both"),
        ("FM", {**IDS, "eval_args": {"mode": "uni5"}}, "mode uni5 ranks items; set it to labeled"),
        ("FM", {**IDS, "train_neg_sample_args": {"distribution": "uniform"}}, "which draws items; set it to None"),
        ("FM", {**IDS, "eval_args": {"split": {"LS": "valid_and_test"}, "mode": "labeled"}}, "set it to RS"),
        ("FM", {**IDS, "rm_dup_inter": "first"}, "rm_dup_inter is 'first', which needs users and items"),
        ("FM", {**IDS, "user_inter_num_interval": "[3,inf)"}, "user_inter_num_interval is '.3,inf.', which needs"),
        ("FM", {**IDS, "load_col": {"inter": ["label"]}}, "leaves FM no column to learn from; add feature columns"),
        ("FM", {**IDS, "metrics": ["GAUC"], "valid_metric": "GAUC"}, "GAUC, which is measured for each user"),
    ],
)  # fmt: skip
def test_what_needs_users_and_items_is_refused(make_config, data_path, model, keys, sentence):
    with pytest.raises(InputError, match=sentence):
        make_config(model, data_path=data_path, **{**COLUMNS, **LABELS, **keys})


def test_events_without_users_are_split_together(make_config, data_path, caplog):
    keys = {"data_path": data_path, **IDS, **COLUMNS, **LABELS}
    config = make_config("FM", **keys)
    assert config["eval_args"]["group_by"] is None
    assert "group_by" not in caplog.text
    by_user = make_config("FM", **{**keys, "eval_args": {"mode": "labeled", "group_by": "user"}})
    assert "eval_args group_by is 'user', but USER_ID_FIELD is empty: all events are split together." in caplog.text
    parts = [[len(part) for part in create_dataset(settings).build()] for settings in (config, by_user)]
    assert parts[0] == parts[1]
    assert sum(parts[0]) == 200


@pytest.mark.parametrize("columns", [COLUMNS, {"load_col": None}], ids=["some columns", "all columns"])
def test_columns_that_the_file_lacks_are_named_with_the_remedy(make_config, data_path, columns):
    config = make_config("FM", data_path=data_path, **{**LABELS, **columns})
    with pytest.raises(InputError, match="but not 'user_id', which USER_ID_FIELD names; .* to None if labels depend"):
        create_dataset(config)


def test_metrics_of_each_user_are_refused_before_training(no_waiting, data_path):
    keys = {**IDS, **COLUMNS, **LABELS, "data_path": data_path, "epochs": 1, "use_gpu": False}
    with pytest.raises(InputError, match="per_user needs users, but USER_ID_FIELD is empty"):
        run_recbole("FM", "toy", None, keys, argv=[], per_user="users.csv")
