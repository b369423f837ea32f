"""Keys of evaluation: what is refused and where, which defaults follow, and which models predict probabilities."""

import sys
from collections.abc import Callable

import pytest
import torch
from recbole.model.abstract_recommender import ContextRecommender, GeneralRecommender, SequentialRecommender
from recbole.model.context_aware_recommender import FM
from recbole.model.sequential_recommender import DIN, SASRec

from recbole_ext import BST, MODELS, Config, InputError, create_dataset, data_preparation, get_trainer, run_recbole
from recbole_ext.config.checks import check_evaluation, check_run
from recbole_ext.config.metrics import PROBABILITY_METRICS
from recbole_ext.model.contract import PROBABILITY_MODELS, predicts_probabilities
from recbole_ext.model.registry import find_model

COLUMNS = ("user_id:token", "item_id:token", "timestamp:float", "rating:float")
RANKS = {"metrics": ["NDCG"], "valid_metric": "NDCG@5", "topk": [5]}
LABELS = {"metrics": ["AUC"], "valid_metric": "AUC", "threshold": {"rating": 3}}
LABELED = {"split": {"RS": [0.6, 0.2, 0.2]}, "mode": "labeled"}
DRAWN = {"distribution": "uniform", "sample_num": 1}


@pytest.fixture
def path(write_events, random_events) -> str:
    return write_events([(*event, number % 5 + 1) for number, event in enumerate(random_events())], COLUMNS)


@pytest.fixture
def configure(path) -> Callable[..., Config]:
    """A configuration of a data set of 20 items, with RecBole's defaults of evaluation."""

    def make(model: str | type = "SASRec", **keys) -> Config:
        small = {"data_path": path, "use_gpu": False, "epochs": 1, "show_progress": False, "MAX_ITEM_LIST_LENGTH": 6}
        return Config(model, "toy", None, {**small, **keys}, argv=[])

    return make


# ---------------------------------------------------------------- where contradictions are refused

CONTRADICTIONS = [
    ("SASRec", {"topk": [21], "valid_metric": "MRR@21"}, "topk is 21, but the data set has only 20 items"),
    ("BPR", {"topk": [5, 99]}, "topk is 99, but the data set has only 20 items"),
    ("SASRec", {"valid_metric": "MRR@5", "topk": [10]}, "valid_metric is 'MRR@5', which is not measured"),
    ("BPR", {"valid_metric": "MAP@10", "metrics": ["NDCG"]}, "valid_metric is 'MAP@10', which is not measured"),
    ("SASRec", {"metrics": ["AUC"]}, "AUC, which measures labels; set eval_args mode to labeled, or to uniN"),
    ("BPR", {"metrics": ["AUC", "NDCG"]}, "AUC, which measures labels, and NDCG, which measures ranks; choose"),
    ("BPR", {**RANKS, "threshold": {"rating": 3}, "eval_args": LABELED}, "NDCG, which measures ranks, but eval_args"),
    ("FM", {**RANKS, "threshold": {"rating": 3}}, "NDCG, which measures ranks, but eval_args"),
    ("BPR", {"metrics": ["AUC"], "eval_args": LABELED}, "eval_args mode labeled needs labels"),
    ("BST", {**LABELS, "eval_args": {"mode": {"valid": "labeled", "test": "full"}}}, "both be labeled, or neither"),
    ("BST", {**LABELS, "eval_args": LABELED, "train_neg_sample_args": DRAWN}, "makes every event a positive"),
    ("SASRec", {"exclude_history": True, "eval_args": {"mode": "uni5"}}, "exclude_history is True, but eval_args mode"),
    ("MEANTIME", {**LABELS, "metrics": ["LogLoss"], "valid_metric": "LogLoss", "eval_args": LABELED},
     "LogLoss, which measures probabilities, but the predictions of MEANTIME are scores without bounds"),
    ("SASRec", {"eval_args": {"order": "RO"}}, "sequential models need 'TO'"),
]  # fmt: skip
OF_TRAINING = [
    ("BPR", {"train_neg_sample_args": None}, "train_neg_sample_args is None, but BPR needs negatives"),
    ("SASRec", {"train_neg_sample_args": None, "loss_type": "BPR"}, "but loss_type BPR needs negatives"),
    ("FM", {"threshold": None}, "FM without negative sampling needs labels"),
]


@pytest.mark.parametrize(("model", "keys", "sentence"), CONTRADICTIONS)
def test_data_are_read_whatever_the_keys_of_evaluation_are_and_no_loader_is_made(configure, model, keys, sentence):
    config = configure(model, **keys)
    dataset = create_dataset(config)
    assert dataset.item_num == 21
    with pytest.raises(InputError, match=sentence):
        data_preparation(config, dataset)


