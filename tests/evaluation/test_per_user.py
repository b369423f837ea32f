"""Metrics of each user, and metrics of one's own."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from recbole.evaluator.base_metric import AbstractMetric, LossMetric, TopkMetric
from recbole.utils import EvaluatorType

import recbole_ext
from recbole_ext import InputError, get_trainer, load_data_and_model, register_metric, run_recbole
from recbole_ext.cli.entry import main

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_waiting")]

RANKS = ["Recall", "MRR", "NDCG", "Hit", "Precision", "MAP", "GAUC", "ItemCoverage", "AveragePopularity"]
RATIO = {"split": {"RS": [0.5, 0.2, 0.3]}}  # several test rows of each user
CLICKS = {
    "metrics": ["AUC", "GAUC", "LogLoss", "MAE"], "valid_metric": "GAUC", "threshold": {"rating": 1},
    "train_neg_sample_args": None, "load_col": {"inter": ["user_id", "item_id", "timestamp", "rating"]},
    "eval_args": {"split": {"RS": [0.5, 0.25, 0.25]}, "mode": "labeled"},
}  # fmt: skip


@register_metric
class HalfHit(TopkMetric):
    """Half a point for each hit."""

    def calculate_metric(self, dataobject):
        hits, _ = self.used_info(dataobject)
        return self.topk_result("halfhit", np.cumsum(hits, axis=1) / 2)


@register_metric
class Brier(LossMetric):
    """Mean squared error of probabilities."""

    smaller = True

    def calculate_metric(self, dataobject):
        return self.output_metric("brier", dataobject)

    def metric_info(self, preds, trues):
        return float(np.mean((preds - trues) ** 2))


@pytest.fixture
def run(write_events):
    """A small run; rows of the data have labels that alternate."""
    events = [(f"u{user}", f"i{(3 * user + number) % 20}", 1.6e9 + number, (user + number) % 2)
              for user in range(12) for number in range(16)]  # fmt: skip
    path = write_events(events, ("user_id:token", "item_id:token", "timestamp:float", "rating:float"))

    def run(model="SASRec", file="users.csv", **keys):
        small = {
            "epochs": 1, "train_batch_size": 64, "show_progress": False, "use_gpu": False, "MAX_ITEM_LIST_LENGTH": 4,
            "topk": [3, 5], "valid_metric": "NDCG@5", "state": "critical", "metrics": RANKS, "data_path": path,
            "metric_decimal_place": 10,
        }  # fmt: skip
        return run_recbole(model, "toy", None, {**small, **keys}, argv=[], per_user=file)

    return run


CASES = {
    "all items ranked": ("SASRec", {}),
    "several rows of a user": ("SASRec", {"eval_args": {**RATIO, "group_by": "user"}}),
    "sampled candidates": ("SASRec", {"eval_args": {"mode": "uni7"}}),
    "sampled, several rows of a user": ("SASRec", {"eval_args": {**RATIO, "mode": "pop5"}}),
    "unseen candidates, several rows of a user": ("SASRec", {"eval_args": {**RATIO, "mode": "pop3-unseen"}}),
    "without the history": ("SASRec", {"exclude_history": True, "topk": [3], "valid_metric": "NDCG@3",
                                       "metrics": ["NDCG", "Hit"]}),
    "a general model": ("BPR", {"eval_args": {**RATIO, "group_by": "user"}}),
    "a general model, sampled": ("BPR", {"eval_args": {**RATIO, "mode": "uni7"}}),
    "a general model, unseen candidates": ("BPR", {"eval_args": {**RATIO, "mode": "uni3-unseen"}}),
    "a metric of one's own": ("SASRec", {"metrics": ["HalfHit", "NDCG"], "valid_metric": "halfhit@3"}),
    "labels": ("DIN", CLICKS),
    "labels, a metric of one's own": ("DIN", {**CLICKS, "metrics": ["AUC", "Brier"], "valid_metric": "Brier"}),
    "no epoch saved": ("SASRec", {"epochs": 0}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_mean_over_the_file_is_the_result(run, case):
    model, keys = CASES[case]
    result = run(model, **keys)["test_result"]
    users = pd.read_csv("users.csv", dtype={"user_id": str})
    names = [name for name in result if not name.startswith("itemcoverage")]
    labels = "AUC" in keys.get("metrics", ())
    assert list(users) == ["user_id", "events" if labels else "positives", *names]
    assert set(users["user_id"]) == {f"u{user}" for user in range(12)}
    for name in names:
        known = users[users[name].notna()]
        weights = known["events"] if labels else known["positives"] if name == "gauc" else None
        if name != "auc":  # of all events together, not a mean over users
            assert np.average(known[name], weights=weights) == pytest.approx(result[name], abs=1e-6), name
    if case in ("several rows of a user", "unseen candidates, several rows of a user"):
        assert len(users) > 12


def test_rows_are_those_of_the_user_they_name(run):
    result = run(metrics=["MRR"], valid_metric="MRR@5")
    users = pd.read_csv("users.csv").set_index("user_id")["mrr@5"]
    config, model, _, _, _, test = load_data_and_model(result["checkpoint"])
    dataset = test._dataset
    for batch, _, _, target in test:
        scores = model.full_sort_predict(batch).view(len(batch), -1).detach()
        scores[:, 0] = -np.inf
        for row, item in enumerate(target):
            rank = 1 + int((scores[row] > scores[row, item]).sum())
            user = dataset.id2token("user_id", int(batch["user_id"][row]))
            assert users[user] == pytest.approx(1 / rank if rank <= 5 else 0)


def test_python_gets_them_from_a_checkpoint(run):
    result = run(file=None)
    assert result["per_user"] is None
    config, model, _, train, _, test = load_data_and_model(result["checkpoint"])
    assert not model.training
    trainer = get_trainer(config)(config, model)
    with pytest.raises(InputError, match="ItemCoverage needs counts of the training data; call trainer.eval_collector"):
        trainer.evaluate(test, load_best_model=False)
    trainer.eval_collector.data_collect(train)
    measured, users = trainer.evaluate_per_user(test, load_best_model=False)
    assert measured == result["test_result"] == trainer.evaluate(test, load_best_model=False)
    assert users["ndcg@5"].mean() == pytest.approx(measured["ndcg@5"])
    assert trainer.evaluator.collected is None
    assert trainer.evaluate_per_user(None, load_best_model=False) == (None, None)


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")
def test_parquet_holds_the_same_as_csv(run):
    first = run(file="users.parquet", metrics=["NDCG"])
    config, model, *_, test = load_data_and_model(first["checkpoint"])
    _, users = get_trainer(config)(config, model).evaluate_per_user(test, load_best_model=False)
    pd.testing.assert_frame_equal(pd.read_parquet("users.parquet"), users)
    assert first["per_user"] == str(Path("users.parquet").absolute())


@pytest.mark.parametrize("path", ["users", "users.json", "", True, 5, ".", "file/users.csv"])
def test_a_file_that_cannot_be_written_is_refused_before_training(run, path):
    Path("file").touch()
    with pytest.raises(InputError, match="per_user"):
        run(file=path)
    assert not Path("saved").exists()


# ---------------------------------------------------------------- metrics of one's own


def test_a_metric_of_ones_own_chooses_the_epoch_and_is_not_needed_to_serve(run):
    result = run("DIN", **{**CLICKS, "metrics": ["Brier"], "valid_metric": "Brier"})
    assert result["valid_score_bigger"] is False
    assert result["best_valid_score"] == result["best_valid_result"]["brier"]
    code = (
        "import sys\nfrom recbole_ext import InputError, Recommender, load_data_and_model\n"
        "print(len(Recommender.load(sys.argv[1]).items.tokens))\n"
        "try: load_data_and_model(sys.argv[1])\nexcept InputError as error: print(error)\n"
    )
    environment = {"PYTHONPATH": str(Path(recbole_ext.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code, result["checkpoint"]], capture_output=True, text=True,
                          env=environment)  # fmt: skip
    assert done.stdout.splitlines()[0] == "21", done.stderr
    assert "or a metric added by register_metric" in done.stdout


def test_a_search_tells_its_trials(monkeypatch, make_config):
    from recbole_ext.config import metrics
    from recbole_ext.tuning.trial import TrialSetup, train

    config = make_config(metrics=["HalfHit"], valid_metric="HalfHit@5")
    classes = metrics.registered(config["metrics"])
    assert classes == (HalfHit,)
    told = []
    monkeypatch.setattr("recbole_ext.tuning.trial.register_metric", lambda metric: told.append(metric) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train({}, TrialSetup("MEANTIME", "toy", {}, 1, classes), None, ".", print, print)
    assert told == [HalfHit]


class NotNamed(TopkMetric):
    def calculate_metric(self, dataobject):
        return {"other@5": 0.5}


class SingleValue(AbstractMetric):
    metric_type, metric_need = EvaluatorType.RANKING, ["rec.topk"]

    def calculate_metric(self, dataobject):
        return {"singlevalue": 0.5}


def test_results_are_called_as_the_class(run):
    register_metric(NotNamed)
    with pytest.raises(
        InputError, match="a metric returns 'other@5'; results of registered metrics should be called 'notnamed'"
    ):
        run(metrics=["NotNamed"], valid_metric="NotNamed@5")
    register_metric(SingleValue)
    assert run(metrics=["SingleValue", "NDCG"], valid_metric="SingleValue")["best_valid_score"] == 0.5
    with pytest.raises(
        InputError, match="valid_metric is 'SingleValue@5', which no metric returns; the results are single"
    ):
        run(metrics=["SingleValue"], valid_metric="SingleValue@5")


def made(**attributes) -> type:
    return type("Made", (AbstractMetric,), {"calculate_metric": lambda *_: {}, **attributes})


@pytest.mark.parametrize(
    ("metric", "sentence"),
    [
        (5, "5 is not a metric; give a subclass"), (dict, "is not a metric; give a subclass"),
        (type("NDCG", (TopkMetric,), {}), "metric NDCG exists already"),
        (type("ndcg", (TopkMetric,), {}), "metric NDCG exists already"),
        (made(), "metric Made has no metric_type"), (made(metric_type="RANKING"), "metric Made has no metric_type"),
        (made(metric_type=EvaluatorType.VALUE), "has metric_need None; it should be a list of some of rec.items"),
        (made(metric_type=EvaluatorType.VALUE, metric_need=["rec.item"]), r"has metric_need \['rec.item'\]"),
        (type("Made", (TopkMetric,), {}), r"metric Made has no method calculate_metric\(dataobject\)"),
    ],
)  # fmt: skip
def test_what_is_no_metric_is_one_sentence(metric, sentence):
    with pytest.raises(InputError, match=sentence):
        register_metric(metric)


def test_an_unknown_metric_stays_one_sentence(capsys):
    assert main(["--model=Pop", "--metrics=[Recal]", "--valid_metric=Recal@5"]) == 2
    error = capsys.readouterr().err
    assert "key 'metrics' is ['Recal']; it should be a list, each member one of AUC, " in error
    assert error.count("\n") == 1


def test_registering_a_class_again_replaces_it(make_config):
    for smaller in (True, False):
        register_metric(type("Again", (TopkMetric,), {"smaller": smaller, "calculate_metric": lambda *_: {}}))
        assert make_config(metrics=["Again"], valid_metric="Again@5")["valid_metric_bigger"] is not smaller


def test_no_test_data_leaves_the_file_alone_and_says_so(run, caplog):
    Path("users.csv").write_text("of another run\n")
    result = run(metrics=["NDCG"], eval_args={"split": {"RS": [0.8, 0.2, 0]}}, state="warning")
    assert result["per_user"] is None
    assert Path("users.csv").read_text() == "of another run\n"
    assert "per_user: there is no test result, so " in caplog.text
