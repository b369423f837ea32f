"""What a configuration makes of the keys from all sources together."""

import copy
import sys

import pytest
from recbole.config import Config as StockConfig
from recbole.model.abstract_recommender import SequentialRecommender
from recbole.model.context_aware_recommender import FM
from recbole.model.sequential_recommender import SASRec
from recbole.utils import InputType

from recbole_ext import MEANTIME, Config, InputError, create_dataset, data_preparation
from recbole_ext.config.checks import check_run
from recbole_ext.config.paths import properties_file
from recbole_ext.utils.literals import read_yaml


def make(model="MEANTIME", files=None, argv=(), **keys) -> Config:
    return Config(model, "ml-100k", files, keys, argv=list(argv))


def ours() -> dict:
    return read_yaml(properties_file("MEANTIME"))


def refuse(*args, **keys) -> str:
    with pytest.raises(InputError) as caught:
        make(*args, **keys)
    return str(caught.value)


def refuse_run(*args, **keys) -> str:
    """The sentence with which a run refuses keys that a configuration takes."""
    config = make(*args, **keys)
    with pytest.raises(InputError) as caught:
        check_run(config)
    return str(caught.value)


@pytest.fixture
def write(tmp_path):
    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write


# ---------------------------------------------------------------- sources


def test_the_command_line_goes_before_the_dictionary_before_files_before_our_yaml_before_recboles(write):
    files = [write("a.yaml", "epochs: 1\nseed: 1\nworker: 0\nn_layers: 1"), write("b.yaml", "seed: 2\nn_layers: 4")]
    config = make(files=files, argv=["--epochs=3"], epochs=2, n_layers=5)
    assert (config["epochs"], config["n_layers"], config["seed"]) == (3, 5, 2)
    assert config["train_batch_size"] == ours()["train_batch_size"]
    assert config["train_batch_size"] != 2048  # RecBole's
    assert config["learner"] == "adam"  # RecBole's


def test_what_the_caller_gives_stays_as_it_was():
    given = {"eval_args": {"mode": "uni5"}, "topk": [10], "load_col": {"inter": ["user_id", "item_id", "timestamp"]}}
    before = copy.deepcopy(given)
    Config("MEANTIME", "ml-100k", None, given, argv=["--topk=5", "--valid_metric=MRR@5"])
    assert given == before


def test_evaluation_may_be_given_in_parts_by_several_sources(write):
    file = write("a.yaml", "eval_args: {split: {'RS': [0.8, 0.1, 0.1]}, mode: uni50}")
    config = make(files=[file], argv=["--eval_args={'mode': {'valid': 'uni9'}}"])
    assert config["eval_args"] == {
        "split": {"RS": [0.8, 0.1, 0.1]}, "order": "TO", "group_by": "user", "mode": {"valid": "uni9", "test": "uni9"},
    }  # fmt: skip
    assert make()["eval_args"]["split"] == {"LS": "valid_and_test"}
    assert Config("Pop", "ml-100k", None, {"eval_args": {"mode": "uni9"}}, argv=[])["eval_args"]["order"] == "RO"


def test_model_and_data_set_may_come_from_any_source_and_an_argument_wins(write):
    config = Config(None, None, write("a.yaml", "model: SASRec\ndataset: ml-100k"), argv=[])
    assert (config["model"], config["dataset"]) == ("SASRec", "ml-100k")
    assert Config("MEANTIME", None, None, {"dataset": "ml-100k", "model": "SASRec"}, argv=[]).model_class is MEANTIME
    assert Config(argv=["--model", "Pop", "--dataset", "ml-100k"])["model"] == "Pop"
    with pytest.raises(InputError, match="no model is named; give --model, one of MEANTIME"):
        Config(None, "ml-100k", argv=[])
    with pytest.raises(InputError, match="no data set is named"):
        Config("Pop", argv=[])


