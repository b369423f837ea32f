"""Examples as ranges are what RecBole's copies of histories are, and take no room."""

import copy
import pickle

import numpy as np
import pytest
import recbole.data
import torch
from recbole.data.dataset import SequentialDataset

from recbole_ext import InputError, create_dataset, data_preparation
from recbole_ext.data.examples import EventLog, Examples
from recbole_ext.data.files import parsing
from recbole_ext.data.ranges import Ranges

SPLITS = [
    {"split": {"LS": "valid_and_test"}},
    {"split": {"LS": "valid_only"}},
    {"split": {"LS": "test_only"}},
    {"split": {"RS": [0.7, 0.1, 0.2]}, "group_by": "user"},
    {"split": {"RS": [8, 1, 1]}, "group_by": "none"},
    {"split": {"TS": [0.7, 0.1, 0.2]}},
]
COLUMNS = (
    "user_id:token", "item_id:token", "timestamp:float", "rating:float", "weight:float", "tags:token_seq",
    "words:float_seq",
)  # fmt: skip


@pytest.fixture
def rich_folder(write_events, tmp_path):
    """Events with small distinct times, which float32 holds exactly, and columns of every type; users and items too."""
    generator = np.random.default_rng(3)
    times = 1000 + generator.permutation(400)
    events = []
    for number, when in enumerate(times):
        tags = " ".join(f"t{tag}" for tag in generator.integers(0, 6, generator.integers(0, 4)))
        words = " ".join(f"{word:.2f}" for word in generator.random(generator.integers(1, 3)))
        weight = "" if number % 50 == 3 else number / 8
        rating = generator.integers(1, 6)
        events.append((f"u{generator.integers(25)}", f"i{generator.integers(40)}", when, rating, weight, tags, words))
    events.append(("lonely", "i1", 1401, 3, 1, "t1", "0.5"))  # a user with a single event
    path = write_events(events, COLUMNS)
    users = [f"u{user}\t{'' if user == 4 else user % 3}\t{user / 7:.3f}" for user in range(20)]
    items = [f"i{item}\t{'' if item % 5 == 0 else f'word{item % 4} word{item % 3}'}\t{item}" for item in range(35)]
    (tmp_path / "data/toy/toy.user").write_text("\n".join(["user_id:token\tgroup:token\tage:float", *users]) + "\n")
    (tmp_path / "data/toy/toy.item").write_text("\n".join(["item_id:token\ttitle:token_seq\tprice:float", *items]))
    return path


def keys_for(path, **keys):
    names = [column.split(":")[0] for column in COLUMNS]
    columns = {"inter": names, "user": ["user_id", "group", "age"], "item": ["item_id", "title", "price"]}
    return {
        "data_path": path, "load_col": columns, "filter_inter_by_user_or_item": False, "shuffle": False,
        "MAX_ITEM_LIST_LENGTH": 5, **keys,
    }  # fmt: skip


def assert_same_batches(ours, stock, origin):
    """Times of RecBole count from 1970, ours from `origin`."""
    ours, stock = list(ours), list(stock)
    assert len(ours) == len(stock)
    for our_batch, stock_batch in zip(ours, stock, strict=True):
        if isinstance(our_batch, tuple):
            for mine, other in zip(our_batch[1:], stock_batch[1:], strict=True):
                assert (mine is None and other is None) or torch.equal(mine, other)
            our_batch, stock_batch = our_batch[0], stock_batch[0]
        assert sorted(our_batch.columns) == sorted(stock_batch.columns)
        for name in stock_batch.columns:
            values = our_batch[name]
            if name.startswith("timestamp"):
                values = torch.where((values > 0) | (stock_batch[name] > 0), values + origin, 0)
            assert torch.equal(values.to(stock_batch[name].dtype), stock_batch[name]), name


