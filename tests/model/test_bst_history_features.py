"""BST with columns of past events (`history_features`): what is known when, serving, explanation, export."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from recbole.data.interaction import Interaction

from recbole_ext import InputError, Recommender, load_data_and_model, run_recbole
from recbole_ext.checkpoint import file as checkpoint
from recbole_ext.cli.entry import main

NAMES = ["user_id", "item_id", "timestamp", "device", "rating"]
SMALL = {
    "embedding_size": 8, "gap_embedding_size": 8, "inner_size": 8, "mlp_hidden_size": [16], "learning_rate": 0.01,
    "train_batch_size": 16, "show_progress": False, "use_gpu": False, "state": "warning", "epochs": 1, "topk": [5],
    "valid_metric": "NDCG@5",
}  # fmt: skip
LABELED = {
    "train_neg_sample_args": None, "metrics": ["AUC"], "valid_metric": "AUC",
    "eval_args": {"split": {"RS": [0.6, 0.2, 0.2]}, "mode": "labeled"},
}  # fmt: skip


@pytest.fixture
def events(random_events) -> list[tuple]:
    return [(*event, f"d{place % 3}", place % 5 + 1) for place, event in enumerate(random_events())]


@pytest.fixture
def histories(events) -> pd.DataFrame:
    return pd.DataFrame(events, columns=NAMES)


@pytest.fixture
def run(write_events, events, no_waiting):
    """Train on events with a device and a rating; returns RecBole's result."""

    def run(**keys):
        path = write_events(
            events, ["user_id:token", "item_id:token", "timestamp:float", "device:token", "rating:float"]
        )
        read = {"load_col": {"inter": NAMES}, "history_features": ["device", "rating"], "normalize_all": True}
        return run_recbole("BST", "toy", None, {**SMALL, **read, "data_path": path, **keys}, argv=[])

    return run


def scores(recommender: Recommender, histories: pd.DataFrame, **keys) -> dict[str, dict[str, float]]:
    """The score of every item by user."""
    found = recommender.recommend(histories, k=20, exclude_seen=False, **keys)
    return {user: dict(zip(rows["item_id"], rows["score"], strict=True)) for user, rows in found.groupby("user_id")}


# ---------------------------------------------------------------- training


@pytest.mark.parametrize("past", [["label"], []])
def test_labels_of_past_events_tell_who_clicks(write_events, no_waiting, past):
    random, likes = np.random.default_rng(0), np.random.default_rng(1).random(60) < 0.5
    events = [
        (f"u{user}", f"i{random.integers(20)}", 1.6e9 + user + number * 1000, int(likes[user]))
        for user in range(60) for number in range(12)
    ]  # fmt: skip
    path = write_events(events, ["user_id:token", "item_id:token", "timestamp:float", "label:float"])
    keys = {**SMALL, **LABELED, "data_path": path, "history_features": past, "epochs": 6,
            "load_col": {"inter": ["user_id", "item_id", "timestamp", "label"]}}  # fmt: skip
    auc = run_recbole("BST", "toy", None, keys, saved=False, argv=[])["test_result"]["auc"]
    assert auc > 0.95 if past else auc < 0.8


def test_what_happens_at_the_time_of_the_target_or_later_is_unknown(run):
    _, model, *_, test = load_data_and_model(run()["checkpoint"], device="cpu")
    batch = next(iter(test))[0]
    batch = batch[batch["item_length"] > 1]
    columns, last = batch.interaction, batch["item_length"].unsqueeze(1) - 1
    newest = columns["timestamp_list"].gather(1, last).squeeze(1)

    def scored(time: torch.Tensor, changed: bool) -> torch.Tensor:
        ratings = columns["rating_list"].scatter_add(1, last, torch.full(last.shape, 0.5 * changed))
        return model.forward(Interaction({**columns, "timestamp": time, "rating_list": ratings}))

    assert torch.equal(scored(newest, True), scored(newest, False))
    later = newest + 1
    assert (scored(later, True) != scored(later, False)).all()


def test_a_run_goes_on_only_with_the_same_columns(run):
    path = run()["checkpoint"]
    with pytest.raises(InputError, match="history_features is .'rating'., but checkpoint .* was trained with"):
        run_recbole(resume=path, config_dict={"epochs": 2, "history_features": ["rating"]}, argv=[])
    assert run_recbole(resume=path, config_dict={"epochs": 2}, argv=[])["checkpoint"] == path


# ---------------------------------------------------------------- serving


