"""Files that are the splits already: `benchmark_filename`."""

import numpy as np
import pytest
import torch

from recbole_ext import InputError, create_dataset, data_preparation, run_recbole
from recbole_ext.checkpoint import file as checkpoint
from tests.data_checks import PLAIN, TINY, refused

SPLITS = ("train", "valid", "test")
FILES = {"benchmark_filename": list(SPLITS)}
EVENTS = {
    "train": [("a", "x", 10), ("b", "x", 10), ("a", "y", 30), ("a", "z", 20), ("b", "y", 40), ("c", "x", 1)],
    "valid": [("a", "v", 25), ("b", "v", 50), ("c", "v", 2)],
    "test": [("a", "t", 40), ("b", "t", 15), ("d", "t", 5)],
}
# what a user did before, by the event's own file and the earlier ones
BEFORE = {
    "train": {("a", "z"): ["x"], ("a", "y"): ["x", "z"], ("b", "y"): ["x"]},
    "valid": {("a", "v"): ["x", "z"], ("b", "v"): ["x", "y"], ("c", "v"): ["x"]},
    "test": {("a", "t"): ["x", "z", "v", "y"], ("b", "t"): ["x"]},
}
GIVEN = ("user_id:token", "item_id_list:token_seq", "timestamp_list:float_seq", "item_id:token", "timestamp:float")


@pytest.fixture
def write_splits(write_lines):
    """Write one file per split; returns `data_path`."""

    def write(files: dict[str, list[tuple]], columns=PLAIN) -> str:
        for name, events in files.items():
            lines = ["\t".join(map(str, event)) for event in events]
            path = write_lines(f"{name}.inter", "\t".join(columns), *lines)
        return path

    return write


def examples(loader) -> dict[tuple[str, str], list[str]]:
    """History of each (user, target), as tokens."""
    data = loader._dataset
    batch = data[np.arange(len(data))]
    users, items = data.field2id_token["user_id"], data.field2id_token["item_id"]
    columns = (batch[name].tolist() for name in ("user_id", "item_id", "item_id_list", "item_length"))
    return {
        (str(users[user]), str(items[item])): [str(items[index]) for index in past[:length]]
        for user, item, past, length in zip(*columns, strict=True)
    }


@pytest.mark.parametrize("model", ["SASRec", "MEANTIME"])
def test_a_history_is_what_came_before_in_the_same_and_earlier_files(model, load, write_splits):
    keys = {"data_path": write_splits(EVENTS), "train_window": 1, "allow_unknown": True}
    dataset, *loaders = load(model, **keys, **FILES, **TINY)
    for name, loader in zip(SPLITS, loaders, strict=True):
        found = examples(loader)
        if (model, name) == ("MEANTIME", "train"):  # one window for each user with fewer events than a window takes
            assert found == {("a", "y"): ["x", "z"], ("b", "y"): ["x"]}
            found = {pair: BEFORE["train"][pair] for pair in BEFORE["train"]}
        assert found == BEFORE[name]
    assert dataset.time_origin == 1


def test_no_event_of_a_later_file_reaches_an_earlier_history(load, write_splits):
    _, train, valid, _ = load(data_path=write_splits(EVENTS), **FILES, **TINY)
    seen = {item for loader in (train, valid) for past in examples(loader).values() for item in past}
    assert "t" not in seen
    assert "v" not in {item for past in examples(train).values() for item in past}


def test_samplers_count_the_events_of_all_files(load, write_splits):
    dataset, train, *_ = load(
        data_path=write_splits(EVENTS),
        loss_type="BPR",
        train_neg_sample_args={"distribution": "popularity"},
        **FILES,
        **TINY,
    )
    # all but the first event of each user
    assert dataset.inter_num == 8
    assert {str(dataset.id2token("item_id", item)): count for item, count in dataset.item_counter.items()} == {
        "z": 1, "y": 2, "v": 3, "t": 2
    }  # fmt: skip
    assert (next(iter(train))["neg_item_id"] > 0).all()


def test_positive_histories_from_presplit_files(load, write_splits):
    labelled = {name: [(*event, int(event[1] != "z")) for event in events] for name, events in EVENTS.items()}
    columns = {"inter": ["user_id", "item_id", "timestamp", "label"]}
    keys = {"data_path": write_splits(labelled, (*PLAIN, "label:float")), "load_col": columns, "history": "positive"}
    for model in ("SASRec", "MEANTIME"):
        _, _, valid, test = load(model, **keys, **FILES, **TINY)
        expected = [
            {pair: [item for item in past if item != "z"] for pair, past in BEFORE[name].items()} for name in SPLITS[1:]
        ]
        assert [examples(valid), examples(test)] == expected


