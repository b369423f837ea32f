"""From a checkpoint alone to ranked items: the scores of evaluation, unknown users and items, bounded memory."""

import shutil

import numpy as np
import pandas as pd
import pytest
import torch

from recbole_ext import MODELS, InputError, Recommender, create_dataset, data_preparation, get_trainer
from recbole_ext.checkpoint import file as checkpoint
from recbole_ext.serving import scoring

SMALL = {"hidden_size": 16, "inner_size": 32, "n_layers": 1}
BST_SMALL = {"embedding_size": 8, "gap_embedding_size": 8, "mlp_hidden_size": [16, 8]}
NAMES = ["user_id", "item_id", "timestamp"]


@pytest.fixture
def trained(make_config, tmp_path):
    """Train for an epoch; returns the checkpoint's path, the model in evaluation, and the test loader."""

    def make(model="MEANTIME", events=None, **keys):
        small = BST_SMALL if model == "BST" else SMALL if model not in ("DIN", "FPMC", "Pop", "TiSASRec") else {}
        config = make_config(model, events, **{**small, "epochs": 1, **keys})
        torch.manual_seed(0)
        train, _, test = data_preparation(config, create_dataset(config))
        network = config.model_class(config, train._dataset)
        trainer = get_trainer(config)(config, network)
        trainer.fit(train)
        return trainer.saved_model_file, network.eval(), test

    return make


def frame(events, names=NAMES) -> pd.DataFrame:
    return pd.DataFrame(events, columns=names)


def before_the_last(events: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, float]]:
    """Each user's events but the last, and the time of the last: what the test row of leave-one-out holds."""
    ordered = events.sort_values("timestamp", kind="stable")
    last = ordered.groupby("user_id").tail(1)
    return events.drop(last.index), dict(zip(last["user_id"], last["timestamp"], strict=True))


@torch.no_grad()
def of_evaluation(model, test) -> dict[str, np.ndarray]:
    """Scores of all items in the test rows, by the user's token."""
    found = {}
    users = test._dataset.field2id_token["user_id"]
    for batch, *_ in test:
        for user, row in zip(batch["user_id"], model.full_sort_predict(batch), strict=True):
            found[str(users[user])] = row[1:].numpy()
    return found


def as_rows(found: pd.DataFrame, recommender: Recommender) -> dict[str, np.ndarray]:
    """Scores by user, in the order of the items' ids."""
    rows = {}
    for user, block in found.groupby("user_id"):
        ids = recommender.items.ids(block["item_id"].to_numpy())
        rows[user] = np.full(len(recommender.items.tokens) - 1, np.nan)
        rows[user][ids - 1] = block["score"]
    return rows


# ---------------------------------------------------------------- the scores are those of evaluation


@pytest.mark.parametrize("model", [*MODELS, "SASRec", "FPMC", "recbole.LightSANs"])
@pytest.mark.parametrize("keys", [{}, {"time_unit": "ms"}], ids=["seconds", "milliseconds"])
def test_a_history_scores_as_the_test_row_does(trained, random_events, model, keys):
    events = frame(random_events())
    if keys:
        events["timestamp"] = events["timestamp"] * 1000 + 7
    path, network, test = trained(model, events.itertuples(index=False, name=None), **keys)
    shutil.rmtree("data")
    expected = of_evaluation(network, test)
    recommender = Recommender.load(path, "cpu")
    histories, at = before_the_last(events)
    found = as_rows(recommender.recommend(histories, k=20, at=at, exclude_seen=False), recommender)
    assert found.keys() == expected.keys()
    for user, scores in expected.items():
        np.testing.assert_allclose(found[user], scores, rtol=1e-6, atol=1e-6)
    if model == "MEANTIME":  # the time of the request matters, or the agreement would show nothing of it
        other = as_rows(recommender.recommend(histories, k=20, exclude_seen=False), recommender)
        assert any(np.abs(other[user] - found[user]).max() > 1e-6 for user in found)


FEATURES = {
    "load_col": {
        "inter": [*NAMES, "tab", "length"], "user": ["user_id", "sex", "age"],
        "item": ["item_id", "brand", "tags", "price"],
    },
    "context_features": ["tab", "length"], "cross_features": [["sex", "brand"], ["tab", "item_id"]],
    "normalize_all": True,
}  # fmt: skip


