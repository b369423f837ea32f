"""Splits at points of time for all users, and parts that a split leaves empty."""

import datetime
import pickle

import numpy as np
import pandas as pd
import pytest
import torch

from recbole_ext import (
    Config,
    InputError,
    create_dataset,
    data_preparation,
    get_trainer,
    load_data_and_model,
    run_recbole,
)
from recbole_ext.cli.entry import main
from recbole_ext.data.files.time_units import in_unit
from recbole_ext.utils.validators import TimeRange, ValidationError

FIRST = 1_600_000_000  # 2020-09-13 12:26:40 UTC
DAY = 86_400
RATED = ("user_id:token", "item_id:token", "timestamp:float", "rating:float")


def daily(users: int = 12, days: int = 12) -> list[tuple]:
    """An event a day of each user, all users at the same moments; every user begins a day after the one before."""
    return [
        (f"u{user}", f"i{(3 * user + 5 * day) % 17}", FIRST + day * DAY)
        for user in range(users)
        for day in range(user % 4, days)
    ]


def date(day: int) -> str:
    return str(pd.Timestamp(FIRST + day * DAY, unit="s"))


def parts_of(load, model="SASRec", **keys) -> list:
    return [loader._dataset for loader in load(model, **keys)[1:]]


def days(part) -> np.ndarray:
    """Day of each example, from the first event on."""
    times = part.inter_feat["timestamp"].numpy()
    return np.round((times - (FIRST if times.dtype == np.float32 else 0)) / DAY).astype(int)  # RecBole's begin in 1970


# -------------------------------------------------------------------- dates


@pytest.mark.parametrize(
    ("time", "unit", "number"),
    [
        ("1970-01-02", "s", 86400), ("1970-01-02", "D", 1), ("1970-01-01 00:00:01", "ms", 1000),
        ("1970-01-01T01:00:00+01:00", "s", 0), ("1970-01-01 01:00Z", "s", 3600), ("1970-01-01 00:00:00.5", "us", 5e5),
        ("2020-09-13 12:26:40", "ns", 1.6e18), (17, "ms", 17.0), (0.25, "D", 0.25),
    ],
)  # fmt: skip
def test_dates_become_numbers_of_the_file(time, unit, number):
    assert in_unit(time, unit) == number


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (["1998-03-01", "1998-04-01"], ["1998-03-01", "1998-04-01"]),
        ([datetime.date(1998, 3, 1), datetime.datetime(1998, 3, 1, 12)], ["1998-03-01", "1998-03-01 12:00:00"]),
        (list(np.array(["1998-03-01", "1998-03-02"], "M8[D]")), ["1998-03-01", "1998-03-02"]),
        ([np.datetime64("1998-03-01T12", "s"), "1998-04-01"], ["1998-03-01T12:00:00", "1998-04-01"]),
        (["1998-03-01 00:00+02:00", "1998-03-01"], ["1998-03-01 00:00+02:00", "1998-03-01"]),
        ((5, 6.5), [5, 6.5]),
    ],
)
def test_two_dates_or_two_numbers_are_a_split(value, result):
    assert TimeRange().validate(value) == result


@pytest.mark.parametrize(
    "value",
    [
        ["1998-03-01"], ["1998-03-01"] * 3, [], "1998-03-01", None, 5, ["1998-04-01", "1998-03-01"],
        ["1998-03-01", "1998-03-01"], [2, 1], [1, 1], ["1998-03-01", 900000000], ["1998-02-30", "1998-03-01"],
        ["01/02/1998", "01/03/1998"], ["yesterday", "today"], ["1998-03", "1998-04"], [None, "1998-03-01"],
        ["9998-01-01", "9999-01-01"], [True, 5], [float("nan"), 5], [float("inf"), 5],
        [np.datetime64("NaT"), np.datetime64("NaT")],
    ],
)  # fmt: skip
def test_other_values_are_no_split(value):
    with pytest.raises(ValidationError):
        TimeRange().validate(value)


@pytest.mark.parametrize("value", ["['2020-09-20']", "['2020-09-25', '2020-09-20']"])
def test_wrong_dates_are_refused_before_data_is_read(make_config, value):
    with pytest.raises(InputError, match="eval_args.split.date' is .* two dates or of two numbers, the later one last"):
        make_config(data_path="nowhere", eval_args="{'split': {'date': " + value + "}}")


