"""The paired bootstrap against SciPy and known distributions; Holm's correction."""

import numpy as np
import pytest
from scipy.stats import bootstrap

from recbole_ext.comparison import statistics
from recbole_ext.comparison.statistics import bootstrap_difference, holm

RANDOM = np.random.default_rng(5)
# few values, as MRR@10 has, for many users
RANKS = np.where(RANDOM.random((2, 4000)) < 0.3, 1 / RANDOM.integers(1, 11, (2, 4000)), 0)


@pytest.mark.parametrize("values", [RANKS[0] - RANKS[1], RANDOM.normal(0.1, 1, 200)], ids=["few values", "all differ"])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_the_interval_is_that_of_scipy(values, confidence):
    ours = bootstrap_difference(values, np.ones(len(values)), confidence, 20_000, 1)
    scipys = bootstrap(
        (values,), np.mean, n_resamples=20_000, confidence_level=confidence, method="percentile", rng=RANDOM, batch=1000
    )
    error = 0.05 * scipys.standard_error  # of a quantile of 20,000 resamples: 0.02 standard errors, of both
    assert ours.low == pytest.approx(scipys.confidence_interval.low, abs=error)
    assert ours.high == pytest.approx(scipys.confidence_interval.high, abs=error)
    assert ours.estimate == pytest.approx(values.mean())


def test_users_with_several_rankings_count_as_often_and_are_drawn_together():
    weight = RANDOM.integers(1, 6, 300).astype(float)
    difference = RANDOM.normal(0.05, 0.3, 300) * weight
    ours = bootstrap_difference(difference, weight, 0.95, 20_000, 1)
    scipys = bootstrap(
        (difference, weight), lambda d, w, axis: d.sum(axis) / w.sum(axis), paired=True, n_resamples=20_000,
        method="percentile", rng=RANDOM,
    )  # fmt: skip
    error = 0.05 * scipys.standard_error
    assert (ours.low, ours.high) == pytest.approx(tuple(scipys.confidence_interval), abs=error)
    assert ours.estimate == pytest.approx(difference.sum() / weight.sum())


def test_two_users_have_the_known_distribution():
    found = bootstrap_difference(np.array([0.0, 1.0]), np.ones(2), 0.4, 100_000, 3)
    # the mean of two draws is 0, 0.5 or 1 with probability 1/4, 1/2, 1/4
    assert (found.low, found.high) == (0.5, 0.5)
    assert found.p_value == pytest.approx(2 * 1 / 4, abs=0.01)


def test_many_users_have_the_interval_of_the_normal_distribution():
    values = RANDOM.exponential(1, 3_000) - 0.9
    found = bootstrap_difference(values, np.ones(3_000), 0.95, 10_000, 1)
    half = 1.96 * values.std() / 3_000**0.5
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.1 * half)


def test_equal_runs_have_no_difference_and_p_1():
    found = bootstrap_difference(np.zeros(50), np.ones(50), 0.95, 1_000, 1)
    assert (found.estimate, found.low, found.high, found.p_value) == (0, 0, 0, 1)


def test_a_clear_difference_has_the_smallest_possible_p():
    found = bootstrap_difference(RANDOM.normal(1, 0.5, 100), np.ones(100), 0.95, 1_000, 1)
    assert found.p_value == pytest.approx(2 / 1_001)
    assert found.low > 0.8


def test_p_values_are_uniform_where_there_is_no_difference():
    p_values = [bootstrap_difference(RANDOM.normal(0, 1, 100), np.ones(100), 0.95, 500, 1).p_value for _ in range(200)]
    assert np.mean(np.array(p_values) < 0.2) == pytest.approx(0.2, abs=0.085)  # 3 standard errors


def test_the_seed_decides_the_result_and_the_order_of_users_does_not(monkeypatch):
    values, weight = RANKS[0] - RANKS[1], np.ones(4000)
    first = bootstrap_difference(values, weight, 0.95, 500, 1)
    assert bootstrap_difference(values[::-1], weight, 0.95, 500, 1) == first
    assert bootstrap_difference(values, weight, 0.95, 500, 2) != first
    monkeypatch.setattr(statistics, "BATCH", 1)  # a resample at a time
    by_one = bootstrap_difference(values, weight, 0.95, 500, 1)
    assert (by_one.low, by_one.high, by_one.p_value) == pytest.approx((first.low, first.high, first.p_value))


def test_holm():
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.5, 0.9])).tolist() == [1.0, 1.0]
    assert holm(np.array([0.2])).tolist() == [0.2]
