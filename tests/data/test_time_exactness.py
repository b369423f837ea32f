"""The order of every history and the value of every time are those of the file."""

import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import recbole
import torch

from recbole_ext import create_dataset, data_preparation
from tests.data_checks import TINY, histories

ML_100K = Path(recbole.__file__).parent / "dataset_example" / "ml-100k" / "ml-100k.inter"
LENGTH = 8


@pytest.fixture
def close_events(random_events):
    """Recent times one second apart, with ties, on which float32 has steps of 128 seconds."""
    return [
        (user, item, 1_600_000_000 + 3 * number // 4) for number, (user, item, _) in enumerate(random_events(users=40))
    ]


def sorted_by_pandas(path: Path) -> dict[str, list[str]]:
    """Items of each user in the order of exact times, ties in the order of the file."""
    frame = pd.read_csv(path, sep="\t", dtype=str)
    frame.columns = [name.split(":")[0] for name in frame.columns]
    frame["timestamp"] = frame["timestamp"].astype(np.int64)
    frame = frame.sort_values("timestamp", kind="stable")
    return {user: list(items) for user, items in frame.groupby("user_id")["item_id"]}


def examples_by_user(dataset, batch) -> dict[str, list[tuple[list[str], str]]]:
    """History and target of each example, as tokens."""
    items, users = dataset.field2id_token["item_id"], dataset.field2id_token["user_id"]
    lists, lengths = items[batch["item_id_list"].numpy()], batch["item_length"].tolist()
    found = defaultdict(list)
    for user, past, length, target in zip(
        users[batch["user_id"].numpy()], lists, lengths, items[batch["item_id"].numpy()], strict=True
    ):
        found[user].append((past[:length].tolist(), target))
    return found


def expected_examples(items: list[str]) -> list[tuple[list[str], str]]:
    return [(items[max(0, end - LENGTH) : end], items[end]) for end in range(1, len(items))]


def rounding_would_show(path: Path) -> bool:
    times = pd.read_csv(path, sep="\t").iloc[:, -1].to_numpy()
    return len(np.unique(times.astype(np.float32))) < 0.9 * len(np.unique(times))


@pytest.mark.parametrize("normalize_all", [True, False])
@pytest.mark.parametrize("data", ["ml-100k", "recent seconds"])
def test_histories_and_leave_one_out_targets_are_those_of_a_stable_sort_on_integers(
    data, normalize_all, make_config, write_events, close_events
):
    if data == "ml-100k":
        path, keys = ML_100K, {"dataset": "ml-100k", "data_path": str(ML_100K.parent)}
    else:
        keys = {"data_path": write_events(close_events)}
        path = Path(keys["data_path"]) / "toy" / "toy.inter"
    assert rounding_would_show(path)
    config = make_config(
        "SASRec", **keys, normalize_all=normalize_all, MAX_ITEM_LIST_LENGTH=LENGTH, eval_batch_size=10**6,
        eval_args={"split": {"LS": "valid_and_test"}},
    )  # fmt: skip
    expected = sorted_by_pandas(path)
    dataset = create_dataset(config)
    _, valid, test = data_preparation(config, dataset)

    found = examples_by_user(dataset, dataset[np.arange(len(dataset))])
    assert found.keys() == expected.keys()
    for user, examples in found.items():
        assert sorted(examples, key=str) == sorted(expected_examples(expected[user]), key=str)
    for loader, place in ((valid, -2), (test, -1)):
        ((batch, *_),) = loader
        held_out = examples_by_user(dataset, batch)
        assert held_out == {user: [expected_examples(items)[place]] for user, items in expected.items()}


def everything(config) -> tuple[dict[str, torch.Tensor], float]:
    """All columns of all examples, and the origin of time."""
    dataset = create_dataset(config)
    data_preparation(config, dataset)
    return dict(dataset.inter_feat.items()), dataset.time_origin


@pytest.mark.parametrize(("unit", "per_second"), [("ms", 1e3), ("us", 1e6), ("D", 1 / 86400)])
def test_a_file_in_another_unit_gives_the_same_histories_and_the_same_seconds(
    unit, per_second, make_config, random_events
):
    step = 21600 if unit == "D" else 1  # quarters of a day are exact in binary
    events = [(user, item, when // step * step) for user, item, when in random_events()]
    in_seconds, origin = everything(make_config("SASRec", [(u, i, f"{t:.0f}") for u, i, t in events]))
    in_unit, same_origin = everything(
        make_config("SASRec", [(u, i, repr(t * per_second)) for u, i, t in events], time_unit=unit)
    )
    assert origin == same_origin == min(when for *_, when in events)
    assert in_seconds["timestamp"].max() > 86400
    for name, values in in_seconds.items():
        assert torch.equal(values, in_unit[name])


def test_times_are_seconds_since_the_first_event_kept_in_float64(make_config):
    events = [("a", "x", 1_600_000_000.25), ("a", "y", 1_600_000_001.5), ("a", "z", 1_600_000_001.75)]
    columns, origin = everything(make_config("SASRec", events, topk=[1], valid_metric="NDCG@1"))
    assert origin == 1_600_000_000.25
    assert columns["timestamp"].dtype == columns["timestamp_list"].dtype == torch.float64
    assert columns["timestamp"].tolist() == [1.25, 1.5]
    assert columns["timestamp_list"][:, :3].tolist() == [[0, 0, 0], [0, 1.25, 0]]


def test_times_before_1970_keep_their_order(make_config, random_events):
    events = random_events()
    shift = 1.6e9 + 20 * 86400  # half of the events come before 1970
    shifted = [(user, item, when - shift) for user, item, when in events]
    assert min(event[2] for event in shifted) < -86400
    assert max(event[2] for event in shifted) > 86400
    columns, origin = everything(make_config("SASRec", events))
    moved, moved_origin = everything(make_config("SASRec", shifted))
    assert moved_origin == origin - shift < 0
    assert all(torch.equal(values, moved[name]) for name, values in columns.items())


def test_the_time_zone_of_the_machine_changes_nothing(make_config, random_events, monkeypatch):
    found = []
    for zone in ("UTC", "Asia/Kolkata", "America/St_Johns"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        found.append(everything(make_config("SASRec", random_events())))
    monkeypatch.undo()
    time.tzset()
    for columns, origin in found[1:]:
        assert origin == found[0][1]
        assert all(torch.equal(values, found[0][0][name]) for name, values in columns.items())


def test_normalisation_reaches_other_numbers_but_neither_times_nor_labels(make_config, write_events, random_events):
    events = [(*event, number % 5 + 1) for number, event in enumerate(random_events())]
    path = write_events(events, ("user_id:token", "item_id:token", "timestamp:float", "rating:float"))
    keys = {"data_path": path, "load_col": {"inter": ["user_id", "item_id", "timestamp", "rating"]}}
    plain, _ = everything(make_config("SASRec", **keys))
    for normalised in ({"normalize_all": True}, {"normalize_field": ["timestamp", "rating"]}):
        columns, _ = everything(make_config("SASRec", **keys, **normalised))
        assert torch.equal(columns["timestamp"], plain["timestamp"])
        assert torch.equal(columns["timestamp_list"], plain["timestamp_list"])
        assert torch.allclose(columns["rating"], (plain["rating"] - 1) / 4)
    never, _ = everything(make_config("SASRec", **keys, normalize_all=True, threshold={"rating": 6}))
    assert not never["label"].any()  # normalising a column of equal values makes ones of them


def test_events_that_share_one_time_stay_in_the_order_of_the_file(load):
    events = [("a", item, 5) for item in "zxywv"] + [("b", "w", 5), ("b", "x", 5)]
    dataset, *_ = load(events=events, normalize_all=True, **TINY)
    assert histories(dataset) == {"a": list("zxywv"), "b": ["w", "x"]}
