"""Metrics of the same weights have the same digits for any number of processes, and so have those of each user."""

from typing import Any

import pandas as pd
import pytest

from recbole_ext import load_data_and_model
from recbole_ext.distributed.evaluation import OwnBatches

SPLIT = {"RS": [0.4, 0.3, 0.3]}  # several events of each user are measured
CLICKS = {
    "eval_args": {"mode": "labeled", "split": SPLIT},
    "metrics": ["AUC", "GAUC", "LogLoss"],
    "valid_metric": "GAUC",
}
RANKINGS = {"metrics": ["NDCG", "ItemCoverage", "GAUC", "AveragePopularity"], "valid_metric": "NDCG@5"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "all items but those of the history": ("MEANTIME", {"exclude_history": True, "metrics": ["NDCG", "MRR"]}),
    "metrics of all rankings": ("SASRec", {**RANKINGS, "hidden_size": 16}),
    "sampled candidates": ("SASRec", {"eval_args": {"mode": "uni7"}, "hidden_size": 16}),
    "a general model": ("BPR", {"embedding_size": 8}),
    "labels": ("BST", {**CLICKS, "threshold": {"rating": 3}, "embedding_size": 8, "load_col": None}),
    "more processes than batches": ("SASRec", {"eval_batch_size": 20, "hidden_size": 16}),
}


@pytest.fixture
def labelled_events(random_events):
    """Events with ratings from 1 to 5."""
    return [(*event, 1 + (place * 7) % 5) for place, event in enumerate(random_events(31, 29))]


@pytest.mark.parametrize("case", CASES)
def test_metrics_have_the_same_digits(case, make_config, make_checkpoint, labelled_events, write_events, in_processes):
    model, keys = CASES[case]
    columns = ("user_id:token", "item_id:token", "timestamp:float", "rating:float")
    data_path = write_events(labelled_events, columns)
    keys = {"eval_batch_size": 4, "metric_decimal_place": 15, **keys}
    path = make_checkpoint(make_config(model, data_path=data_path, **{**keys, "epochs": 1}))

    def evaluate() -> tuple[dict[str, float], pd.DataFrame]:
        from recbole_ext.training.trainer import get_trainer

        config, network, _, train, _, test = load_data_and_model(path, "cpu")
        trainer = get_trainer(config)(config, network)
        trainer.eval_collector.data_collect(train)
        return trainer.evaluate_per_user(test, load_best_model=False)

    result, users = evaluate()
    for count in (2, 3):
        for other_result, other_users in in_processes(count, evaluate):
            assert other_result == result
            pd.testing.assert_frame_equal(other_users, users, check_exact=True)


def test_every_batch_belongs_to_one_process(monkeypatch):
    batches = [[1, 2], [3, 4], [5]]
    for count, expected in ((1, [batches]), (2, [[[1, 2], [5]], [[3, 4]]]), (4, [[[1, 2]], [[3, 4]], [[5]], [[1, 2]]])):
        monkeypatch.setattr("recbole_ext.distributed.processes.size", lambda count=count: count)
        for number in range(count):
            monkeypatch.setattr("recbole_ext.distributed.processes.rank", lambda number=number: number)
            own = OwnBatches(batches)
            assert list(own) == expected[number]
            assert len(own) == len(expected[number])
            assert bool(own.numbers) == (number < 3)  # the fourth computes the first batch, which does not count