@pytest.fixture
def with_features(write_events, write_lines, random_events):
    """Events with context and features of users and items; returns them and the `data_path`."""
    events = [(*event, f"t{place % 3}", place % 7) for place, event in enumerate(random_events())]
    path = write_events(events, [f"{name}:token" for name in NAMES[:2]] + ["timestamp:float", "tab:token",
                                                                           "length:float"])  # fmt: skip
    write_lines("user", "user_id:token\tsex:token\tage:float", *(f"u{n}\t{'mf'[n % 2]}\t{3 * n}" for n in range(30)))
    items = (f"i{n}\tb{n % 4}\t{' '.join(f'g{tag}' for tag in range(n % 4))}\t{n}" for n in range(20))
    write_lines("item", "item_id:token\tbrand:token\ttags:token_seq\tprice:float", *items)
    return frame(events, [*NAMES, "tab", "length"]), path


@pytest.mark.parametrize("model", ["BST", "DIN"])
def test_features_come_from_the_checkpoint_and_context_from_the_last_event(trained, with_features, model):
    events, path = with_features
    keys = {key: value for key, value in FEATURES.items() if model == "BST" or "features" not in key}
    keys |= {"metrics": ["NDCG"]}
    checkpoint_path, network, test = trained(model, data_path=path, **keys)
    shutil.rmtree("data")
    recommender = Recommender.load(checkpoint_path)
    assert type(recommender.scorer).__name__ == ("FactoredScorer" if model == "BST" else "PairScorer")
    histories, at = before_the_last(events)
    ordered = events.sort_values("timestamp", kind="stable").groupby("user_id").tail(1).set_index("user_id")
    for name in ("tab", "length"):  # the request's context stands in each user's last event
        histories[name] = histories["user_id"].map(ordered[name])
    found = as_rows(recommender.recommend(histories, k=20, at=at, exclude_seen=False), recommender)
    if model == "BST":
        expected = of_evaluation(network, test)
    else:
        trainer = get_trainer(test.config)(test.config, network)
        trainer.item_tensor, trainer.tot_item_num = test._dataset.get_item_feature(), test._dataset.item_num
        users = test._dataset.field2id_token["user_id"]
        expected = {}
        for batch in test:
            rows = trainer._full_sort_batch_eval(batch)[1]
            users_of_rows = users[batch[0]["user_id"].numpy()]
            expected |= {user: row[1:].detach().numpy() for user, row in zip(users_of_rows, rows, strict=True)}
    assert found.keys() == expected.keys()
    for user, scores in expected.items():
        np.testing.assert_allclose(found[user], scores, rtol=1e-5, atol=1e-6)


def test_a_new_user_with_the_features_of_a_known_one_is_scored_as_that_one(trained, with_features, caplog):
    events, path = with_features
    checkpoint_path, *_ = trained("BST", data_path=path, **FEATURES)
    recommender = Recommender.load(checkpoint_path)
    known = events[events["user_id"] == "u3"]
    told = known.assign(user_id="stranger", sex="f", age=9.0)
    untold = known.assign(user_id="nobody")
    scores = as_rows(recommender.recommend(pd.concat([known, told, untold]), k=20, exclude_seen=False), recommender)
    first = as_rows(recommender.recommend(known, k=20, exclude_seen=False), recommender)["u3"]
    stranger = as_rows(recommender.recommend(told, k=20, exclude_seen=False), recommender)["stranger"]
    np.testing.assert_allclose(stranger, first, rtol=1e-6, atol=1e-7)
    assert np.abs(scores["nobody"] - first).max() > 1e-7
    with pytest.raises(InputError, match="histories: there is no column 'tab', which the model reads"):
        recommender.recommend(known.drop(columns="tab"))
    caplog.clear()
    recommender.recommend(known.assign(sexe="f", shop="x"), k=1)
    assert [record.getMessage() for record in caplog.records] == [
        "histories: the column 'sexe' is not read; the model's feature is 'sex'."
    ]