@pytest.mark.parametrize(
    ("name", "hint"),
    [("meantime", "'MEANTIME'"), ("MeanTime", "'MEANTIME'"), ("sasrec", "'SASRec'"), ("BERT4rec", "'BERT4Rec'"),
     ("NGFC", "'NGCF'"), ("zzzz", "has MEANTIME"), ("", "has MEANTIME"), ("../x", ""), ("a.b", "")],
)  # fmt: skip
def test_a_misspelt_model_is_refused_with_the_one_that_was_meant(name, hint):
    assert hint in refuse(name)
    assert f"there is no model '{name}'" in refuse(name)


def test_what_is_no_model_is_refused():
    for model in (5, dict, True, object()):
        assert "is not a model" in refuse(model)


@pytest.mark.parametrize("name", ["2023", "007", "1e5", "2020-01-01", "none", "True", "a=b", "x y", "ä", "[1]", "*"])
def test_a_data_set_may_be_called_anything_a_file_can_be(write_events, random_events, name, write):
    path = write_events(random_events(), name=name)
    for argv, keys in ([f"--dataset={name}"], {}), ([], {"dataset": name}):
        config = Config("MEANTIME", None, None, {"data_path": path, **keys}, argv=argv)
        assert config["dataset"] == name
        assert config["data_path"].endswith(name)
    if name in ("2023", "007", "1e5", "2020-01-01"):
        if name == "1e5":
            return  # YAML reads a number there
        assert (
            Config("MEANTIME", None, write("k.yaml", f"dataset: {name}\ndata_path: {path}"), argv=[])["dataset"] == name
        )


@pytest.mark.parametrize("name", ["../ml-100k", "a/b", "..", ".", "", "/etc/passwd"])
def test_a_data_set_is_not_called_by_a_path(name):
    with pytest.raises(InputError, match="dataset' is ''|should be the stem of the .inter file"):
        Config("MEANTIME", name, argv=[])


# ---------------------------------------------------------------- negative sampling and labels


@pytest.mark.parametrize(
    "none", [None, "None", "none", "~", {}, "{}", {"distribution": None}, {"distribution": "None"}]
)
@pytest.mark.parametrize("model", ["MEANTIME", "SASRec"])
def test_every_spelling_of_none_means_no_negative_sampling(none, model):
    config = make(model, train_neg_sample_args=none)
    assert config["train_neg_sample_args"]["distribution"] == "none"
    assert config["MODEL_INPUT_TYPE"] == InputType.POINTWISE


def test_none_in_yaml_and_on_the_command_line_means_no_negative_sampling(write):
    for text in ("~", "None", "{}", "'None'", "null"):
        assert (
            make(files=[write("a.yaml", f"train_neg_sample_args: {text}")])["train_neg_sample_args"]["dynamic"] is False
        )
    for text in ("None", "'None'", "~", "{}", "none", ""):
        assert make(argv=[f"--train_neg_sample_args={text}"])["train_neg_sample_args"]["distribution"] == "none"


def test_a_loss_alone_brings_the_sampling_that_it_needs():
    sampled = make("SASRec", loss_type="BPR")
    assert sampled["train_neg_sample_args"]["distribution"] == "uniform"
    assert sampled["MODEL_INPUT_TYPE"] == InputType.PAIRWISE
    assert make("SASRec")["train_neg_sample_args"]["distribution"] == "none"
    assert make("DIN")["train_neg_sample_args"]["sample_num"] == 1
    assert make("FPMC")["train_neg_sample_args"]["sample_num"] == 1
    assert make("BPR")["train_neg_sample_args"]["distribution"] == "uniform"
    four = make("SASRec", loss_type="BPR", train_neg_sample_args={"sample_num": 4})
    assert four["train_neg_sample_args"] == {
        "distribution": "uniform", "sample_num": 4, "alpha": 1.0, "dynamic": False, "candidate_num": 0,
    }  # fmt: skip


