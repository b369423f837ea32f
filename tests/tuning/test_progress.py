"""What Ray reports becomes records, checkpoints and a table. Ray is installed, but not started."""

import io
import os
from types import SimpleNamespace

import pytest

from recbole_ext.tuning.journal import OUT_OF_TIME, checkpoint_name
from recbole_ext.tuning.space import Distribution, format_value
from tests.tuning.conftest import make_record

pytest.importorskip("ray", minversion="2.45")
from recbole_ext.tuning.backend.cluster import CheckpointStore  # noqa: E402
from recbole_ext.tuning.backend.progress import SearchCallback, TrialTable  # noqa: E402

pytestmark = pytest.mark.ray


@pytest.fixture
def make_callback(journal):
    def make(total=4, time_budget=None):
        space = {"n_layers": Distribution("choice", (1, 2), (1, 2))}
        return SearchCallback(journal.folder, TrialTable(total, "NDCG@5", True, 3, space), 1, time_budget)

    return make


def ray_trial(number):
    config = {"trial": {"number": number, "keys": {"n_layers": number}}}
    return SimpleNamespace(config=config, get_error=lambda: None)


def report(callback, number, *scores):
    """Report a validation for each score."""
    best = 0.0
    for epoch, score in enumerate(scores, 1):
        best = max(best, score)
        callback.on_trial_result(1, [], ray_trial(number), {
            "epoch": epoch, "score": score, "best_score": best, "metrics": {"ndcg@5": score}, "loss": 1.0, "node": "n",
            "time_total_s": 2.0, "hostname": "here",
        })  # fmt: skip


# ---------------------------------------------------------------- records and checkpoints


def test_callback_records_finished_stopped_and_failed_trials_and_prints_them(make_callback, journal, capsys):
    callback = make_callback()
    report(callback, 1, 0.1, 0.3, 0.2)
    callback.on_trial_result(1, [], ray_trial(1), {"ended": True, "node": "n", "time_total_s": 65.0})
    callback.on_trial_complete(1, [], ray_trial(1))
    report(callback, 2, 0.1)
    callback.on_trial_complete(1, [], ray_trial(2))
    report(callback, 3, 0.9)
    callback.on_trial_result(1, [], ray_trial(3), {"failed": "diverged.", "node": "n"})
    callback.on_trial_complete(1, [], ray_trial(3))
    callback.on_trial_error(1, [], ray_trial(4))
    records = journal.records()
    assert [record["status"] for record in records] == ["finished", "stopped", "failed", "failed"]
    assert [record["best_epoch"] for record in records] == [2, 1, 1, None]
    assert records[0]["best_metrics"] == {"ndcg@5": 0.3}
    assert [record["reason"] for record in records[2:]] == ["diverged.", "its process ended."]
    assert capsys.readouterr().out.splitlines() == [
        "trial  status      epoch    NDCG@5    time  n_layers",
        "    1  finished      3/3    0.3000    1:05         1",
        "    2  stopped       1/3    0.1000    0:02         2",
        "    3  failed        1/3    0.9000    0:00  diverged.",
        "    4  failed        0/3              0:00  its process ended.",
    ]


def test_trial_that_starts_again_on_another_node_has_one_curve(make_callback, journal):
    callback = make_callback()
    report(callback, 1, 0.4, 0.5)
    report(callback, 1, 0.1, 0.2, 0.3)
    callback.on_trial_complete(1, [], ray_trial(1))
    (record,) = journal.records()
    assert [point[:2] for point in record["curve"]] == [[1, 0.1], [2, 0.2], [3, 0.3]]
    assert (record["best_score"], record["best_epoch"]) == (0.3, 3)


def test_best_epoch_is_the_last_of_equal_scores_whose_checkpoint_is_kept(make_callback, journal):
    callback = make_callback()
    report(callback, 1, 0.1, 0.3, 0.3, 0.2)
    callback.on_trial_complete(1, [], ray_trial(1))
    (record,) = journal.records()
    assert (record["best_score"], record["best_epoch"]) == (0.3, 3)


