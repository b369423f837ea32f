"""The command `recommend`: files in, files out, whole or not at all."""

import importlib.util
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from recbole_ext import Recommender
from recbole_ext.cli.entry import main
from recbole_ext.serving import ranking

pytestmark = pytest.mark.slow

NAMES = ["user_id", "item_id", "timestamp"]
needs_pyarrow = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")


@pytest.fixture
def call(capsys):
    """Run the command; returns exit status, standard output and standard error."""

    def call(**options):
        status = main(["recommend", *(f"--{key}={value}" for key, value in options.items())])
        out, err = capsys.readouterr()
        return status, out, err

    return call


@pytest.fixture
def model(make_config, make_checkpoint):
    """A checkpoint of a MEANTIME, or another model, on the toy data."""

    def make(name="MEANTIME", **keys):
        config = make_config(name, **{"epochs": 1, **keys})
        os.rename(make_checkpoint(config), "model.pth")
        return "model.pth"

    return make


@pytest.fixture
def events(random_events) -> pd.DataFrame:
    found = pd.DataFrame(random_events(users=6, seed=5), columns=NAMES)
    return found.assign(user_id="new" + found["user_id"])


def write(events: pd.DataFrame, path: str) -> str:
    if path.endswith(".inter"):
        header = ["user_id:token", "item_id:token", "timestamp:float"]
        events.to_csv(path, sep="\t", index=False, header=header)
    elif path.endswith(".csv"):
        events.to_csv(path, index=False)
    else:
        events.to_parquet(path)
    return path


FORMATS = [".inter", ".csv", pytest.param(".parquet", marks=needs_pyarrow)]


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_kind_of_file_gives_what_the_library_gives(call, model, events, suffix):
    path = write(events, f"new{suffix}")
    assert call(checkpoint=model(), histories=path, k=4, out="recs.csv") == (
        0, "24 recommendations for 6 users: " + os.path.abspath("recs.csv") + "\n", "",
    )  # fmt: skip
    expected = Recommender.load("model.pth").recommend(events, k=4)
    found = pd.read_csv("recs.csv", dtype={"user_id": str, "item_id": str})
    pd.testing.assert_frame_equal(found, expected, check_exact=False, rtol=1e-9)


@needs_pyarrow
def test_parquet_out(call, model, events):
    assert call(checkpoint=model(), histories=write(events, "new.csv"), out="out/recs.parquet")[0] == 0
    expected = Recommender.load("model.pth").recommend(events)
    pd.testing.assert_frame_equal(pd.read_parquet("out/recs.parquet"), expected)


def test_a_line_for_each_user_in_jsonl_and_options(call, model, events, monkeypatch):
    monkeypatch.setattr("recbole_ext.serving.scoring.MAX_ROWS", 2)  # several blocks
    write(events, "new.csv")
    Path("items.txt").write_text("i3\n\ni5\ni7\n")
    Path("users.txt").write_text("newu5\nnewu0\nnewu2\n")
    latest = float(events["timestamp"].max()) + 60
    status, out, err = call(
        checkpoint=model(), histories="new.csv", out="recs.jsonl", items="items.txt", users="users.txt", at=latest,
        exclude_seen=False, device="cpu", show_progress=False,
    )  # fmt: skip
    assert (status, err) == (0, "")
    assert out.startswith("9 recommendations for 3 users")
    lines = [json.loads(line) for line in Path("recs.jsonl").read_text().splitlines()]
    assert [line["user_id"] for line in lines] == ["newu5", "newu0", "newu2"]
    expected = Recommender.load("model.pth").recommend(
        events, at=latest, items=["i3", "i5", "i7"], users=["newu5"], exclude_seen=False
    )
    assert lines[0]["item_id"] == list(expected["item_id"])
    assert lines[0]["score"] == pytest.approx(list(expected["score"]))


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_users_who_have_had_everything_are_counted(call, model, suffix, caplog):
    rows = [(user, f"i{place}", 1.6e9 + place) for user, count in (("a", 20), ("b", 3)) for place in range(count)]
    pd.DataFrame(rows, columns=NAMES).to_csv("new.csv", index=False)
    status, out, _ = call(checkpoint=model(), histories="new.csv", k=2, out=f"recs.{suffix}")
    assert (status, out) == (0, "2 recommendations for 1 user: " + os.path.abspath(f"recs.{suffix}") + "\n")
    assert "No recommendation for 1 user: every item to choose from is among their events ('a')." in caplog.text


def test_dates_as_text_are_times(call, model, events):
    write(events, "numbers.csv")
    dates = pd.to_datetime(events["timestamp"], unit="s").dt.strftime("%Y-%m-%dT%H:%M:%S")
    write(events.assign(timestamp=dates), "dates.csv")
    for name in ("numbers", "dates"):
        assert call(checkpoint=model() if name == "numbers" else "model.pth", histories=f"{name}.csv",
                    out=f"{name}-recs.csv", at="2020-12-24")[0] == 0  # fmt: skip
    assert Path("numbers-recs.csv").read_text() == Path("dates-recs.csv").read_text()


