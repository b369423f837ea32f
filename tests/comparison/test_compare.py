"""Comparison of runs: rows, protocol, tables, the command, and input that is refused."""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from recbole_ext import InputError, compare, run_recbole
from recbole_ext.cli.entry import main

USERS = [f"u{number}" for number in range(40)]
KEYS = {
    "model": "SASRec", "dataset": "toy", "seed": 1, "epochs": 5, "eval_args": {"split": {"LS": "valid_and_test"},
    "order": "TO", "group_by": "user", "mode": {"valid": "full", "test": "full"}}, "exclude_history": False,
    "repeatable": True, "valid_metric": "NDCG@10", "data_path": "/a", "metric_decimal_place": 4,
}  # fmt: skip
TEST_DATA = {"users": 40, "targets": 40, "items": 9, "digest": "0" * 64}


@pytest.fixture
def write():
    """Write the two files of a run with given values of ndcg@10; returns the name of its JSON."""

    def write(name, values=None, users=USERS, test_data=TEST_DATA, **keys):
        values = np.random.default_rng(len(name)).random(len(users)) if values is None else np.asarray(values)
        frame = pd.DataFrame({"user_id": users, "positives": 1, "ndcg@10": values, "hit@10": 1.0})
        frame.to_csv(f"{name}.csv", index=False)
        result = {
            "test_result": {"ndcg@10": round(float(values.mean()), 4), "hit@10": 1.0}, "per_user": f"{name}.csv",
            "checkpoint": None, "config": {**KEYS, **keys}, "test_data": test_data,
        }  # fmt: skip
        Path(f"{name}.json").write_text(json.dumps(result))
        return f"{name}.json"

    return write


RANDOM = np.random.default_rng(0).random((4, 40))


# ---------------------------------------------------------------- tables


def test_seeds_are_averaged_per_user_and_rows_are_named_by_what_differs(write):
    files = [
        write("a1", RANDOM[0]), write("a2", RANDOM[1], seed=2, data_path="/b"),
        write("b1", RANDOM[2] + 1, epochs=9), write("b2", RANDOM[3] + 1, epochs=9, seed=2),
        write("m", RANDOM[0], model="MEANTIME", query_time="last"),
    ]  # fmt: skip
    comparison = compare(files, seed=3)
    table = comparison.table.set_index("name")
    assert list(table.index) == ["SASRec, epochs=5", "SASRec, epochs=9", "MEANTIME"]
    assert comparison.baseline == "SASRec, epochs=5"
    assert table["runs"].tolist() == [2, 2, 1]
    means = [RANDOM[:2].mean(1), 1 + RANDOM[2:].mean(1), RANDOM[:1].mean(1)]
    assert table["mean"].tolist() == pytest.approx([values.mean() for values in means])
    assert table["std"].tolist()[:2] == pytest.approx([values.std(ddof=1) for values in means[:2]])
    assert np.isnan(table["std"].iloc[2])
    assert table["difference"].iloc[1] == pytest.approx(means[1].mean() - means[0].mean())
    assert table["low"].iloc[1] < table["difference"].iloc[1] < table["high"].iloc[1]
    assert table["p_value"].iloc[1] == pytest.approx(2 / 10_001)
    assert table["p_corrected"].iloc[1] == pytest.approx(4 / 10_001)  # of two comparisons
    assert table.iloc[0][["difference", "p_value", "p_corrected"]].isna().all()
    assert comparison.warnings == []
    assert comparison.runs["seed"].tolist() == [1, 2, 1, 2, 1]
    pd.testing.assert_frame_equal(comparison.table, compare(files, seed=3).table)


def test_equal_runs_have_no_difference_and_p_1(write):
    table = compare({"a": write("a", RANDOM[0]), "b": write("b", RANDOM[0])}).table
    assert table.iloc[1][["difference", "low", "high", "p_value"]].tolist() == [0, 0, 0, 1]


def test_the_order_of_the_users_does_not_matter(write):
    first = compare({"a": write("a", RANDOM[0]), "b": write("b", RANDOM[1])}).table
    shuffled = write("b", RANDOM[1][::-1], users=USERS[::-1])
    pd.testing.assert_frame_equal(compare({"a": "a.json", "b": shuffled}).table, first)


