"""Histories, users and items that are brought along: in every format, of every dtype; refused by their place."""

import datetime as dt
import importlib.util
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from recbole_ext import InputError
from recbole_ext.cli.files import read_events, read_tokens
from recbole_ext.data.description import DatasetDescription
from recbole_ext.data.files.table import read_csv
from recbole_ext.model.contract import reads_times
from recbole_ext.serving.columns import Vocabulary
from recbole_ext.serving.histories import HistoryReader

NAMES = ["user_id", "item_id", "timestamp"]
DAY = 1577836800  # 2020-01-01
HEADER = "user_id,item_id,timestamp\n"
FORMATS = [".inter", ".csv", ".parquet", ""]  # the last one is a DataFrame


@pytest.fixture
def make_reader():
    """A reader for a model that knows users u1 and u2 and items x, y, z, without a model."""

    def make(**keys) -> HistoryReader:
        columns = {"user_id": "token", "item_id": "token", "timestamp": "float", "tab": "token", "tags": "token_seq"}
        described = {
            name: {"type": kind, "source": "interaction", "length": 3 if kind == "token_seq" else 1, "values": 4}
            for name, kind in columns.items()
        }
        config = {
            "USER_ID_FIELD": "user_id", "ITEM_ID_FIELD": "item_id", "TIME_FIELD": "timestamp", "LABEL_FIELD": "label",
            "LIST_SUFFIX": "_list", "ITEM_LIST_LENGTH_FIELD": "item_length", "MAX_ITEM_LIST_LENGTH": 3,
            "time_unit": "s", "tie_break": "file", "history": "all", "threshold": None, "discretization": None,
            "encoding": None, "field_separator": "\t", "seq_separator": " ", **keys,
        }  # fmt: skip
        data = {
            "columns": described, "vocabularies": {"tab": ["[PAD]", "a", "True"], "tags": ["[PAD]", "p", "q", "7"]},
            "tables": {"user": {}, "item": {}}, "extremes": {}, "normalised": {}, "first_time": 0.0,
        }  # fmt: skip
        tokens = {"user_id": ["[PAD]", "u1", "u2"], "item_id": ["[PAD]", "x", "y", "z"]}
        description = DatasetDescription(config, data, tokens, 0.0)
        model = SimpleNamespace(reads_times=keys.get("reads_times", True), context_features=keys.get("context", ()))
        vocabularies = (Vocabulary(tokens[name]) for name in ("item_id", "user_id"))
        return HistoryReader(description, *vocabularies, model)

    return make


def in_format(frame: pd.DataFrame, suffix: str, reader: HistoryReader):
    """The frame as a table of a file in a format, or as it is."""
    if not suffix:
        return frame
    path = f"new{suffix}"
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)
    elif suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        kinds = {"timestamp": "float"}
        header = [f"{name}:{kinds.get(name, 'token')}" for name in frame]
        frame.to_csv(path, sep="\t", index=False, header=header)
    return read_events(path, reader.columns(), reader.config)


def histories_of(reader: HistoryReader, events, users=None, at=None) -> dict[str, tuple[list, float]]:
    """Items of each user's history, oldest first, and the time of the request."""
    asked = reader.read(events, users, at)
    batch = asked.examples.gather()
    lengths, times = batch["item_length"].tolist(), batch["timestamp"].tolist() if "timestamp" in batch else None
    return {
        user: (reader.items.tokens[batch["item_id_list"][row, : lengths[row]].numpy()].tolist(), times and times[row])
        for row, user in enumerate(asked.users)
    }


def refusal(call, *args, **keys) -> str:
    with pytest.raises(InputError) as caught:
        call(*args, **keys)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


def column(values, dtype=None) -> pd.DataFrame:
    """Events of one user, an hour apart unless `values` are their times."""
    times = pd.Series(values, dtype=dtype)
    return pd.DataFrame({"user_id": "u1", "item_id": ["x", "y", "z"][: len(times)], "timestamp": times})


# ---------------------------------------------------------------- text files