@pytest.mark.parametrize("eval_args", SPLITS, ids=str)
def test_batches_equal_those_of_recbole_item_for_item(eval_args, make_config, rich_folder):
    config = make_config("SASRec", **keys_for(rich_folder), eval_args=eval_args)
    stock = recbole.data.data_preparation(config, SequentialDataset(config))
    ours = data_preparation(config, create_dataset(config))
    assert sum(len(loader) > 0 for loader in ours) >= 2
    for our_loader, stock_loader in zip(ours, stock, strict=True):
        assert len(our_loader._dataset) == len(stock_loader._dataset)
        assert_same_batches(our_loader, stock_loader, our_loader._dataset.time_origin)
    mine, other = ours[0]._dataset, stock[0]._dataset
    assert mine.item_counter == other.item_counter
    for facts in ("field2type", "field2source", "field2seqlen", "field2bucketnum"):
        assert getattr(mine, facts) == getattr(other, facts)


@pytest.mark.parametrize(
    "keys",
    [
        {"numerical_features": ["rating", "words"]},
        {"numerical_features": ["rating"], "discretization": {"rating": {"method": "ED", "bucket": 3}}},
        {"threshold": {"rating": 4}},
        {"seq_len": {"tags": 2, "title": 1}},
        {"unused_col": {"inter": ["rating", "tags"], "item": ["price"]}},
        {"unload_col": {"inter": ["rating", "words"], "user": ["group"]}, "load_col": None},
        {"normalize_field": ["rating", "price", "words"]},
        {"rm_dup_inter": "last", "user_inter_num_interval": "[5,inf)", "item_inter_num_interval": "[2,20]"},
        {"val_interval": {"rating": "[2,5);[5,9]", "group": ["1", "2"]}, "filter_inter_by_user_or_item": True},
        {"LIST_SUFFIX": "_past", "ITEM_LIST_LENGTH_FIELD": "n"},
        {"alias_of_item_id": ["tags"]},
    ],
    ids=lambda keys: ", ".join(keys),
)
@pytest.mark.parametrize("at_once", [parsing.PARSED_AT_ONCE, 1])  # bytes; with 1, files are read as large ones are
def test_keys_of_the_data_mean_what_they_mean_in_recbole(keys, at_once, make_config, rich_folder, monkeypatch):
    monkeypatch.setattr(parsing, "PARSED_AT_ONCE", at_once)
    config = make_config("SASRec", **keys_for(rich_folder, **keys), eval_args={"split": {"LS": "valid_and_test"}})
    dataset = SequentialDataset(config)
    stock = recbole.data.data_preparation(config, dataset)
    our_dataset = create_dataset(config)
    ours = data_preparation(config, our_dataset)
    if "rm_dup_inter" in keys:  # RecBole numbers tokens in the order of time then
        for our_loader, stock_loader in zip(ours, stock, strict=True):
            mine, other = (loader._dataset[np.arange(len(loader._dataset))] for loader in (our_loader, stock_loader))
            for name in ("user_id", "item_id", "item_id_list"):
                tokens, others = (each.field2id_token[name.removesuffix("_list")] for each in (our_dataset, dataset))
                assert tokens[mine[name]].tolist() == others[other[name]].tolist()
        return
    for our_loader, stock_loader in zip(ours, stock, strict=True):
        assert_same_batches(our_loader, stock_loader, our_dataset.time_origin)


def bytes_held(loaders) -> int:
    """Size of all tensors and arrays that the tables of the data sets refer to, each counted once."""
    found = {}
    for loader in loaders:
        for examples in (loader._dataset.inter_feat, loader._dataset.windows):
            if examples is None:
                continue
            found |= {id(array): array.nbytes for array in vars(examples.ranges).values()}
            for log in (examples.targets, examples.history):
                found |= {id(column): column.nbytes for column in log.columns.values()}
            small = {"suffix", "length_field", "width", "dropped", "cached_list", "added", "in_batches"}
            assert set(vars(examples)) == {"targets", "history", "ranges", *small}  # nothing else holds data
            assert not examples.cached_list
            assert not examples.added
    return sum(found.values())