def test_loss_and_sampling_that_contradict_each_other_are_refused():
    assert "loss_type CE draws no negatives" in refuse("SASRec", train_neg_sample_args={"distribution": "uniform"})
    assert "loss_type BPR needs negatives" in refuse_run("SASRec", loss_type="BPR", train_neg_sample_args=None)
    assert "write CE" in refuse("SASRec", loss_type="ce")
    assert "candidate_num" in refuse("BPR", train_neg_sample_args={"dynamic": True})
    assert "BPR needs negatives" in refuse_run("BPR", train_neg_sample_args=None)
    check_run(make("MultiVAE", train_neg_sample_args=None))  # learns from whole histories
    check_run(make("SINE", train_neg_sample_args=None))  # its loss is CE


def test_what_learns_or_measures_labels_needs_some():
    assert make("FM")["threshold"] == {"rating": 4}
    labels = {"metrics": ["AUC"], "valid_metric": "AUC", "eval_args": {"mode": "labeled"}}
    assert "FM without negative sampling needs labels" in refuse_run("FM", threshold=None)
    assert "mode labeled needs labels" in refuse_run("SASRec", **labels)
    for config in (
        make("SASRec", **labels, threshold={"rating": 4}),
        make("SASRec", **labels, load_col=None),
        make("SASRec", **labels, load_col={"inter": ["user_id", "item_id", "timestamp", "label"]}),
        make(FM, threshold=None, train_neg_sample_args={"distribution": "uniform"}, eval_args={"mode": "uni9"}),
    ):
        check_run(config)


# ---------------------------------------------------------------- metrics


def test_the_metric_of_validation_has_to_be_measured():
    assert make(valid_metric="ndcg@10")["valid_metric"] == "ndcg@10"
    for wrong in ("MRR@0", "NDCG", "MAPP@10", "5", "None"):
        assert f"valid_metric is '{wrong}', which is not measured; choose one of Recall@10" in refuse_run(
            valid_metric=wrong
        )
    assert "choose one of AUC, LogLoss, or set eval_args mode to full" in refuse_run("FM", valid_metric="NDCG@10")
    assert "or set eval_args mode to labeled" in refuse_run("SASRec", valid_metric="AUC")
    check_run(make("SASRec", metrics=["GAUC", "NDCG"], valid_metric="GAUC"))


def test_metrics_of_labels_and_of_ranks_do_not_mix_and_need_their_modes():
    assert "AUC, which measures labels, and NDCG, which measures ranks" in refuse_run(metrics=["NDCG", "AUC"])
    assert "set eval_args mode to labeled" in refuse_run(metrics="AUC", valid_metric="AUC")
    labels = {"eval_args": {"mode": "labeled"}, "threshold": {"rating": 4}}
    assert "eval_args mode labeled ranks nothing" in refuse_run(**labels, metrics="NDCG", valid_metric="NDCG@10")
    check_run(make("SASRec", metrics="AUC", valid_metric="AUC", eval_args={"mode": "uni10"}))


def test_labels_are_either_learnt_and_measured_or_not():
    labels = {"metrics": ["AUC"], "valid_metric": "AUC", "threshold": {"rating": 4}}
    drawn = {"train_neg_sample_args": {"distribution": "uniform"}, "eval_args": {"mode": "labeled"}}
    assert "makes every event a positive" in refuse_run("BST", **labels, **drawn)
    mixed = {"eval_args": {"mode": {"valid": "labeled", "test": "uni5"}}}
    assert "must both be labeled, or neither" in refuse_run("BST", **labels, **mixed)


def test_a_setting_of_ours_is_known_by_its_name():
    config = Config("BST", "ml-100k", ["BST-next-item", "ml-100k-features.yaml"], argv=[])
    assert config["mlp_hidden_size"] == [128, 64]
    assert "occupation" in config["load_col"]["user"]
    with pytest.raises(InputError, match="config file nothing cannot be read"):
        Config("BST", "ml-100k", ["nothing"], argv=[])
    with pytest.raises(InputError, match="no file or preset bst-click; did you mean 'BST-clicks'?"):
        Config("BST", "ml-100k", ["bst-click"], argv=[])