@pytest.mark.parametrize(
    "content",
    [
        HEADER + "u1,x,1\nu1,y,2\n",
        HEADER + "u1,x,1\nu1,y,2",
        HEADER + "\nu1,x,1\n  \n\nu1,y,2\n\n",
        (HEADER + "u1,x,1\nu1,y,2\n").replace("\n", "\r\n"),
        (HEADER + "u1,x,1\nu1,y,2\n").replace("\n", "\r"),
        "\ufeff" + HEADER + "u1,x,1\nu1,y,2\n",
        '"user_id","item_id","timestamp"\n"u1","x","1"\n"u1","y",2\n',
        'user_id,title,item_id,timestamp\nu1,"a, ""b""",x,1\nu1,5" disc,y,2\n',
        ",user_id,item_id,timestamp\n0,u1,x,1\n1,u1,y,2\n",  # the index that pandas writes
        "user_id,item_id,timestamp,,\nu1,x,1,,\nu1,y,2,,\n",  # spare columns of a spreadsheet
    ],
    ids=repr,
)
def test_csv_files_that_are_tables_are_read_as_one_expects(content, make_reader):
    reader = make_reader()
    Path("new.csv").write_bytes(content.encode())
    assert histories_of(reader, read_events("new.csv", reader.columns(), reader.config)) == {"u1": (["x", "y"], 2.0)}


