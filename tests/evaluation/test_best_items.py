"""The best items are those of a matrix of all scores, whatever is skipped on the way to them."""

import math

import numpy as np
import pytest
import torch

from recbole_ext import create_dataset, data_preparation, get_trainer
from recbole_ext.evaluation import best_items as search
from recbole_ext.evaluation.best_items import UpperBounds, best_items

USERS, FEATURES = 6, 24


@pytest.fixture(params=[False, True], ids=["scores", "bounds"])
def uses_bounds(request):
    return request.param


@pytest.fixture
def rank(uses_bounds):
    """Rank by inner products; returns the found scores and ids."""

    def rank(users, table, bias, candidates, k, excluded, chunk=10**6):
        def score(items):
            return torch.nn.functional.linear(users, table[items], None if bias is None else bias[items])

        bounds = UpperBounds(table, bias).of_users(users) if uses_bounds else None
        return best_items(score, candidates, k, excluded, requests=len(users), chunk=chunk, users=bounds)

    return rank


def vectors(items, seed=0, bias=True):
    """Users, a table and biases of items with large differences in size."""
    generator = torch.Generator().manual_seed(seed)
    users = torch.randn(USERS, FEATURES, generator=generator)
    table = torch.randn(items, FEATURES, generator=generator) * torch.rand(items, 1, generator=generator) ** 3
    return users, table, torch.randn(items, generator=generator) if bias else None


def pairs(rows, positions):
    return torch.tensor(rows, dtype=torch.int64), torch.tensor(positions, dtype=torch.int64)


def expected(users, table, bias, candidates, k, excluded):
    ids = torch.arange(candidates.start, candidates.stop) if isinstance(candidates, slice) else candidates
    scores = users.double() @ table[ids].double().T + (0 if bias is None else bias[ids].double())
    scores[excluded] = -math.inf
    values, positions = scores.topk(min(k, len(ids)), dim=1)
    return values, ids[positions]


def check(rank, users, table, bias, candidates, k, excluded=None, **keys):
    excluded = pairs([], []) if excluded is None else excluded
    values, ids = expected(users, table, bias, candidates, k, excluded)
    found = rank(users, table, bias, candidates, k, excluded, **keys)
    torch.testing.assert_close(found.scores.double(), values, rtol=1e-5, atol=1e-6)
    assert torch.equal(found.items[values > -math.inf], ids[values > -math.inf])


@pytest.mark.parametrize("block", [64, 130, 1000])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("k", [1, 10, 90])
def test_the_best_of_blocks_are_the_best_of_all(rank, monkeypatch, block, bias, k):
    monkeypatch.setattr(search, "BLOCK_SCORES", block * USERS)
    users, table, biases = vectors(3000, bias=bias)
    excluded = pairs([0, 0, 0, 3, 5], [0, 63, 64, 2998, 1500])
    check(rank, users, table, biases, slice(1, 3000), k, excluded)
    check(rank, users, table, biases, torch.arange(2, 3000, 3), k, pairs([1, 1, 4], [7, 998, 400]))


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_any_size_of_chunks_gives_the_same(rank, chunk):
    users, table, bias = vectors(200)
    check(rank, users, table, bias, slice(1, 200), 9, pairs([2, 2], [0, 198]), chunk=chunk)


def test_the_best_items_may_come_last_and_in_ascending_order(rank, monkeypatch):
    """Every block has better items than all before: nothing can be skipped."""
    monkeypatch.setattr(search, "BLOCK_SCORES", 64 * USERS)
    table = torch.linspace(0.1, 1, 700).unsqueeze(1).repeat(1, FEATURES)
    users = torch.linspace(1, 2, USERS).unsqueeze(1).repeat(1, FEATURES)
    check(rank, users, table, None, slice(1, 700), 20)


def test_a_request_whose_items_are_all_excluded_gets_none(rank, monkeypatch):
    monkeypatch.setattr(search, "BLOCK_SCORES", 64 * USERS)
    users, table, bias = vectors(400)
    everything = pairs([2] * 399 + [4] * 395, [*range(399), *range(395)])
    check(rank, users, table, bias, slice(1, 400), 8, everything)
    found = rank(users, table, bias, slice(1, 400), 8, everything)
    assert (found.scores[2] == -math.inf).all()
    assert (found.scores[4] > -math.inf).sum() == 4
    assert (found.items[found.scores == -math.inf] == 0).all()


@pytest.mark.parametrize("scale", [1e-20, 1e-37, 1e20])
def test_very_small_and_large_scores(rank, monkeypatch, scale):
    monkeypatch.setattr(search, "BLOCK_SCORES", 128 * USERS)
    users, table, bias = vectors(900, bias=False)
    found = rank(users * scale, table * min(scale, 1.0), bias, slice(1, 900), 10, pairs([], []))
    scores = (users * scale) @ (table * min(scale, 1.0))[1:].T
    assert torch.allclose(found.scores, scores.topk(10).values, rtol=1e-5, atol=1e-44)


def test_fewer_candidates_than_k(rank):
    users, table, bias = vectors(6)
    check(rank, users, table, bias, slice(1, 6), 10)
    check(rank, users, table, bias, torch.tensor([4]), 10)