# -------------------------------------------------------------------- global splits

GLOBAL = [
    {"split": {"date": [date(7), date(9)]}},
    {"split": {"date": [FIRST + 7 * DAY, FIRST + 9 * DAY]}, "group_by": "none"},
    {"split": {"TS": [0.6, 0.2, 0.2]}, "group_by": "none"},
]


@pytest.mark.parametrize("eval_args", GLOBAL, ids=str)
@pytest.mark.parametrize("model", ["SASRec", "MEANTIME", "BST", "BPR"])
def test_training_ends_before_validation_and_validation_before_the_test(load, model, eval_args):
    columns = {"inter": ["user_id", "item_id", "timestamp"]}
    train, valid, test = parts_of(load, model, events=daily(), eval_args=eval_args, load_col=columns)
    assert days(train).max() < days(valid).min()
    assert days(valid).max() < days(test).min()
    lost = 0 if model == "BPR" else 12  # a user's first event has no history
    assert len(days(train)) + len(days(valid)) + len(days(test)) == len(daily()) - lost
    if "date" in eval_args["split"]:
        assert (days(valid).min(), days(test).min()) == (7, 9)  # an event at the date belongs to the part that begins


@pytest.mark.parametrize(("unit", "factor"), [("s", 1), ("ms", 1000), ("D", 1 / DAY)])
def test_dates_are_found_in_every_unit(load, unit, factor):
    events = [(user, item, time * factor) for user, item, time in daily()]
    split = {"split": {"date": [date(7), date(9)]}}
    assert days(parts_of(load, events=events, time_unit=unit, eval_args=split)[1]).tolist() == [7, 8] * 12


def test_histories_hold_all_earlier_events_of_the_user(load):
    _, valid, test = parts_of(load, events=daily(), eval_args=GLOBAL[0], MAX_ITEM_LIST_LENGTH=50)
    for part in (valid, test):
        batch = part[np.arange(len(part))]
        starts = torch.tensor([int(name[1:]) % 4 for name in part.id2token("user_id", batch["user_id"])])
        assert torch.equal(batch["item_length"], torch.from_numpy(days(part)) - starts)


def test_windows_hold_training_events_only(load):
    train = parts_of(load, "MEANTIME", events=daily(), eval_args=GLOBAL[0], MAX_ITEM_LIST_LENGTH=4)[0]
    batch = train[np.arange(len(train))]
    assert batch["timestamp"].max() < 7 * DAY
    assert batch["timestamp_list"].max() < 7 * DAY
    assert batch["timestamp"].max() == 6 * DAY


def test_labels_are_measured_after_the_dates(make_config, write_events):
    events = [(*event, number % 5 + 1) for number, event in enumerate(daily())]
    config = make_config(
        "BST", data_path=write_events(events, RATED), threshold={"rating": 3}, metrics=["AUC"], valid_metric="AUC",
        eval_args={**GLOBAL[0], "mode": "labeled"},
    )  # fmt: skip
    train, valid, test = data_preparation(config, create_dataset(config))
    trainer = get_trainer(config)(config, config.model_class(config, train._dataset))
    trainer.fit(train, valid, saved=False)
    assert 0 <= trainer.evaluate(test, load_best_model=False)["auc"] <= 1