@pytest.mark.parametrize(
    ("content", "place", "reason"),
    [
        (HEADER + "7,x,y,3\n7,y,z,4\n", "line 2", "has 4 fields; the header has 3"),  # a comma in a name
        (HEADER + "a,x,1\nb,y,2,junk\n", "line 3", "has 4 fields; the header has 3"),
        (HEADER + "a,x,1\n\na,y\n", "line 4", "has 2 fields; the header has 3"),
        (HEADER + "a,x,1,\na,y,2,\n", "line 2", "has 4 fields; the header has 3"),  # a trailing comma
        ("user_id,item_id,timestamp\n0,a,x,1\n", "line 2", "has 4 fields; the header has 3"),  # an index
        (HEADER + 'a,x,1\n"b\nc",y,2\n', "line 3", "has a wrong quote"),
        (HEADER + '"a,x,1\nb",y,2\n', "line 2", "has a wrong quote"),  # three fields on each line, and as one row
        (HEADER + '"a"b,x,1\n', "line 2", "has a wrong quote"),
        (HEADER + 'a,x,1\nb,"y,2\n', "line 3", "has a wrong quote"),
        (HEADER + '"a","x, the first",1\nb,y,2,3\n', "line 3", "has 4 fields; the header has 3"),
        (HEADER + "a;x;1\n", "line 2", "has 1 field; the header has 3"),
        (HEADER + "a\0b,x,1\n", "line 2", "has a NUL character; save it as utf-8"),
        (HEADER + "a,x,1\rb\0,x,1\r", "line 3", "has a NUL character"),
        ((HEADER + "a,x,1\n").encode("utf-16"), "line 1", "is not utf-8 text; save it as utf-8"),
        (HEADER.encode() + "a,x,1\rzoë,y,2\n".encode("latin-1"), "line 3", "is not utf-8 text; save it as utf-8"),
        ("user_id,item_id,item_id,timestamp\na,x,y,1\n", "line 1", "column 'item_id' appears twice"),
        ("user_id,a,a,item_id,timestamp\na,1,2,x,1\n", "line 1", "column 'a' appears twice"),
        ("\n" + HEADER, "line 1", "is blank; it should be a header"),
        (HEADER + "a,x,1\n\n,y,2\n", "line 4", "user_id is empty"),
        (HEADER + "a,x,1\na,,2\n", "line 3", "item_id is empty"),
        (HEADER + "a,x,1\na,y,\n", "line 3", "timestamp is empty"),
        (HEADER + "a,x,1\n\r\na,y,noon\n", "line 4", "timestamp is 'noon'"),
        (HEADER + "a,x,2020-01-01\na,y,01/02/2020\n", "line 3", "01/02/2020'; it should be .* a date such as 2020"),
        (HEADER + "a,x,01/02/2020\n", "line 2", "'01/02/2020'; it should be .* a date such as 2020-12-31"),
        (HEADER + "a,x,now\n", "line 2", "timestamp is 'now'"),
        (HEADER + "a,x,inf\na,x,1\n", "line 2", "timestamp is 'inf'"),
        (HEADER + "a,x,1\na,x,nan\n", "line 3", "timestamp is 'nan'"),
        ("", "", "new.csv is empty; it should begin with a header"),
        ("user_id;item_id;timestamp\na;x;1\n", "", "no column 'user_id'.* the columns are user_id;item_id;timestamp"),
    ],
    ids=repr,
)  # fmt: skip
def test_csv_files_that_are_no_tables_are_refused_by_their_line(content, place, reason, make_reader):
    reader = make_reader()
    Path("new.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    message = refusal(lambda: reader.read(read_events("new.csv", reader.columns(), reader.config)))
    assert message.startswith(f"new.csv {place}".strip())
    assert pd.Series([message]).str.contains(reason).all(), message


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1", "cp1252"])
def test_files_have_the_encoding_that_the_model_was_trained_with(encoding, make_reader):
    reader = make_reader(encoding=encoding)
    Path("new.csv").write_bytes((HEADER + "zoë,x,1\r\nb,y,2\r\n").encode(encoding))
    Path("users.txt").write_bytes("b\r\nzoë\r\n".encode(encoding))
    events = read_events("new.csv", reader.columns(), reader.config)
    found = reader.read(events, read_tokens("users.txt", "users", "user_id", reader.config))
    assert found.users.tolist() == ["b", "zoë"]


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ("a\nb\n", ["a", "b"]), ("a\r\nb", ["a", "b"]), ("a\rb\r", ["a", "b"]), ("\ufeffa\n\n  \nb\n", ["a", "b"]),
        ('Smith, John\n"q"\n', ["Smith, John", '"q"']), (" a \n", ["a"]), ("user_id\na\n", ["a"]),
        ("a\nuser_id\n", ["a", "user_id"]),
        ("", []), ("\n\n", []), ("user_id\n", []),
    ],
    ids=repr,
)  # fmt: skip
def test_a_file_of_tokens_has_one_a_line(content, tokens, make_reader):
    Path("users.txt").write_bytes(content.encode())
    assert read_tokens("users.txt", "users", "user_id", make_reader().config).frame["user_id"].tolist() == tokens


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"a\nb\0\n", "users.txt line 2 has a NUL character"),
        ("a\nzoë\n".encode("latin-1"), "users.txt line 2 is not utf-8 text; save it as utf-8"),
        (b"user_id\na\n\nb\na\n", "users.txt line 5: user_id is 'a'; it appears twice"),
        (b"u1,x,1\n", "1 user without an event .*'u1,x,1'"),
    ],
    ids=repr,
)
def test_a_file_of_tokens_that_is_wrong_is_refused_by_its_line(content, sentence, make_reader):
    reader = make_reader()
    Path("users.txt").write_bytes(content)
    events = pd.DataFrame([("a", "x", 1), ("b", "y", 2)], columns=NAMES)
    message = refusal(lambda: reader.read(events, read_tokens("users.txt", "users", "user_id", reader.config)))
    assert pd.Series([message]).str.contains(sentence).all(), message


# ---------------------------------------------------------------- the same in every format


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_gives_the_same_histories(suffix, make_reader):
    reader = make_reader()
    events = pd.DataFrame(
        [("b", "z", 5.0), ("u1", "y", 3.0), ("b", "x", 4.0), ("u1", "other", 2.0), ("u1", "x", 3.0)], columns=NAMES
    )
    events = in_format(events, suffix, reader)
    assert histories_of(reader, events) == {"b": (["x", "z"], 5.0), "u1": (["y", "x"], 3.0)}
    assert histories_of(reader, events, users=["u1"], at=3) == {"u1": (["y", "x"], 3.0)}
    assert histories_of(reader, events, at={"u1": 9, "b": 4}) == {"b": (["x"], 4.0), "u1": (["y", "x"], 9.0)}


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("time", [16_000_000_000, -60_000_000_000, 1e30], ids=str)
def test_one_mistyped_time_is_named_by_its_place(suffix, time, make_reader):
    reader = make_reader()
    events = in_format(column([1.6e9, time]), suffix, reader)
    place = {
        ".inter": "new.inter line 3",
        ".csv": "new.csv line 3",
        ".parquet": "new.parquet row 1",
        "": "histories row 1",
    }
    message = refusal(reader.read, events)
    assert message.startswith(place[suffix])
    assert "far from most of the others; correct it" in message
    assert "time_unit" not in message