def test_a_history_scores_as_the_test_row_does(run, histories):
    path = run()["checkpoint"]
    _, model, data, *_, test = load_data_and_model(path, device="cpu")
    shutil.rmtree("data")
    ordered = histories.sort_values("timestamp", kind="stable")
    last = ordered.groupby("user_id").tail(1)
    at = dict(zip(last["user_id"], last["timestamp"], strict=True))
    recommender = Recommender.load(path, "cpu")
    found = scores(recommender, histories.drop(last.index), at=at)
    for batch, *_ in test:
        for user, row in zip(batch["user_id"], model.full_sort_predict(batch), strict=True):
            values = [found[data.field2id_token["user_id"][user]][item] for item in recommender.items.tokens[1:]]
            np.testing.assert_allclose(values, row[1:].detach(), rtol=1e-5)


def test_all_users_are_served_as_from_a_table_with_the_last_outcome(run, histories):
    path = run()["checkpoint"]
    assert main(["recommend", f"--checkpoint={path}", "--all_users", "--k=20", "--exclude_seen=False",
                 "--out=all.csv"]) == 0  # fmt: skip
    found, recommender = (
        pd.read_csv("all.csv").set_index(["user_id", "item_id"])["score"],
        Recommender.load(path, "cpu"),
    )
    expected = scores(recommender, histories)
    for user, values in expected.items():
        np.testing.assert_allclose(found[user][list(values)], list(values.values()), rtol=1e-4)
    last = histories.sort_values("timestamp").groupby("user_id").tail(1).index
    histories.loc[last, "rating"] = 6 - histories.loc[last, "rating"]
    changed = scores(recommender, histories)
    moved = [user for user in expected if histories.loc[last].set_index("user_id")["rating"][user] != 3]
    assert all(changed[user] != expected[user] for user in moved)


def test_an_effect_is_the_score_minus_that_without_the_event(run, histories):
    recommender = Recommender.load(run()["checkpoint"], "cpu")
    rows = histories[histories["user_id"] == "u3"].sort_values("timestamp")
    at = float(rows["timestamp"].max() + 1)
    told = recommender.explain(rows, "u3", item="i1", at=at)
    for place in range(len(rows)):
        without = scores(recommender, rows.drop(rows.index[place]), at=at)["u3"]["i1"]
        assert told.events["effect"].iloc[place] == pytest.approx(told.score - without, abs=1e-6)


def test_histories_need_the_columns(run, histories):
    recommender = Recommender.load(run()["checkpoint"], "cpu")
    with pytest.raises(InputError, match="there is no column 'rating', which the model reads"):
        recommender.recommend(histories.drop(columns="rating"))


def test_a_label_made_by_threshold_needs_its_column(run, histories):
    keys = {**LABELED, "threshold": {"rating": 4}, "history_features": ["label"], "normalize_all": False}
    recommender = Recommender.load(run(**keys)["checkpoint"], "cpu")
    before = scores(recommender, histories)
    assert (
        scores(recommender, histories.assign(rating=histories["rating"].map({1: 2, 2: 3, 3: 1, 4: 5, 5: 4}))) == before
    )
    assert scores(recommender, histories.assign(rating=6 - histories["rating"])) != before
    with pytest.raises(InputError, match="there is no column 'rating', which the model reads"):
        recommender.recommend(histories.drop(columns="rating"))


def test_a_checkpoint_of_before_the_key_reads_no_such_column(run, histories):
    path = run(history_features=[])["checkpoint"]
    expected = scores(Recommender.load(path, "cpu"), histories)
    state = checkpoint.load(path)
    del state["config"]["history_features"]
    checkpoint.save(state, path)
    assert scores(Recommender.load(path, "cpu"), histories[NAMES[:3]]) == expected


@pytest.mark.slow
def test_an_exported_program_takes_the_columns(run, histories):
    recommender = Recommender.load(run()["checkpoint"], "cpu")
    assert recommender.export("model.pt2") < 1e-6
    files = {"serving.json": ""}
    program = torch.export.load("model.pt2", extra_files=files).module()
    facts = json.loads(files["serving.json"])
    columns = facts["inputs"]["event_features"]
    assert columns["device"]["shape"] == columns["rating"]["shape"] == ["B", "T"]
    rows = histories[histories["user_id"] == "u3"].sort_values("timestamp")
    result = program(
        items=torch.tensor([[facts["items"].index(item) for item in rows["item_id"]]]),
        lengths=torch.tensor([len(rows)]), times=torch.tensor([rows["timestamp"].tolist()], dtype=torch.float64),
        at=torch.tensor([1.7e9], dtype=torch.float64), candidates=torch.arange(len(facts["items"])),
        event_features={
            "device": torch.tensor([[columns["device"]["tokens"].index(device) for device in rows["device"]]]),
            "rating": torch.tensor([rows["rating"].tolist()], dtype=torch.float64),
        },
    )  # fmt: skip
    found = scores(recommender, rows, at=1.7e9)["u3"]
    np.testing.assert_allclose(result[0, 1:].detach(), [found[item] for item in facts["items"][1:]], rtol=1e-4)