def test_names_patterns_baseline_and_metrics(write):
    for name, seed in (("x1", 1), ("x2", 2), ("y1", 1)):
        write(name, seed=seed)
    comparison = compare({"x": "x*.json", "y": ["y1.json"]}, baseline="y", metrics=["Hit@10", "NDCG@10"])
    assert comparison.table["metric"].tolist() == ["hit@10"] * 2 + ["ndcg@10"] * 2
    assert comparison.table["difference"].isna().tolist() == [False, True] * 2
    assert comparison.table["runs"].tolist() == [2, 1, 2, 1]


def test_weights_are_those_of_the_printed_result():
    rows = {"user_id": ["a", "a", "b"], "positives": [1, 3, 1], "gauc": [0.5, 1.0, np.nan], "mrr@5": [0.2, 0.4, 0.9]}
    pd.DataFrame(rows).to_csv("a.csv", index=False)
    pd.DataFrame({**rows, "mrr@5": 0.1}).to_csv("b.csv", index=False)
    runs = compare(["a.csv", "b.csv"]).runs.set_index("name")
    assert runs.loc["a", "gauc"] == pytest.approx((0.5 + 3) / 4)  # weighted by positives
    assert runs.loc["a", "mrr@5"] == pytest.approx(0.5)
    labels = {"user_id": ["a", "b"], "events": [3, 1], "logloss": [0.2, 0.6]}
    pd.DataFrame(labels).to_csv("c.csv", index=False)
    pd.DataFrame(labels).to_csv("d.csv", index=False)
    assert compare(["c.csv", "d.csv"]).runs["logloss"].tolist() == pytest.approx([0.3, 0.3])


def test_users_named_like_numbers_or_missing_values_stay_what_they_are(write):
    users = ["NA", "01", "1", *USERS[3:]]
    comparison = compare([write("a", RANDOM[0], users), write("b", RANDOM[1], users, epochs=1)])
    assert comparison.users == 40


# ---------------------------------------------------------------- protocol


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"query_time": "target"}, "time of the target is known: false (SASRec); true (X)"),
        ({"exclude_history": True}, "items of the history are ranked: true (SASRec); false (X)"),
        ({"repeatable": False}, "items of the history are ranked: true (SASRec); false (X)"),
        ({"history": "positive", "loss_type": None}, "history: null (SASRec); positive (X)"),
        ({"tie_break": "item"}, "order of events at the same time: file (SASRec); item (X)"),
        ({"dataset": "toy-2"}, "data set: toy (SASRec); toy-2 (X)"),
        ({"eval_args": {**KEYS["eval_args"], "split": {"LS": "test_only"}}}, "split: "),
        ({"user_inter_num_interval": "[5,inf)"}, "user_inter_num_interval: null (SASRec); [5,inf) (X)"),
        ({"test_data": {**TEST_DATA, "items": 8}}, "number of items: 9 (SASRec); 8 (X)"),
        ({"test_data": None}, "The protocol or the test items of b.json are not stated"),
    ],
)
def test_other_protocols_are_compared_with_a_warning(write, keys, sentence):
    (warning,) = compare([write("a"), write("b", model="X", **keys)]).warnings
    assert sentence in warning


def test_candidates_that_are_drawn_by_other_seeds_are_said(write):
    sampled = {**KEYS["eval_args"], "mode": {"valid": "full", "test": "uni20-unseen"}}
    files = [write("a", eval_args=sampled), write("b", model="X", eval_args=sampled, seed=2)]
    (warning,) = compare(files).warnings
    assert "have other candidates, which are drawn by seed: 1 (SASRec); 2 (X)" in warning
    assert compare([files[0], write("c", model="X", eval_args=sampled)]).warnings == []
    assert compare([write("d"), write("e", model="X", seed=2)]).warnings == []


