"""Data that cannot be right is refused in one sentence that names the place; what is left out is said."""

import os
import zipfile
from pathlib import Path

import pytest
import recbole.data.dataset.dataset as recbole_dataset

from recbole_ext import InputError, create_dataset
from tests.data_checks import ALL_COLUMNS, PLAIN, RATED, TINY, histories, refused


@pytest.mark.parametrize(
    ("columns", "event", "sentence"),
    [
        (RATED, ("a", "y", "", 3), r"toy\.inter line 4: timestamp is empty; give every event one"),
        (RATED, ("a", "y", "NaN", 3), r"toy\.inter line 4: timestamp is empty; give every event one"),
        (RATED, ("a", "y", "soon", 3), r"toy\.inter line 4: timestamp is 'soon'; it should be a number"),
        (RATED, ("a", "y", 7, "good"), r"toy\.inter line 4: rating is 'good'; it should be a number"),
        (RATED, ("a", "y", "inf", 3), r"toy\.inter line 4: timestamp is 'inf'; it should be a finite number"),
        (RATED, ("a", "y", 7, "-inf"), r"toy\.inter line 4: rating is '-inf'; it should be a finite number"),
        (RATED, ("a", "y", 7), r"toy\.inter line 4 has 3 fields; the header has 4"),
        (RATED[:3], ("a", "y", 7), r"toy\.inter has no column 'rating', which load_col names; it has user_id, item_id"),
        (("user_id:token", "item_id:token", "timestamp:token", "rating:float"), ("a", "y", 7, 3),
         r"line 1: 'timestamp:token' is TIME_FIELD; it should be timestamp:float"),
        (("user_id:float", "item_id:token", "timestamp:float", "rating:float"), (1, "y", 7, 3),
         r"line 1: 'user_id:float' is USER_ID_FIELD; it should be user_id:token"),
        (("user_id:token", "item_id:token_seq", "timestamp:float", "rating:float"), (1, "y", 7, 3),
         r"line 1: 'item_id:token_seq' is ITEM_ID_FIELD; it should be item_id:token"),
    ],
    ids=repr,
)  # fmt: skip
def test_a_wrong_event_is_refused_with_file_line_column_and_value(columns, event, sentence, load, write_events):
    good = [(1, "x", 5, 3), (2, "z", 6, 4)]
    events = [line[: len(columns)] for line in good] + [event, (1, "x", 8, 3)[: len(columns)]]
    columns_wanted = {"inter": ["user_id", "item_id", "timestamp", "rating"]}
    refused(load, sentence, data_path=write_events(events, columns), load_col=columns_wanted)


@pytest.mark.parametrize(("suffix", "key"), [("user", "USER_ID"), ("item", "ITEM_ID")])
def test_ids_of_users_and_items_are_tokens_in_every_file(suffix, key, load, write_events):
    path = write_events([(1, 1, 5), (2, 2, 6), (1, 2, 7), (2, 1, 8)])
    (file,) = Path(path).glob("*/*.inter")
    field = f"{suffix}_id"
    file.with_suffix(f".{suffix}").write_text(f"{field}:float\tkind:token\n1\tx\n2\ty\n")
    columns = {"inter": ["user_id", "item_id", "timestamp"], suffix: [field, "kind"]}
    sentence = rf"toy\.{suffix} line 1: '{field}:float' is {key}_FIELD; it should be {field}:token"
    refused(load, sentence, data_path=path, load_col=columns)


@pytest.mark.parametrize(("unit", "first", "warned"), [("ms", 1.6e9, True), ("ms", 1.6e12, False), ("s", 100, False)])
def test_seconds_read_in_a_smaller_unit_are_warned_of(unit, first, warned, load, random_events, caplog):
    caplog.set_level("INFO")
    load(events=random_events(first=first), time_unit=unit)
    assert ("is in 1970, from 1970-01-19 to 1970-01-19, when read with time_unit: ms" in caplog.text) == warned
    period = {1.6e9: "1970-01-19 to 1970-01-19", 1.6e12: "2020-09-13 to 2020-09-13", 100: "1970-01-01 to 1970-02-09"}
    assert f"Data: timestamp from {period[first]} (time_unit: {unit})" in caplog.text


@pytest.mark.parametrize("missing", ["user_id", "item_id", "timestamp"])
def test_a_file_without_user_item_or_time_is_refused(missing, load, write_lines):
    names = [name for name in ("user_id:token", "item_id:token", "timestamp:float") if not name.startswith(missing)]
    path = write_lines("inter", "\t".join(names), "1\t2", "1\t3")
    refused(load, rf"toy\.inter has no column '{missing}', which \w+_FIELD names", data_path=path, load_col=None)


