"""Which items have training events, as checkpoints hold it, and leaving the others out."""

import pandas as pd
import pytest

from recbole_ext import InputError, Recommender
from recbole_ext.checkpoint import file as checkpoint
from recbole_ext.cli.entry import main

NAMES = ["user_id", "item_id", "timestamp"]
ONLY_IN_FILE = {"lonely", "late"}  # items of the .item file; `late` is also a test item


@pytest.fixture
def events(random_events) -> list[tuple]:
    """30 users; the last event of one is with an item that nobody else has."""
    events = random_events(items=40, longest=9)
    return [*events, ("u3", "late", 1.7e9)]


@pytest.fixture
def trained(make_config, make_checkpoint, write_events, write_lines, events):
    """A checkpoint of a model trained for an epoch on the events, with a rating each."""

    def make(name="MEANTIME", **keys) -> str:
        rated = [(*event, place % 3) for place, event in enumerate(events)]
        columns = ["user_id:token", "item_id:token", "timestamp:float", "rating:float"]
        path = write_events(rated, columns)
        known = sorted({item for _, item, _ in events} | ONLY_IN_FILE)
        write_lines("item", "item_id:token\tkind:token", *(f"{item}\tk" for item in known))
        load = {"inter": [*NAMES, "rating"], "item": ["item_id", "kind"]}
        config = make_config(name, data_path=path, load_col=load, epochs=1, **keys)
        return make_checkpoint(config)

    return make


def in_training(events: list[tuple], positive: bool = False) -> set[str]:
    """Items of leave-one-out's training part, told by pandas: all events of a user but the last two."""
    frame = pd.DataFrame([(*event, place % 3) for place, event in enumerate(events)], columns=[*NAMES, "rating"])
    frame = frame[frame["rating"] >= 1] if positive else frame
    frame = frame.sort_values(["user_id", "timestamp"], kind="stable")
    back = frame.groupby("user_id").cumcount(ascending=False)
    count = frame.groupby("user_id")["item_id"].transform("size")
    return set(frame[(back >= 2) & (count >= 4)]["item_id"])


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("MEANTIME", {}), ("MEANTIME", {"train_window": 3}), ("LightSANs", {}), ("BST", {}), ("TiSASRec", {}),
        ("SASRec", {}), ("LightSANs", {"MAX_ITEM_LIST_LENGTH": 2}),
    ],
)  # fmt: skip
def test_an_item_is_trained_if_it_occurs_in_the_training_part(trained, events, name, keys):
    recommender = Recommender.load(trained(name, **keys), "cpu")
    expected = in_training(events)
    assert set(recommender.items.tokens[recommender.trained_items()]) == expected
    assert not expected & ONLY_IN_FILE
    assert set(recommender.items.tokens) >= ONLY_IN_FILE


def test_items_of_negative_events_alone_are_not_trained_where_labels_are_not_learnt(trained, events):
    keys = {"history": "positive", "threshold": {"rating": 1}}
    recommender = Recommender.load(trained("LightSANs", **keys), "cpu")
    found = set(recommender.items.tokens[recommender.trained_items()])
    assert found <= in_training(events)
    assert found >= in_training(events, positive=True)


def test_items_of_given_histories_are_trained(make_config, make_checkpoint, tmp_path):
    folder = tmp_path / "data" / "toy"
    folder.mkdir(parents=True)
    header = "user_id:token\titem_id:token\ttimestamp:float\titem_id_list:token_seq\n"
    lines = {"train": "u1\ta\t1.6e9\tb c\n", "valid": "u1\td\t1.61e9\tb a\n", "test": "u1\te\t1.62e9\tf d\n"}
    for part, line in lines.items():
        (folder / f"toy.{part}.inter").write_text(header + line)
    config = make_config(
        "LightSANs", data_path=str(tmp_path / "data"), benchmark_filename=list(lines), load_col=None, epochs=1,
        topk=[1], valid_metric="NDCG@1", alias_of_item_id=["item_id_list"],
    )  # fmt: skip
    recommender = Recommender.load(make_checkpoint(config), "cpu")
    assert set(recommender.items.tokens[recommender.trained_items()]) == {"a", "b", "c"}