@pytest.mark.parametrize("suffix", ["", ".csv", ".parquet"])
@pytest.mark.parametrize(
    ("times", "unit"),
    [([1.7e308, -1.7e308], "s"), ([1e308], "D"), ([1.6e12, 1.61e12, 1.6e9], "s"), ([-1e308, -1e308, -1e308], "D")],
    ids=str,
)
def test_times_in_another_unit_are_a_sentence_about_the_unit(times, unit, suffix, make_reader):
    reader = make_reader(time_unit=unit)
    message = refusal(reader.read, in_format(column(times), suffix, reader))
    assert f"with time_unit: {unit}; set time_unit to the unit of the file" in message


@pytest.mark.parametrize("suffix", ["", ".parquet"])
def test_a_column_twice_is_refused(suffix, make_reader):
    reader = make_reader()
    frame = pd.DataFrame([("u1", "x", "y", 1.0)], columns=["user_id", "item_id", "item_id", "timestamp"])
    if suffix:
        parquet = pytest.importorskip("pyarrow.parquet")
        arrays = [frame.iloc[:, place].to_numpy() for place in range(4)]
        parquet.write_table(importlib.import_module("pyarrow").table(arrays, names=list(frame)), "new.parquet")
    message = refusal(
        lambda: reader.read(read_events("new.parquet", reader.columns(), reader.config) if suffix else frame)
    )
    assert "column 'item_id' appears twice" in message


@pytest.mark.parametrize("suffix", FORMATS)
def test_no_events_are_a_warning_and_users_without_events_are_named(suffix, make_reader, caplog):
    reader = make_reader()
    empty = in_format(column([1.0, 2.0])[:0], suffix, reader)
    for at in (None, 5, {}):
        caplog.clear()
        assert histories_of(reader, empty, at=at) == {}
        name = f"new{suffix}" if suffix else "histories"
        assert caplog.messages == [f"{name}: there is no user to make a request for; the result is empty."]
        assert histories_of(reader, empty, users=[], at=at) == {}
        assert histories_of(reader, in_format(column([1.0, 2.0]), suffix, reader), users=[], at=at) == {}
    assert "1 user without an event" in refusal(reader.read, empty, users=["u1"])
    assert "1 user without an event" in refusal(reader.read, in_format(column([1.0]), suffix, reader), at=0.5)


@pytest.mark.parametrize("suffix", FORMATS)
def test_without_times_the_order_of_the_rows_counts(suffix, make_reader):
    frame = pd.DataFrame([("b", "z"), ("u1", "y"), ("b", "x"), ("u1", "x"), ("b", "y")], columns=NAMES[:2])
    reader = make_reader(reads_times=False)
    events = in_format(frame, suffix, reader)
    assert histories_of(reader, events) == {"b": (["z", "x", "y"], None), "u1": (["y", "x"], None)}
    assert histories_of(reader, events, users=["u1"]) == {"u1": (["y", "x"], None)}
    assert "has no column 'timestamp' to compare it with; give the times" in refusal(reader.read, events, at=5)
    message = refusal(make_reader().read, events)
    assert "no column 'timestamp', which the model reads; the columns are user_id, item_id" in message


# ---------------------------------------------------------------- dtypes