@pytest.mark.parametrize("model", ["SASRec", "MEANTIME"])
def test_a_data_set_holds_no_copies_of_histories(model, make_config, random_events):
    events = random_events(users=50, longest=100)
    held, keys = set(), ({"train_window": 1000} if model == "MEANTIME" else {})
    for length in (5, 200):
        config = make_config(model, events, MAX_ITEM_LIST_LENGTH=length, **keys)
        held.add(bytes_held(data_preparation(config, create_dataset(config))))
    columns = 3 * 8 * len(events)  # user, item, time
    assert len(held) == 1, "memory does not depend on the length of histories"
    assert held.pop() <= 2.5 * columns


def test_splitting_gathers_no_histories(make_config, random_events, monkeypatch):
    def fail(*_):
        raise AssertionError("a list was gathered")

    config = make_config("SASRec", random_events())
    monkeypatch.setattr(Examples, "_lists", fail)
    train, *_ = data_preparation(config, create_dataset(config))
    monkeypatch.undo()
    assert next(iter(train))["item_id_list"].shape[1] == config["MAX_ITEM_LIST_LENGTH"]


# -------------------------------------------------------------------- the table itself


@pytest.fixture
def table():
    log = EventLog(
        {"user": torch.tensor([1, 1, 1, 2, 2]), "item": torch.arange(5) + 10, "tags": torch.arange(10).view(5, 2)},
        ("item", "tags"),
    )
    ranges = Ranges(np.array([0, 0, 3]), np.array([1, 2, 4]), np.array([1, 2, 4]))
    return Examples(log, log, ranges, "_list", "length", 3)


def test_columns_and_batches_of_a_table(table):
    assert table.columns == ["user", "item", "tags", "length", "item_list", "tags_list"]
    assert len(table) == table.length == 3
    assert list(table) == table.keys() == table.columns
    assert table["item"].tolist() == table.item.tolist() == [11, 12, 14]
    assert table["length"].tolist() == [1, 2, 1]
    assert table["item_list"].tolist() == [[10, 0, 0], [10, 11, 0], [13, 0, 0]]
    assert table["tags_list"][1].tolist() == [[0, 1], [2, 3], [0, 0]]
    batch = table.gather()
    assert set(batch.columns) == set(table.columns)
    assert all(torch.equal(batch[name], values) for name, values in table.items())


def test_a_list_is_gathered_once_for_whoever_asks_again_and_again(table):
    first = table["item_list"]
    assert table["item_list"] is first
    assert table["tags_list"].shape == (3, 3, 2)
    assert table["item_list"] is not first
    assert table[[1]]["item_list"].tolist() == [[10, 11, 0]]
    table.sort("item", ascending=False)
    assert table["item_list"].tolist() == first.flip(0).tolist()


@pytest.mark.parametrize(
    "index",
    [[2, 0], (2, 0), np.array([2, 0]), torch.tensor([2, 0]), [np.int64(2), np.int64(0)]],
    ids=lambda i: str(type(i)),
)
def test_a_table_is_indexed_by_whatever_recbole_indexes_by(table, index):
    assert table[index]["item"].tolist() == [14, 11]
    assert table[1]["item"].tolist() == [12]
    assert table[1:]["item"].tolist() == table[range(1, 3)]["item"].tolist() == [12, 14]
    assert table[torch.tensor([True, False, True])]["item"].tolist() == [11, 14]
    assert len(table[[]]) == 0
    assert table[[]].gather()["item_list"].shape == (0, 3)


def test_a_table_is_sorted_and_shuffled_in_place(table):
    table.sort("item", ascending=False)
    assert table["item"].tolist() == [14, 12, 11]
    table.sort(["length", "item"])
    assert table["item"].tolist() == [11, 14, 12]
    table.sort(["length", "item"], ascending=[False, True])
    assert table["item"].tolist() == [12, 11, 14]
    table.sort("user")
    assert table["item"].tolist() == [12, 11, 14]
    torch.manual_seed(1)
    table.shuffle()
    assert sorted(table["item"].tolist()) == [11, 12, 14]