@pytest.mark.parametrize("name", ["MEANTIME", "BST", "SASRec"])
@pytest.mark.parametrize("keys", [{}, {"history": "positive", "threshold": {"rating": 3}}], ids=["all", "positive"])
def test_everyone_in_the_training_data(call, model, random_events, write_events, name, keys, caplog):
    events = [(*event, place % 6) for place, event in enumerate(random_events())]
    folder = write_events(events, ["user_id:token", "item_id:token", "timestamp:float", "rating:float"])
    path = model(name, data_path=folder, load_col={"inter": [*NAMES, "rating"]}, **keys)
    shutil.move("data/toy", "moved")
    status, out, _ = call(checkpoint=path, all_users=True, data_path="moved", k=5, out="recs.csv")
    assert status == 0
    found = pd.read_csv("recs.csv", dtype={"user_id": str, "item_id": str})
    frame = pd.DataFrame(events, columns=[*NAMES, "rating"])
    expected = Recommender.load(path).recommend(frame, k=5, users=list(found["user_id"].unique()))
    able = frame[frame["rating"] >= 3] if keys and name != "BST" else frame
    assert set(found["user_id"]) == set(able["user_id"])
    assert ("2 users without an event for a history left out" in caplog.text) == (len(set(able["user_id"])) == 28)
    pd.testing.assert_frame_equal(found, expected, check_exact=False, atol=1e-6)


def test_nothing_is_left_of_a_run_that_fails(call, model, events, monkeypatch, tmp_path):
    path = write(events, "new.csv")
    model()
    Path("recs.csv").write_text("before")
    monkeypatch.setattr("recbole_ext.serving.scoring.MAX_ROWS", 2)
    result_frame = ranking.result_frame
    calls = []

    def breaking(*args):
        calls.append(args)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return result_frame(*args)

    monkeypatch.setattr(ranking, "result_frame", breaking)
    status, _, err = call(checkpoint="model.pth", histories=path, out="recs.csv")
    assert status == 1
    assert "No space left on device" in err
    assert Path("recs.csv").read_text() == "before"
    assert not [file for file in os.listdir() if file.endswith(".part")]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"checkpoint": None}, "arguments are required: --checkpoint."),
        ({"out": None}, "arguments are required: --out."),
        ({"histories": None}, "give either --histories=FILE or --all_users"),
        ({"all_users": True}, "give either --histories=FILE or --all_users"),
        ({"histories": "new.txt"}, "is 'new.txt'; it should be the name of a file that ends in .inter or .csv or .par"),
        ({"histories": "none.csv"}, "there is no such file"),
        ({"out": "recs.txt"}, "--out is 'recs.txt'; it should be the name of a file that ends in .csv or .par"),
        ({"k": 0}, "--k is '0'; it should be a whole number"), ({"k": "many"}, "--k is 'many'"),
        ({"exclude_seen": "maybe"}, "--exclude_seen is 'maybe'"),
        ({"items": "none.txt"}, "--items is 'none.txt', which cannot be read"),
        ({"topk": 5}, "recommend has no option --topk"), ({"histores": "a"}, "--histores; did you mean --histories?"),
        ({"checkpoint": "none.pth"}, "there is no checkpoint none.pth"),
        ({"at": "noon"}, "at is 'noon'"), ({"data_path": "x"}, "--data_path goes with --all_users"),
        ({"histories": "empty.csv"}, "empty.csv is empty; it should begin with a header"),
        ({"histories": "bad.parquet"}, "bad.parquet"),
        ({"histories": "other.csv"}, "other.csv: there is no column 'item_id', which the model reads; the columns are"),
        ({"histories": "hole.inter"}, "hole.inter line 3: item_id is empty; give every row one"),
    ],
)  # fmt: skip
def test_wrong_requests_are_one_sentence_and_status_2(call, model, events, change, sentence):
    write(events, "new.csv")
    Path("empty.csv").touch()
    Path("bad.parquet").write_bytes(b"PAR1 no")
    write(events.drop(columns="item_id"), "other.csv")
    Path("hole.inter").write_text("user_id:token\titem_id:token\ttimestamp:float\na\ti1\t1.6e9\na\t\t1.6e9\n")
    options = {"checkpoint": model(), "histories": "new.csv", "out": "recs.csv", **change}
    status, out, err = call(**{key: value for key, value in options.items() if value is not None})
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert not os.path.exists("recs.csv")


