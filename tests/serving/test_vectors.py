"""User and item vectors: their inner products are the scores of `recommend`, or the model has none."""

import numpy as np
import pandas as pd
import pytest
import torch

from recbole_ext import InputError, Recommender
from tests.oracles.bare import randomise

NAMES = ["user_id", "item_id", "timestamp"]
SMALL = {
    "MEANTIME": {"hidden_size": 12, "inner_size": 20}, "LightSANs": {"hidden_size": 12, "inner_size": 20},
    "TiSASRec": {"hidden_size": 12},
}  # fmt: skip


@pytest.fixture
def recommender(make_model, make_recommender):
    """A recommender of an untrained model with weights large enough to tell scores apart."""

    def make(name, **keys) -> Recommender:
        model, train, *_ = make_model(name, **{**SMALL.get(name, {}), **keys})
        randomise(model)
        return make_recommender(model, train)

    return make


@pytest.fixture
def histories(random_events) -> pd.DataFrame:
    return pd.DataFrame(random_events(users=7, longest=15, seed=3), columns=NAMES)


@pytest.mark.parametrize(("name", "numbers"), [("MEANTIME", 13), ("LightSANs", 12), ("TiSASRec", 12)])
@pytest.mark.parametrize("rows", [2, 256])
def test_inner_products_are_the_scores_of_recommend(recommender, histories, name, numbers, rows, monkeypatch):
    monkeypatch.setattr("recbole_ext.serving.scoring.MAX_ROWS", rows)
    recommender, at = recommender(name), 1.7e9
    items, of_items = recommender.item_vectors()
    users, of_users = recommender.user_vectors(histories, at=at)
    assert (of_items.shape, of_users.shape) == ((20, numbers), (7, numbers))
    assert of_items.dtype == of_users.dtype == np.float32
    expected = recommender.recommend(histories, k=20, at=at, exclude_seen=False)
    assert list(users) == list(expected["user_id"].unique())
    scores = of_users @ of_items.T
    for row, (_, ranked) in zip(scores, expected.groupby("user_id", sort=False), strict=True):
        order = np.argsort(-row)
        assert list(items[order]) == list(ranked["item_id"])
        np.testing.assert_allclose(row[order], ranked["score"], rtol=1e-5, atol=1e-5)


def test_users_and_times_are_those_asked_for(recommender, histories):
    recommender = recommender("MEANTIME")
    everyone = recommender.user_vectors(histories)
    some = recommender.user_vectors(histories, users=["u5", "u2"])
    assert list(some.tokens) == ["u5", "u2"]
    place = {user: row for row, user in enumerate(everyone.tokens)}
    np.testing.assert_allclose(some.vectors, everyone.vectors[[place["u5"], place["u2"]]], rtol=1e-5, atol=1e-6)
    later = recommender.user_vectors(histories, at=1.7e9, users=["u5"])
    assert np.abs(later.vectors - some.vectors[:1]).max() > 1e-3
    with pytest.raises(InputError, match="at is 'noon'"):
        recommender.user_vectors(histories, at="noon")


def test_nobody_asked_for_gives_no_rows(recommender, histories):
    found = recommender("MEANTIME").user_vectors(histories[:0])
    assert (len(found.tokens), found.vectors.shape) == (0, (0, 13))


@pytest.mark.parametrize("name", ["BST", "SASRec", "GRU4Rec", "FPMC", "recbole.LightSANs"])
def test_a_model_without_such_vectors_is_one_sentence(recommender, histories, name):
    recommender = recommender(name)
    for call in (recommender.item_vectors, lambda: recommender.user_vectors(histories)):
        with pytest.raises(InputError) as caught:
            call()
        assert str(caught.value) == (
            f"{name} has no user and item vectors whose inner product is its score; models that have them are "
            f"MEANTIME, LightSANs, TiSASRec. Use recommend instead."
        )


def test_vectors_that_are_no_numbers_fail(recommender, histories):
    recommender = recommender("LightSANs")
    with torch.no_grad():
        recommender.model.item_embedding.weight[1:] = torch.nan
    with pytest.raises(FloatingPointError, match="user vectors are not numbers"):
        recommender.user_vectors(histories)
