"""Filters, duplicates and missing values, and what the log says of them."""

import pytest
import torch

from tests.data_checks import ALL_COLUMNS, RATED, TINY, histories, refused


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        (
            {"user_inter_num_interval": "[1000,inf)"},
            r"no event is left after user_inter_num_interval: \[1000,inf\), item_",
        ),
        ({"item_inter_num_interval": "[1000,inf)"}, "no event is left after .*item_inter_num_interval"),
        ({"val_interval": {"timestamp": "(-inf,0]"}}, r"no event is left after val_interval: \{'timestamp'"),
        ({"val_interval": {"item_id": ["nothing"]}}, r"no event is left after val_interval: \{'item_id'"),
        ({"val_interval": {"age": "[200,inf)"}}, r"no user is left after val_interval: \{'age'"),
        ({"val_interval": {"age": "[33,33]"}}, r"no event is left after filter_inter_by_user_or_item"),
        ({"val_interval": {"height": "[0,1]"}}, "val_interval names 'height'; the columns are user_id, item_id"),
        ({"val_interval": {"item_id": "i1"}}, "'i1'; it should be .* or a list of values for a token"),
        ({"val_interval": {"age": [1, 2]}}, "val_interval has .* for 'age', a float; .* an interval such as"),
        ({"val_interval": {"age": 30}}, "'30'; it should be an interval"),
        ({"val_interval": {"age": "[30;40]"}}, "it should be an interval"),
        ({"val_interval": {"age": "[a,b]"}}, "it should be an interval"),
        ({"user_inter_num_interval": "[5"}, r"'\[5'; it should be an interval such as '\[5,inf\)'"),
        ({"user_inter_num_interval": "[9,5]"}, r"'\[9,5\]' is not an interval"),
        ({"item_inter_num_interval": "5"}, "'5'; it should be an interval"),
        ({"rm_dup_inter": "newest"}, "'rm_dup_inter' is 'newest'; it should be one of first, last"),
    ],
    ids=str,
)
def test_a_filter_that_leaves_nothing_or_makes_no_sense_is_named(
    keys, sentence, load, write_events, write_lines, random_events
):
    path = write_events(random_events())
    ages = [f"u{number}\t{20 + number % 3}" for number in range(30)]
    write_lines("user", "user_id:token\tage:float", "nobody\t33", *ages)
    refused(load, sentence, data_path=path, **keys, **ALL_COLUMNS)


@pytest.mark.parametrize(("keep", "kept"), [("first", ["x", "y", "z", "w"]), ("last", ["y", "z", "w", "x"])])
def test_of_duplicated_events_the_first_or_last_in_time_stays_ties_in_file_order(keep, kept, load, write_events):
    events = [
        ("a", "x", 50, 6), ("a", "x", 10, 1), ("a", "y", 20, 2), ("a", "y", 20, 3), ("a", "z", 30, 4),
        ("a", "w", 40, 5), ("a", "w", 40, 7), ("b", "x", 1, 8), ("b", "x", 1, 9),
    ]  # fmt: skip
    columns = {"inter": ["user_id", "item_id", "timestamp", "rating"]}
    dataset, *_ = load(data_path=write_events(events, RATED), load_col=columns, rm_dup_inter=keep, **TINY)
    assert histories(dataset) == {"a": kept}
    ratings = dict(zip(dataset.inter_feat["item_id"].tolist(), dataset.inter_feat["rating"].tolist(), strict=True))
    last = dataset.token2id("item_id", "w")
    assert ratings[last] == (5 if keep == "first" else 7)


def test_duplicated_events_stay_where_nobody_asks_to_remove_them(load):
    events = [("a", "x", 1), ("a", "x", 1), ("a", "x", 1), ("a", "y", 1)]
    dataset, *_ = load(events=events, **TINY)
    assert histories(dataset) == {"a": ["x", "x", "x", "y"]}


def test_val_interval_on_time_takes_the_units_of_the_file(load, random_events):
    events = random_events()
    middle = sorted(event[2] for event in events)[len(events) // 2]
    dataset, *_ = load(events=events, val_interval={"timestamp": f"[{middle},inf)"}, user_inter_num_interval="[2,inf)")
    late = [event for event in events if event[2] >= middle]
    counts = {user: sum(event[0] == user for event in late) for user, *_ in late}
    assert {user: len(past) for user, past in histories(dataset).items()} == {
        user: min(count, 9) for user, count in counts.items() if count > 1
    }
    assert dataset.time_origin == min(event[2] for event in late if counts[event[0]] > 1)


def test_users_with_one_event_among_others_have_no_example_and_their_item_stays_known(load, random_events):
    dataset, *loaders = load(events=[*random_events(), ("lonely", "rare", 1.6e9)])
    assert "lonely" not in histories(dataset)
    assert "rare" in dataset.field2token_id["item_id"]
    assert all(dataset.token2id("user_id", "lonely") not in loader._dataset.inter_feat["user_id"] for loader in loaders)


def test_users_and_items_that_their_files_lack_get_padding_means_and_empty_sequences(
    load, write_events, write_lines, random_events
):
    path = write_events(random_events())
    write_lines("user", "user_id:token\tage:float\tjob:token", "u1\t20\tclerk", "u2\t\t", "u3\t40\tclerk")
    write_lines("item", "item_id:token\ttags:token_seq\tsizes:float_seq", "i1\tred  big\t1 2", "i2\t\t")
    dataset, train, *_ = load(data_path=path, filter_inter_by_user_or_item=False, **ALL_COLUMNS)
    user, item = (lambda name: dataset.token2id("user_id", name)), (lambda name: dataset.token2id("item_id", name))
    assert dataset.user_feat["age"][[user("u1"), user("u2"), user("u9")]].tolist() == [20, 30, 30]
    assert dataset.user_feat["job"][[user("u1"), user("u2"), user("u9")]].tolist() == [1, 0, 0]
    assert dataset.item_feat["tags"][[item("i1"), item("i2"), item("i3")]].tolist() == [[1, 2], [0, 0], [0, 0]]
    assert dataset.item_feat["sizes"][[item("i1"), item("i2"), item("i3")]].tolist() == [[1, 2], [0, 0], [0, 0]]
    batch = next(iter(train))
    assert torch.equal(batch["tags"], dataset.item_feat["tags"][batch["item_id"]])
    assert torch.isfinite(batch["age"]).all()


def test_a_column_of_sequences_that_are_all_empty(load, write_events, random_events):
    path = write_events([(*event, "") for event in random_events()], (*RATED[:3], "tags:token_seq"))
    dataset, train, *_ = load(data_path=path, **ALL_COLUMNS)
    assert dataset.num("tags") == 1
    assert next(iter(train))["tags_list"].shape == (16, 8, 0)
