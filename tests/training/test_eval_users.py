"""`eval_users`: validation on some users during training, and on all of them at the end."""

import json

import numpy as np
import pytest
import torch

from recbole_ext import InputError, create_dataset, data_preparation, run_recbole
from recbole_ext.checkpoint import file as checkpoint
from recbole_ext.cli.entry import main
from recbole_ext.data.user_sample import sample_users
from recbole_ext.training.trainer import get_trainer

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_waiting")]

HALVES = {"RS": [0.5, 0.25, 0.25]}
LABELS = {
    "eval_args": {"split": HALVES, "mode": "labeled"}, "threshold": {"rating": 3}, "metrics": ["AUC"],
    "valid_metric": "AUC", "load_col": {"inter": ["user_id", "item_id", "timestamp", "rating"]},
}  # fmt: skip
MODES = [{"eval_args": {"split": HALVES, "mode": mode}} for mode in ("full", "uni5", "pop5", "uni3-unseen")]


@pytest.fixture
def rated(write_events, random_events):
    """The folder of a data set with ratings."""
    events = [(*event, number % 6) for number, event in enumerate(random_events(items=40))]
    return write_events(events, ("user_id:token", "item_id:token", "timestamp:float", "rating:float"))


@pytest.fixture
def validation(make_config, rated):
    """The configuration and the loader of validation data."""

    def make(model="MEANTIME", **keys):
        config = make_config(model, data_path=rated, **keys)
        torch.manual_seed(0)  # of a random split
        return config, data_preparation(config, create_dataset(config))[1]

    return make


def users(sample) -> list[str]:
    data = sample.loader._dataset
    return sorted(set(data.id2token(data.uid_field, data.inter_feat[data.uid_field].numpy()).tolist()))


def test_the_users_depend_on_the_seed_alone(validation):
    drawn = [
        users(sample_users(validation(model, **keys)[1], validation(model, eval_users=8, **keys)[0]))
        for model, keys in [
            ("MEANTIME", {}), ("SASRec", {"worker": 1}), ("BPR", {"eval_args": {"split": HALVES, "order": "TO"}}),
            ("LightSANs", {"eval_batch_size": 3, "eval_args": {"mode": "uni5"}}),
        ]
    ]  # fmt: skip
    assert len(drawn[0]) == 8
    assert all(other == drawn[0] for other in drawn[1:2] + drawn[3:])
    assert len(set(drawn[0]) & set(drawn[2])) > 4  # of other users of validation
    other = users(sample_users(*reversed(validation(eval_users=8, seed=1))))
    assert other != drawn[0]
    more = users(sample_users(*reversed(validation(eval_users=12))))
    assert set(drawn[0]) < set(more)


RANKED = [(model, keys) for model in ("MEANTIME", "BPR") for keys in MODES]
CLICKED = [(model, LABELS) for model in ("DIN", "FM")]


@pytest.mark.parametrize(("model", "keys"), RANKED + CLICKED, ids=lambda value: str(value)[:12])
def test_the_users_have_the_figures_that_they_have_among_all(validation, make_config, rated, model, keys):
    small = {"train_neg_sample_args": None} if keys is LABELS else {}
    measured = {} if keys is LABELS else {"metrics": ["NDCG"]}
    config, loader = validation(model, eval_users=8, **keys, **small, **measured)
    trainer = get_trainer(config)(config, config.model_class(config, loader._dataset))
    _, everyone = trainer.evaluate_per_user(loader, load_best_model=False)
    for batch_size in (4096, 30):
        config["eval_batch_size"] = batch_size
        sample = sample_users(loader, config)
        _, some = trainer.evaluate_per_user(sample.loader, load_best_model=False)
        chosen = everyone[everyone["user_id"].isin(users(sample))].reset_index(drop=True)
        assert some["user_id"].nunique() == 8
        by_user = [frame.sort_values("user_id", kind="stable").reset_index(drop=True) for frame in (chosen, some)]
        assert list(by_user[0]) == list(by_user[1])
        for name in by_user[0]:
            if by_user[0][name].dtype == object:
                assert (by_user[0][name] == by_user[1][name]).all()
            else:
                np.testing.assert_allclose(by_user[0][name], by_user[1][name], atol=1e-6)


def test_seen_items_of_the_sample_are_excluded(validation):
    config, loader = validation(eval_users=8, exclude_history=True, metrics=["NDCG"])
    trainer = get_trainer(config)(config, config.model_class(config, loader._dataset))
    sample = sample_users(loader, config)
    _, everyone = trainer.evaluate_per_user(loader, load_best_model=False)
    _, some = trainer.evaluate_per_user(sample.loader, load_best_model=False)
    chosen = everyone[everyone["user_id"].isin(users(sample))]
    assert chosen["ndcg@5"].tolist() == some["ndcg@5"].tolist()