def test_a_misspelt_column_of_the_threshold_is_told_its_name():
    columns = {"inter": ["user_id", "item_id", "timestamp", "rating"]}
    said = refuse(threshold={"raiting": 4}, load_col=columns)
    assert said == "threshold names 'raiting', which load_col does not list; did you mean 'rating'?"


def test_candidates_that_are_more_than_the_items_are_warned_of(make_config, caplog):
    for mode, warned in (("uni19", False), ("uni20", True)):
        caplog.clear()
        config = make_config(eval_args={"mode": mode})  # of 20 items
        data_preparation(config, create_dataset(config))
        assert ("only 19 items can be sampled for a target, so candidates repeat" in caplog.text) == warned


def test_a_sequential_model_needs_time_order_and_repeatable_evaluation():
    assert "sequential models need 'TO'" in refuse_run(eval_args={"order": "RO"})
    assert "repeatable" in refuse(repeatable=False)


# ---------------------------------------------------------------- columns


def test_the_time_column_is_loaded_without_being_asked_for(write_events, random_events):
    path = write_events([])
    config = Config("SASRec", "toy", None, {"data_path": path}, argv=[])
    assert config["load_col"]["inter"] == ["user_id", "item_id", "timestamp"]
    names = {"USER_ID_FIELD": "uid", "ITEM_ID_FIELD": "iid", "TIME_FIELD": "t", "threshold": {"stars": 3}}
    config = Config("SASRec", "toy", None, {"data_path": path, **names}, argv=[])
    assert config["load_col"]["inter"] == ["uid", "iid", "t", "stars"]
    config = Config("SASRec", "toy", None, {"data_path": path, "val_interval": {"x": "[1,2]"}}, argv=[])
    assert config["load_col"]["inter"][-1] == "x"
    assert Config("Pop", "toy", None, {"data_path": path}, argv=[])["load_col"]["inter"] == ["user_id", "item_id"]


@pytest.mark.parametrize("model", ["BST", "DIN"])
def test_models_that_are_measured_by_labels_learn_labels(model):
    labels = {"threshold": {"rating": 4}, "metrics": ["AUC"], "valid_metric": "AUC", "eval_args": {"mode": "labeled"}}
    config = Config(model, "ml-100k", None, labels, argv=[])
    assert config["train_neg_sample_args"]["distribution"] == "none"
    assert Config(model, "ml-100k", argv=[])["train_neg_sample_args"]["distribution"] == "uniform"


def test_columns_left_out_are_the_only_ones_left_out(write_events):
    config = Config("SASRec", "toy", None, {"data_path": write_events([]), "unload_col": {"inter": ["stars"]}}, argv=[])
    assert config["load_col"]["inter"] == "*"


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"load_col": {"inter": ["user_id", "item_id"]}}, "without 'timestamp', which TIME_FIELD names"),
        ({"load_col": {"user": ["user_id"]}}, "without 'user_id', which USER_ID_FIELD names"),
        ({"load_col": {"inter": ["user_id", "item_id", "timestamp"]}, "threshold": {"rating": 3}},
         "without 'rating', which threshold names"),
        ({"unload_col": {"inter": ["timestamp"]}}, "unload_col leaves out 'timestamp', the TIME_FIELD"),
        ({"unused_col": {"inter": ["item_id"]}}, "unused_col leaves out 'item_id', the ITEM_ID_FIELD"),
        ({"TIME_FIELD": None}, "TIME_FIELD is empty"), ({"TIME_FIELD": ""}, "TIME_FIELD is empty"),
        ({"USER_ID_FIELD": ""}, "USER_ID_FIELD is empty"), ({"USER_ID_FIELD": "item_id"}, "are the same"),
        ({"numerical_features": ["timestamp"]}, "time is never discretised"),
        ({"ITEM_LIST_LENGTH_FIELD": "item_id"}, "already names events or their history"),
        ({"ITEM_LIST_LENGTH_FIELD": "timestamp_list"}, "'timestamp_list', which already names events or their history"),
        ({"unused_col": {"inter": ["item_length"]}}, "unused_col leaves out 'item_length', the length of histories"),
        ({"threshold": {"timestamp": 3}}, "threshold names 'timestamp', the TIME_FIELD"),
        ({"transform": "crop_itemseq"}, "crop_itemseq, which needs a share between 0 and 1; give it as eta"),
        ({"transform": "reorder_itemseq"}, "give it as beta"),
        ({"transform": "crop_itemseq", "eta": 1.5}, "key 'eta' is 1.5; it should be a number in [0, 1]"),
        ({"transform": "mask_itemseq", "mask_ratio": 0.01}, "mask_ratio is 0.01, less than one of 50 items"),
        ({"threshold": {"item_id": 3}}, "threshold names 'item_id', the ITEM_ID_FIELD"),
        ({"unused_col": {"inter": ["item_id_list"]}}, "unused_col leaves out 'item_id_list', the items of histories"),
    ],
)  # fmt: skip
def test_columns_that_contradict_other_keys_are_refused(keys, sentence):
    assert sentence in refuse(**keys)


