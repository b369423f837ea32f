"""GAUC of labelled events."""

import numpy as np
import pytest
import torch
from recbole.evaluator.collector import DataStruct
from sklearn.metrics import roc_auc_score

from recbole_ext import InputError, create_dataset, data_preparation, get_trainer
from recbole_ext.config.checks import check_evaluation
from recbole_ext.evaluation.evaluator import LabelEvaluator
from recbole_ext.evaluation.per_user import gauc

COLUMNS = ("user_id:token", "item_id:token", "timestamp:float", "rating:float")
KEYS = {
    "metrics": ["GAUC"], "valid_metric": "GAUC", "threshold": {"rating": 1}, "train_neg_sample_args": None,
    "eval_args": {"split": {"RS": [0.5, 0.25, 0.25]}, "mode": "labeled"}, "load_col": {"inter": ["user_id", "item_id",
    "timestamp", "rating"]}, "metric_decimal_place": 10,
}  # fmt: skip


def by_hand(user: np.ndarray, label: np.ndarray, score: np.ndarray) -> float:
    found = [(roc_auc_score(label[rows], score[rows]), rows.sum())
             for rows in (user == one for one in np.unique(user)) if len(set(label[rows])) == 2]  # fmt: skip
    return sum(value * events for value, events in found) / sum(events for _, events in found)


def test_it_is_the_weighted_mean_of_the_users_auc():
    random = np.random.default_rng(0)
    user, label = random.integers(0, 30, 400), random.integers(0, 2, 400)
    label[user < 5] = user[user < 5] % 2  # users with one label
    for score in (random.random(400), random.integers(0, 4, 400) / 4):  # without ties and with
        assert gauc(user, label, score) == pytest.approx(by_hand(user, label, score), abs=1e-12)


def test_users_whose_events_all_have_one_label_do_not_count():
    user, label = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 1])
    assert gauc(user, label, np.array([0.1, 0.9, 0, 0, 0])) == 1
    assert gauc(user, label, np.array([0.5, 0.5, 0, 0, 0])) == 0.5
    assert np.isnan(gauc(user[2:], label[2:], np.zeros(3)))


@pytest.mark.parametrize("metric", ["LogLoss", "RMSE", "MAE"])
def test_metrics_of_probabilities_take_a_single_label(make_config, metric):
    keys = {**KEYS, "metrics": [metric], "valid_metric": metric}
    struct = DataStruct()
    struct.set("rec.score", torch.tensor([0.75]))
    struct.set("data.label", torch.tensor([1.0]))
    config = make_config("BST", **keys)
    expected = {"LogLoss": -np.log(0.75)}.get(metric, 0.25)
    assert LabelEvaluator(config).evaluate(struct) == {metric.lower(): pytest.approx(expected, abs=1e-6)}


def events(labels) -> list[tuple]:
    return [
        (f"u{user}", f"i{number}", 1.6e9 + number, labels(user, number)) for user in range(9) for number in range(16)
    ]


def test_a_run_measures_it_beside_other_measures_of_labels_or_alone(make_config, write_events):
    path = write_events(events(lambda user, number: float((user + number) % 2)), COLUMNS)
    for metrics in (["GAUC"], ["AUC", "GAUC", "LogLoss"]):
        config = make_config("DIN", **{**KEYS, "metrics": metrics, "data_path": path, "eval_batch_size": 5})
        assert config["metrics"] == metrics
        train, _, test = data_preparation(config, create_dataset(config))
        model = config.model_class(config, train._dataset)
        trainer = get_trainer(config)(config, model)
        result = trainer.evaluate(test, load_best_model=False)
        assert trainer.evaluate(test, load_best_model=False) == result  # nothing stays from the first
        assert set(result) == {metric.lower() for metric in metrics}
        parts = [(batch["user_id"], batch["label"], model.predict(batch)) for batch, *_ in test]
        user, label, score = (
            np.concatenate([part.detach().numpy() for part in kind]) for kind in zip(*parts, strict=True)
        )
        assert result["gauc"] == pytest.approx(by_hand(user, label, score), abs=1e-9)


def test_users_of_one_label_each_are_refused_before_training(make_config, write_events):
    path = write_events(events(lambda user, number: float(user % 2)), COLUMNS)
    config = make_config("DIN", **KEYS, data_path=path)
    with pytest.raises(InputError, match="GAUC, but in the valid data no user has events of both labels; choose AUC"):
        data_preparation(config, create_dataset(config))


@pytest.mark.parametrize("split", [{"LS": "test_only"}, {"LS": "valid_only"}, {"RS": [0.8, 0, 0.2]}])
def test_a_part_without_events_is_not_looked_at(make_config, write_events, split):
    path = write_events(events(lambda user, number: float((user + number) % 2)), COLUMNS)
    keys = {**KEYS, "metrics": ["AUC"], "valid_metric": "AUC", "eval_args": {"split": split, "mode": "labeled"}}
    config = make_config("DIN", **keys, data_path=path)
    data_preparation(config, create_dataset(config))


@pytest.mark.parametrize("label", [2, 0.5, -1])
def test_labels_are_0_or_1(make_config, write_events, label):
    columns = [*COLUMNS[:3], "label:float"]
    path = write_events(events(lambda user, number: label if (user, number) == (0, 1) else number % 2), columns)
    keys = {**KEYS, "threshold": None, "load_col": {"inter": ["user_id", "item_id", "timestamp", "label"]}}
    with pytest.raises(InputError, match=r"line 3: label is '.*'; a label should be 0 or 1; threshold makes labels"):
        create_dataset(make_config("DIN", **keys, data_path=path))


def test_with_ranks_it_stays_recboles_and_does_not_mix(make_config):
    make_config("SASRec", metrics=["GAUC", "NDCG"], valid_metric="GAUC")
    config = make_config("SASRec", **{**KEYS, "metrics": ["GAUC", "NDCG"]})
    with pytest.raises(InputError, match="GAUC, which measures labels, and NDCG, which measures ranks"):
        check_evaluation(config)