def test_events_without_user_or_item_are_left_out_counted_and_nothing_else_is(load, write_events, caplog):
    events = [("", "x", 1), ("a", "x", 2), ("a", "", 3), ("a", "y", 4), ("a", "z", 5), ("", "", 6), ("a", "w", 7)]
    dataset, *_ = load(events=events, state="info", **TINY)
    assert histories(dataset) == {"a": ["x", "y", "z", "w"]}
    assert "toy.inter line 2: no user_id or no item_id; 3 such lines are left out." in caplog.text


def test_users_and_items_without_a_name_are_left_out(load, write_events, write_lines, random_events):
    path = write_events(random_events())
    write_lines(
        "user",
        "user_id:token\tage:float",
        "\t99",
        "u1\t20",
        "u1\t80",
        "\t98",
        "u2\t40",
        *(f"u{n}\t30" for n in range(3, 30)),
    )
    dataset, *_ = load(data_path=path, **ALL_COLUMNS)
    ages = dict(zip(dataset.field2id_token["user_id"], dataset.user_feat["age"].tolist(), strict=True))
    assert (ages["u1"], ages["u2"], ages["u3"]) == (20, 40, 30)
    assert "u0" not in ages


def test_a_file_in_which_no_line_names_a_user_is_refused(load):
    refused(load, r"toy\.inter line 2: no user_id or no item_id, as in all lines", events=[("", "x", 1), ("a", "", 2)])


def test_all_users_with_one_event_are_refused(load):
    events = [(f"u{number}", "x", number) for number in range(5)]
    refused(load, "no event of data set 'toy' has 1 event of its user before it", events=events, **TINY)


@pytest.mark.parametrize("value", ["sec", "seconds", 1000, "m"])
def test_a_wrong_time_unit_is_refused_with_the_right_ones(value, load):
    refused(load, rf"key 'time_unit' is '?{value}'?; it should be one of s, ms, us, ns, D", time_unit=value)


@pytest.mark.parametrize(("per_second", "days"), [(1e3, 4000), (1e3, 10), (1e6, 10), (1e9, 1)])
def test_smaller_units_read_as_seconds_are_refused_with_a_hint_at_the_unit(per_second, days, load):
    events = [("a", f"i{number}", (1.6e9 + number * days * 8640) * per_second) for number in range(11)]
    message = refused(load, "column 'timestamp' spans .* years", events=events)
    assert "time_unit: s;" in message
    assert "set time_unit to the unit of the file (s, ms, us, ns, D)" in message


@pytest.mark.parametrize(("first", "last"), [(-2.2e9, 4.0e9), (0, 6.2e9), (0, 10), (1.6e9, 1.6e9 + 1)])
def test_spans_up_to_two_centuries_are_fine(first, last, load):
    dataset, *_ = load(events=[("a", "x", first), ("a", "y", last)], **TINY)
    assert dataset.inter_feat["timestamp"].tolist() == [last - first]


def test_an_event_without_a_label_or_with_a_token_for_one_is_refused(load, write_events):
    columns = (*RATED[:3], "label:float")
    path = write_events([("a", "x", 1, 1), ("a", "y", 2, ""), ("a", "z", 3, 0)], columns)
    refused(load, r"toy\.inter line 3: label is empty; give every event one", data_path=path, **ALL_COLUMNS)
    path = write_events([("a", "x", 1, 1), ("a", "y", 2, ""), ("a", "z", 3, 0)], RATED)
    keys = {"data_path": path, "threshold": {"rating": 1}, **ALL_COLUMNS}
    refused(load, r"toy\.inter line 3: rating is empty; give every event one", **keys)
    path = write_events([("a", "x", 1, 1), ("a", "y", 2, "no")], (*RATED[:3], "label:token"))
    refused(load, "'label:token' is LABEL_FIELD; it should be label:float", data_path=path, **ALL_COLUMNS)


def test_one_name_in_two_files_is_refused(load, write_events, write_lines, random_events):
    path = write_events(random_events())
    write_lines("item", "item_id:token\ttimestamp:float", "i1\t3")
    refused(load, r"toy\.item has a column 'timestamp', and so has another file", data_path=path, **ALL_COLUMNS)
    write_lines("item", "item_id:token\tuser_id:token", "i1\tu3")
    refused(load, r"toy\.item has a column 'user_id', and so has another file", data_path=path, **ALL_COLUMNS)


