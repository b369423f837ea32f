"""The folder of a search, its table and its page, without Ray."""

import csv
import io
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from recbole_ext import Config, SearchError
from recbole_ext.errors import InputError
from recbole_ext.tuning import results
from recbole_ext.tuning.backend.callback import Progress
from recbole_ext.tuning.backend.checkpoint_store import Keeper
from recbole_ext.tuning.journal import CUT_SHORT, Journal, checkpoint_name, ranked
from recbole_ext.tuning.plan import remaining
from recbole_ext.tuning.points import points
from recbole_ext.tuning.report import figures
from recbole_ext.tuning.report.page import page
from recbole_ext.tuning.report.table import Rows, short, shortened
from recbole_ext.tuning.space import Domain, check_space, read_space


def record(number, score, status="finished", reason="", keys=None, epochs=3):
    """A trial that came to its score in its last epoch."""
    curve = [] if score is None else [[epoch, score * epoch / epochs, 1.0] for epoch in range(1, epochs + 1)]
    return {
        "trial": number, "status": status, "reason": reason, "keys": keys or {"n_layers": number}, "best_score": score,
        "best_epoch": None if score is None else epochs, "best_metrics": {} if score is None else {"ndcg@5": score},
        "epochs": epochs, "seconds": 1.5, "machine": "here", "node": "n", "curve": curve,
    }  # fmt: skip


@pytest.fixture
def journal(tmp_path):
    found = Journal(str(tmp_path / "search"))
    found.begin({"model": "MEANTIME"})
    return found


# ---------------------------------------------------------------- journal


def test_what_remains_are_trials_not_begun_and_those_whose_time_was_up_once_more():
    drawn = [{"n_layers": n} for n in range(1, 5)]
    listed, proposed = SimpleNamespace(total=4, points=drawn), SimpleNamespace(total=4, points=None)
    assert remaining(listed, []).setups == [{"number": n, "keys": keys} for n, keys in enumerate(drawn, 1)]
    assert (remaining(proposed, []).setups, remaining(proposed, []).count, remaining(proposed, []).next) == ([], 4, 1)

    ended = [record(1, 0.1), record(3, 0.3, "stopped", CUT_SHORT), record(2, None, "failed", "diverged.")]
    once_more = {"keys": {"n_layers": 3}, "repeats": 3}
    left = remaining(listed, ended)
    assert left.setups == [{"number": 5, **once_more}, {"number": 4, "keys": {"n_layers": 4}}]
    assert (left.count, left.ended) == (2, [ended[0], ended[2]])
    left = remaining(proposed, ended)
    assert (left.setups, left.count, left.next) == ([{"number": 4, **once_more}], 2, 5)

    # the repetition was cut short, too, and then came to its end
    ended += [record(4, 0.4), {**record(5, 0.3, "stopped", CUT_SHORT), **once_more}]
    assert remaining(listed, ended).setups == [{"number": 6, "keys": {"n_layers": 3}, "repeats": 5}]
    ended.append({**record(6, 0.5), "repeats": 5})
    assert (remaining(listed, ended).setups, remaining(listed, ended).count) == ([], 0)


def test_a_record_that_a_crash_cut_short_is_none_and_the_next_one_is_whole(journal):
    journal.add(record(2, 0.2))
    journal.add(record(1, 0.1))
    with open(journal.path("trials.jsonl"), "rb+") as file:
        file.truncate(len(file.read()) - 20)
    assert [one["trial"] for one in journal.records()] == [2]
    journal.add(record(3, 0.3))
    assert [one["trial"] for one in journal.records()] == [2, 3]


def test_lines_that_are_no_records_are_passed_over(journal):
    journal.add(record(1, 0.1))
    whole = Path(journal.path("trials.jsonl")).read_bytes()
    halves = (
        b'{"trial": 9}\n',
        whole.replace(b'"keys": {"n_layers": 1}', b'"keys": 3'),
        b"\xff\xfe\n",
        b"[" * 9999 + b"\n",
    )
    Path(journal.path("trials.jsonl")).write_bytes(b"".join(halves) + whole)
    assert journal.records() == [record(1, 0.1)]