def test_unused_columns_are_gone_from_every_split(load, write_splits):
    _, *loaders = load(data_path=write_splits(EVENTS), unused_col={"inter": ["timestamp"]}, **FILES, **TINY)
    for loader in loaders:
        assert "timestamp" not in loader._dataset[np.arange(1)]
        assert "timestamp_list" in loader._dataset[np.arange(1)]


# -------------------------------------------------------------------- files with histories of their own


def given(name: str) -> list[tuple]:
    times = {"x": 10, "z": 20, "y": 30, "v": 25}
    return [
        (user, " ".join(past), " ".join(str(times[item]) for item in past), target, 50)
        for (user, target), past in BEFORE[name].items()
    ]


@pytest.mark.parametrize("model", ["SASRec", "MEANTIME"])
@pytest.mark.parametrize("suffix", ["_list", "_past"])
def test_histories_in_the_files_are_taken_as_they_are(model, suffix, load, write_splits):
    columns = [column.replace("_list:", f"{suffix}:") for column in GIVEN]
    path = write_splits({name: given(name) for name in SPLITS}, columns)
    dataset, *loaders = load(model, data_path=path, load_col=None, LIST_SUFFIX=suffix, **FILES, **TINY)
    for name, loader in zip(SPLITS, loaders, strict=True):
        batch = loader._dataset[np.arange(len(loader._dataset))]
        batch.interaction = {key.replace("_past", "_list"): value for key, value in batch.interaction.items()}
        data = loader._dataset
        users, items = data.field2id_token["user_id"], data.field2id_token["item_id"]
        for index, ((user, target), past) in enumerate(BEFORE[name].items()):
            length = len(past)
            assert (users[batch["user_id"][index]], items[batch["item_id"][index]]) == (user, target)
            assert batch["item_length"][index] == length
            assert items[batch["item_id_list"][index, :length].numpy()].tolist() == past
            times = [float(time) for time in given(name)[index][2].split()]
            assert (batch["timestamp_list"][index, :length] + dataset.time_origin).tolist() == times
            assert not batch["item_id_list"][index, length:].any()
    assert dataset.time_origin == 10
    assert dataset.inter_num == 8
    assert batch["timestamp_list"].dtype == torch.float64


def test_of_long_histories_in_the_files_the_newest_events_are_kept(load, write_splits):
    path = write_splits({name: given(name) for name in SPLITS}, GIVEN)
    _, *loaders = load(data_path=path, load_col=None, MAX_ITEM_LIST_LENGTH=2, **FILES, **TINY)
    for name, loader in zip(SPLITS, loaders, strict=True):
        assert examples(loader) == {pair: past[-2:] for pair, past in BEFORE[name].items()}


def test_histories_in_the_files_need_no_times(load, write_splits):
    lines = {name: [(event[0], event[1], event[3], event[4]) for event in given(name)] for name in SPLITS}
    columns = [column for column in GIVEN if not column.startswith("timestamp_list")]
    _, *loaders = load(data_path=write_splits(lines, columns), load_col=None, **FILES, **TINY)
    for name, loader in zip(SPLITS, loaders, strict=True):
        assert examples(loader) == BEFORE[name]


# -------------------------------------------------------------------- what is refused or said


@pytest.mark.parametrize("names", ["train", [["train"]], ["train", "valid", "test", "more"]])
def test_two_or_three_files_are_wanted(names, load, write_splits):
    sentence = "benchmark_filename'? is .* it should be a list"
    refused(load, sentence, data_path=write_splits(EVENTS), benchmark_filename=names, **TINY)


@pytest.mark.parametrize("name", ["valid", "validation", "val", "Dev"])
def test_two_files_without_a_test_are_refused(name, load):
    sentence = "the second of two files is the test; to train without a test, add a third file that has only a header"
    refused(load, sentence, data_path="nowhere", benchmark_filename=["train", name], **TINY)


