"""RecBole's own models through the same function, with RecBole's defaults, so that one can compare."""

import math

import pytest

from recbole_ext import load_data_and_model, run_recbole

pytestmark = pytest.mark.slow

RANKING = {"topk": [5], "valid_metric": "NDCG@5"}
LABELS = {"metrics": ["AUC", "LogLoss"], "valid_metric": "AUC"}


@pytest.fixture
def rated_events(random_events):
    """Events with ratings of 1 to 5."""
    return [(user, item, 1 + number % 5, time) for number, (user, item, time) in enumerate(random_events(users=20))]


@pytest.mark.parametrize(
    ("model", "keys", "metric"),
    [
        ("SASRec", RANKING, "ndcg@5"),
        ("SASRec", {**RANKING, "loss_type": "BPR", "enable_amp": True}, "ndcg@5"),
        ("BERT4Rec", {**RANKING, "mask_ratio": 0.5}, "ndcg@5"),
        ("GRU4Rec", {**RANKING, "eval_args": {"mode": "uni9"}}, "ndcg@5"),
        ("FPMC", {**RANKING, "eval_args": {"split": {"RS": [0.8, 0.1, 0.1]}}}, "ndcg@5"),
        ("DIN", LABELS, "auc"),
        ("DIN", {**RANKING, "metrics": ["NDCG"], "eval_args": {"mode": "full"}}, "ndcg@5"),
        ("Pop", RANKING, "ndcg@5"),
        ("BPR", RANKING, "ndcg@5"),
        ("FM", {**LABELS, "threshold": {"rating": 3}}, "auc"),
    ],
)
def test_a_model_of_recbole_trains_is_tested_and_is_loaded(
    write_events, rated_events, monkeypatch, model, keys, metric
):
    class Table:
        draw = staticmethod(lambda: "environment")

    monkeypatch.setattr("recbole_ext.quick_start.get_environment", lambda config: Table)
    columns = ("user_id:token", "item_id:token", "rating:float", "timestamp:float")
    small = {
        "data_path": write_events(rated_events, columns), "epochs": 1, "use_gpu": False, "show_progress": False,
        "train_batch_size": 64, "MAX_ITEM_LIST_LENGTH": 6,
    }  # fmt: skip
    result = run_recbole(model, "toy", None, {**small, **keys}, argv=[])
    for part in ("best_valid_result", "test_result"):
        assert metric in result[part]
        assert all(math.isfinite(value) for value in result[part].values())
    config, network, *_ = load_data_and_model(result["checkpoint"])
    assert type(network).__module__.startswith("recbole.model")
    assert type(network).__name__ == model