def test_a_folder_holds_one_search_and_only_a_search_can_be_resumed(journal, tmp_path):
    with pytest.raises(InputError, match="holds a search already; continue it with --resume="):
        journal.begin({})
    with pytest.raises(InputError, match="there is no search to resume in .*: it has no search.yaml"):
        Journal(str(tmp_path)).request()
    with pytest.raises(InputError, match="search.yaml has no 'dataset'; start the search anew"):
        journal.request()


def test_the_best_trials_are_those_that_did_not_fail():
    some = [record(1, 0.1), record(2, 0.9, "failed"), record(3, 0.3, "stopped"), record(4, 0.3), record(5, None)]
    some.append(record(6, float("nan")))
    assert [one["trial"] for one in ranked(some, True)] == [3, 4, 1]
    assert [one["trial"] for one in ranked(some, False)] == [1, 3, 4]


def test_checkpoints_are_kept_of_the_best_and_of_those_that_run(journal):
    keeper = Keeper(journal.folder)
    for number in range(1, 5):
        keeper.store(checkpoint_name(number), b"weights")
    half = journal.path("checkpoints", ".trial-0004.pth.1234.part")
    open(half, "w").close()
    journal.drop_checkpoints({2}, {4})
    assert [number for number in range(1, 5) if os.path.exists(journal.checkpoint(number))] == [2, 4]
    assert os.path.exists(half)
    journal.drop_checkpoints({2})
    assert os.listdir(journal.path("checkpoints")) == ["trial-0002.pth"]


# ---------------------------------------------------------------- what Ray tells


@pytest.fixture
def watch(journal, capsys):
    def make(total=4, budget=None):
        space = {"n_layers": Domain("choice", (1, 2), (1, 2))}
        return Progress(journal.folder, Rows(total, "NDCG@5", True, 3, space), 1, budget)

    return make


def a_trial(number):
    return SimpleNamespace(config={"number": number, "keys": {"n_layers": number}}, get_error=lambda: None)


def tell(watch, number, *scores, first=1):
    best = 0.0
    for epoch, score in enumerate(scores, first):
        best = max(best, score)
        watch.on_trial_result(1, [], a_trial(number), {
            "epoch": epoch, "score": score, "best_score": best, "metrics": {"ndcg@5": score}, "loss": 1.0, "node": "n",
            "time_total_s": 2.0, "hostname": "here",
        })  # fmt: skip


def test_ended_stopped_and_failed_trials_are_told_apart(watch, journal, capsys):
    seen = watch()
    tell(seen, 1, 0.1, 0.3, 0.2)
    seen.on_trial_result(1, [], a_trial(1), {"ended": True, "node": "n", "time_total_s": 65.0})
    seen.on_trial_complete(1, [], a_trial(1))
    tell(seen, 2, 0.1)
    seen.on_trial_complete(1, [], a_trial(2))
    tell(seen, 3, 0.9)
    seen.on_trial_result(1, [], a_trial(3), {"failed": "diverged.", "node": "n"})
    seen.on_trial_complete(1, [], a_trial(3))
    seen.on_trial_error(1, [], a_trial(4))
    found = journal.records()
    assert [one["status"] for one in found] == ["finished", "stopped", "failed", "failed"]
    assert [one["best_epoch"] for one in found] == [2, 1, 1, None]
    assert found[0]["best_metrics"] == {"ndcg@5": 0.3}
    assert [one["reason"] for one in found[2:]] == ["diverged.", "its process ended."]
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "trial  status      epoch    NDCG@5    time  n_layers",
        "    1  finished      3/3    0.3000    1:05         1",
        "    2  stopped       1/3    0.1000    0:02         2",
        "    3  failed        1/3    0.9000    0:00  diverged.",
        "    4  failed        0/3              0:00  its process ended.",
    ]