@pytest.fixture
def run(rated):
    def run(model="MEANTIME", saved=True, **keys):
        small = {
            "data_path": rated, "epochs": 2, "train_batch_size": 16, "show_progress": False, "state": "info",
            "MAX_ITEM_LIST_LENGTH": 8, "topk": [5], "valid_metric": "NDCG@5", "use_gpu": False, "learning_rate": 0.01,
            "metric_decimal_place": 10,
        }  # fmt: skip
        return run_recbole(model, "toy", None, {**small, **keys}, saved, argv=[])

    return run


@pytest.mark.parametrize(("model", "more"), [("MEANTIME", {}), ("BPR", {}), ("SASRec", {"ema_decay": 0.5})])
def test_training_is_the_same_and_the_end_measures_all_users(run, model, more):
    plain, sampled = run(model, **more), run(model, eval_users=8, **more)
    losses = [checkpoint.load(result["checkpoint"])["curves"]["train_loss"] for result in (plain, sampled)]
    shortest = min(map(len, losses))
    assert losses[0][:shortest] == losses[1][:shortest]
    sample, stored = sampled["valid_sample"], checkpoint.load(sampled["checkpoint"])
    assert plain["valid_sample"] is None
    assert checkpoint.load(plain["checkpoint"])["valid_users"] is None
    assert (sample["users"], sample["all_users"]) == (8, 30) == tuple(stored["valid_users"])
    assert sample["result"] == stored["best_valid_result"]
    assert sampled["best_valid_score"] == sampled["best_valid_result"]["ndcg@5"]
    assert sampled["best_valid_result"] != sample["result"]
    if stored["epoch"] == checkpoint.load(plain["checkpoint"])["epoch"]:
        assert sampled["best_valid_result"] == plain["best_valid_result"]
        assert sampled["test_result"] == plain["test_result"]


def test_as_many_users_as_there_are_is_all_of_them(run):
    plain, all_users = run(), run(eval_users=30)
    assert all_users["valid_sample"] is None
    assert plain["best_valid_result"] == all_users["best_valid_result"]


def test_without_a_checkpoint_the_last_epoch_is_measured_on_all_users(run):
    result = run(eval_users=8, saved=False)
    assert result["checkpoint"] is None
    assert result["valid_sample"]["users"] == 8
    assert result["best_valid_result"] != result["valid_sample"]["result"]


def test_resuming_keeps_the_users(run):
    whole = run(eval_users=8, epochs=4)
    half = run(eval_users=8, epochs=2)
    resumed = run_recbole(resume=half["checkpoint"], config_dict={"epochs": 4}, argv=[])
    for name in ("best_valid_result", "valid_sample", "test_result"):
        assert whole[name] == resumed[name], name
    for keys, sentence in [({"eval_users": 9}, "eval_users is 9, but checkpoint"), ({"seed": 1}, "seed is 1, but")]:
        with pytest.raises(InputError, match=sentence):
            run_recbole(resume=half["checkpoint"], config_dict=keys, argv=[])
    plain = run()
    with pytest.raises(InputError, match="eval_users is 8, but checkpoint .* was trained with None"):
        run_recbole(resume=plain["checkpoint"], config_dict={"eval_users": 8}, argv=[])


def test_the_command_line_says_whose_figures_these_are(rated, capsys, caplog):
    words = ["--model=MEANTIME", "--dataset=toy", f"--data_path={rated}", "--topk=5", "--valid_metric=NDCG@5"]
    with caplog.at_level("INFO"):
        assert main([*words, "--epochs=1", "--eval_users=8", "--json=r.json", "--per_user=u.csv"]) == 0
    assert "validation during training, on 8 of 30 users (eval_users): " in capsys.readouterr().out
    assert "the following validation is of 8 of 30 users (eval_users)" in caplog.text
    assert "of 8 of 30 users: {" in caplog.text
    with open("r.json", encoding="utf-8") as file:
        assert json.load(file)["valid_sample"]["all_users"] == 30


@pytest.mark.parametrize("value", [0, -1, 1.5, "x", True])
def test_wrong_values_are_one_sentence(make_config, value):
    with pytest.raises(InputError, match=r"key 'eval_users' is .*; it should be a whole number in \[1, inf\)"):
        make_config(eval_users=value)


def test_data_without_users_are_refused(run):
    keys = {**LABELS, "USER_ID_FIELD": None, "ITEM_ID_FIELD": None, "load_col": {"inter": ["rating", "timestamp"]}}
    with pytest.raises(InputError, match="eval_users is 8, but the data have no users"):
        run("WideDeep", eval_users=8, **keys)


def test_labels_of_the_sample_that_no_auc_measures_are_refused(run):
    with pytest.raises(InputError, match=r"in the valid data of 1 of 30 users every 'label' is .*raise eval_users"):
        run("DIN", eval_users=1, **{**LABELS, "eval_args": {"split": {"LS": "valid_and_test"}, "mode": "labeled"}})