@pytest.mark.parametrize(("model", "keys", "sentence"), [*CONTRADICTIONS[2:], *OF_TRAINING])
def test_a_run_and_the_command_refuse_before_anything_is_read(configure, monkeypatch, capsys, model, keys, sentence):
    def read(*_):
        raise AssertionError("the data was read")

    path = configure()["data_path"]
    monkeypatch.setattr("recbole_ext.quick_start.create_dataset", read)
    with pytest.raises(InputError, match=sentence):
        run_recbole(model, "toy", None, {"data_path": path, **keys}, argv=[])
    from recbole_ext.cli.entry import main

    argv = [f"--model={model}", "--dataset=toy", f"--data_path={path}", *(f"--{key}={keys[key]}" for key in keys)]
    assert main(argv) == 2
    assert sentence in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(("model", "keys", "sentence"), CONTRADICTIONS[2:])
def test_the_trainer_refuses_a_configuration_whose_loaders_were_made_elsewhere(configure, model, keys, sentence):
    good = configure(model, threshold={"rating": 3})
    train, *_ = data_preparation(good, create_dataset(good))
    network = good.model_class(good, train._dataset)
    config = configure(model, **keys)
    with pytest.raises(InputError, match=sentence):
        get_trainer(config)(config, network)


@pytest.mark.parametrize(("model", "keys", "sentence"), OF_TRAINING)
def test_what_a_loss_lacks_is_refused_where_training_begins_and_not_where_loaders_are_made(
    configure, model, keys, sentence
):
    keys = {**keys, "load_col": {"inter": ["user_id", "item_id", "timestamp"]}}
    if model == "FM":
        keys |= {"eval_args": {"mode": "full"}, **RANKS}
    config = configure(model, **keys)
    train, valid, _ = data_preparation(config, create_dataset(config))
    assert len(train) > 0
    trainer = get_trainer(config)(config, config.model_class(config, train._dataset))
    with pytest.raises(InputError, match=sentence):
        trainer.fit(train, valid)


@pytest.mark.parametrize("model", ["BPR", "SASRec", "FM"])
def test_data_without_labels_are_refused_before_training_and_before_evaluation(configure, write_lines, model):
    names = "\t".join(COLUMNS).replace("rating:float", "stars:float")
    path = write_lines("inter", names, *(f"u{n % 5}\ti{n % 13}\t{n}\t{n % 3}" for n in range(40)))
    keys = {"data_path": path, "load_col": None, "eval_args": LABELED, "metrics": ["AUC"], "valid_metric": "AUC"}
    config = configure(model, **{"threshold": None, **keys})
    train, valid, test = data_preparation(config, create_dataset(config))
    trainer = get_trainer(config)(config, config.model_class(config, train._dataset))
    for refused in (lambda: trainer.fit(train, valid), lambda: trainer.evaluate(test, load_best_model=False)):
        with pytest.raises(InputError, match="neither threshold makes them nor has data set 'toy' a column 'label'"):
            refused()


def test_a_default_that_the_data_are_too_small_for_is_called_one(configure, write_events):
    path = write_events([(f"u{n % 3}", f"i{n % 4}", n) for n in range(12)])
    config = configure("Pop", data_path=path)
    dataset = create_dataset(config)
    message = r"topk is 10 by default, but the data set has only 4 items; set topk to 4 or less\."
    with pytest.raises(InputError, match=message):
        data_preparation(config, dataset)


# ---------------------------------------------------------------- defaults that follow

