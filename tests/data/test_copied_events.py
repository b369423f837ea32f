"""Events that stand in the file more than once."""

import pytest

from tests.data_checks import ALL_COLUMNS, RATED, TINY

EVENTS = [
    (f"u{number % 4}", f"i{number % 7 + (number % 4 > 1) * number % 3}", 1_600_000_000 + number, number % 5)
    for number in range(40)
]
COPIES = [EVENTS[39], EVENTS[39], EVENTS[3]]
NEAR = [(*EVENTS[0][:3], 9), (*EVENTS[0][:2], EVENTS[0][2] + 1, EVENTS[0][3])]  # other rating, other time
WARNING = "3 of 43 events are exact copies of others in all loaded columns"


def copies_warned_of(caplog) -> list[str]:
    return [message for message in caplog.messages if "exact copies" in message]


@pytest.mark.parametrize("model", ["SASRec", "MEANTIME", "BPR"])
def test_copies_are_counted_in_one_warning(load, write_events, caplog, model):
    columns = {"inter": [name.partition(":")[0] for name in RATED]}
    load(model, data_path=write_events([*EVENTS, *COPIES], RATED), load_col=columns, **TINY)
    (message,) = copies_warned_of(caplog)
    assert message.startswith(WARNING)
    assert "rm_dup_inter: first removes them, and also every other repeat of an item by the same user" in message


@pytest.mark.parametrize(("model", "keys", "rating"), [("BST", {"threshold": {"rating": 3}}, "5"), ("SASRec", {}, "")])
def test_what_the_data_set_makes_equal_is_no_copy(load, write_events, caplog, model, keys, rating):
    events = [(*event[:3], "4") for event in EVENTS]
    events.append((*events[-1][:3], rating))  # 5 has the label of 4, too; a missing number becomes the mean
    load(model, data_path=write_events(events, RATED), **ALL_COLUMNS, **TINY, **keys)
    assert not copies_warned_of(caplog)


def test_what_differs_in_a_column_is_no_copy(load, write_events, caplog):
    load(data_path=write_events([*EVENTS, *NEAR], RATED), **ALL_COLUMNS, **TINY)
    assert not copies_warned_of(caplog)


def test_sequences_are_compared_too(load, write_events, caplog):
    rows = [(*event[:3], "1 2") for event in EVENTS]
    columns = (*RATED[:3], "vec:float_seq")
    load(data_path=write_events([*rows, rows[-1], (*rows[-1][:3], "1 3")], columns), **ALL_COLUMNS, **TINY)
    (message,) = copies_warned_of(caplog)
    assert message.startswith("1 of 42 events")


@pytest.mark.parametrize("keep", ["first", "last"])
def test_rm_dup_inter_removes_copies_and_other_repeats(load, write_events, caplog, keep):
    dataset, *_ = load(data_path=write_events([*EVENTS, *COPIES, *NEAR], RATED), rm_dup_inter=keep, **TINY)
    assert not copies_warned_of(caplog)
    pairs = {event[:2] for event in EVENTS}
    first = {min(event[2] for event in EVENTS if event[:2] == pair) for pair in pairs}
    last = {max(event[2] for event in [*EVENTS, *NEAR] if event[:2] == pair) for pair in pairs}
    log = dataset.inter_feat.targets.columns["timestamp"] + dataset.time_origin
    assert sorted(log.tolist()) == sorted(first if keep == "first" else last)


def test_copies_across_files_that_are_split_already_are_counted(load, write_lines, caplog):
    header = "\t".join(RATED)
    files = {"train": EVENTS[:30], "valid": EVENTS[30:35], "test": [*EVENTS[35:], EVENTS[0]]}
    for name, events in files.items():
        path = write_lines(f"{name}.inter", header, *("\t".join(map(str, event)) for event in events))
    load(data_path=path, benchmark_filename=list(files), rm_dup_inter="first", **TINY)
    (message,) = copies_warned_of(caplog)
    assert message.startswith("1 of 41 events")
    assert message.endswith("remove them from the files.")