@pytest.mark.parametrize("place", [3, 699])
def test_a_score_that_is_not_a_number_is_never_skipped(rank, monkeypatch, place):
    monkeypatch.setattr(search, "BLOCK_SCORES", 64 * USERS)
    users, table, bias = vectors(700)
    table[place] = math.nan
    found = rank(users, table, bias, slice(1, 700), 5, pairs([], []))
    assert found.scores.isnan().any(1).all()


@pytest.mark.parametrize("scale", [1e-3, 1, 1e3])
@pytest.mark.parametrize("bias", [False, True])
def test_bounds_are_never_below_the_scores_and_close_to_them(scale, bias):
    for seed in range(5):
        users, table, biases = vectors(2000, seed, bias)
        users = users * scale
        bounds = UpperBounds(table, biases).of_users(users).bounds(slice(0, 2000)).double().T
        scores, _ = expected(users, table, biases, slice(0, 2000), 2000, pairs([], []))
        exact = users.double() @ table.double().T + (0 if biases is None else biases.double())
        slack = bounds - exact
        rounding = 2**-8 * bounds.abs()  # of the bound itself
        assert (slack >= -rounding).all()
        size = users.norm(dim=1, keepdim=True) * table.norm(dim=1) + (0 if biases is None else biases.abs())
        assert (slack <= 2**-5 * size + rounding).all()


def test_bounds_hold_where_rounding_does_its_worst():
    """1 + 2**-8 - 2**-16 is rounded down by nearly half a step; in all features of user and item alike."""
    worst = 1 + 2**-8 - 2**-16
    users, table = torch.full((1, FEATURES), worst), torch.full((3, FEATURES), worst)
    bounds = UpperBounds(table, None).of_users(users).bounds(slice(0, 3))
    exact = float((users @ table.T)[0, 0])
    assert float((users.bfloat16() @ table.bfloat16().T)[0, 0]) < exact
    assert (bounds.float() >= torch.tensor(exact).bfloat16().float()).all()


def test_most_items_are_never_scored_exactly(monkeypatch):
    monkeypatch.setattr(search, "BLOCK_SCORES", 512 * USERS)
    users, table, bias = vectors(50_000, bias=False)
    scored = []
    first = search.UserBounds.scores
    monkeypatch.setattr(search.UserBounds, "scores", lambda *keys: scored.append(len(keys[1])) or first(*keys))
    blocks = []

    def score(items):
        blocks.append(items)
        return users @ table[items].T

    found = best_items(
        score, slice(1, 50_000), 10, pairs([], []), requests=USERS, chunk=10**6,
        users=UpperBounds(table, bias).of_users(users),
    )  # fmt: skip
    assert torch.equal(found.items, expected(users, table, bias, slice(1, 50_000), 10, pairs([], []))[1])
    assert len(blocks) < 6
    assert sum(scored) < 0.01 * USERS * 50_000


# -------------------------------------------------------------------- evaluations


@pytest.mark.parametrize("model", ["MEANTIME", "LightSANs", "TiSASRec"])
@pytest.mark.parametrize("exclude", [False, True])
@pytest.mark.parametrize("bounded", [False, True])
def test_metrics_are_those_of_a_matrix_of_all_scores(make_config, random_events, monkeypatch, model, exclude, bounded):
    events = random_events(users=25, items=30, longest=14)
    keys = {
        "metrics": ["NDCG", "Recall", "MAP", "Precision", "ItemCoverage", "AveragePopularity"], "topk": [1, 8],
        "valid_metric": "NDCG@8", "exclude_history": exclude, "metric_decimal_place": 12,
        "eval_args": {"split": {"RS": [0.5, 0.2, 0.3]}, "mode": "full"}, "eval_batch_size": 7,
    }  # fmt: skip
    monkeypatch.setattr(search, "bounds_pay", lambda table: bounded)
    config = make_config(model, events, **keys)
    torch.manual_seed(0)
    train, _, test = data_preparation(config, create_dataset(config))
    network = config.model_class(config, train._dataset)
    trainer = get_trainer(config)(config, network)
    trainer.eval_collector.data_collect(train)
    whole_matrix = network.full_sort_predict
    monkeypatch.setattr(network, "full_sort_predict", lambda batch: pytest.fail("all scores at once"))
    result, users = trainer.evaluate_per_user(test, load_best_model=False)
    monkeypatch.setattr(network, "full_sort_predict", whole_matrix)
    monkeypatch.setattr(trainer.eval_collector, "needs_best_items_only", lambda: False)
    other_result, other_users = trainer.evaluate_per_user(test, load_best_model=False)
    assert result == pytest.approx(other_result)
    assert users.columns.tolist() == other_users.columns.tolist()
    for name in users:
        np.testing.assert_array_equal(users[name], other_users[name])


def test_metrics_of_all_scores_get_them(make_config, random_events):
    config = make_config(
        "MEANTIME", random_events(users=25, items=30), metrics=["GAUC", "NDCG"], topk=[5], valid_metric="GAUC"
    )
    train, _, test = data_preparation(config, create_dataset(config))
    trainer = get_trainer(config)(config, config.model_class(config, train._dataset))
    assert not trainer.eval_collector.needs_best_items_only()
    assert 0 <= trainer.evaluate(test, load_best_model=False)["gauc"] <= 1