def test_a_missing_file_is_named(load, write_splits):
    path = write_splits({"train": EVENTS["train"], "valid": EVENTS["valid"]})
    with pytest.raises(ValueError, match=r"toy\.test\.inter"):
        load(data_path=path, **FILES, **TINY)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            ("a", "x z", "1", "v", 5),
            r"toy\.valid\.inter line 2: timestamp_list is '1\.0'; it should be as long as item_id_l",
        ),
        (
            ("a", "", "", "v", 5),
            r"toy\.valid\.inter line 2: item_id_list is empty; a history should have one item or more",
        ),
        (("a", "x", "1", "v", ""), r"toy\.valid\.inter line 2: timestamp is empty"),
        (
            ("a", "x z", "1 6", "v", 5),
            r"toy\.valid\.inter line 2: timestamp_list is '1\.0 6\.0'; a history should end before its example's "
            r"timestamp, or at it",
        ),
        (
            ("a", "x", "soon", "v", 5),
            r"toy\.valid\.inter line 2: timestamp_list is 'soon'; all should be finite numbers",
        ),
    ],
    ids=str,
)
def test_a_wrong_history_is_named(line, sentence, load, write_splits):
    files = {name: given(name) for name in SPLITS} | {"valid": [line]}
    refused(load, sentence, data_path=write_splits(files, GIVEN), load_col=None, **FILES, **TINY)


@pytest.mark.parametrize(
    ("times", "labels", "sentence"),
    [
        ("1 5", "1 1", r"timestamp_list is '1\.0 5\.0'; a history should end before its example's timestamp\."),
        ("1 4", "1 0", r"label_list is '1\.0 0\.0'; with history: positive, all labels should be 1"),
    ],
)
def test_given_histories_hold_positive_earlier_events_where_that_is_asked(times, labels, sentence, load, write_splits):
    columns = (*GIVEN, "label:float", "label_list:float_seq")
    right = {name: [(*row, 1, " ".join("1" * len(row[1].split()))) for row in given(name)] for name in SPLITS}
    keys = {"load_col": None, "history": "positive", **FILES, **TINY}
    load(data_path=write_splits(right, columns), **keys)
    wrong = {**right, "test": [("a", "x z", times, "v", 5, 1, labels)]}
    refused(load, rf"toy\.test\.inter line 2: {sentence}", data_path=write_splits(wrong, columns), **keys)
    if labels == "1 1":
        load(data_path=write_splits(wrong, columns), **{**keys, "history": "all"})


def test_histories_that_are_not_loaded_are_not_passed_over(load, write_splits):
    path = write_splits({name: given(name) for name in SPLITS}, GIVEN)
    sentence = r"toy\.train\.inter has histories, 'item_id_list', but load_col does not contain them; add it"
    refused(load, sentence, data_path=path, **FILES, **TINY)
    lists = {"inter": ["item_id_list", "timestamp_list"]}
    _, train, *_ = load(data_path=path, load_col=None, unload_col=lists, **FILES, **TINY)
    assert examples(train) != examples(load(data_path=path, load_col=None, **FILES, **TINY)[1])


@pytest.mark.parametrize(
    ("columns", "row", "sentence"),
    [
        (GIVEN, ("a", "x z", "6 1", "v", 9), r"timestamp_list is '6\.0 1\.0'; a history should be in order of time"),
        ([*GIVEN[:2], "timestamp_list:token_seq", *GIVEN[3:]], ("a", "x", "1", "v", 9), "should be timestamp_list:flo"),
        (["user_id:token", "item_id_list:token", *GIVEN[2:]], ("a", "x", "1", "v", 9), "it should be item_id_list:tok"),
    ],
    ids=["order", "times", "items"],
)
def test_a_history_that_is_none_is_refused(columns, row, sentence, load, write_splits):
    refused(
        load, sentence, data_path=write_splits(dict.fromkeys(SPLITS, [row]), columns), load_col=None, **FILES, **TINY
    )


@pytest.mark.parametrize("model", ["BST", "MEANTIME"])
def test_models_of_time_refuse_histories_without_times(model, make_model, write_splits):
    lines = {name: [(event[0], event[1], event[3], event[4]) for event in given(name)] for name in SPLITS}
    path = write_splits(lines, [column for column in GIVEN if not column.startswith("timestamp_list")])
    with pytest.raises(InputError, match=f"{model} needs the times of histories, but no column 'timestamp_list'"):
        make_model(model, data_path=path, load_col=None, **FILES, **TINY)


def test_positive_histories_cannot_be_told_without_their_labels(load, write_splits):
    lines = {name: [(*event, 1) for event in given(name)] for name in SPLITS}
    path = write_splits(lines, (*GIVEN, "label:float"))
    refused(
        load,
        "without 'label_list', which history: positive needs",
        data_path=path,
        load_col=None,
        history="positive",
        **FILES,
        **TINY,
    )