ZONES = [pd.Timestamp("2020-01-01 09:00", tz="Asia/Tokyo"), np.datetime64("2020-01-01")]
DATES = pd.to_datetime(["2020-01-01"] * 2)
GOOD_TIMES = {
    "int": ([DAY, DAY], None), "float": ([float(DAY)] * 2, None), "text": ([str(DAY)] * 2, None),
    "Int64": ([DAY, DAY], "Int64"), "Float64": ([DAY, DAY], "Float64"), "uint64": ([DAY, DAY], "uint64"),
    "decimal": ([Decimal(DAY)] * 2, object), "objects": ([DAY, np.float64(DAY)], object),
    "category": ([DAY, DAY], "category"), "sparse": (pd.arrays.SparseArray([DAY, DAY]), None),
    "datetime64": (DATES, None), "seconds": (DATES.as_unit("s"), None), "micro": (DATES.as_unit("us"), None),
    "zone": (DATES.tz_localize("UTC").tz_convert("Asia/Tokyo"), None), "zones": (ZONES, object),
    "date": ([dt.date(2020, 1, 1)] * 2, object), "dates": (DATES.astype("category"), None),
    "datetime": ([dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc)], object),
    "iso": (["2020-01-01", "2020-01-01T02:00+02:00"], None), "string": (["2020-01-01"] * 2, "string"),
    "iso utc": (["2020-01-01 UTC", "2020-01-01 00:00:00 UTC"], None), "iso category": (["2020-01-01"] * 2, "category"),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD_TIMES)
def test_times_are_numbers_or_dates_of_any_dtype(name, make_reader):
    values, dtype = GOOD_TIMES[name]
    assert histories_of(make_reader(), column(values, dtype)) == {"u1": (["x", "y"], DAY)}


@pytest.mark.parametrize(
    "at",
    [
        DAY, float(DAY), str(DAY), np.int64(DAY), Decimal(DAY), dt.date(2020, 1, 1), dt.datetime(2020, 1, 1),
        pd.Timestamp("2020-01-01"), np.datetime64("2020-01-01"), np.datetime64("2020-01-01T00", "s"), "2020-01-01",
        "2020-01-01T09:00+09:00", dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc), {"u1": "2020-01-01"},
        np.array(DAY), torch.tensor(DAY), torch.tensor(DAY, dtype=torch.float64), pd.Series({"u1": DAY}),
        {"u1": dt.date(2020, 1, 1), "other": 0},
    ],
    ids=repr,
)  # fmt: skip
def test_the_time_of_a_request_is_a_number_or_a_date(at, make_reader):
    assert histories_of(make_reader(), column([1.0, 2.0]), at=at) == {"u1": (["x", "y"], DAY)}


