"""Sampled evaluation with items that the user has not had: `uniN-unseen` and `popN-unseen`."""

from collections import Counter, defaultdict
from itertools import permutations

import numpy as np
import pytest
import torch

from recbole_ext import InputError, create_dataset, data_preparation, get_trainer
from recbole_ext.data.unseen_candidates import draw_unseen
from recbole_ext.model.meantime import MEANTIME

MODELS = ["MEANTIME", "BST", "LightSANs", "SASRec", "DIN", "DIEN", "BPR", "FM"]
LEAVE_ONE_OUT, RATIO = {"LS": "valid_and_test"}, {"RS": [0.5, 0.2, 0.3]}
UNSEEN = {"eval_args": {"split": LEAVE_ONE_OUT, "order": "TO", "mode": "pop6-unseen"}}


def tokens(loader) -> dict[tuple[str, str], list[str]]:
    """The candidates of each user and target, from the loader's batches."""
    dataset, candidates = loader._dataset, {}
    for batch, ranking, target_ranking, targets in loader:
        size = len(batch) // len(targets)
        assert batch["label"].tolist() == ([1] + [0] * (size - 1)) * len(targets)
        assert batch["item_id"][::size].tolist() == targets.tolist()
        assert ranking[::size].tolist() == target_ranking.tolist()
        users = dataset.id2token("user_id", batch["user_id"])
        items = dataset.id2token("item_id", batch["item_id"])
        for begin in range(0, len(batch), size):
            rows = slice(begin, begin + size)
            assert len({*zip(users[rows], ranking[rows].tolist(), strict=True)}) == 1
            candidates[users[begin], items[begin]] = items[rows].astype(str).tolist()[1:]
    return candidates


def items_of_users(events) -> dict[str, set[str]]:
    items = defaultdict(set)
    for user, item, *_ in events:
        items[user].add(item)
    return items


def test_each_history_is_encoded_once_for_all_its_candidates(load, random_events, monkeypatch):
    _, _, _, test = load("MEANTIME", random_events(users=15), **UNSEEN)
    model = MEANTIME(test.config, test.dataset)
    encoded = []
    monkeypatch.setattr(
        model,
        "encode",
        lambda items, *args, **keys: encoded.append(len(items)) or type(model).encode(model, items, *args, **keys),
    )
    get_trainer(test.config)(test.config, model).evaluate(test, load_best_model=False)
    assert sum(encoded) == 15


@pytest.mark.parametrize("split", [LEAVE_ONE_OUT, RATIO], ids=str)
@pytest.mark.parametrize("mode", ["pop6-unseen", "uni6-unseen"])
def test_candidates_differ_are_new_to_the_user_and_are_the_same_for_all_targets_and_models(
    load, random_events, mode, split
):
    events = random_events(users=15)
    had = items_of_users(events)
    lists = {}
    for model in MODELS:
        torch.manual_seed(0)
        keys = {"metrics": ["NDCG"]} if model in ("DIN", "DIEN", "FM") else {}
        order = {"split": split, "order": "TO", "group_by": "user", "mode": mode}
        _, _, valid, test = load(model, events, eval_args=order, **keys)
        for (user, _), items in [*tokens(valid).items(), *tokens(test).items()]:
            assert len(set(items)) == 6
            assert not had[user] & set(items)
            assert lists.setdefault(user, items) == items
    assert len({tuple(items) for items in lists.values()}) == len(lists) == 15


@pytest.mark.parametrize("model", ["MEANTIME", "BPR"])
def test_candidates_depend_on_the_seed_and_not_on_batches_workers_or_other_users(load, random_events, model):
    events = random_events()
    expected = tokens(load(model, events, **UNSEEN)[-1])
    for worker, batch in [(1, 4096), (2, 20), (0, 1)]:
        _, _, _, test = load(model, events, worker=worker, eval_batch_size=batch, **UNSEEN)
        np.random.seed(worker)
        assert tokens(test) == tokens(test) == expected
    assert tokens(load(model, events, seed=7, **UNSEEN)[-1]) != expected
    dataset, _, _, test = load(model, events, **UNSEEN)
    user = np.unique(test.uid_list)[-1:]
    assert (draw_unseen(dataset, user, "pop6-unseen", 2020)[user] == test._sampler.items[user]).all()


@pytest.mark.parametrize("model", ["SASRec", "BPR"])
@pytest.mark.parametrize("mode", ["pop2-unseen", "uni2-unseen"])
def test_probabilities_are_those_of_draws_without_replacement(load, model, mode):
    counts = {"a": 9, "b": 5, "c": 2, "d": 1}  # events of other users
    events = [(f"{item}{number}", item, 1.6e9 + 1) for item, count in counts.items() for number in range(count)]
    draws = 2000
    events += [(f"u{user}", "e", 1.6e9 + time) for user in range(draws) for time in range(4)]
    events += [("v", item, 1.6e9 + time) for time, item in enumerate("abe")]  # an item more often than once, for both
    counts |= {"a": 10, "b": 6}
    order = {**UNSEEN["eval_args"], "mode": mode}
    test = load(model, events, topk=[1], valid_metric="NDCG@1", eval_args=order)[-1]
    drawn = Counter("".join(items) for (user, _), items in tokens(test).items() if user.startswith("u"))
    weight = counts if mode.startswith("pop") else dict.fromkeys(counts, 1)
    total, statistic = sum(weight.values()), 0.0
    for first, second in permutations(counts, 2):
        probability = weight[first] / total * weight[second] / (total - weight[first])
        statistic += (drawn[first + second] - draws * probability) ** 2 / (draws * probability)
    assert sum(drawn[first + second] for first, second in permutations(counts, 2)) == draws
    assert statistic < 31.3  # 11 degrees of freedom: exceeded once in 1,000 times