@pytest.mark.parametrize(
    "dates",
    [
        ["2019-01-01", "2020-09-20"], ["2020-09-13 12:26:40", "2020-09-20"], ["2020-09-20", "2020-09-25"],
        ["2021-01-01", "2021-02-01"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("model", ["SASRec", "BPR"])
def test_dates_outside_of_the_data_are_refused_with_its_period(load, model, dates):
    with pytest.raises(InputError, match="are from 2020-09-13 12:26:40 to 2020-09-24 12:26:40 .UTC.; choose two dates"):
        load(model, events=daily(), eval_args={"split": {"date": dates}})


def test_numbers_outside_of_the_data_are_refused_with_numbers(load):
    with pytest.raises(InputError, match=r"are from 1600000000 to 1600950400; choose"):
        load(events=daily(), eval_args={"split": {"date": [5, 10]}})


def test_a_test_that_begins_with_the_last_event_is_not_empty(load):
    parts = parts_of(load, events=daily(), eval_args={"split": {"date": [date(7), date(11)]}})
    assert days(parts[2]).tolist() == [11] * 12


@pytest.mark.parametrize("split", [{"date": [date(7), date(9)]}, {"TS": [0.6, 0.2, 0.2]}])
def test_a_data_set_of_recboles_own_for_sequences_is_refused(make_config, split):
    eval_args = {"split": split, "group_by": "none", "mode": "uni5"}
    dataset = create_dataset(config := make_config("DIEN", daily(), metrics=["NDCG"], eval_args=eval_args))
    with pytest.raises(InputError, match="DIEN has its own data set class"):
        data_preparation(config, dataset)


@pytest.mark.parametrize("kind", ["RS", "TS"])
def test_general_models_split_by_times_as_exact_as_those_of_the_file(load, write_events, kind):
    order = np.random.default_rng(0).permutation(60)
    events = [(f"u{number % 3}", f"i{number % 29}", FIRST + number) for number in order]
    eval_args = {"split": {kind: [0.5, 0.25, 0.25]}, "order": "TO", "group_by": "none"}
    keys = {"load_col": {"inter": ["user_id", "item_id", "timestamp", "number"]}, "normalize_all": True}
    rows = [(*event, event[2] - FIRST) for event in events]
    columns = ("user_id:token", "item_id:token", "timestamp:float", "number:float")
    numbers = []
    for loader in load("BPR", data_path=write_events(rows, columns), eval_args=eval_args, **keys)[1:]:
        numbers.append(loader._dataset.inter_feat["number"] * 59)
    assert [len(part) for part in numbers] == [30, 15, 15]
    assert numbers[0].max() < numbers[1].min()
    assert numbers[1].max() < numbers[2].min()


def test_times_that_only_the_split_reads_are_no_features(load):
    keys = {"metrics": ["NDCG"], "train_neg_sample_args": {"distribution": "uniform", "sample_num": 1}}
    dataset, train, *_ = load("FM", events=daily(), eval_args={**GLOBAL[0], "mode": "uni5"}, **keys)
    assert "timestamp" not in train._dataset.inter_feat
    assert "timestamp" not in dataset.field2type


# -------------------------------------------------------------------- empty parts

TWO = [(f"u{user}", f"i{(user + number) % 9}", FIRST + number) for user in range(12) for number in range(2)]
THREE = [(f"u{user}", f"i{(user + number) % 9}", FIRST + number) for user in range(12) for number in range(3)]
EMPTY = [
    (TWO, {"split": {"LS": "valid_and_test"}}, "validation", "no user has enough events for .* LS: valid_and_test"),
    (TWO, {"split": {"LS": "valid_and_test"}}, "test", "no user has enough events for .* LS: valid_and_test"),
    (THREE, {"split": {"LS": "valid_and_test"}}, "validation", "no user has enough events"),
    (TWO, {"split": {"LS": "test_only"}}, "validation", "split is LS: test_only"),
    (TWO, {"split": {"LS": "test_only"}}, "test", "no user has enough events for .* LS: test_only"),
    (daily(), {"split": {"LS": "valid_only"}}, "test", "split is LS: valid_only"),
    (daily(), {"split": {"RS": [0.8, 0, 0.2]}}, "validation", "split RS: .* assigns no event to it"),
    (daily(), {"split": {"RS": [0.8, 0.2, 0]}, "group_by": "none"}, "test", "split RS: .* assigns no event to it"),
    (daily(), {"split": {"TS": [0.8, 0.2, 0]}}, "test", "split TS: .* assigns no event to it"),
    (daily(), {"split": {"TS": [0.8, 0.2, 0]}, "group_by": "none"}, "test", "split TS: .* assigns no event to it"),
    (
        daily(),
        {"split": {"date": [FIRST + 7 * DAY + 1, FIRST + 7 * DAY + 2]}},
        "validation",
        "no event from .* example",
    ),
]


@pytest.mark.parametrize(("events", "eval_args", "part", "reason"), EMPTY)
def test_an_empty_part_is_a_warning_that_says_why(load, caplog, events, eval_args, part, reason):
    loaders = load(events=events, eval_args=eval_args)[1:]
    (message,) = [text for text in caplog.messages if text.startswith(f"There is no {part} data")]
    assert pd.Series(message).str.contains(reason).all()
    assert message.endswith("there is no test result." if part == "test" else "the last one is tested.")
    assert len(loaders[("training", "validation", "test").index(part)]) == 0


def test_an_empty_part_of_a_general_model_is_a_warning_too(load, caplog):
    single = [(f"u{user}", f"i{user}", FIRST + user) for user in range(9)]
    load("BPR", events=single, eval_args={"split": {"LS": "test_only"}})
    assert "There is no test data: no user has enough events" in caplog.text


@pytest.mark.parametrize("model", ["SASRec", "BPR"])
@pytest.mark.parametrize("split", [{"TS": [0, 0, 1]}, {"TS": [0, 0.5, 0.5]}])
def test_nothing_to_train_on_is_refused(load, model, split):
    with pytest.raises(InputError, match="there is no training data: eval_args split"):
        load(model, events=daily(), eval_args={"split": split, "group_by": "none", "order": "TO"})


@pytest.mark.parametrize("model", ["SASRec", "BPR"])
def test_a_run_without_validation_trains_all_epochs_and_tests_the_last(no_waiting, write_events, model, caplog):
    keys = {
        "data_path": write_events(daily()), "epochs": 3, "topk": [5], "valid_metric": "NDCG@5", "use_gpu": False,
        "show_progress": False, "eval_args": {"split": {"LS": "test_only"}},
    }  # fmt: skip
    caplog.set_level("INFO")
    result = run_recbole(model, "toy", None, keys, argv=[])
    assert "Training: 3 epochs without validation; the last epoch is tested" in caplog.text
    assert result["best_valid_result"] is None
    assert result["test_result"]["ndcg@5"] >= 0
    assert torch.load(result["checkpoint"], weights_only=True)["epoch"] == 2


def test_a_user_who_has_had_every_item_is_named(load):
    events = [("reader", f"i{number % 6}", FIRST + number) for number in range(9)] + daily(3, 2)[:1]
    with pytest.raises(InputError, match="user 'reader' has had all 6 items, so there is no negative to draw"):
        load("BPR", events=events, topk=[1], valid_metric="NDCG@1")


@pytest.mark.parametrize("model", ["MEANTIME", "BPR"])
def test_a_split_at_dates_is_stored_resumed_and_loaded(no_waiting, write_events, model):
    keys = {
        "data_path": write_events(daily()), "epochs": 1, "topk": [5], "valid_metric": "NDCG@5", "use_gpu": False,
        "show_progress": False, "eval_args": {"split": {"date": [datetime.date(2020, 9, 20), "2020-09-22 12:00Z"]}},
    }  # fmt: skip
    result = run_recbole(model, "toy", None, keys, argv=[])
    assert result["config"]["eval_args"]["split"] == {"date": ["2020-09-20", "2020-09-22 12:00Z"]}
    resumed = run_recbole(config_dict={"epochs": 2}, argv=[], resume=result["checkpoint"])
    config, network, _, _, _, test = load_data_and_model(resumed["checkpoint"])
    again = get_trainer(config)(config, network).evaluate(test, load_best_model=False)
    assert again == resumed["test_result"]
    if model == "MEANTIME":
        assert (
            main(["recommend", f"--checkpoint={resumed['checkpoint']}", "--all_users", "--out=all.csv", "--k=3"]) == 0
        )
        assert pd.read_csv("all.csv")["user_id"].nunique() == 12


def test_a_search_splits_at_dates(write_events):
    from recbole_ext.tuning.trial import SharedData

    config = Config(
        "MEANTIME", "toy", None,
        {"data_path": write_events(daily()), "topk": [5], "valid_metric": "NDCG@5", "eval_args": GLOBAL[0]}, argv=[],
    )  # fmt: skip
    data = pickle.loads(pickle.dumps(SharedData(config)))
    assert [len(loader._dataset.inter_feat) for loader in data.loaders(config)] == [54, 24, 36]