def test_models_without_histories_have_none_to_transform_and_their_own_beta():
    with pytest.raises(InputError, match="transform is crop_itemseq, which changes histories, but Pop has none"):
        Config("Pop", "ml-100k", None, {"transform": "crop_itemseq", "eta": 0.5}, argv=[])
    assert Config("KD_DAGFM", "ml-100k", None, {"beta": 921.6}, argv=[])["beta"] == 921.6


# ---------------------------------------------------------------- the object itself


def test_stock_recbole_reads_our_property_file(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["prog"])
    monkeypatch.setattr(StockConfig, "compatibility_settings", lambda self: None)  # names that NumPy 2 has no more
    config = StockConfig(MEANTIME, "ml-100k", [properties_file("MEANTIME")])
    for key in ours().keys() - {"train_neg_sample_args"}:
        assert config[key] == ours()[key]
    assert config["train_neg_sample_args"]["distribution"] == "none"
    assert config.model_class is MEANTIME


def test_a_class_of_ones_own_has_the_defaults_of_the_model_it_refines():
    class Mine(SASRec):
        pass

    class Theirs(MEANTIME):
        pass

    class Bare(SequentialRecommender):
        pass

    mine, theirs = (Config(model, "ml-100k", argv=[]) for model in (Mine, Theirs))
    assert (mine["model"], mine["hidden_dropout_prob"], mine["train_window"]) == ("Mine", 0.5, None)
    assert (theirs["model"], theirs["train_window"]) == ("Theirs", ours()["train_window"])
    assert Config(Bare, "ml-100k", None, {"loss_type": "CE"}, argv=[])["hidden_size"] is None


def test_a_model_of_recbole_with_the_name_of_one_of_ours_has_its_own_defaults():
    recboles = type("MEANTIME", (SASRec,), {})
    assert Config(recboles, "ml-100k", argv=[])["train_window"] is None


def test_a_plain_configuration_makes_the_same_configuration_again(make_config):
    for config in (make_config(), make_config("SASRec", loss_type="BPR"), make_config("Pop"), make_config("BERT4Rec")):
        again = Config(config["model"], config["dataset"], None, {**config.to_dict(), "allow_unknown": True}, argv=[])
        assert {**again.to_dict(), "allow_unknown": 0} == {**config.to_dict(), "allow_unknown": 0}


def test_an_optimiser_of_sparse_gradients_needs_some():
    assert "learner is sparse_adam, but MEANTIME has no sparse gradients; choose adam" in refuse(learner="sparse_adam")


def test_a_logger_that_is_not_installed_is_refused(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "wandb is not installed" in refuse(log_wandb=True)


def test_a_model_whose_package_is_missing_is_refused_by_the_packages_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    assert refuse("XGBoost") == "model 'XGBoost' needs the package 'lightgbm', which is not installed."