RECBOLES = ["Recall", "MRR", "NDCG", "Hit", "Precision"]
FOLLOWED = [
    # the cut of valid_metric follows topk, its metric follows metrics
    ("BPR", {"topk": [5, 20]}, {"valid_metric": "MRR@5", "metrics": RECBOLES}),
    ("SASRec", {"topk": [3]}, {"valid_metric": "MRR@3"}),
    ("MEANTIME", {"metrics": ["NDCG", "Hit"]}, {"valid_metric": "NDCG@10"}),
    ("BPR", {"metrics": ["Hit", "MRR"], "topk": [7]}, {"valid_metric": "MRR@7"}),
    ("SASRec", {"metrics": ["GAUC", "Hit"]}, {"valid_metric": "GAUC"}),
    ("BPR", {"metrics": ["AUC"], "eval_args": {"mode": "uni5"}}, {"valid_metric": "AUC"}),
    # topk and metrics follow valid_metric
    ("SASRec", {"valid_metric": "NDCG@5"}, {"topk": [5], "metrics": RECBOLES}),
    ("BPR", {"valid_metric": "map@3"}, {"topk": [3], "metrics": [*RECBOLES, "MAP"]}),
    ("FM", {"valid_metric": "GAUC", "threshold": {"rating": 3}}, {"metrics": ["AUC", "LogLoss", "GAUC"]}),
    ("BPR", {"valid_metric": "auc", "eval_args": {"mode": "uni5"}}, {"metrics": ["AUC"]}),
    # metrics follow the mode and the model
    ("SASRec", {"eval_args": LABELED, "threshold": {"rating": 3}}, {"metrics": ["AUC"], "valid_metric": "AUC"}),
    ("BPR", {"eval_args": LABELED, "threshold": {"rating": 3}}, {"metrics": ["AUC"], "valid_metric": "AUC"}),
    ("DIN", {"eval_args": LABELED, "threshold": {"rating": 3}}, {"metrics": ["AUC", "LogLoss"], "valid_metric": "AUC"}),
    ("BST", {"eval_args": LABELED, "threshold": {"rating": 3}, "valid_metric": "LogLoss"},
     {"metrics": ["AUC", "LogLoss"], "valid_metric": "LogLoss"}),
    ("FM", {"eval_args": {"mode": "full"}, "threshold": {"rating": 3}},
     {"metrics": RECBOLES, "valid_metric": "MRR@10"}),
    ("FM", {"eval_args": {"mode": "full"}, "threshold": {"rating": 3}, "topk": [4]}, {"valid_metric": "MRR@4"}),
]  # fmt: skip


@pytest.mark.parametrize(("model", "keys", "wanted"), FOLLOWED)
def test_a_default_follows_the_keys_that_are_given_and_the_log_says_so(configure, caplog, model, keys, wanted):
    config = configure(model, **keys)
    assert {key: config[key] for key in wanted} == wanted
    assert all(config[key] == keys[key] for key in keys if key not in ("eval_args", "train_neg_sample_args"))
    check_run(config)
    torch.manual_seed(0)  # of a random split: with another one, no user may have both labels
    data_preparation(config, create_dataset(config))
    plain = Config(model, "ml-100k", argv=[])
    for key in ("metrics", "topk", "valid_metric"):
        note = f"{key}: {config[key]} instead of the default {plain[key]}, for "
        assert (note in caplog.text) == (key not in keys and config[key] != plain[key])
    again = Config(model, "toy", None, {**config.to_dict(), "allow_unknown": True}, argv=[])
    assert again.changed_defaults == []
    assert {key: again[key] for key in wanted} == wanted


@pytest.mark.parametrize("model", ["BPR", "SASRec", "MEANTIME", "FM", "DIN", "BST"])
def test_defaults_that_nothing_contradicts_stay(model):
    config = Config(model, "ml-100k", argv=[])
    assert config.changed_defaults == []
    check_run(config)


def test_the_direction_of_validation_follows_too(configure):
    config = configure("BST", metrics=["LogLoss"], threshold={"rating": 3}, eval_args=LABELED)
    assert config["valid_metric"] == "LogLoss"
    assert config["valid_metric_bigger"] is False


@pytest.mark.parametrize(("metric", "bigger"), [("AUC", False), ("LogLoss", True), ("RMSE", True)])
def test_the_direction_of_validation_is_not_a_choice(configure, metric, bigger):
    keys = {"metrics": [metric], "valid_metric": metric, "threshold": {"rating": 3}, "eval_args": LABELED}
    with pytest.raises(InputError, match=f"valid_metric_bigger is {bigger}, but for valid_metric {metric}"):
        configure("BST", valid_metric_bigger=bigger, **keys)
    assert configure("BST", valid_metric_bigger=not bigger, **keys)["valid_metric_bigger"] is not bigger


# ---------------------------------------------------------------- probabilities


@pytest.mark.parametrize("metric", PROBABILITY_METRICS)
@pytest.mark.parametrize("mode", ["labeled", "uni5"])
@pytest.mark.parametrize("model", ["MEANTIME", "LightSANs", "SASRec", "BPR", "recbole.LightSANs", "Pop", "ENMF"])
def test_metrics_of_probabilities_are_refused_for_scores_without_bounds(configure, metric, mode, model):
    keys = {**LABELS, "eval_args": {**LABELED, "mode": mode}}
    if model == "ENMF":
        keys["train_neg_sample_args"] = None
    for metrics in ([metric], ["AUC", metric]):
        config = configure(model, **{**keys, "metrics": metrics, "valid_metric": metrics[0]})
        with pytest.raises(InputError) as refusal:
            check_evaluation(config)
        assert str(refusal.value) == (
            f"metrics has {metric}, which measures probabilities, but the predictions of {model} are scores "
            f"without bounds; choose AUC or GAUC, or a model of clicks such as BST or DIN."
        )
    check_evaluation(configure(model, **keys))


