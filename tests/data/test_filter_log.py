"""The log tells what every step kept of users, items and events."""

import pytest

from recbole_ext import create_dataset, data_preparation
from tests.data_checks import RATED

COLUMNS = {"inter": ["user_id", "item_id", "timestamp", "rating"]}


@pytest.fixture
def lines_of(make_config, caplog):
    """The lines that building data sets and loaders leaves in the log."""

    def build(model, events, **keys):
        config = make_config(model, events, **keys)
        caplog.clear()
        with caplog.at_level("INFO"):
            data_preparation(config, create_dataset(config))
        return [message for record in caplog.records if (message := record.getMessage()).startswith("Data: ")]

    return build


@pytest.fixture
def many_events():
    """Nine users with six events on six items, one of them twice; a tenth user with one event."""
    events = [(f"u{user}", f"i{number}", 100 * user + number, number) for user in range(9) for number in range(5)]
    return [*events, *((f"u{user}", "i0", 100 * user + 50, 1) for user in range(9)), ("lonely", "rare", 7, 5)]


def test_without_filters_the_log_tells_what_was_read_what_are_targets_and_the_splits(
    lines_of, many_events, write_events
):
    path = write_events(many_events, RATED)
    assert lines_of("SASRec", None, data_path=path, load_col=COLUMNS) == [
        "Data: read 55 events of 10 users and 6 items",
        "Data: timestamp from 1970-01-01 to 1970-01-01 (time_unit: s)",
        "Data: 45 of 55 events have a history and are targets, of 9 of 10 users",
        "Data: train has 27 targets of 9 users and 3 items",
        "Data: valid has 9 targets of 9 users and 1 items",
        "Data: test has 9 targets of 9 users and 1 items",
    ]


def test_every_filter_that_drops_something_tells_what_it_kept(lines_of, many_events, write_events, write_lines):
    path = write_events(many_events, RATED)
    write_lines("user", "user_id:token", *(f"u{number}" for number in range(8)), "lonely")
    lines = lines_of(
        "SASRec", None, data_path=path, load_col={**COLUMNS, "user": ["user_id"]}, rm_dup_inter="first",
        val_interval={"rating": "[1,inf)"}, user_inter_num_interval="[2,inf)", topk=[1], valid_metric="NDCG@1",
    )  # fmt: skip
    assert lines[:5] == [
        "Data: read 55 events of 10 users and 6 items",
        "Data: rm_dup_inter: first kept 46 of 55 events, 10 of 10 users, 6 of 6 items",
        "Data: val_interval: {'rating': '[1,inf)'} kept 37 of 46 events, 10 of 10 users, 5 of 6 items",
        "Data: filter_inter_by_user_or_item (a user or item of the event is not in the .user or .item file) "
        "kept 33 of 37 events, 9 of 10 users, 5 of 5 items",
        "Data: user_inter_num_interval: [2,inf), item_inter_num_interval: [0,inf) "
        "kept 32 of 33 events, 8 of 9 users, 4 of 5 items",
    ]


def test_windows_are_counted_beside_the_targets_they_cover(lines_of, many_events, write_events):
    path = write_events(many_events, RATED)
    lines = lines_of("MEANTIME", None, data_path=path, MAX_ITEM_LIST_LENGTH=2, train_window=1)
    assert "Data: train has 27 targets of 9 users and 3 items, trained on as 27 windows" in lines
    lines = lines_of("MEANTIME", None, data_path=path, MAX_ITEM_LIST_LENGTH=3, train_window=1)
    assert "Data: train has 27 targets of 9 users and 3 items, trained on as 18 windows" in lines


def test_empty_splits_are_told_too(lines_of, random_events):
    lines = lines_of("SASRec", random_events(), eval_args={"split": {"LS": "test_only"}})
    assert "Data: valid has 0 targets of 0 users and 0 items" in lines


def test_negative_events_left_out_for_a_model_of_windows_are_told(lines_of, many_events, write_events):
    path = write_events(many_events, RATED)
    keys = {"threshold": {"rating": 2}, "history": "positive", "load_col": COLUMNS}
    lines = lines_of("MEANTIME", None, data_path=path, **keys)
    assert "Data: history: positive kept 28 of 55 events, 10 of 10 users, 4 of 6 items" in lines