def test_the_argument_leaves_the_other_items_out(trained, events):
    recommender = Recommender.load(trained(), "cpu")
    histories, expected = pd.DataFrame(events, columns=NAMES), in_training(events)
    every = recommender.recommend(histories, k=50, users=["u1"])
    found = recommender.recommend(histories, k=50, users=["u1"], trained_items_only=True)
    pd.testing.assert_frame_equal(
        found.drop(columns="rank"), every[every["item_id"].isin(expected)].drop(columns="rank").reset_index(drop=True),
        rtol=1e-5,
    )  # fmt: skip
    assert len(found) < len(every)
    assert set(recommender.item_vectors(trained_items_only=True).tokens) == expected
    some = recommender.recommend(histories, users=["u1"], items=["late", "lonely", next(iter(expected))],
                                 trained_items_only=True, exclude_seen=False)  # fmt: skip
    assert set(some["item_id"]) == {next(iter(expected))}
    with pytest.raises(InputError, match="trained_items_only leaves no item"):
        recommender.recommend(histories, items=["late"], trained_items_only=True)
    for call in (recommender.recommend, lambda h, **keys: recommender.explain(h, "u1", **keys)):
        with pytest.raises(InputError, match="trained_items_only is 'yes'; it should be True or False"):
            call(histories, trained_items_only="yes")


def test_an_explanation_ranks_no_such_item_then(trained, events):
    recommender = Recommender.load(trained(), "cpu")
    histories = pd.DataFrame(events, columns=NAMES)
    best = recommender.recommend(histories, k=1, users=["u1"], trained_items_only=True)["item_id"][0]
    assert recommender.explain(histories, "u1", trained_items_only=True).item == best
    found = recommender.explain(histories, "u1", "late", trained_items_only=True)
    assert (found.rank, found.not_ranked) == (None, "untrained")
    plain = recommender.explain(histories, "u1", "late")
    assert (plain.rank is not None, plain.not_ranked) == (True, "")
    assert plain.candidates - found.candidates == len(recommender.items.tokens) - 1 - len(in_training(events))
    recommender.write_report(found, "why.html")
    with open("why.html", encoding="utf-8") as file:
        assert "Not ranked: this item has no training event; " in file.read()


def test_the_commands_have_the_option(trained, events, capsys):
    path = trained()
    pd.DataFrame(events, columns=NAMES).to_csv("all.csv", index=False)
    shared = [f"--checkpoint={path}", "--histories=all.csv", "--trained_items_only"]
    assert main(["recommend", *shared, "--k=50", "--out=recs.csv"]) == 0
    assert set(pd.read_csv("recs.csv")["item_id"]) <= in_training(events)
    assert main(["explain", *shared, "--user=u1", "--item=late"]) == 0
    assert "late for u1: not ranked, since it has no training event" in capsys.readouterr().out
    assert main(["recommend", *shared[:2], "--trained_items_only=some", "--out=recs.csv"]) == 2
    assert "--trained_items_only is 'some'; it should be True or False" in capsys.readouterr().err


def test_a_checkpoint_that_does_not_say_is_one_sentence(trained, events):
    state = checkpoint.load(trained())
    del state["data"]["trained_items"], state["data"]["item_names"]
    checkpoint.save(state, "old.pth")
    recommender = Recommender.load("old.pth", "cpu")
    histories = pd.DataFrame(events, columns=NAMES)
    assert len(recommender.recommend(histories, users=["u1"])) == 10
    for call in (recommender.recommend, lambda h, **keys: recommender.explain(h, "u1", **keys)):
        with pytest.raises(InputError, match=r"this checkpoint does not hold; train MEANTIME anew\.$"):
            call(histories, trained_items_only=True)