def test_dropped_columns_are_gone_from_table_and_batch_and_the_log_is_left_alone(table):
    other = table[:]
    table.drop("item")
    del table["tags_list"]
    assert table.columns == table.gather().columns == ["user", "tags", "length", "item_list"]
    assert "item" in other
    assert "tags_list" in other.gather()
    with pytest.raises(KeyError):
        table["item"]
    with pytest.raises(AttributeError):
        table.item  # noqa: B018
    with pytest.raises(ValueError, match="no column 'item'"):
        table.drop("item")


@pytest.mark.parametrize("name", ["new", "item", "item_list", "user"])
@pytest.mark.parametrize("kind", [torch.tensor, np.array, list])
def test_a_column_that_is_set_is_in_the_table_its_parts_and_its_batches(table, name, kind):
    others = {column: table[column].clone() for column in table.columns if column != name}
    table[name] = kind([7, 8, 9])
    assert table[name].tolist() == table.gather()[name].tolist() == getattr(table, name).tolist() == [7, 8, 9]
    assert table.columns.count(name) == 1
    assert sorted(table.columns) == sorted(table.gather().columns) == sorted({*others, name})
    assert all(torch.equal(table[column], values) for column, values in others.items())
    for index in (slice(None, None, -1), [2, 0], np.array([True, False, True]), torch.tensor([1]), slice(1, 3)):
        rows = np.asarray(index) if not isinstance(index, slice) else index
        assert table[index][name].tolist() == np.array([7, 8, 9])[rows].tolist()
    table.sort(name, ascending=False)
    assert table[name].tolist() == [9, 8, 7]
    assert table["tags"].tolist() == others["tags"].tolist()[::-1]
    table.drop(name)
    assert name not in table
    assert name not in table.gather()
    table[name] = torch.zeros(3)
    assert table[name].tolist() == [0, 0, 0]


def test_all_columns_of_another_table_are_set_at_once(table):
    other = table.gather()
    table.update(other)
    assert all(torch.equal(table[name], other[name]) for name in other.columns)


@pytest.mark.parametrize("values", [torch.zeros(2), torch.zeros(4, 3), 5, torch.tensor(1.0), []])
def test_a_column_has_a_value_for_each_example(table, values):
    with pytest.raises(
        ValueError, match="column 'new' has the shape .*; it should have a row for each of the 3 examples"
    ):
        table["new"] = values
    assert "new" not in table


def test_a_column_of_another_name_than_text_and_a_prefix_are_refused(table):
    with pytest.raises(KeyError, match="not the name of a column"):
        table[0] = torch.zeros(3)
    with pytest.raises(TypeError, match="call gather"):
        table.add_prefix("neg_")


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda table: pickle.loads(pickle.dumps(table))])
def test_copies_and_pickles_are_equal_and_apart(table, again):
    other = again(table)
    assert all(torch.equal(other[name], table[name]) for name in table.columns)
    other.drop("item")
    other["new"] = torch.zeros(3)
    other.shuffle()
    assert "new" not in table
    assert table.columns[1] == "item"
    assert table["item"].tolist() == [11, 12, 14]


@pytest.mark.parametrize(
    "split",
    [{"LS": "valid"}, {"RS": [0.9, 0.1]}, {"RS": "all"}, {"TS": [0, 0, 0]}, {"XX": [1, 1, 1]}, {}, None,
     {"RS": [1, 1, 1], "LS": "valid_only"}],
    ids=str,
)  # fmt: skip
def test_a_split_that_recbole_does_not_know_is_refused(split, load):
    with pytest.raises(InputError, match="eval_args.split.* it should be "):
        load(eval_args={"split": split})