@pytest.mark.parametrize(
    "at",
    [
        True, "noon", "01/02/2020", "now", np.nan, np.inf, 1.7e308, -1.7e308, pd.NaT, dt.timedelta(1),
        np.timedelta64(1, "D"), np.datetime64("NaT"), "3000-01-01", dt.date(9999, 1, 1),
        {"u1": None}, {"u1": "x"}, [1.0, 2.0], b"1", 1j, 10**400,
        np.float32(DAY), torch.tensor(float(DAY)), np.array(DAY, dtype=np.float32), {"u1": np.float32(DAY)},
        pd.Series([1, 2], index=["u1", "u1"]), {1: DAY, "1": DAY + 1, "u1": DAY},
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_time_of_a_request_is_one_sentence(at, make_reader):
    assert refusal(make_reader().read, column([1.0, 2.0]), at=at).startswith(("at is ", "at row "))


BAD_TIMES = {
    "bool": ([True, False], None), "boolean": ([True, False], "boolean"), "duration": (pd.to_timedelta([1, 2]), None),
    "timedelta": ([dt.timedelta(1)], object), "bytes": ([b"1"], object), "list": ([[1]], object),
    "dict": ([{}], object), "complex": ([1j], None), "period": (pd.period_range("2020", periods=2, freq="D"), None),
    "huge": ([10**400], object),
    "time": ([dt.time(1)], object), "none": ([None], object), "mixed bool": ([True, 1.6e9], object),
    "day first": (["13/01/2020"], None), "month first": (["2020-01-01", "01/13/2020"], None),
    "today": (["today"], None),
    "mixed": (["2020-01-01", "1600000000", "1600000001"], None), "NaT": ([pd.NaT, pd.Timestamp(0)], None),
    "missing": ([1, None], "Int64"), "bool category": ([True, True], "category"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_TIMES)
def test_what_is_no_time_is_refused_by_its_row(name, make_reader):
    values, dtype = BAD_TIMES[name]
    message = refusal(make_reader().read, column(values, dtype))
    assert message.startswith("histories row ")
    assert "timestamp is " in message
    wanted = (
        "other times are numbers: give numbers" if name == "mixed" else "it should be a number in time_unit s, or a"
    )
    assert wanted in message


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([DAY, DAY + 1], np.float32), ([DAY, DAY + 1], "Float32"), ([np.float32(DAY), DAY], object),
        ([2049, 1], np.float16),
    ],
    ids=str,
)  # fmt: skip
def test_times_of_a_type_that_has_merged_some_are_refused(values, dtype, make_reader):
    message = refusal(make_reader().read, column(values, dtype))
    assert message.startswith("histories row 0 (counted from 0)")
    assert message.endswith("only; give times as float64 or whole numbers.")
    exact = column([1000, 1001], np.float32)
    assert histories_of(make_reader(), exact) == {"u1": (["x", "y"], 1001)}


def tokens(values, dtype=None) -> pd.DataFrame:
    values = pd.Series(values, dtype=dtype)
    return pd.DataFrame({"user_id": values, "item_id": "x", "timestamp": np.arange(len(values))})


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        (["7", "a"], None, ["7", "a"]), ([7, 8], None, ["7", "8"]), ([7.0, 8.0], None, ["7", "8"]),
        ([7, 8], "Int64", ["7", "8"]), ([7, 8], "category", ["7", "8"]), (["a", "b"], "category", ["a", "b"]),
        (["a", "b"], "string", ["a", "b"]), ([7.0, "a"], object, ["7", "a"]),
        ([Decimal("7.00"), 8], object, ["7", "8"]),
        ([2**60 + 1, 2**60], None, [str(2**60 + 1), str(2**60)]), ([7.5, 8.0], None, ["7.5", "8.0"]),
        ([np.int32(7), "NA"], object, ["7", "NA"]),
    ],
    ids=str,
)  # fmt: skip
def test_tokens_are_text_or_numbers_of_any_dtype(values, dtype, expected, make_reader):
    assert make_reader().read(tokens(values, dtype)).users.tolist() == expected
    found = make_reader().read(tokens(expected), users=pd.Series(values, dtype=dtype))
    assert found.users.tolist() == expected


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([True, False], None), ([True, "a"], object), ([b"a"], object), ([[1]], object), ([{}], object),
        ([None], object), ([""], None), ([np.nan], None), ([np.inf], None), ([1e20], None),
        ([2.0**53], None), (DATES, None), ([2.0**24], np.float32), ([2.0**11], np.float16), ([2.0**24], "Float32"),
        ([np.float32(2**24)], object),
        ([dt.date(2020, 1, 1)], object), (pd.to_timedelta([1]), None), ([True], "boolean"), ([7, None], "Int64"),
        (["a\0"], None), ([2, "a\0"], object), (["a\0"], "category"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_token_is_refused_by_its_row(values, dtype, make_reader):
    assert refusal(make_reader().read, tokens(values, dtype)).startswith("histories row ")
    message = refusal(make_reader().read, tokens(["a"]), users=pd.Series(values, dtype=dtype))
    assert message.startswith("users row ")


def test_parquet_types_are_read_or_refused(make_reader):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    day, reader = dt.datetime(2020, 1, 1), make_reader()

    def read(time, user=None):
        user = pa.array(["u1"]) if user is None else user
        parquet.write_table(pa.table({"user_id": user, "item_id": ["x"], "timestamp": time}), "new.parquet")
        return histories_of(reader, read_events("new.parquet", reader.columns(), reader.config))

    right = {"u1": (["x"], DAY)}
    for unit in ("s", "ms", "us", "ns"):
        for zone in (None, "UTC", "Asia/Tokyo", "+02:00"):
            assert read(pa.array([day], pa.timestamp(unit, zone))) == right
    for kind in (pa.date32(), pa.date64()):
        assert read(pa.array([day.date()], kind)) == right
    assert read(pa.array([Decimal(DAY)], pa.decimal128(20, 2))) == right
    for text in (pa.array(["2020-01-01"]), pa.array([str(DAY)])):
        assert read(text) == read(text.dictionary_encode()) == right
    assert read(pa.array([DAY]), pa.array(["u1"]).dictionary_encode()) == right
    for wrong in (
        pa.array([True]), pa.array([dt.timedelta(1)]), pa.array([[DAY]]), pa.array([{"a": DAY}]),
        pa.array([dt.time(1)]), pa.array([b"1"]), pa.array([None], pa.int64()), pa.array([None]),
    ):  # fmt: skip
        assert refusal(read, wrong).startswith("new.parquet row 0 (counted from 0): timestamp is ")
        assert refusal(read, pa.array([DAY]), wrong).startswith("new.parquet row 0 (counted from 0): user_id is ")
    pd.DataFrame({"item_id": ["x"], "timestamp": [DAY]}, index=pd.Index(["u1"], name="user_id")).to_parquet(
        "new.parquet"
    )
    assert histories_of(reader, read_events("new.parquet", reader.columns(), reader.config)) == right
    Path("new.parquet").write_bytes(b"")
    assert refusal(read_events, "new.parquet", [], reader.config).startswith(
        "new.parquet cannot be read as a parquet file"
    )


@pytest.mark.parametrize(
    "users", ["u1", b"u1", 5, pd.DataFrame({"user_id": ["u1"]}), [["u1"]], np.array([["u1"]]), np.array("u1")], ids=repr
)
def test_what_is_no_list_of_users_is_one_sentence(users, make_reader):
    assert refusal(make_reader().read, column([1.0, 2.0]), users=users).startswith("users ")


def test_features_are_tokens_as_the_training_had_them(make_reader):
    reader = make_reader(context=("tab", "tags"))
    frame = tokens(["a", "b", "c", "d"]).assign(
        tab=pd.Series(["a", None, "", True], dtype=object),
        tags=pd.Series(["p  q", ["q", None, 7.0], None, np.array(["7", "p", "q", "p"])], dtype=object),
    )
    batch = reader.read(frame).examples.gather()
    assert batch["tab"].tolist() == [1, 0, 0, 2]
    assert batch["tags"].tolist() == [[1, 2, 0], [2, 3, 0], [0, 0, 0], [3, 1, 2]]
    frame["tags"] = pd.Series(["p", "q", [b"p"], "p"], dtype=object)
    assert refusal(reader.read, frame).startswith("histories row 2 (counted from 0): tags is 'b'p''")


@pytest.mark.parametrize(
    ("module", "said", "expected"),
    [("recbole.model.x", None, False), ("own", None, True), ("own", False, False), ("recbole.model.x", True, True)],
)
def test_who_reads_times(module, said, expected):
    model = type("Model", (), {"__module__": module, **({} if said is None else {"reads_times": said})})()
    assert reads_times(model) is expected


@pytest.mark.parametrize(
    "header", ["user_id,item_id,timestamp", "note,timestamp,user_id,item_id", "item_id,note,user_id"]
)
@pytest.mark.parametrize("rest", ["", "\n", "\n\n"])
def test_a_csv_file_with_a_header_alone_has_no_rows(tmp_path, header, rest):
    (tmp_path / "new.csv").write_text(header + rest)
    table = read_csv(str(tmp_path / "new.csv"), "utf-8", ["user_id", "item_id", "timestamp"], "")
    assert list(table.frame) == [name for name in header.split(",") if name != "note"]
    assert len(table.frame) == 0


def test_the_token_of_the_padding_is_read_like_any_token_the_model_does_not_know(tmp_path):
    config = {"field_separator": "\t", "seq_separator": " ", "encoding": None}
    (tmp_path / "new.inter").write_text("user_id:token\titem_id:token\nu1\tx\nu1\t[PAD]\n")
    (tmp_path / "new.csv").write_text("user_id,item_id\nu1,x\nu1,[PAD]\n")
    for name in ("new.inter", "new.csv"):
        assert read_events(name, ["user_id", "item_id"], config).frame["item_id"].tolist() == ["x", "[PAD]"]
