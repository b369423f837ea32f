"""The journal of a search and its output files, without Ray."""

import csv
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from recbole_ext import SearchError
from recbole_ext.errors import InputError
from recbole_ext.tuning import figures, results
from recbole_ext.tuning.journal import OUT_OF_TIME, Journal, ranked
from recbole_ext.tuning.plan import remaining_trials
from tests.tuning.conftest import make_record

# ---------------------------------------------------------------- journal


def test_remaining_trials_are_new_ones_and_those_out_of_time():
    drawn = [{"n_layers": n} for n in range(1, 5)]
    listed, proposed = SimpleNamespace(total=4, points=drawn), SimpleNamespace(total=4, points=None)
    assert remaining_trials(listed, []).pending == [{"number": n, "keys": keys} for n, keys in enumerate(drawn, 1)]
    assert (
        remaining_trials(proposed, []).pending,
        remaining_trials(proposed, []).count,
        remaining_trials(proposed, []).next_number,
    ) == ([], 4, 1)

    ended = [
        make_record(1, 0.1),
        make_record(3, 0.3, "stopped", OUT_OF_TIME),
        make_record(2, None, "failed", "diverged."),
    ]
    once_more = {"keys": {"n_layers": 3}, "repeats": 3}
    left = remaining_trials(listed, ended)
    assert left.pending == [{"number": 5, **once_more}, {"number": 4, "keys": {"n_layers": 4}}]
    assert (left.count, left.ended) == (2, [ended[0], ended[2]])
    left = remaining_trials(proposed, ended)
    assert (left.pending, left.count, left.next_number) == ([{"number": 4, **once_more}], 2, 5)

    # the repetition ran out of time, too; then the second repetition finished
    ended += [make_record(4, 0.4), {**make_record(5, 0.3, "stopped", OUT_OF_TIME), **once_more}]
    assert remaining_trials(listed, ended).pending == [{"number": 6, "keys": {"n_layers": 3}, "repeats": 5}]
    ended.append({**make_record(6, 0.5), "repeats": 5})
    assert (remaining_trials(listed, ended).pending, remaining_trials(listed, ended).count) == ([], 0)


def test_records_after_a_crash_skip_the_incomplete_line(journal):
    journal.add(make_record(2, 0.2))
    journal.add(make_record(1, 0.1))
    with open(journal.path("trials.jsonl"), "rb+") as file:
        file.truncate(len(file.read()) - 20)
    assert [record["trial"] for record in journal.records()] == [2]
    journal.add(make_record(3, 0.3))
    assert [record["trial"] for record in journal.records()] == [2, 3]


def test_records_skip_damaged_lines(journal):
    journal.add(make_record(1, 0.1))
    whole = Path(journal.path("trials.jsonl")).read_bytes()
    damaged = (
        b'{"trial": 9}\n',
        whole.replace(b'"keys": {"n_layers": 1}', b'"keys": 3'),
        b"\xff\xfe\n",
        b"[" * 9999 + b"\n",
    )
    Path(journal.path("trials.jsonl")).write_bytes(b"".join(damaged) + whole)
    assert journal.records() == [make_record(1, 0.1)]


def test_folder_contains_one_search_and_resume_needs_one(journal, tmp_path):
    with pytest.raises(InputError, match="already contains a search; continue it with --resume="):
        journal.start({})
    with pytest.raises(InputError, match="there is no search to resume in .*: it has no search.yaml"):
        Journal(str(tmp_path)).read_plan()
    with pytest.raises(InputError, match="search.yaml has no 'dataset'; start a new search"):
        journal.read_plan()


def test_ranked_leaves_out_trials_without_a_score():
    some = [
        make_record(1, 0.1),
        make_record(2, 0.9, "failed"),
        make_record(3, 0.3, "stopped"),
        make_record(4, 0.3),
        make_record(5, None),
    ]
    some.append(make_record(6, float("nan")))
    assert [record["trial"] for record in ranked(some, True)] == [3, 4, 1]
    assert [record["trial"] for record in ranked(some, False)] == [1, 3, 4]


def test_write_yaml_puts_each_key_on_its_own_line(journal):
    values = {"a": 1, "b": [1e-5, "x: y"], "c": {"d": {"choice": [[1], [2]]}}, "e": None}
    text = Path(journal.write_yaml("some.yaml", values, "# first\n")).read_text()
    assert text == "# first\na: 1\nb: [1.0e-05, 'x: y']\nc:\n  d:\n    choice:\n    - [1]\n    - [2]\ne: null\n"
    assert yaml.safe_load(text) == values


# ---------------------------------------------------------------- output files


def test_no_result_names_each_reason_once():
    reasons = ["diverged.", "no memory.", "diverged."]
    some = [make_record(number, None, "failed", reason) for number, reason in enumerate(reasons, 1)]
    told = results.no_result(some, 5)
    assert told == "all 3 trials failed: diverged (trial 1, 3); no memory (trial 2)."
    assert "in 5 seconds" in results.no_result([], 5)
    assert issubclass(SearchError, RuntimeError)


def test_trials_csv_has_a_row_for_each_trial(journal):
    some = [make_record(1, 0.25), make_record(2, None, "failed", "diverged, alas.")]
    results.write_table(journal, some, ["n_layers"])
    with open(journal.path("trials.csv")) as file:
        rows = list(csv.DictReader(file))
    assert [row["n_layers"] for row in rows] == ["1", "2"]
    assert (rows[0]["valid ndcg@5"], rows[1]["reason"]) == ("0.25", "diverged, alas.")


def test_importance_is_highest_for_the_key_that_determines_the_score(space_and_records):
    space, some = space_and_records
    shares = figures.importance(some, space)
    assert set(shares) == set(space)
    assert list(shares)[-1] == "learning_rate"
    assert sum(shares.values()) == pytest.approx(1)
    assert figures.importance(some[:2], space) == {}


def test_report_works_offline_in_light_and_dark_mode(space_and_records):
    space, some = space_and_records
    text = results.report_page("MEANTIME on ml-100k", some, space, "NDCG@5", True, {"ndcg@5": 0.123})
    own = re.sub(r"<script>/\*\*.*?</script>", "", text, count=1, flags=re.DOTALL)  # without plotly itself
    assert len(own) < len(text) / 10
    assert not re.search(r"https?://|src=|<link|@import|url\(", own)
    assert "prefers-color-scheme: dark" in own
    for name in ("history", "parallel", "importance", "curves"):
        assert f'<div id="{name}">' in own
        assert f'"{name}": {{"data"' in own
    assert own.count("</script>") == 1  # text of a trial cannot end the script
    assert "&lt;b&gt;diverged" in own
    assert "0.1230" in own


def test_report_uses_only_colours_of_both_modes(space_and_records):
    from recbole_ext.utils.html import COLOURS

    space, some = space_and_records
    own = results.report_page("t", some, space, "NDCG@5", True, None).rpartition("<script>")[2]  # without plotly itself
    used = set(re.findall(r"\$(\w+)\$", own))
    assert used <= set(COLOURS["light"])
    assert set(COLOURS["light"]) == set(COLOURS["dark"])