@pytest.mark.parametrize(
    ("suffix", "name"), [("item", "item_length"), ("item", "item_id_list"), ("user", "timestamp_list")]
)
def test_names_of_histories_are_refused_in_other_columns(suffix, name, load, write_events, write_lines, random_events):
    path = write_events(random_events())
    write_lines(suffix, f"{suffix}_id:token\t{name}:float", f"{suffix[0]}1\t3")
    sentence = f"column '{name}' of data set 'toy' has a name reserved for histories or labels"
    refused(load, sentence, data_path=path, **ALL_COLUMNS)


def test_a_column_of_numbers_without_one_is_refused(load, write_events, write_lines, random_events):
    path = write_events(random_events())
    write_lines("item", "item_id:token\tprice:float", "i1\t", "i2\tnan")
    keys = {"filter_inter_by_user_or_item": False, **ALL_COLUMNS}
    refused(load, "column 'price' has no numbers; leave it out", data_path=path, **keys)


# -------------------------------------------------------------------- data sets that RecBole downloads


@pytest.fixture
def remote(monkeypatch, tmp_path):
    """Stands in for the server: `serve(archive)` answers with a zip of a data set, or with an error."""

    def serve(answer):
        def download(url, folder):
            if isinstance(answer, Exception):
                raise answer
            os.makedirs(folder, exist_ok=True)
            path = os.path.join(folder, url.rpartition("/")[2])
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr(os.path.basename(path).replace(".zip", ".inter"), answer)
            return path

        monkeypatch.setattr(recbole_dataset, "decide_download", lambda url: True)
        monkeypatch.setattr(recbole_dataset, "download_url", download)

    return serve


def test_labels_are_made_of_numbers(load, write_events):
    path = write_events([("a", "x", 1, 5), ("a", "y", 2, 3)], (*RATED[:3], "rating:token"))
    sentence = "line 1: 'rating:token' is named by threshold; it should be rating:float"
    refused(load, sentence, data_path=path, threshold={"rating": 4})


def test_the_length_of_histories_is_not_called_like_a_list(load, write_events):
    path = write_events([("a", "x", 1, 5), ("a", "y", 2, 3)], RATED)
    sentence = "ITEM_LIST_LENGTH_FIELD is 'rating_list', which is also the name of a column's list"
    refused(load, sentence, data_path=path, ITEM_LIST_LENGTH_FIELD="rating_list", **ALL_COLUMNS)


def test_one_mistyped_time_is_refused_by_its_line(load, random_events, tmp_path):
    events = random_events()
    events[4] = (*events[4][:2], events[4][2] * 10)
    message = refused(
        load, r"toy\.inter line 6: timestamp is '1\d+\.0'; in time_unit s that is centuries", events=events
    )
    assert "set time_unit" not in message


def test_times_before_there_were_shops_are_refused(load):
    events = [("a", f"i{number}", -1e15 + number) for number in range(5)]
    refused(load, "column 'timestamp' spans 0 years, from -.* to -.*, when read with time_unit: s", events=events)


@pytest.mark.parametrize("model", ["SASRec", "Pop"])
def test_a_data_set_is_downloaded_by_one_process_alone(model, load, remote, random_events, tmp_path):
    remote("\n".join(["\t".join(PLAIN), *("\t".join(map(str, event)) for event in random_events())]))
    dataset, *_ = load(model, dataset="lastfm", data_path=str(tmp_path / "new"))
    assert dataset.user_num == 31


def test_a_download_that_fails_is_one_sentence_and_leaves_nothing_in_the_way(load, remote, random_events, tmp_path):
    for model in ("SASRec", "Pop"):
        remote(OSError("no route to host"))
        sentence = (
            "data set 'lastfm' is not in .*lastfm and could not be downloaded: no route to host; "
            "set data_path .* or unpack https://.*zip there"
        )
        refused(load, sentence, model, dataset="lastfm", data_path=str(tmp_path / "new"))
    remote("no:good")
    refused(load, "line 1: header field 'no:good'", dataset="lastfm", data_path=str(tmp_path / "new"))


@pytest.mark.parametrize("model", ["MEANTIME", "BPR"])
def test_the_token_of_the_padding_is_refused_in_data(make_config, write_lines, model):
    rows = [f"u{number % 3}\ti{number}\t{number}" for number in range(12)]
    path = write_lines("inter", "user_id:token\titem_id:token\ttimestamp:float", *rows, "u1\t[PAD]\t20")
    with pytest.raises(InputError, match=r"'\[PAD\]'.* is reserved for padding; rename it"):
        create_dataset(make_config(model, data_path=path))
