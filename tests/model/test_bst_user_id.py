"""BST with the user's id as a feature: training, new users, serving, explanation, export, and older checkpoints."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from recbole.data.interaction import Interaction

from recbole_ext import InputError, Recommender, run_recbole
from recbole_ext.checkpoint import file as checkpoint
from recbole_ext.cli.entry import main

SMALL = {
    "embedding_size": 8, "gap_embedding_size": 8, "inner_size": 8, "mlp_hidden_size": [16], "user_id_feature": True,
    "cross_features": [["user_id", "item_id"]], "train_batch_size": 16, "show_progress": False, "use_gpu": False,
    "state": "warning", "epochs": 1, "topk": [5], "valid_metric": "NDCG@5", "learning_rate": 0.01,
}  # fmt: skip


@pytest.fixture
def run(write_events, random_events, no_waiting):
    """Train on the toy data; returns RecBole's result."""

    def run(resume=None, argv=(), **keys):
        path = write_events(random_events())
        if resume is not None:
            return run_recbole(resume=resume, config_dict=keys, argv=list(argv))
        return run_recbole("BST", "toy", None, {**SMALL, "data_path": path, **keys}, argv=list(argv))

    return run


@pytest.fixture
def histories(random_events) -> pd.DataFrame:
    return pd.DataFrame(random_events(), columns=["user_id", "item_id", "timestamp"])


def scores(recommender: Recommender, histories: pd.DataFrame, **keys) -> dict[str, dict[str, float]]:
    """The score of every item by user."""
    found = recommender.recommend(histories, k=20, exclude_seen=False, **keys)
    return {user: dict(zip(rows["item_id"], rows["score"], strict=True)) for user, rows in found.groupby("user_id")}


def as_user(histories: pd.DataFrame, user: str, name: str) -> pd.DataFrame:
    """The history of one user under another name."""
    return histories[histories["user_id"] == user].assign(user_id=name)


# ---------------------------------------------------------------- training


@pytest.mark.parametrize("known", [True, False])
def test_what_only_the_user_decides_is_learnt_with_the_id(write_events, no_waiting, known):
    random, likes = np.random.default_rng(0), np.random.default_rng(1).random(60) < 0.5
    events = [
        (f"u{user}", f"i{random.integers(20)}", 1.6e9 + user + number * 1000, int(likes[user]))
        for user in range(60) for number in range(12)
    ]  # fmt: skip
    keys = {
        **SMALL,
        "data_path": write_events(events, ["user_id:token", "item_id:token", "timestamp:float", "label:float"]),
        "load_col": {"inter": ["user_id", "item_id", "timestamp", "label"]}, "user_id_feature": known, "epochs": 10,
        "cross_features": [], "train_neg_sample_args": None, "metrics": ["AUC"], "valid_metric": "AUC",
        "eval_args": {"split": {"RS": [0.6, 0.2, 0.2]}, "mode": "labeled"},
    }  # fmt: skip
    auc = run_recbole("BST", "toy", None, keys, saved=False, argv=[])["test_result"]["auc"]
    assert auc > 0.95 if known else auc < 0.8  # without the id, the model can only remember the user by the history


def test_users_without_a_training_event_score_as_unknown_ones(make_model, write_events):
    events = [(f"u{user}", f"i{item}", 1.6e9 + 100 * user + item, item % 2) for user in range(9) for item in range(5)]
    path = write_events(events, ["user_id:token", "item_id:token", "timestamp:float", "label:float"])
    model, train, _, test = make_model(
        "BST", **{**SMALL, "data_path": path, "cross_buckets": 7, "metrics": ["AUC"], "valid_metric": "AUC"},
        load_col=None, train_neg_sample_args=None, min_history=0, history="positive",
        eval_args={"split": {"RS": [0.4, 0.2, 0.4]}, "group_by": "none", "order": "TO", "mode": "labeled"},
    )  # fmt: skip
    batch = next(iter(test))[0]
    trained = torch.isin(batch["user_id"], train._dataset.inter_feat["user_id"])
    assert 0 < trained.sum() < len(trained) or not trained.any()
    known = train._dataset.inter_feat["user_id"][0]
    model = model.eval()
    unknown = {name: torch.zeros_like(batch["user_id"]) for name in ("user_id",)}
    before = model.forward(Interaction({**batch.interaction, **unknown}))
    torch.testing.assert_close(model.forward(batch)[~trained], before[~trained])
    as_known = {"user_id": torch.full_like(batch["user_id"], known)}
    assert (model.forward(Interaction({**batch.interaction, **as_known})) != before).all()


def test_a_share_of_the_training_examples_has_an_unknown_user(make_model):
    model, train, *_ = make_model("BST", **{**SMALL, "user_id_dropout_prob": 0.3})
    batch = train._dataset[np.arange(len(train._dataset))]
    batch = batch.repeat(100)  # of about 200 examples
    dropped = model.train()._values(batch)["user_id"] == 0
    assert 0.27 < dropped.double().mean() < 0.33
    assert torch.equal(model.eval()._values(batch)["user_id"], batch["user_id"])