@pytest.mark.parametrize("model", ["BST", "FM", *sorted(PROBABILITY_MODELS)])
def test_metrics_of_probabilities_are_measured_of_models_of_clicks(configure, model):
    keys = {"metrics": list(PROBABILITY_METRICS), "valid_metric": "LogLoss", "threshold": {"rating": 3}}
    check_evaluation(configure(model, **keys, eval_args=LABELED))


class OwnScores(SASRec):
    pass


class OwnProbabilities(SASRec):
    predicts_probabilities = True


class OwnClicks(DIN):
    pass


class OwnLogits(FM):
    predicts_probabilities = False


class Bare(GeneralRecommender):
    pass


class BareClicks(ContextRecommender):
    pass


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        (OwnScores, False), (OwnProbabilities, True), (OwnClicks, True), (OwnLogits, False), (Bare, False),
        (BareClicks, True), (type("Mine", (OwnLogits,), {}), False), (type("Mine", (BST,), {}), True),
        (type("DIN", (SequentialRecommender,), {}), False),
    ],
)  # fmt: skip
def test_a_class_of_ones_own_says_what_it_predicts_or_has_it_from_the_model_that_it_refines(model, wanted):
    assert predicts_probabilities(model) is wanted


def test_a_class_of_ones_own_is_told_how_to_say_so(configure):
    keys = {**LABELS, "metrics": ["LogLoss"], "valid_metric": "LogLoss", "eval_args": LABELED}
    with pytest.raises(InputError, match="or set predicts_probabilities = True in the class"):
        check_evaluation(configure(OwnScores, **keys))
    check_evaluation(configure(OwnProbabilities, **keys))


CLICKS = [
    "AFM", "AutoInt", "DCN", "DCNV2", "DeepFM", "DSSM", "FFM", "FiGNN", "FM", "FNN", "FwFM", "LR", "NFM", "PNN",
    "WideDeep", "xDeepFM", "EulerNet", "KD_DAGFM",
]  # fmt: skip
SCORES = ["BPR", "SASRec", "GRU4Rec", "FPMC", "MEANTIME", "LightSANs"]


@pytest.mark.parametrize("model", [*CLICKS, *sorted(PROBABILITY_MODELS), *MODELS, *SCORES])
def test_models_predict_what_is_said_of_them(configure, model):
    cls = find_model(model)
    keys = {"threshold": {"rating": 3}}
    if model == "KD_DAGFM":
        keys |= {"phase": "teacher_training"}
    config = configure(model, **keys)
    torch.manual_seed(0)
    train, _, test = data_preparation(config, create_dataset(config))
    network = config.model_class(config, train._dataset).eval()
    with torch.no_grad():
        for parameter in network.parameters():  # large weights take scores out of [0, 1]
            parameter.add_(torch.randn_like(parameter))
        batch = next(iter(test))[0]
        if "item_id" not in batch:
            batch = test._dataset[torch.arange(len(test._dataset))]
        scores = network.predict(batch).nan_to_num(0.5)  # NAIS raises sums to a power
    assert bool(((scores >= 0) & (scores <= 1)).all()) is predicts_probabilities(cls)


def test_stock_recboles_configuration_may_be_evaluated(configure, monkeypatch):
    """`get_trainer` takes a configuration that is not ours."""
    from recbole.config import Config as Stock

    path = configure()["data_path"]
    monkeypatch.setattr(sys, "argv", ["prog"])
    monkeypatch.setattr(Stock, "compatibility_settings", lambda self: None)
    check_evaluation(Stock("BPR", "toy", config_dict={"data_path": path}))


@pytest.mark.parametrize(("mode", "warns"), [("uni3-unseen", True), ("pop3", True), ("uni4", False), ("full", False)])
def test_a_list_as_long_as_the_candidates_is_said(load, random_events, caplog, mode, warns):
    load("MEANTIME", random_events(), eval_args={"mode": mode}, topk=[4], valid_metric="NDCG@4")
    assert ("topk is 4, but mode" in caplog.text) is warns