def test_candidates_differ_if_one_of_two_models_learns_labels(write):
    keys = {"history": "positive", "loss_type": None}
    drawn = {"distribution": "uniform", "sample_num": 1}
    files = [write("a", **keys), write("b", model="X", train_neg_sample_args=drawn, **keys)]
    (warning,) = compare(files).warnings
    assert "events with label 0 are removed: false (SASRec); true (X)" in warning


@pytest.mark.parametrize(
    ("part", "value", "sentence"),
    [
        ("test_data", [1], "b.json: test_data is [1]; it should be a dictionary"),
        ("test_data", {"digest": "0"}, "b.json: test_data.items is missing; it should be a whole number"),
        ("config", {}, "b.json: config.model is missing; it should be a text"),
        ("config", {**KEYS, "eval_args": "x"}, "b.json: config.eval_args is 'x'; it should be a dictionary"),
        ("config", {**KEYS, "eval_args": {"split": 5}}, "b.json: config.eval_args.split is 5; it should be"),
        ("config", {**KEYS, "eval_args": {"split": {}, "mode": "full"}}, "config.eval_args.mode is 'full'"),
        ("per_user", "", "b.json names no metrics of each user and no checkpoint"),
    ],
)
def test_a_result_that_was_edited_is_one_sentence(write, part, value, sentence):
    files = [write("a"), write("b", model="X")]
    result = json.loads(Path("b.json").read_text())
    Path("b.json").write_text(json.dumps({**result, part: value}))
    with pytest.raises(InputError, match=re.escape(sentence)):
        compare(files)


def test_group_by_is_not_read_for_leave_one_out(write):
    other = {**KEYS["eval_args"], "group_by": "none"}
    assert compare([write("a"), write("b", model="X", eval_args=other)]).warnings == []


def test_metrics_of_each_user_alone_have_no_protocol(write):
    write("a"), write("b")
    comparison = compare(["a.csv", "b.csv"])
    assert comparison.table["name"].tolist() == ["a", "b"]
    assert "of a.csv, b.csv are not stated; compare the JSON files of --json" in comparison.warnings[0]


def test_runs_of_a_named_row_that_differ_in_more_than_the_seed(write):
    row = [write("a1"), write("a2", seed=2, epochs=7)]
    assert compare({"a": row, "b": write("b")}).warnings == ["The runs of 'a' differ in more than the seed: epochs."]


def test_few_users_are_said(write):
    files = [write("a", [0, 1], ["u", "v"]), write("b", [1, 1], ["u", "v"], epochs=1)]
    assert "only 2 test users" in compare(files).warnings[0]


# ---------------------------------------------------------------- refusals

