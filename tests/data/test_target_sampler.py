"""`targets_per_user`: how many examples of each user an epoch has, and which."""

from collections import Counter

import numpy as np
import pytest
import torch

from recbole_ext import InputError
from recbole_ext.data.target_sampler import TargetSampler

SIZES = {3: 1, 7: 4, 2: 9}  # examples of each user
USERS = np.array([7, 2, 2, 3, 2, 7, 2, 2, 2, 7, 2, 2, 7, 2])


def sampler(count: int, shuffle: bool = True, seed: int = 0) -> TargetSampler:
    return TargetSampler(USERS, count, torch.Generator().manual_seed(seed), shuffle)


@pytest.mark.parametrize("count", [1, 3, 4, 100])
def test_each_user_has_so_many_different_rows_or_all(count):
    rows = list(drawn := sampler(count))
    assert len(set(rows)) == len(rows) == len(drawn)
    assert Counter(USERS[rows].tolist()) == {user: min(size, count) for user, size in SIZES.items()}


def test_every_row_of_a_user_is_drawn_equally_often_and_at_every_place():
    drawn, passes = sampler(3), 6000
    seen = [list(drawn) for _ in range(passes)]
    often = Counter(row for rows in seen for row in rows)
    for row, user in enumerate(USERS.tolist()):
        share = min(1, 3 / SIZES[user])
        assert often[row] / passes == pytest.approx(share, abs=4 * (share * (1 - share) / passes) ** 0.5)
    first = Counter(int(USERS[rows[0]]) for rows in seen)  # 7 rows: 1 of user 3, 3 of each other user
    assert first[3] / passes == pytest.approx(1 / 7, abs=0.02)
    assert first[7] / passes == pytest.approx(3 / 7, abs=0.03)


def test_passes_differ_and_the_generator_repeats_them():
    first, again = sampler(2), sampler(2)
    passes = [list(first) for _ in range(3)]
    assert passes == [list(again) for _ in range(3)]
    assert len({tuple(rows) for rows in passes}) == 3


def test_without_shuffling_rows_ascend():
    rows = list(sampler(2, shuffle=False))
    assert rows == sorted(rows)
    assert len(rows) == 5


@pytest.mark.parametrize("model", ["LightSANs", "BST", "SASRec", "BPR"])
def test_the_loader_yields_the_drawn_events_and_negatives_of_them_alone(load, random_events, model):
    keys = {"loss_type": "BPR"} if model in ("SASRec", "LightSANs") else {}
    _, train, *_ = load(model, random_events(), targets_per_user=2, train_batch_size=16, **keys)
    table = train._dataset.inter_feat
    users = Counter(table["user_id"].tolist())
    for _ in range(2):
        batches = list(train)
        assert len(batches) == len(train)
        seen = torch.cat([batch["user_id"] for batch in batches]).tolist()
        drawn = {user: min(size, 2) for user, size in users.items()}
        times = len(seen) // sum(drawn.values())  # labelled examples come with a negative each
        assert Counter(seen) == {user: count * times for user, count in drawn.items()}


def test_draws_do_not_depend_on_worker(load, random_events):
    passes = []
    for worker in (0, 2):
        _, train, *_ = load("LightSANs", random_events(), targets_per_user=2, worker=worker)
        passes.append([torch.cat([batch["item_id"] for batch in train]).tolist() for _ in range(2)])
    assert passes[0] == passes[1]
    assert passes[0][0] != passes[0][1]


@pytest.mark.parametrize(
    ("model", "keys", "sentence"),
    [
        ("MEANTIME", {}, "MEANTIME learns from windows of events, whose number train_window sets"),
        ("RecVAE", {}, "RecVAE does not learn from one event at a time"),
        ("Pop", {}, "Pop does not learn from one event at a time"),
    ],
)
def test_other_models_refuse_it(load, random_events, model, keys, sentence):
    with pytest.raises(InputError, match=f"targets_per_user is 2, but {sentence}; leave targets_per_user out"):
        load(model, random_events(), targets_per_user=2, **keys)


def test_data_without_users_refuse_it(load, write_events):
    events = [(rating, float(number)) for number, rating in enumerate((1, 5) * 20)]
    keys = {
        "data_path": write_events(events, ("rating:float", "timestamp:float")), "threshold": {"rating": 3},
        "USER_ID_FIELD": None, "ITEM_ID_FIELD": None, "load_col": {"inter": ["rating", "timestamp"]},
        "eval_args": {"split": {"RS": [0.5, 0.25, 0.25]}, "mode": "labeled"}, "metrics": ["AUC"], "valid_metric": "AUC",
    }  # fmt: skip
    with pytest.raises(InputError, match="targets_per_user is 8, but the data have no users"):
        load("WideDeep", targets_per_user=8, **keys)
