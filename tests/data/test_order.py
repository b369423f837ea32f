"""Sorting by digits and grouping agree with NumPy's sort and RecBole's loops."""

import numpy as np
import pytest
from recbole.data.dataset import Dataset

from recbole_ext.data import order
from recbole_ext.data.order import grouped, stable_order

RNG = np.random.default_rng(5)
KEYS = {
    "small": RNG.integers(0, 7, 3000), "negative": RNG.integers(-90_000, 90_000, 3000),
    "two digits": RNG.integers(0, 2**20, 3000), "three digits": RNG.integers(0, 2**47, 3000),
    "large": np.array([-(2**63), 2**63 - 1, 0] * 1000), "int32": RNG.integers(0, 9, 3000).astype(np.int32),
    "whole seconds": np.floor(RNG.random(3000) * 1e8) + 1.6e9, "fractions": RNG.random(3000),
    "far apart": np.array([0.0, 1e300] * 1500), "not numbers": np.array([1.0, np.nan, 0.0] * 1000),
    "equal": np.ones(3000), "bool": RNG.integers(0, 2, 3000).astype(bool),
    "far below": np.array([-1e13, 0.0002, 0.0001] * 1000), "float32": np.float32([-(2.0**24), 0.75, 0.6] * 1000),
    "far below, whole": np.array([-1e13, 2.0, 1.0] * 1000), "float16": RNG.random(3000).astype(np.float16),
}  # fmt: skip


@pytest.mark.parametrize("name", KEYS)
def test_order_is_that_of_numpy(name):
    key = KEYS[name]
    np.testing.assert_array_equal(stable_order(key), np.lexsort((key,)))
    for other in (KEYS["small"], KEYS["whole seconds"]):
        np.testing.assert_array_equal(stable_order(key, other), np.lexsort((key, other)))
        np.testing.assert_array_equal(stable_order(other, key), np.lexsort((other, key)))


@pytest.mark.parametrize("name", ["small", "whole seconds", "three digits"])
def test_no_comparison_is_needed(name, monkeypatch):
    monkeypatch.setattr(order.np, "lexsort", lambda keys: pytest.fail("sorted by comparisons"))
    stable_order(KEYS[name], KEYS["small"])


def test_no_and_one_row():
    assert stable_order(np.array([], dtype=np.int64)).tolist() == []
    assert stable_order(np.array([4.0])).tolist() == [0]


@pytest.mark.parametrize("count", [0, 1, 5, 400])
@pytest.mark.parametrize("kinds", [1, 4, 1000])
def test_groups_are_those_of_recbole(count, kinds):
    values = RNG.integers(0, kinds, count)
    bare = Dataset.__new__(Dataset)
    groups = list(Dataset._grouped_index(bare, values))
    assert [rows.tolist() for rows in grouped(values)] == groups
    for last in (1, 2, 3):
        expected = Dataset._split_index_by_leave_one_out(bare, groups, last)
        found = grouped(values).last(last)
        assert [part.tolist() for part in found] == [list(map(int, part)) for part in expected]