def test_histories_of_positive_events_only(trained, random_events, write_events, caplog):
    events = [(*event, place % 3) for place, event in enumerate(random_events(users=40))]
    columns = [*NAMES, "rating"]
    data = frame(events, columns)
    folder = write_events(events, ["user_id:token", "item_id:token", "timestamp:float", "rating:float"])
    keys = {"history": "positive", "threshold": {"rating": 1}, "load_col": {"inter": columns}}
    path, network, test = trained("LightSANs", data_path=folder, **keys)
    recommender = Recommender.load(path)
    expected = of_evaluation(network, test)
    clicks, at = before_the_last(data[data["rating"] >= 1])  # a ranking leaves out each user's last click
    histories = pd.concat([clicks, data[data["rating"] < 1]])
    able = [user for user in expected if (histories[histories["user_id"] == user]["rating"] >= 1).any()]
    caplog.clear()
    recommender.recommend(histories.drop(columns="rating"), users=able, k=1)
    assert (
        "histories have no label or rating, which marked positive events in training; all events count" in caplog.text
    )
    found = recommender.recommend(histories, k=20, at=at, exclude_seen=False, users=able)
    found = as_rows(found, recommender)
    for user in able:
        np.testing.assert_allclose(found[user], expected[user], rtol=1e-6, atol=1e-6)


# ---------------------------------------------------------------- who is asked, and for what


@pytest.fixture
def recommender(trained):
    return Recommender.load(trained()[0])


@pytest.fixture
def histories() -> pd.DataFrame:
    first = 1.6e9
    return frame([
        ("new", "i3", first + 50), ("u1", "i4", first), ("u1", "i5", first + 10), ("new", "i2", first + 20),
        ("u7", "i9", first + 5),
    ])  # fmt: skip


def test_each_user_asked_gets_a_block_in_the_order_asked(recommender, histories):
    found = recommender.recommend(histories, k=3)
    assert list(found.columns) == ["user_id", "rank", "item_id", "score"]
    assert list(found["user_id"]) == ["new"] * 3 + ["u1"] * 3 + ["u7"] * 3
    assert list(found["rank"]) == [1, 2, 3] * 3
    assert all(block["score"].is_monotonic_decreasing for _, block in found.groupby("user_id"))
    chosen = recommender.recommend(histories, k=3, users=["u7", "new"])
    assert list(chosen["user_id"]) == ["u7"] * 3 + ["new"] * 3
    pd.testing.assert_frame_equal(
        chosen[chosen["user_id"] == "new"].reset_index(drop=True),
        found[found["user_id"] == "new"].reset_index(drop=True),
    )


def test_seen_items_are_left_out_unless_they_are_wanted(recommender, histories):
    for user, block in recommender.recommend(histories, k=20).groupby("user_id"):
        seen = set(histories[histories["user_id"] == user]["item_id"])
        assert not seen & set(block["item_id"])
        assert len(block) == 20 - len(seen)
    assert len(recommender.recommend(histories, k=20, exclude_seen=False)) == 60


def test_items_too_old_for_the_history_are_seen_too(recommender):
    events = frame([("u1", f"i{place}", 1.6e9 + place) for place in range(15)])  # lists hold 8
    assert set(recommender.recommend(events, k=20)["item_id"]) == {f"i{place}" for place in range(15, 20)}


def test_candidates_may_be_given(recommender, histories, caplog):
    wanted = ["i12", "i3", "i7", "nothing"]
    found = recommender.recommend(histories, k=10, items=wanted)
    assert set(found[found["user_id"] == "u1"]["item_id"]) == {"i12", "i3", "i7"}
    assert set(found[found["user_id"] == "new"]["item_id"]) == {"i12", "i7"}
    assert "items: 1 that the model does not know are skipped" in caplog.text
    everything = recommender.recommend(histories, k=20, exclude_seen=False)
    for _, row in found.iterrows():
        same = everything[(everything["user_id"] == row["user_id"]) & (everything["item_id"] == row["item_id"])]
        assert same["score"].item() == pytest.approx(row["score"], abs=1e-6)


def test_unknown_items_are_counted_and_skipped(recommender, histories, caplog):
    more = frame([("u1", "x", 1.6e9 + 20), ("u1", "y", 1.6e9 + 21), ("u7", "x", 1.6e9), ("u7", "[PAD]", 1.6e9)])
    at = {"new": 1.6e9 + 60, "u1": 1.6e9 + 60, "u7": 1.6e9 + 60}
    found = recommender.recommend(pd.concat([histories, more]), k=5, at=at)
    assert "4 events of 3 items that the model does not know skipped: 'x', 'y', '[PAD]'" in caplog.text
    pd.testing.assert_frame_equal(found, recommender.recommend(histories, k=5, at=at))


