"""MEANTIME learns what there is to learn, from the file to the metrics of the test data."""

from collections.abc import Callable

import numpy as np
import pytest

from recbole_ext import run_recbole

pytestmark = pytest.mark.slow

HOUR, DAY = 3600, 86400


@pytest.fixture
def hit_at_1(write_events) -> Callable[..., float]:
    """Train a tiny MEANTIME on events and return how often its first guess is the last event of a user."""

    def measure(events: list[tuple], **keys) -> float:
        tiny = {
            "data_path": write_events(events), "hidden_size": 16, "inner_size": 32, "MAX_ITEM_LIST_LENGTH": 12,
            "initializer_range": 0.1, "hidden_dropout_prob": 0.0, "attn_dropout_prob": 0.0, "mask_ratio": 0.3,
            "epochs": 40, "eval_step": 40, "train_batch_size": 16, "learning_rate": 0.003,
            "metrics": ["Hit"], "topk": [1], "valid_metric": "Hit@1",
            "show_progress": False, "state": "warning", "use_gpu": False,
        }  # fmt: skip
        result = run_recbole("MEANTIME", "toy", None, {**tiny, **keys}, saved=False, argv=[])
        return float(result["test_result"]["hit@1"])

    return measure


def in_a_circle(items: int = 12, users: int = 100) -> list[tuple]:
    """Everybody goes round the same circle of items, from a place and for a while of their own."""
    random = np.random.default_rng(0)
    events = []
    for user in range(users):
        first, steps = int(random.integers(items)), int(random.integers(5, items))
        events += [(f"u{user}", f"i{(first + step) % items}", 10**9 + step * HOUR) for step in range(steps)]
    return events


def after_a_gap(users: int = 150) -> list[tuple]:
    """After minutes everybody takes one item, after weeks the other; which it will be is a matter of chance."""
    random = np.random.default_rng(0)
    events = []
    for user in range(users):
        time = 10**9 + int(random.integers(0, 100 * DAY))
        for late in random.random(11) < 0.5:
            time += int(random.integers(10 * DAY, 30 * DAY) if late else random.integers(30, 300))
            events.append((f"u{user}", "late" if late else "soon", time))
    return events


def test_a_circle_is_learnt(hit_at_1):
    assert hit_at_1(in_a_circle()) >= 0.95


def test_a_relative_kernel_learns_what_the_gap_tells(hit_at_1):
    assert hit_at_1(after_a_gap(), absolute_kernels=["position"], relative_kernels=["log"]) > 0.9


@pytest.mark.parametrize(
    ("kernels", "query_time"), [([], "target"), (["log"], "last")], ids=["position only", "time of the request unknown"]
)
def test_without_the_gap_there_is_nothing_to_learn(hit_at_1, kernels, query_time):
    keys = {"absolute_kernels": ["position"], "relative_kernels": kernels, "query_time": query_time}
    assert hit_at_1(after_a_gap(), **keys) < 0.7