def test_a_trial_that_begins_again_elsewhere_has_one_curve(watch, journal):
    seen = watch()
    tell(seen, 1, 0.4, 0.5)
    tell(seen, 1, 0.1, 0.2, 0.3)
    seen.on_trial_complete(1, [], a_trial(1))
    (found,) = journal.records()
    assert [point[:2] for point in found["curve"]] == [[1, 0.1], [2, 0.2], [3, 0.3]]
    assert (found["best_score"], found["best_epoch"]) == (0.3, 3)


def test_the_best_epoch_is_the_one_whose_checkpoint_is_kept_the_last_of_equals(watch, journal):
    seen = watch()
    tell(seen, 1, 0.1, 0.3, 0.3, 0.2)
    seen.on_trial_complete(1, [], a_trial(1))
    (found,) = journal.records()
    assert (found["best_score"], found["best_epoch"]) == (0.3, 3)


def test_a_trial_that_the_scheduler_ends_says_so(watch, journal):
    seen = watch()
    for number, epochs in ((1, 1), (2, seen.rows.epochs)):
        tell(seen, number, *[0.1] * epochs)
        seen.on_trial_complete(1, [], a_trial(number))
    found = [(one["status"], one["reason"]) for one in journal.records()]
    assert found == [("stopped", "it was behind the others."), ("finished", "")]


def test_every_key_of_a_file_has_a_line_of_its_own(journal):
    values = {"a": 1, "b": [1e-5, "x: y"], "c": {"d": {"choice": [[1], [2]]}}, "e": None}
    text = Path(journal.write_yaml("some.yaml", values, "# first\n")).read_text()
    assert text == "# first\na: 1\nb: [1.0e-05, 'x: y']\nc:\n  d:\n    choice:\n    - [1]\n    - [2]\ne: null\n"
    assert yaml.safe_load(text) == values


def test_trials_that_run_when_the_time_is_up_count_as_far_as_they_came(watch, journal):
    interrupted = watch(budget=1000)
    tell(interrupted, 1, 0.1)
    interrupted.on_experiment_end([])
    assert journal.records() == []
    seen = watch(budget=1e-9)
    tell(seen, 1, 0.1)
    seen.on_trial_start(1, [], a_trial(2))
    seen.on_experiment_end([])
    assert [(one["trial"], one["status"]) for one in journal.records()] == [(1, "stopped")]


def test_the_table_fits_the_terminal_and_shows_the_best_first(watch):
    rows, ended = watch(total=30).rows, [record(number, number / 100) for number in range(1, 21)]
    lines = rows.table([{**record(21, None), "status": "running"}], ended, 50, 14)
    assert len(lines) <= 14
    assert max(map(len, lines)) < 50
    assert "21  running" in lines[1]
    assert "20  finished" in lines[2]
    assert lines[-1].startswith("20 of 30 trials ended, 1 running; best NDCG@5 0.…")


def test_few_keys_have_whole_names_and_a_row_has_their_values_unless_it_failed(searched):
    space = {key: searched[0][key] for key in ("learning_rate", "hidden_dropout_prob")}
    rows, one = Rows(13, "NDCG@10", True, 150, space), {**record(1, 0.1), "keys": {"learning_rate": 0.125}}
    assert rows.head().split()[-2:] == ["learning_rate", "hidden_dropout_prob"]
    assert "0.125" in rows.row({**one, "status": "stopped", "reason": CUT_SHORT})
    assert rows.row({**one, "status": "failed", "reason": "too little memory"}).endswith("too little memory")