def test_users_without_a_history_are_named(recommender, histories):
    only_unknown = frame([("odd", "x", 1.6e9)])
    with pytest.raises(InputError, match="1 user without an event with an item that the model knows .*: 'odd'; leave"):
        recommender.recommend(pd.concat([histories, only_unknown]))
    with pytest.raises(InputError, match="2 users without an event .*: 'who', 'u2'; leave"):
        recommender.recommend(histories, users=["u1", "who", "u2"])
    with pytest.raises(InputError, match="1 user without an event .*: 'new'"):
        recommender.recommend(histories, at=1.6e9 + 15)


def test_bst_scores_a_known_user_without_a_history(trained, histories):
    recommender = Recommender.load(trained("BST")[0])
    assert len(recommender.recommend(histories, users=["u2", "u1"])) == 20
    with pytest.raises(InputError, match="1 user without an event .*: 'who'"):
        recommender.recommend(histories, users=["u2", "who"])


def test_events_after_the_request_are_left_out(recommender, histories):
    early = recommender.recommend(histories[histories["user_id"] == "u1"].iloc[:1], at=1.6e9 + 5, k=5)
    pd.testing.assert_frame_equal(recommender.recommend(histories, users=["u1"], at=1.6e9 + 5, k=5), early)
    later = recommender.recommend(histories, users=["u1"], at=1.6e9 + 30 * 86400, k=5, exclude_seen=False)
    now = recommender.recommend(histories, users=["u1"], k=5, exclude_seen=False)
    assert not np.allclose(later["score"], now["score"], atol=1e-6)
    same = recommender.recommend(histories, users=["u1"], at={"u1": 1.6e9 + 10}, k=5, exclude_seen=False)
    pd.testing.assert_frame_equal(same, now)  # without a time: just after the last event


