"""Trials without training, for the tests of the journal, the output files and the progress."""

import pytest

from recbole_ext import Config
from recbole_ext.tuning.journal import Journal
from recbole_ext.tuning.points import random_points
from recbole_ext.tuning.space import check_space, read_space


def make_record(number, score, status="finished", reason="", keys=None, epochs=3):
    """The record of a trial whose score grows until its last epoch."""
    curve = [] if score is None else [[epoch, score * epoch / epochs, 1.0] for epoch in range(1, epochs + 1)]
    return {
        "trial": number, "status": status, "reason": reason, "keys": keys or {"n_layers": number}, "best_score": score,
        "best_epoch": None if score is None else epochs, "best_metrics": {} if score is None else {"ndcg@5": score},
        "epochs": epochs, "seconds": 1.5, "machine": "here", "node": "n", "curve": curve,
    }  # fmt: skip


@pytest.fixture
def journal(tmp_path):
    """The folder of a search that has started."""
    journal = Journal(str(tmp_path / "search"))
    journal.start({"model": "MEANTIME"})
    return journal


@pytest.fixture
def space_and_records():
    """The default space of MEANTIME and 13 trials: the learning rate determines the score, and the last has failed."""
    space = check_space(*read_space(None, "MEANTIME"), Config("MEANTIME", "ml-100k", argv=[]))
    points = random_points(space, 12, lambda point: "", 0)
    records = [
        make_record(number, 10 * point["learning_rate"], "finished" if number % 3 == 0 else "stopped", keys=point)
        for number, point in enumerate(points, 1)
    ]
    return space, [*records, make_record(13, None, "failed", "</script><b>diverged", keys=points[0])]