def test_parquet_without_pyarrow_is_one_sentence(call, model, events, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    status, _, err = call(checkpoint="model.pth", histories="new.csv", out="recs.parquet")
    assert (status, err) == (
        2, "recbole-ext: --out is 'recs.parquet', which needs the package pyarrow: pip install pyarrow.\n",
    )  # fmt: skip


def test_help_is_about_the_command(capsys):
    assert main(["recommend", "--help"]) == 0
    assert "--histories FILE" in capsys.readouterr().out


def test_scores_that_are_no_numbers_fail_while_running(call, model, events, monkeypatch):
    write(events, "new.csv")
    model()
    monkeypatch.setattr(ranking, "_best", lambda *_: (np.full((6, 1), np.nan), np.ones((6, 1), dtype=int)))
    status, _, err = call(checkpoint="model.pth", histories="new.csv", out="recs.csv")
    assert status == 1
    assert "the model's scores are not numbers" in err
    assert "Traceback" not in err


def test_an_option_of_tokens_without_a_file_is_one_sentence(call, model, events, capsys):
    write(events, "new.csv")
    options = [f"--checkpoint={model()}", "--histories=new.csv", "--out=recs.csv", "--items"]
    assert main(["recommend", *options]) == 2
    assert "--items has no value" in capsys.readouterr().err


# ---------------------------------------------------------------- nothing to do, and no times


@pytest.mark.parametrize("out", ["recs.csv", "recs.jsonl", pytest.param("recs.parquet", marks=needs_pyarrow)])
def test_nobody_to_recommend_for_is_an_empty_file_with_a_warning(call, model, events, out, caplog):
    write(events, "new.csv")
    Path("none.csv").write_text("user_id,item_id,timestamp\n")
    Path("none.inter").write_text("user_id:token\titem_id:token\ttimestamp:float\n")
    Path("nobody.txt").write_text("\n")
    path = model()
    requests = [{"histories": "none.csv"}, {"histories": "none.inter"}, {"histories": "new.csv", "users": "nobody.txt"}]
    for request in requests + [{**request, "at": 5} for request in requests]:
        caplog.clear()
        told = call(checkpoint=path, out=out, **request)
        assert told == (0, f"0 recommendations for 0 users: {os.path.abspath(out)}\n", "")
        assert f"{request['histories']}: there is no user to make a request for; the result is empty." in caplog.text
        if out.endswith(".jsonl"):
            assert Path(out).read_bytes() == b""
        else:
            found = pd.read_csv(out) if out.endswith(".csv") else pd.read_parquet(out)
            assert (list(found), len(found)) == (["user_id", "rank", "item_id", "score"], 0)
    recommender = Recommender.load(path)
    for at in (None, 5, {}):
        found = recommender.recommend(events, users=[], at=at)
        pd.testing.assert_frame_equal(found, recommender.recommend(events[:0], at=at))
        assert (list(found), len(found)) == (["user_id", "rank", "item_id", "score"], 0)
    status, _, err = call(checkpoint=path, out=out, histories="new.csv", items="nobody.txt")
    assert (status, err.count("\n")) == (2, 1)
    assert "items holds no item that the model knows" in err


@pytest.mark.parametrize("name", ["LightSANs", "SASRec", "MEANTIME", "BST", "TiSASRec"])
def test_a_model_that_reads_no_times_does_without(call, model, events, name):
    path = model(name)
    events = events.sort_values(["timestamp"], kind="stable")
    write(events, "timed.csv")
    write(events.drop(columns="timestamp"), "untimed.csv")
    assert call(checkpoint=path, histories="timed.csv", out="timed-recs.csv")[0] == 0
    status, _, err = call(checkpoint=path, histories="untimed.csv", out="recs.csv")
    if name in ("MEANTIME", "BST", "TiSASRec"):
        assert (status, err.count("\n")) == (2, 1)
        assert "untimed.csv: there is no column 'timestamp', which the model reads" in err
        return
    assert (status, err) == (0, "")
    assert Path("recs.csv").read_text() == Path("timed-recs.csv").read_text()
    status, _, err = call(checkpoint=path, histories="untimed.csv", out="recs.csv", at="2020-12-24")
    assert (status, err.count("\n")) == (2, 1)
    assert "at is given, but untimed.csv has no column 'timestamp'" in err
    recommender = Recommender.load(path)
    found, timed = (recommender.explain(frame, "newu0") for frame in (events.drop(columns="timestamp"), events))
    assert (found.item, found.score, found.rank) == (timed.item, timed.score, timed.rank)
    assert found.events["effect"].tolist() == timed.events["effect"].tolist()
    assert found.events[["timestamp", "date", "seconds_before"]].isna().all(axis=None)
    assert (found.to_dict()["time"], found.to_dict()["date"]) == (None, None)
    recommender.write_report(found, "why.html")
    assert "no date" in Path("why.html").read_text()


@pytest.mark.parametrize("command", ["recommend", "explain"])
def test_rows_of_the_wrong_length_are_one_sentence_with_their_line(command, model, capsys):
    Path("new.csv").write_text("user_id,item_id,timestamp\n7,x,y,3\n7,y,z,4\n")
    more = "--out=recs.csv" if command == "recommend" else "--user=x"
    assert main([command, f"--checkpoint={model()}", "--histories=new.csv", more]) == 2
    assert capsys.readouterr().err.endswith("recbole-ext: new.csv line 2 has 4 fields; the header has 3.\n")
    assert not os.path.exists("recs.csv")