def test_each_part_may_have_its_mode(load, random_events):
    events = random_events()
    _, _, valid, test = load("SASRec", events, eval_args={"mode": {"valid": "pop6-unseen", "test": "full"}})
    assert len(next(iter(tokens(valid).values()))) == 6
    assert type(test).__name__ == "FullSortEvalDataLoader"
    _, _, valid, test = load("SASRec", events, eval_args={"mode": {"valid": "uni4-unseen", "test": "pop6-unseen"}})
    assert {len(items) for items in tokens(valid).values()} == {4}
    assert {len(items) for items in tokens(test).values()} == {6}


def test_an_empty_part_has_no_candidates(load, random_events):
    keys = {"split": {"LS": "test_only"}, "mode": "pop6-unseen"}
    _, _, valid, test = load("SASRec", random_events(), eval_args=keys)
    assert len(valid) == 0
    assert len(tokens(test)) == 30


@pytest.mark.parametrize("model", ["SASRec", "BPR"])
def test_a_user_who_has_had_too_many_items_is_named(load, model):
    events = [
        (user, f"i{number}", 1.6e9 + number) for user, last in (("u", 5), ("reader", 8)) for number in range(last)
    ]
    events += [("w", f"i{number}", 1.6e9 + number) for number in (8, 1, 2, 0)]
    order, keys = UNSEEN["eval_args"], {"topk": [1], "valid_metric": "NDCG@1"}
    with pytest.raises(InputError, match="mode is pop2-unseen, but only 1 of 9 items .* user 'reader', who has had"):
        load(model, events, eval_args={**order, "mode": "pop2-unseen"}, **keys)
    with pytest.raises(InputError, match=r"only 4 of 9 items are left to draw for user 'u' \(and 1 more\)"):
        load(model, events, eval_args={**order, "mode": "uni5-unseen"}, **keys)


def test_files_with_histories_count_their_targets_and_exclude_their_histories(make_config, write_lines):
    header = "user_id:token\titem_id_list:token_seq\titem_id:token\ttimestamp:float"
    lines = [f"u{n}\ti{n} i{n + 1} i{n + 2} i{n + 3}\ti{(n + 4) % 12}\t1600000002" for n in range(10)]
    for part in ("train", "valid", "test"):
        path = write_lines(f"{part}.inter", header, *lines)
    columns = ["user_id", "item_id_list", "item_id", "timestamp"]
    keys = {"benchmark_filename": ["train", "valid", "test"], "load_col": {"inter": columns}, "MAX_ITEM_LIST_LENGTH": 2}
    config = make_config("SASRec", data_path=path, eval_args={"mode": "pop5-unseen"}, **keys)
    _, _, test = data_preparation(config, create_dataset(config))
    targets = {f"i{(n + 4) % 12}" for n in range(10)}
    for (user, target), items in tokens(test).items():
        number = int(user[1:])
        assert not set(items) & {target, *(f"i{number + step}" for step in range(4))}
        assert len(set(items)) == 5
        assert set(items) <= targets


@pytest.mark.parametrize("model", ["MEANTIME", "BPR"])
@pytest.mark.parametrize("metric", ["MRR@5", "GAUC"])
def test_metrics_are_those_of_the_candidates(make_model, random_events, model, metric):
    keys = {"metrics": [metric.partition("@")[0]], "valid_metric": metric, "metric_decimal_place": 9}
    keys |= {"eval_args": {"split": RATIO, "order": "TO", "group_by": "user", "mode": "pop6-unseen"}}
    network, train, _, test = make_model(model, random_events(users=10), eval_batch_size=50, **keys)
    config = test.config
    network.eval()
    results, weights = [], []
    for batch, ranking, _, _ in test:
        score, target = network.predict(batch), batch["label"] == 1
        for number in range(int(ranking.max()) + 1):
            scores = dict(zip(batch["item_id"][ranking == number].tolist(), score[ranking == number], strict=True))
            hits = set(batch["item_id"][(ranking == number) & target].tolist())
            assert len(scores) == len(hits) + 6
            ranked = sorted(scores, key=scores.get, reverse=True)
            first = min(ranked.index(item) for item in hits) + 1
            pairs = [float(scores[item] > scores[other]) for item in hits for other in scores.keys() - hits]
            results.append(np.mean(pairs) if metric == "GAUC" else 1 / first if first <= 5 else 0)
            weights.append(len(hits) if metric == "GAUC" else 1)
    trainer = get_trainer(config)(config, network)
    measured = trainer.evaluate(test, load_best_model=False)
    assert measured[metric.lower()] == pytest.approx(np.average(results, weights=weights))


@pytest.mark.parametrize("model", ["MEANTIME", "BPR"])
def test_metrics_of_labels_work(make_model, random_events, model):
    keys = {"metrics": ["AUC"], "valid_metric": "AUC", "eval_args": {"mode": "pop6-unseen"}}
    network, _, _, test = make_model(model, random_events(), **keys)
    trainer = get_trainer(test.config)(test.config, network)
    result, users = trainer.evaluate_per_user(test, load_best_model=False)
    assert 0 < result["auc"] < 1
    assert users["events"].unique().tolist() == [7]
