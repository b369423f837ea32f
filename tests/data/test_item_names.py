"""Names of items beside their tokens: from the `.item` file by way of the checkpoint, or from a file of two columns."""

import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from recbole_ext import InputError, Recommender, create_dataset
from recbole_ext.cli.entry import main
from recbole_ext.data.files.item_files import names_in_file, resolve_item_names
from recbole_ext.serving.explain import figures as why_figures
from recbole_ext.serving.explain.page import page

NAMES = ["user_id", "item_id", "timestamp"]
TITLE = 'Star  Wars: Épisode IV, "A New Hope" <b>&amp; more</b>'


# -------------------------------------------------------------------- files of two columns


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("i1,Star Wars (1977)\ni2,Alien\n", {"i1": "Star Wars (1977)", "i2": "Alien"}),
        ("item_id,title\ni1,Star Wars\n", {"item_id": "title", "i1": "Star Wars"}),  # a header names no known item
        ("i1\tGood, Bad\ni2\tAlien", {"i1": "Good, Bad", "i2": "Alien"}),
        ('i1,"Good, the ""Bad"""\n', {"i1": 'Good, the "Bad"'}),
        ('i1\t"Weird Al" live\ni2\t5" disk\n', {"i1": '"Weird Al" live', "i2": '5" disk'}),  # quotes as they are
        ('i1\t"""Weird Al"" live"\n', {"i1": '"Weird Al" live'}),  # quotes of a table written as CSV
        ("\ufeffi1,Amélie\r\n\r\ni2,千と千尋\r\n", {"i1": "Amélie", "i2": "千と千尋"}),
        ('i1,"two\nlines"\ni2,b\n', {"i1": "two\nlines", "i2": "b"}),
        (" i1 , Alien \ni1,Alien\ni2,\ni3,  \n", {"i1": "Alien"}),  # twice the same; empty is none
        ("i1," + "x" * 50_000, {"i1": "x" * 50_000}),
    ],
)  # fmt: skip
def test_a_file_of_two_columns(content, names):
    Path("names.csv").write_text(content, encoding="utf-8", newline="")
    assert names_in_file("names.csv") == names


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"i1,Good, the Bad\n", "names.csv line 1 has 3 fields; it should have two, an item and its name, with a comma "
                                "or a tab between them, with quotes around a name that has commas."),
        (b"i1;Alien\n", "names.csv line 1 has 1 field; it should have two"),
        (b"i1\tA\n\ni2\tB\tC\n", "names.csv line 3 has 3 fields; it should have two"),
        (b'i1,"two\nlines"\ni2\n', "names.csv line 3 has 1 field"),
        (b"i1,A\n,B\n", "names.csv line 2: the item is empty"),
        (b"i1,A\ni2,B\ni1,C\n", "names.csv line 3: item 'i1' is 'C', but 'A' in line 1; give it one name."),
        (b'i1,A\ni2,"B" C\n', "names.csv line 2 is not CSV: it has an unpaired quote"),
        (b'i1,A\ni2,"B\ni3,C\n', "names.csv line 2 is not CSV: it has an unpaired quote"),
        (b"i1," + b"x" * 200_000, "names.csv line 1 is not CSV: .* more than 131,072 characters"),
        (b"i1,A\ni2,Am\xe9lie\n", "names.csv line 2 is not UTF-8 text; save the file of item names as UTF-8."),
        (b"i1,A\ni2,A\0B\n", "names.csv line 2 has a NUL character"),
        (b"", "names.csv has a name for none of the 2 items, such as 'i1'"),
        (b"id,title\nx,A\n", "names.csv has a name for none of the 2 items, such as 'i1'; its items should be spelled"),
        (b"A,i1\nB,i2\n", "names.csv has a name for none of the 2 items"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_sentence(content, sentence):
    Path("names.csv").write_bytes(content)
    with pytest.raises(InputError, match=sentence) as caught:
        resolve_item_names("names.csv", None, ["[PAD]", "i1", "i2"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "stored", "expected"),
    [
        (None, None, None), (False, "title", None), (None, "title", ["[PAD]", "One", "2"]),
        ("title", "title", ["[PAD]", "One", "2"]),
        ({"1": "Uno", 2: "Due", "3": "Tre"}, "title", ["[PAD]", "Uno", "Due"]),
        (pd.Series({1: "Uno", 2: np.nan}), None, ["[PAD]", "Uno", "2"]),
        ({1: "Uno", 2: None}, None, ["[PAD]", "Uno", "2"]),
    ],
)  # fmt: skip
def test_where_names_come_from(value, stored, expected):
    held = None if stored is None else {"column": stored, "names": ["", "One", ""]}
    found = resolve_item_names(value, held, ["[PAD]", "1", "2"])
    assert expected is None if found is None else list(found) == expected


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("titel", "item_names is 'titel'; it should be a file with two columns, items and names, or 'title', the col"),
        (Path("none.csv"), r"item_names is .*none.csv'\); it should be a file"), (True, "item_names is True"),
        (".", r"item_names is '\.'"), (["a"], "item_names is a list"), (pd.DataFrame({"a": [1]}), "is a DataFrame"),
        ({"1": 7}, "item_names has 7 for item '1'; a name should be text"), ({"1": ["a"]}, "item_names has .'a'. for"),
        (pd.Series(["One", "Uno"], index=[1, 1]), "item_names has 'One' and 'Uno' for item '1'; give it one name"),
        ({1: "One", "1": "Uno"}, "item_names has 'One' and 'Uno' for item '1'"),
        ({"9": "nine"}, "item_names has a name for none of the 2 items"),
        ({}, "item_names has a name for none of the 2 items"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_one_sentence(value, sentence):
    held = {"column": "title", "names": ["", "One", ""]}
    with pytest.raises(InputError, match=sentence) as caught:
        resolve_item_names(value, held, ["[PAD]", "1", "2"])
    assert "\n" not in str(caught.value)


def test_items_without_a_name_are_counted(caplog):
    resolve_item_names({"1": "One"}, None, ["[PAD]", "1", "2", "3"])
    assert "item_names: 2 items of 3 without a name; they are shown by token." in caplog.text


# -------------------------------------------------------------------- the training key


@pytest.fixture
def trained(make_config, make_checkpoint, write_events, write_lines, random_events):
    """A checkpoint of a model of 20 items whose titles stand in the `.item` file, but for that of i19."""

    def make(name="MEANTIME", lines=None, events=None, **keys) -> str:
        path = write_events(random_events() if events is None else events)
        titles = [f"i{place}\tFilm number {place}\t{1950 + place}" for place in range(1, 19)]
        lines = lines or [f"i0\t{TITLE}\t", *titles, "i19\t\t2000"]
        write_lines("item", "item_id:token\ttitle:token_seq\tyear:float", *lines)
        config = make_config(name, data_path=path, **{"epochs": 1, "item_names": "title", **keys})
        return make_checkpoint(config)

    return make


@pytest.fixture
def histories(random_events) -> pd.DataFrame:
    return pd.DataFrame(random_events(users=4, seed=5), columns=NAMES)


def title_of(item: str) -> str:
    return {"i0": TITLE, "i19": "i19"}.get(item, f"Film number {item[1:]}")


@pytest.mark.parametrize("name", ["MEANTIME", "BST", "SASRec"])
def test_the_checkpoint_holds_the_text_of_the_file_and_results_show_it(trained, histories, name, caplog):
    recommender = Recommender.load(trained(name), "cpu")
    assert "title: 1 item of 20 without a name; they are shown by token." in caplog.text
    found = recommender.recommend(histories, k=20, exclude_seen=False)
    assert list(found.columns) == ["user_id", "rank", "item_id", "item_name", "score"]
    assert list(found["item_name"]) == [title_of(item) for item in found["item_id"]]
    assert list(recommender.recommend(histories[:0]).columns) == list(found.columns)
    if name == "BST":  # which would read it as a feature
        assert "title" not in recommender.description.field2type


def test_a_column_of_another_type_is_text_too(trained, histories):
    recommender = Recommender.load(trained(item_names="year"), "cpu")
    found = recommender.recommend(histories, k=20, exclude_seen=False)
    years = dict(zip(found["item_id"], found["item_name"], strict=True))
    assert (years["i1"], years["i0"], years["i19"]) == ("1951", "i0", "2000")


def test_names_can_be_left_out_and_replaced(trained, histories):
    path = trained()
    assert "item_name" not in Recommender.load(path, "cpu", item_names=False).recommend(histories)
    Path("names.csv").write_text("item,name\ni1,Uno\n")
    found = Recommender.load(path, "cpu", item_names="names.csv").recommend(histories, k=20, exclude_seen=False)
    assert list(found["item_name"]) == ["Uno" if item == "i1" else item for item in found["item_id"]]


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"item_names": "titel"}, "item_names is 'titel', but .*toy.item has no column 'titel'; its columns are"),
        ({"lines": ["i1\tA\t1", "i2\tB\t2", "i1\tC\t3"]}, "toy.item line 4: title is 'C'; the item has another name"),
        ({"lines": ["x\tA\t1"]}, "toy.item, title has a name for none of the 20 items"),
        ({"lines": ["i1\tA"]}, "item_names is 'title', but .*toy.item line 2 has 2 fields; the header has 3"),
        ({"name": "Pop"}, "item_names is 'title', but checkpoints of Pop do not store item names"),
        ({"item_names": ["a"]}, "key 'item_names' is"),
    ],
)  # fmt: skip
def test_a_wrong_key_is_one_sentence_before_training(trained, keys, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        trained(**keys)
    assert "\n" not in str(caught.value)
    assert not os.path.exists("saved") or not os.listdir("saved")


def test_without_an_item_file_the_key_is_one_sentence(make_config):
    config = make_config("MEANTIME", item_names="title")
    with pytest.raises(InputError, match=r"item_names is 'title', a column of the \.item file, but there is no file"):
        create_dataset(config)


def test_a_column_of_items_that_is_called_like_the_names_is_one_sentence(
    make_config, make_checkpoint, write_events, random_events
):
    path = write_events(random_events(), ["user_id:token", "item_name:token", "timestamp:float"])
    config = make_config("LightSANs", data_path=path, ITEM_ID_FIELD="item_name", epochs=1, load_col=None)
    path = make_checkpoint(config)
    Recommender.load(path, "cpu")
    with pytest.raises(InputError, match="item_names adds a column 'item_name', which is also the column of users or"):
        Recommender.load(path, "cpu", item_names={"i1": "One"})


# -------------------------------------------------------------------- the commands


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_every_kind_of_file_has_the_names(trained, histories, suffix):
    if suffix == "parquet" and importlib.util.find_spec("pyarrow") is None:
        pytest.skip("pyarrow is not installed")
    path, out = trained(), f"recs.{suffix}"
    histories.to_csv("all.csv", index=False)
    options = [f"--checkpoint={path}", "--histories=all.csv", "--k=20", "--exclude_seen=False", f"--out={out}"]
    assert main(["recommend", *options]) == 0
    expected = Recommender.load(path, "cpu").recommend(histories, k=20, exclude_seen=False)
    if suffix == "jsonl":
        lines = [json.loads(line) for line in Path(out).read_text(encoding="utf-8").splitlines()]
        assert [list(line) for line in lines] == [["user_id", "item_id", "item_name", "score"]] * 4
        assert sum((line["item_name"] for line in lines), []) == list(expected["item_name"])
    else:
        found = pd.read_csv(out, dtype={"item_name": str}) if suffix == "csv" else pd.read_parquet(out)
        assert list(found.columns) == list(expected.columns)
        assert list(found["item_name"]) == list(expected["item_name"])


@pytest.mark.parametrize(
    ("option", "status", "shown"),
    [
        ("", 0, True), ("=title", 0, True), ("=False", 0, False), ("=names.tsv", 0, True),
        ("=title.csv", 2, "item_names is 'title.csv'; it should be a file with two columns"),
        ("=bad.csv", 2, "bad.csv line 2 has 3 fields"), (None, 2, "--item_names has no value"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["recommend", "explain"])
def test_the_option(trained, histories, capsys, command, option, status, shown):
    path = trained()
    histories.to_csv("all.csv", index=False)
    Path("names.tsv").write_text("i1\tUno\n")
    Path("bad.csv").write_text("i1,Uno\ni2,Due,e\n")
    own = ["--user=u1"] if command == "explain" else []
    words = [] if option == "" else [f"--item_names{option or ''}"]
    found = main([command, f"--checkpoint={path}", "--histories=all.csv", "--out=out.csv", *own, *words])
    said = capsys.readouterr().err
    assert found == status
    if status:
        assert shown in said
        assert said.count("\n") == 1
        assert not os.path.exists("out.csv")
    else:
        assert ("item_name" in Path("out.csv").read_text().partition("\n")[0]) == shown


# -------------------------------------------------------------------- explanations


def test_a_name_in_place_of_an_item_is_refused_with_the_item(trained, histories, capsys):
    path = trained()
    histories.to_csv("all.csv", index=False)
    words = ["explain", f"--checkpoint={path}", "--histories=all.csv", "--user=u1"]
    assert main([*words, f"--item={TITLE}"]) == 2
    assert "it is the name of 'i0', which to give instead." in capsys.readouterr().err
    assert main([*words, "--item=none"]) == 2
    assert "give one that it knows." in capsys.readouterr().err


def test_an_explanation_shows_names_in_text_files_and_page(trained, histories, capsys):
    path = trained()
    histories.to_csv("all.csv", index=False)
    options = [f"--checkpoint={path}", "--histories=all.csv", "--user=u1", "--item=i0", "--exclude_seen=False"]
    assert main(["explain", *options, "--report=why.html", "--out=why.csv", "--json=why.json"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{TITLE} [i0] for u1: rank ")
    events = pd.read_csv("why.csv")
    assert list(events.columns)[:2] == ["item_id", "item_name"]
    assert list(events["item_name"]) == [title_of(item) for item in events["item_id"]]
    result = json.loads(Path("why.json").read_text(encoding="utf-8"))
    assert result["item_name"] == TITLE
    assert [event["item_name"] for event in result["events"]] == list(events["item_name"])
    text = Path("why.html").read_text(encoding="utf-8")
    assert "<b>&amp; more</b>" not in text
    assert "<h1>Why Star  Wars: Épisode IV, &#34;A New Hope&#34; &lt;b&gt;&amp;amp; more&lt;/b&gt; " in text
    assert "Item i0. Rank " in text
    assert "<th>item_id</th><th>item_name</th>" in text
    for item in events["item_id"]:
        assert f"<td>{item}</td><td>{title_of(item)}</td>" in text or item == "i0"


def test_an_item_without_a_name_is_shown_by_its_token_once(trained, histories, capsys):
    path = trained()
    histories.to_csv("all.csv", index=False)
    main(["explain", f"--checkpoint={path}", "--histories=all.csv", "--user=u1", "--item=i19", "--exclude_seen=False"])
    assert capsys.readouterr().out.startswith("i19 for u1: ")
    found = Recommender.load(path, "cpu").explain(histories, "u1", "i19", exclude_seen=False)
    assert "Why item i19 " in page(found, None)


def test_long_and_strange_names_do_not_break_text_and_page(trained, histories, capsys):
    path = trained()
    histories.to_csv("all.csv", index=False)
    known = sorted(set(histories[histories["user_id"] == "u1"]["item_id"]))
    strange = ["$ink$", "</script><script>alert(1)</script>", "x" * 5000, "a\x1b[31mred\nline"]
    names = dict(zip(known, strange, strict=False)) | {"i0": "y" * 5000}
    Path("names.csv").write_text("".join(f'{item},"{name}"\n' for item, name in names.items()))
    options = [f"--checkpoint={path}", "--histories=all.csv", "--user=u1", "--item=i0", "--item_names=names.csv"]
    assert main(["explain", *options, "--report=why.html"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("y" * 77 + "... [i0] for u1: ")
    assert "\x1b" not in "".join(lines)
    assert len(lines) == 2 + min(5, len(known))
    text = Path("why.html").read_text(encoding="utf-8")
    assert "alert(1)</script>" not in text
    assert "y" * 200 not in text
    found = Recommender.load(path, "cpu", item_names="names.csv").explain(histories, "u1", "i0")
    labels = why_figures.heads(found)["layout"]["xaxis"]["ticktext"]
    assert labels[found.event_titles.index("$ink$")] == "&#36;ink&#36;"  # and not a colour of the page