def test_files_with_different_columns_are_refused(load, write_splits, write_lines):
    path = write_splits(EVENTS)
    write_lines("test.inter", "user_id:token\titem_id:token\ttimestamp:float\trating:float", "a\tx\t1\t2")
    sentence = r"toy\.test\.inter has the columns .*rating, but the file before it has"
    refused(load, sentence, data_path=path, load_col=None, **FILES, **TINY)


def test_filters_do_not_touch_presplit_files_and_the_log_says_so(load, write_splits, caplog):
    path = write_splits(EVENTS)
    load(data_path=path, state="info", rm_dup_inter="first", user_inter_num_interval="[9,inf)", **FILES, **TINY)
    assert "the files are not filtered; rm_dup_inter, user_inter_num_interval has no effect." in caplog.text


def test_the_log_says_what_each_file_gave(make_config, write_splits, caplog):
    config = make_config("SASRec", data_path=write_splits(EVENTS), state="info", **FILES, **TINY)
    with caplog.at_level("INFO"):
        data_preparation(config, create_dataset(config))
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Data: ")]
    assert lines == [
        "Data: read 12 events of 4 users and 5 items",
        "Data: timestamp from 1970-01-01 to 1970-01-01 (time_unit: s)",
        "Data: train has 3 targets of 2 users and 2 items",
        "Data: valid has 3 targets of 3 users and 1 items",
        "Data: test has 2 targets of 2 users and 1 items",
    ]


# -------------------------------------------------------------------- without validation, without a test


@pytest.mark.parametrize("files", [["train", "test"], list(SPLITS)], ids=["two files", "an empty file"])
@pytest.mark.parametrize("model", ["SASRec", "MEANTIME", "BPR"])
def test_all_epochs_are_trained_and_the_last_tested_without_validation(model, files, no_waiting, write_splits, caplog):
    path = write_splits({**EVENTS, "train": [*EVENTS["train"], ("c", "w", 3)], "valid": []})
    keys = {"data_path": path, "benchmark_filename": files, "epochs": 3, "show_progress": False, "use_gpu": False}
    caplog.set_level("INFO")
    result = run_recbole(model, "toy", None, {**keys, **TINY}, argv=[])
    reason = "names one file for training and one for the test" if len(files) == 2 else "toy.valid.inter has no event"
    assert "There is no validation data: " in caplog.text
    assert reason in caplog.text
    assert "Training: 3 epochs without validation; the last epoch is tested" in caplog.text
    assert result["best_valid_result"] is None
    assert result["test_result"] is not None
    assert checkpoint.load(result["checkpoint"])["epoch"] == 2


def test_two_files_have_the_histories_of_three_without_validation(load, write_splits):
    _, *two = load(data_path=write_splits(EVENTS), benchmark_filename=["train", "test"], **TINY)
    _, *three = load(data_path=write_splits({**EVENTS, "valid": []}), **FILES, **TINY)
    assert [examples(loader) for loader in (two[0], two[2])] == [examples(loader) for loader in (three[0], three[2])]
    assert examples(two[2])["a", "t"] == ["x", "z", "y"]
    assert len(two[1]) == len(three[1]) == 0


@pytest.mark.parametrize("empty", ["valid", "test"])
def test_a_file_of_given_histories_may_hold_a_header_alone(empty, load, write_splits, caplog):
    lines = {name: [] if name == empty else given(name) for name in SPLITS}
    _, *loaders = load(data_path=write_splits(lines, GIVEN), load_col=None, **FILES, **TINY)
    assert [len(loader._dataset) > 0 for loader in loaders] == [name != empty for name in SPLITS]
    assert f"There is no {'validation' if empty == 'valid' else 'test'} data: the file toy.{empty}.inter" in caplog.text


def test_a_training_file_without_a_row_is_refused(load, write_splits):
    refused(load, r"toy\.train\.inter has only a header", data_path=write_splits({**EVENTS, "train": []}),
            **FILES, **TINY)  # fmt: skip


def test_a_search_is_refused_without_validation(write_splits):
    pytest.importorskip("ray")
    from recbole_ext import search

    keys = {"data_path": write_splits(EVENTS), "benchmark_filename": ["train", "test"], "use_gpu": False}
    with pytest.raises(InputError, match=r"benchmark_filename is \['train', 'test'\], which leaves no validation data"):
        search("MEANTIME", "toy", None, {**keys, **TINY}, argv=[])