def test_a_run_goes_on_only_with_the_same_key(run):
    whole, part = run(epochs=2), run(epochs=1)
    resumed = run(resume=part["checkpoint"], epochs=2)
    states = [checkpoint.load(result["checkpoint"])["state_dict"] for result in (whole, resumed)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    with pytest.raises(InputError, match="user_id_feature is False, but checkpoint .* was trained with True"):
        run(resume=part["checkpoint"], epochs=3, user_id_feature=False, cross_features=[])


# ---------------------------------------------------------------- serving


def test_known_users_score_as_in_evaluation_and_new_ones_as_id_0(run, make_config, histories, monkeypatch):
    recommender = Recommender.load(run()["checkpoint"], "cpu")
    model = recommender.model
    found = scores(recommender, pd.concat([histories, as_user(histories, "u3", "new")]))
    assert found["new"] != found["u3"]
    requests = recommender.reader.read(histories)
    expected = model.full_sort_predict(recommender.model_input(requests.examples.gather()))
    for row, user in enumerate(requests.users):
        values = [found[user][item] for item in recommender.items.tokens[1:]]
        np.testing.assert_allclose(values, expected[row, 1:].detach(), rtol=1e-5)
    with torch.no_grad():  # then a known user's id says nothing
        model.users.column("user_id").zero_()
    assert scores(recommender, histories)["u3"] == pytest.approx(found["new"])


def test_all_users_of_the_training_data_are_served_with_their_ids(run, histories):
    path = run()["checkpoint"]
    assert main(["recommend", f"--checkpoint={path}", "--all_users", "--k=20", "--exclude_seen=False",
                 "--out=all.csv"]) == 0  # fmt: skip
    found = pd.read_csv("all.csv").set_index(["user_id", "item_id"])["score"]
    for user, values in scores(Recommender.load(path, "cpu"), histories).items():
        np.testing.assert_allclose(found[user][list(values)], list(values.values()), rtol=1e-4)


def test_an_effect_is_told_of_the_users_own_score(run, histories):
    recommender = Recommender.load(run()["checkpoint"], "cpu")
    for user in ("u3", "new"):
        events = as_user(histories, "u3", user).sort_values("timestamp")
        at = float(events["timestamp"].max() + 1)
        told = recommender.explain(events, user, item="i1", at=at)
        assert told.score == pytest.approx(scores(recommender, events, at=at)[user]["i1"])
        without = scores(recommender, events.iloc[:-1], at=at)[user]["i1"]
        assert told.events["effect"].iloc[-1] == pytest.approx(told.score - without, abs=1e-6)


def test_a_checkpoint_of_before_the_key_has_no_ids(run, histories):
    path = run(user_id_feature=False, cross_features=[])["checkpoint"]
    expected = scores(Recommender.load(path, "cpu"), histories)
    state = checkpoint.load(path)
    del state["config"]["user_id_feature"]
    checkpoint.save(state, path)
    assert scores(Recommender.load(path, "cpu"), histories) == expected
    resumed = run(resume=path, epochs=2)
    assert resumed["config"]["user_id_feature"] is False


@pytest.mark.slow
@pytest.mark.parametrize("command", [True, False])
def test_an_exported_program_takes_the_users_ids(run, histories, command):
    path = run()["checkpoint"]
    recommender = Recommender.load(path, "cpu")
    if command:
        assert main(["export", f"--checkpoint={path}", "--out=model.pt2"]) == 0
    else:
        assert recommender.export("model.pt2") < 1e-6
    files = {"serving.json": ""}
    program = torch.export.load("model.pt2", extra_files=files).module()
    facts = json.loads(files["serving.json"])
    assert facts["inputs"]["users"]["shape"] == ["B"]
    events = pd.concat([histories, as_user(histories, "u3", "new")])
    users = pd.unique(events["user_id"])
    found, ids = scores(recommender, events, at=1.7e9), {token: place for place, token in enumerate(facts["items"])}
    for user in users[[0, -1]]:
        rows = events[events["user_id"] == user].sort_values("timestamp")
        places = [ids[item] for item in rows["item_id"]][-facts["longest_history"] :]
        times = rows["timestamp"].tolist()[-facts["longest_history"] :]
        result = program(
            items=torch.tensor([places]), lengths=torch.tensor([len(places)]),
            times=torch.tensor([times], dtype=torch.float64), at=torch.tensor([1.7e9], dtype=torch.float64),
            users=torch.tensor([facts["users"].index(user) if user in facts["users"] else 0]),
            candidates=torch.arange(len(ids)),
        )  # fmt: skip
        expected = [found[user][item] for item in facts["items"][1:]]
        np.testing.assert_allclose(result[0, 1:].detach(), expected, rtol=1e-4)