def test_columns_of_the_table_are_as_wide_as_their_values_and_have_the_keys_for_names(searched):
    space, some = searched
    rows = Rows(13, "NDCG@10", True, 150, space)
    head, line = rows.head(), rows.row(some[0])
    assert len(head) == len(line) < 105
    assert head.split()[-6:] == ["lear_rate", "hid_siz", "absol_kerne", "rel_ker", "hi_dr_pr", "wei_dec"]
    assert line.split()[-6:] == [short(some[0]["keys"][key]) for key in space]
    assert [short(value) for value in (["sin", "log"], [], 1e-05, 0.00123456, 3)] == [
        "sin+log", "none", "1e-05", "0.001235", "3",
    ]  # fmt: skip
    assert shortened("n_layers", 8) == "n_layers"


# ---------------------------------------------------------------- what is left behind


def test_the_reasons_of_a_search_without_a_result_are_told_once_each():
    plan = SimpleNamespace(options=SimpleNamespace(time_budget=5))
    reasons = ["diverged.", "no memory.", "diverged."]
    some = [record(number, None, "failed", reason) for number, reason in enumerate(reasons, 1)]
    told = results.no_result(some, plan)
    assert told == "all 3 trials failed: diverged (trial 1, 3); no memory (trial 2)."
    assert "in 5 seconds" in results.no_result([], plan)
    assert issubclass(SearchError, RuntimeError)


def test_the_table_of_trials_has_a_row_for_each(journal):
    some = [record(1, 0.25), record(2, None, "failed", "diverged, alas.")]
    results.write_table(journal, some, ["n_layers"])
    with open(journal.path("trials.csv")) as file:
        rows = list(csv.DictReader(file))
    assert [row["n_layers"] for row in rows] == ["1", "2"]
    assert (rows[0]["valid ndcg@5"], rows[1]["reason"]) == ("0.25", "diverged, alas.")


@pytest.fixture
def searched():
    """Our space for MEANTIME, and trials in it: one failed, and a learning rate that decides the score."""
    space = check_space(*read_space(None, "MEANTIME"), Config("MEANTIME", "ml-100k", argv=[]))
    drawn = points(space, 12, lambda point: "", 0)
    some = []
    for number, point in enumerate(drawn, 1):
        status = "stopped" if number % 3 else "finished"
        some.append(record(number, 10 * point["learning_rate"], status, keys=point))
    return space, [*some, record(13, None, "failed", "</script><b>diverged", keys=drawn[0])]


def test_the_key_that_decides_the_score_is_the_important_one(searched):
    space, some = searched
    shares = figures.importance(some, space)
    assert set(shares) == set(space)
    assert list(shares)[-1] == "learning_rate"
    assert sum(shares.values()) == pytest.approx(1)
    assert figures.importance(some[:2], space) == {}


def test_the_page_is_whole_in_itself_and_knows_light_and_dark(searched):
    space, some = searched
    text = page("MEANTIME on ml-100k", some, space, "NDCG@5", True, {"ndcg@5": 0.123})
    own = re.sub(r"<script>/\*\*.*?</script>", "", text, count=1, flags=re.DOTALL)  # without plotly itself
    assert len(own) < len(text) / 10
    assert not re.search(r"https?://|src=|<link|@import|url\(", own)
    assert "prefers-color-scheme: dark" in own
    for name in ("history", "parallel", "importance", "curves"):
        assert f'<div id="{name}">' in own
        assert f'"{name}": {{"data"' in own
    assert own.count("</script>") == 1  # what a trial says ends none
    assert "&lt;b&gt;diverged" in own
    assert "0.1230" in own


def test_every_colour_of_the_figures_is_known_in_both_modes(searched):
    from recbole_ext.utils.html import COLOURS

    space, some = searched
    own = page("t", some, space, "NDCG@5", True, None).rpartition("<script>")[2]  # without plotly itself
    used = set(re.findall(r"\$(\w+)\$", own))
    assert used <= set(COLOURS["light"])
    assert set(COLOURS["light"]) == set(COLOURS["dark"])


def test_a_table_for_a_terminal_is_drawn_over_the_one_before(watch, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    seen, out = watch(), Terminal()
    seen.draw(now=True, out=out)
    seen.draw(now=True, out=out)
    assert out.getvalue().count("\x1b[2A\x1b[J") == 1