OTHER_MODE = {"eval_args": {**KEYS["eval_args"], "mode": {"valid": "full", "test": "uni100"}}}


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        ({"users": [*USERS[1:], "new", "x"], "values": [0.0] * 41},
         "different test users, 1 only in a.json and 2 only in b.json"),
        ({"users": USERS[1:]}, "they have different test users, 1 only in a.json."),
        ({"users": [*USERS, "u0"]}, "user 'u0' has other numbers of targets or rankings in them (1 of 40 users)"),
        ({"test_data": {**TEST_DATA, "digest": "1" * 64}}, "the items of the test targets differ"),
        (OTHER_MODE, "their candidates differ: full (SASRec); uni100 (X)"),
    ],
)  # fmt: skip
def test_runs_with_other_targets_or_candidates_are_refused(write, second, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        compare([write("a"), write("b", model="X", **second)])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "b.csv is empty; it should begin with a header"),
        ("user_id,positives,ndcg@10\n", "b.csv has no users"),
        ("user_id,item_id,rank\nu1,i1,3\n", "b.csv has the columns user_id, item_id, rank; it should have a user, "),
        ("user_id,positives\nu1,1\n", "it should have a user, positives or events, and metrics"),
        ("user_id,positives,ndcg@10\nu1,1,\n", "b.csv line 2: ndcg@10 is empty; it should be a number."),
        ("user_id,positives,ndcg@10\nu1,1,nan\n", "b.csv line 2: ndcg@10 is 'nan'; it should be a number."),
        ("user_id,positives,ndcg@10\nu1,1,inf\n", "ndcg@10 is 'inf'"), ("user_id,positives,gauc\nu1,1,x\n", "or empty"),
        ("user_id,positives,ndcg@10\nu1,0,1\n", "positives is '0'; it should be a whole number from 1"),
        ("user_id,positives,ndcg@10\n,1,1\n", "user_id is empty"), ("user_id,positives,a\nu1,1\n", "has 2 fields"),
        ("user_id,events,auc\nu1,1,1\nu1,1,1\n", "line 3: user_id is 'u1'; which has a row already"),
        ("user_id,positives,mrr@10\nu1,1,1\n", "they have different test users"),
    ],
)  # fmt: skip
def test_a_wrong_file_of_metrics_is_one_sentence_and_status_2(write, text, sentence, capsys):
    write("a")
    Path("b.csv").write_text(text)
    assert main(["compare", "a.csv", "b.csv"]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "compare needs runs; name two or more files"),
        (["a.json"], "there is one row to compare, 'SASRec'"),
        (["a.json", "nowhere.json"], "there is no run nowhere.json"),
        (["a.json", "no*.json"], "or a pattern such as 'runs/*.json'"),
        (["a.json", "text.txt"], "'text.txt'; it should be the name of a file that ends in .json or .csv"),
        (["a.json", "text.json"], "text.json cannot be read as JSON"),
        (["a.json", "list.json"], "list.json is not the result of a run with test data"),
        (["a.json", "lost.json"], "there are no metrics of each user in lost.csv"),
        (["a.json", "bare.json"], "bare.json names no metrics of each user and no checkpoint"),
        (["a.json", "stale.json"], "stale.json has ndcg@10 0.9, but the users of b.csv have"),
        (["a.json", "again.json", "b.json"], "a.json and again.json have the same keys and the same seed"),
        (["x=a.json", "b.json"], "run b.json has no name, but others have one"),
        (["=a.json", "y=b.json"], "'=a.json' is not understood; write NAME=RUN"),
        (["a.json", "b.json", "--baseline=c"], "there is no row 'c' to be the baseline; the rows are 'SASRec"),
        (["a.json", "b.json", "--metrics=NDGC@10"], "no metric 'NDGC@10' in common; did you mean ndcg@10?"),
        (["a.json", "b.json", "--confidence=1"], "--confidence is '1'; it should be a number in (0, 1)"),
        (["a.json", "b.json", "--resamples=9"], "--resamples is '9'"),
        (["a.json", "b.json", "--html=x"], "--html is 'x'; it should be the name of a file that ends in .html"),
        (["a.json", "b.json", "--json=b.json"], "--json is 'b.json', which would overwrite the file of run b.json"),
        (["x=a.json", "y=b.json", "--json=b.json"], "would overwrite the file of run y=b.json"),
        (["?.json", "--json=b.json"], "--json is 'b.json', which would overwrite the file of run b.json"),
        (["a.json", "b.json", "--json=b.csv"], "--json is 'b.csv', which would overwrite the file of run b.json (per_"),
        (["a.json", "b.json", "--base=x"], "compare has no option --base; did you mean --baseline?"),
        (["a.json", "-x", "b.json"], "argument '-x' is not understood"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_one_sentence_and_status_2(write, words, sentence, capsys):
    result = json.loads(Path(write("a", RANDOM[0])).read_text())
    write("b", epochs=1)
    Path("text.txt").touch(), Path("text.json").write_text("{"), Path("list.json").write_text("[]")
    Path("again.json").write_text(json.dumps(result))
    Path("lost.json").write_text(json.dumps({**result, "per_user": "lost.csv"}))
    Path("bare.json").write_text(json.dumps({**result, "per_user": None}))
    stale = {**result, "test_result": {"ndcg@10": 0.9}, "per_user": "b.csv"}
    Path("stale.json").write_text(json.dumps(stale))
    assert main(["compare", *words]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_python_names_the_wrong_argument(write):
    files = [write("a"), write("b", epochs=1)]
    for arguments, sentence in [
        ({"confidence": 2}, "key 'confidence' is 2"), ({"resamples": 1.5}, "key 'resamples' is 1.5"),
        ({"runs": [files[0], 5]}, "a run is 5; it should be the path of a file"), ({"metrics": []}, "'metrics' is []"),
    ]:  # fmt: skip
        with pytest.raises(InputError, match=re.escape(sentence)):
            compare(**{"runs": files, **arguments})


# ---------------------------------------------------------------- the command


def test_the_command_prints_a_table_and_writes_a_page_and_json(write, capsys):
    write("a1", RANDOM[0]), write("a2", RANDOM[1], seed=2), write("b", RANDOM[2] + 1, model="<b>", query_time="target")
    words = [
        "a*.json",
        "--baseline",
        "SASRec",
        "b.json",
        "--metrics=[NDCG@10,Hit@10]",
        "--html=c.html",
        "--json=c.json",
    ]
    assert main(["compare", *words]) == 0
    out, error = capsys.readouterr()
    assert "+1.0" in out
    assert "40 test users" in out
    assert "time of the target is known" in error
    found = json.loads(Path("c.json").read_text())
    assert found["table"][0]["difference"] is None
    assert found["table"][1]["difference"] == pytest.approx(RANDOM[2].mean() + 1 - RANDOM[:2].mean())
    assert found["protocol"]["candidates"] == "full"
    page = Path("c.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;" in page
    assert "<b>," not in page.replace("&lt;b&gt;", "")
    for part in ("differences-1", "runs-0", "40 test users", "time of the target is known"):
        assert part in page
    assert main(["compare", "a1.json", "b.json", "--json=-"]) == 0
    assert json.loads(capsys.readouterr().out)["users"] == 40


def test_a_result_that_moved_together_with_its_metrics(write):
    write("a"), write("b", epochs=1)
    Path("moved").mkdir()
    for file in ("a.json", "a.csv"):
        Path(file).rename(f"moved/{file}")
    assert compare(["moved/a.json", "b.json"]).users == 40


@pytest.mark.slow
def test_the_files_of_real_runs_and_their_checkpoints_agree(write_events, random_events, no_waiting, capsys):
    small = {
        "epochs": 1, "train_batch_size": 64, "show_progress": False, "use_gpu": False, "MAX_ITEM_LIST_LENGTH": 4,
        "topk": [3], "valid_metric": "NDCG@3", "state": "critical", "data_path": write_events(random_events()),
    }  # fmt: skip
    parquet = importlib.util.find_spec("pyarrow") is not None
    suffix = "parquet" if parquet else "csv"
    results = {}
    for model, seed in (("SASRec", 1), ("SASRec", 2), ("recbole.LightSANs", 1)):
        name = f"{model}-{seed}"
        keys = [f"--{key}={value}" for key, value in {**small, "seed": seed}.items()]
        files = [f"--json={name}.json", f"--per_user={name}.{suffix}"]
        assert main([f"--model={model}", "--dataset=toy", *keys, *files]) == 0
        results[name] = json.loads(Path(f"{name}.json").read_text())
    assert results["SASRec-1"]["test_data"]["targets"] == 30
    capsys.readouterr()
    from_json = compare(["SASRec-1.json", "SASRec-2.json", "recbole.LightSANs-1.json"])
    assert from_json.table["name"].tolist() == ["SASRec", "recbole.LightSANs"]
    assert from_json.warnings == []
    for name, result in results.items():
        run = from_json.runs[from_json.runs["path"] == f"{name}.json"]
        assert run["ndcg@3"].item() == pytest.approx(result["test_result"]["ndcg@3"], abs=1e-4)
    from_checkpoints = compare([results[name]["checkpoint"] for name in results])
    pd.testing.assert_frame_equal(from_checkpoints.table, from_json.table)
    if parquet:
        from_metrics = compare([f"{name}.parquet" for name in results])
        pd.testing.assert_frame_equal(from_metrics.table, from_json.table)
        assert from_metrics.warnings == []
    other = run_recbole("Pop", "toy", None, {**small, "eval_args": {"split": {"RS": [0.5, 0.2, 0.3]}}}, argv=[])
    assert other["test_data"] is None
    with pytest.raises(InputError, match="cannot be compared: "):
        compare(["SASRec-1.json", other["checkpoint"]])