def test_numbers_stand_for_tokens_and_dates_for_times(trained):
    events = [(1000 + user, item, 1.6e9 + 3600 * place) for user in range(20)
              for place, item in enumerate(np.random.default_rng(user).permutation(12)[:6])]  # fmt: skip
    recommender = Recommender.load(trained(events=events)[0])
    plain = frame(events)
    dated = plain.assign(
        user_id=plain["user_id"].astype(float), timestamp=pd.to_datetime(plain["timestamp"], unit="s"),
    )  # fmt: skip
    zoned = plain.assign(timestamp=dated["timestamp"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"))
    expected = recommender.recommend(plain, at=1.7e9)
    assert set(expected["user_id"]) == {str(1000 + user) for user in range(20)}
    for same in (dated, zoned):
        found = recommender.recommend(same, at=pd.Timestamp(1.7e9, unit="s"))
        pd.testing.assert_frame_equal(found, expected)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"k": 0}, "k is 0; it should be a whole number, at least 1"), ({"k": "3"}, "k is '3'"),
        ({"k": True}, "k is True"), ({"exclude_seen": "no"}, "exclude_seen is 'no'; it should be True or False"),
        ({"items": []}, "items holds no item that the model knows"), ({"items": "i1"}, "items is 'i1'"),
        ({"users": "u1"}, "users is 'u1'"),
        ({"users": ["u1", "u7", "u1"]}, "users row 2 .*: user_id is 'u1'; it appears twice"),
        ({"at": "noon"}, "at is 'noon'"), ({"at": [1.0, 2.0]}, "at is .* one time, or a mapping"),
        ({"at": {"u1": 1.6e9}}, "at has no time for 'new', 'u7'"),
    ],
)  # fmt: skip
def test_wrong_requests_are_one_sentence(recommender, histories, change, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        recommender.recommend(histories, **change)
    assert "\n" not in str(caught.value)


def test_wrong_histories_are_one_sentence(recommender, histories):
    for wrong, sentence in (
        ([1, 2], "histories are a list"), (histories.drop(columns="timestamp"), "no column 'timestamp'"),
        (histories.assign(item_id=[None, "i1", "i2", "i3", "i4"]), "row 0 .*: item_id is empty"),
        (histories.assign(timestamp=["now", 1, 2, 3, 4]), "row 0 .*: timestamp is 'now'"),
        (histories.assign(timestamp=histories["timestamp"] * 1000), "set time_unit"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=sentence):
            recommender.recommend(wrong)


def test_no_events_give_no_rows(recommender, histories):
    found = recommender.recommend(histories[:0])
    assert list(found.columns) == ["user_id", "rank", "item_id", "score"]
    assert len(found) == 0


@pytest.mark.parametrize(
    ("options", "warnings"),
    [
        ({"k": 3}, ["No recommendation for 2 users: every item to choose from is among their events ('all', 'too').",
                    "Fewer than 3 recommendations for 1 user: the other items are among their events ('most')."]),
        ({"k": 2}, ["No recommendation for 2 users: every item to choose from is among their events ('all', 'too')."]),
        ({"k": 9, "users": ["some"]}, []), ({"k": 3, "exclude_seen": False}, []), ({"k": 40, "users": ["some"]}, [
            "Fewer than 20 recommendations for 1 user: the other items are among their events ('some')."]),
        ({"k": 5, "users": ["some"], "items": ["i0", "i7"]}, [
            "Fewer than 2 recommendations for 1 user: the other items are among their events ('some')."]),
        ({"users": ["some"], "items": ["i0"]}, [
            "No recommendation for 1 user: every item to choose from is among their events ('some')."]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("rows", [1, 256])
def test_users_who_have_had_the_items_are_counted(recommender, options, warnings, rows, caplog):
    recommender.scorer.rows = rows
    counts = {"all": 20, "some": 4, "most": 18, "too": 20}
    events = [(user, f"i{place}", 1.6e9 + place) for user, count in counts.items() for place in range(count)]
    caplog.clear()
    found = recommender.recommend(frame(events), **options)
    assert [record.getMessage() for record in caplog.records] == warnings
    assert ("all" in set(found["user_id"])) == (options.get("exclude_seen") is False)


# ---------------------------------------------------------------- loading


def test_loading_leaves_random_numbers_and_files_alone(trained, tmp_path):
    path, *_ = trained()
    before = sorted(file for file in tmp_path.rglob("*"))
    torch.manual_seed(3), np.random.seed(3)
    expected = torch.rand(1), np.random.rand()
    torch.manual_seed(3), np.random.seed(3)
    Recommender.load(path)
    assert (torch.rand(1), np.random.rand()) == expected
    assert sorted(file for file in tmp_path.rglob("*")) == before


def test_a_checkpoint_that_cannot_serve_is_refused(trained):
    path, *_ = trained()
    state = checkpoint.load(path)
    checkpoint.save({key: value for key, value in state.items() if key != "data"}, "old.pth")
    with pytest.raises(InputError, match="old.pth does not describe its data; train MEANTIME anew"):
        Recommender.load("old.pth")
    with pytest.raises(InputError, match="there is no checkpoint nowhere.pth"):
        Recommender.load("nowhere.pth")
    with pytest.raises(InputError, match="device is 'tpu', which this machine lacks"):
        Recommender.load(path, "tpu")
    with pytest.raises(InputError, match="is of Pop, which is not a sequential model"):
        Recommender.load(trained("Pop")[0])


# ---------------------------------------------------------------- the best, in chunks


def test_rows_and_chunks_keep_to_the_budget():
    class Parts:
        n_items, max_seq_length = 10**6, 50
        prepare = score_items = None

    for budget in (2**20, 2**30):
        scorer = scoring.FactoredScorer(Parts(), budget)
        assert scorer.rows * scorer.chunk * scoring.BYTES <= budget
        scorer = scoring.FullScorer(Parts(), budget)
        assert scorer.rows == 1 or scorer.rows * Parts.n_items * scoring.BYTES <= budget


def test_labels_of_histories_that_are_no_numbers_are_one_sentence(trained, random_events, write_events):
    events = [(*event, 1) for event in random_events()]
    write_events(events, [f"{name}:{kind}" for name, kind in zip(NAMES, ("token", "token", "float"), strict=True)]
                 + ["label:float"])  # fmt: skip
    path, *_ = trained("BST", data_path="data", load_col=None, history="positive")
    brought = frame(events[:9], [*NAMES, "label"]).astype({"label": object})
    brought.loc[0, "label"] = "yes"
    for label in (2, -1, 0.5):
        with pytest.raises(
            InputError, match=f"histories row 0 .*: label is '{float(label)}'; a label should be 0 or 1"
        ):
            Recommender.load(path, "cpu").recommend(brought.assign(label=[label, *[1.0] * 8]))
    with pytest.raises(InputError, match="histories row 0 .*: label is 'yes'; it should be a number"):
        Recommender.load(path, device="cpu").recommend(brought)