def test_trial_that_the_scheduler_stops_has_a_reason(make_callback, journal):
    callback = make_callback()
    for number, epochs in ((1, 1), (2, callback.table.epochs)):
        report(callback, number, *[0.1] * epochs)
        callback.on_trial_complete(1, [], ray_trial(number))
    reasons = [(record["status"], record["reason"]) for record in journal.records()]
    assert reasons == [("stopped", "it was behind the others."), ("finished", "")]


def test_trials_that_run_at_the_end_of_the_time_budget_are_recorded(make_callback, journal):
    interrupted = make_callback(time_budget=1000)
    report(interrupted, 1, 0.1)
    interrupted.on_experiment_end([])
    assert journal.records() == []
    callback = make_callback(time_budget=1e-9)
    report(callback, 1, 0.1)
    callback.on_trial_start(1, [], ray_trial(2))
    callback.on_experiment_end([])
    assert [(record["trial"], record["status"]) for record in journal.records()] == [(1, "stopped")]


def test_checkpoints_of_the_best_and_of_running_trials_are_kept(journal):
    store = CheckpointStore(journal.folder)
    for number in range(1, 5):
        store.store(checkpoint_name(number), b"weights")
    incomplete = journal.path("checkpoints", ".trial-0004.pth.1234.part")
    open(incomplete, "w").close()
    journal.drop_checkpoints({2}, {4})
    assert [number for number in range(1, 5) if os.path.exists(journal.checkpoint(number))] == [2, 4]
    assert os.path.exists(incomplete)
    journal.drop_checkpoints({2})
    assert os.listdir(journal.path("checkpoints")) == ["trial-0002.pth"]


# ---------------------------------------------------------------- the table


def test_table_fits_the_terminal_and_shows_the_best_trials_first(make_callback):
    table, ended = make_callback(total=30).table, [make_record(number, number / 100) for number in range(1, 21)]
    lines = table.lines([{**make_record(21, None), "status": "running"}], ended, 50, 14)
    assert len(lines) <= 14
    assert max(map(len, lines)) < 50
    assert "21  running" in lines[1]
    assert "20  finished" in lines[2]
    assert lines[-1].startswith("20 of 30 trials ended, 1 running; best NDCG@5 0.…")


def test_table_with_few_keys_has_one_header_line_and_shows_the_reason_of_a_failure(space_and_records):
    space = {key: space_and_records[0][key] for key in ("learning_rate", "hidden_dropout_prob")}
    table = TrialTable(13, "NDCG@10", True, 150, space)
    record = {**make_record(1, 0.1), "keys": {"learning_rate": 0.125}}
    (header,) = table.header
    assert header.split()[-2:] == ["learning_rate", "hidden_dropout_prob"]
    assert "0.125" in table.row({**record, "status": "stopped", "reason": OUT_OF_TIME})
    assert table.row({**record, "status": "failed", "reason": "too little memory"}).endswith("too little memory")


def test_table_with_many_keys_wraps_their_names(space_and_records):
    space, records = space_and_records
    table = TrialTable(13, "NDCG@10", True, 150, space)
    row = table.row(records[0])
    assert len(table.header[-1]) == len(row) < 105
    assert row.split()[-len(space) :] == [format_value(records[0]["keys"][key]) for key in space]
    position = len(row) - sum(table.widths.values()) - len(space) + 1
    for key, width in table.widths.items():
        assert "".join(line[position : position + width].strip() for line in table.header) == key
        position += width + 1


def test_format_value_is_short():
    values = (["sin", "log"], [], 1e-05, 0.00123456, 3)
    assert [format_value(value) for value in values] == ["sin+log", "none", "1e-05", "0.001235", "3"]


def test_table_in_a_terminal_replaces_the_previous_one(make_callback):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    callback, out = make_callback(), Terminal()
    callback.draw(at_once=True, out=out)
    callback.draw(at_once=True, out=out)
    assert out.getvalue().count("\x1b[2A\x1b[J") == 1
