"""Random draws of loaders: the same for every number of worker processes, new in each training epoch."""

import pickle
import random

import numpy as np
import pytest
import torch

from recbole_ext import InputError, create_dataset, data_preparation, get_trainer, run_recbole
from recbole_ext.checkpoint import file as checkpoint

pytestmark = pytest.mark.slow

POPULAR = {"distribution": "popularity", "sample_num": 2}
DRAWS = [
    ("MEANTIME", {}), ("BST", {}), ("SASRec", {"loss_type": "BPR"}), ("BERT4Rec", {}), ("BPR", {}), ("NeuMF", {}),
    ("SASRec", {"loss_type": "BPR", "train_neg_sample_args": POPULAR}),
    ("SASRec", {"transform": "crop_itemseq", "eta": 0.5}),
]  # fmt: skip
CANDIDATES = ["uni10", {"valid": "uni10", "test": "pop5"}, {"valid": "full", "test": "uni10"}]


def batches(loader) -> list[dict[str, torch.Tensor]]:
    return [dict(batch.interaction) for batch in loader]


def candidates(loader) -> list[int]:
    return torch.cat([batch[0]["item_id"] for batch in loader]).tolist()


def equal(first, second) -> bool:
    same = zip(first, second, strict=True)
    return all(one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one) for one, two in same)


@pytest.mark.parametrize(("model", "keys"), DRAWS)
def test_training_draws_do_not_depend_on_the_number_of_workers(load, random_events, model, keys):
    events = random_events()
    passes = []
    for worker in (0, 1, 2):
        torch.manual_seed(0)  # of a random split
        train = load(model, events, worker=worker, **keys)[1]
        passes.append([batches(train), batches(train)])
    for first, second in passes[1:]:
        assert equal(first, passes[0][0])
        assert equal(second, passes[0][1])
    assert not equal(*passes[0])


@pytest.mark.parametrize("mode", CANDIDATES, ids=str)
@pytest.mark.parametrize("model", ["MEANTIME", "BPR"])
def test_candidates_of_an_evaluation_depend_on_the_seed_alone(load, random_events, model, mode):
    keys = {"events": random_events(), "eval_args": {"split": {"RS": [0.6, 0.2, 0.2]}, "mode": mode}}
    drawn = []
    for worker, batch in [(0, 4096), (1, 4096), (2, 4096), (0, 32)]:
        torch.manual_seed(0)  # of a random split
        _, _, *parts = load(model, worker=worker, eval_batch_size=batch, **keys)
        random.seed(worker), np.random.seed(worker), torch.manual_seed(worker)
        sampled = [part for part in parts if type(part).__name__ == "NegSampleEvalDataLoader"]
        drawn += [[candidates(part) for part in sampled], [candidates(part) for part in sampled]]
    assert all(other == drawn[0] for other in drawn)
    assert candidates(load(model, seed=7, **keys)[-1]) != drawn[0][-1]


def test_loading_leaves_the_random_generators_as_they_were(load):
    _, train, valid, _ = load("BPR", eval_args={"mode": "uni5"})
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = random.random(), np.random.rand(), torch.rand(1)
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    batches(train), candidates(valid)
    assert (random.random(), np.random.rand(), torch.rand(1)) == expected


@pytest.mark.parametrize("model", ["MEANTIME", "BST", "BPR"])
def test_training_and_scores_do_not_depend_on_the_number_of_workers(make_config, random_events, model):
    events, results = random_events(), []
    for worker in (0, 1, 2):
        config = make_config(model, events, worker=worker, eval_args={"mode": "uni10"})
        torch.manual_seed(0)
        train, valid, test = data_preparation(config, create_dataset(config))
        trainer = get_trainer(config)(config, config.model_class(config, train._dataset))
        trainer.fit(train, valid, saved=True)
        scores = trainer.curves.to_dict(), trainer.evaluate(test), trainer.evaluate(test)
        assert scores[1] == scores[2]
        results.append(scores)
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(("model", "mode"), [("BST", "uni5"), ("BPR", "uni5"), ("BST", "pop5-unseen")])
def test_a_resumed_run_may_have_another_number_of_workers(no_waiting, write_events, random_events, model, mode):
    keys = {
        "data_path": write_events(random_events()), "topk": [5], "valid_metric": "NDCG@5", "use_gpu": False,
        "show_progress": False, "eval_args": {"mode": mode},
    }  # fmt: skip
    alone = run_recbole(model, "toy", None, {**keys, "epochs": 2}, argv=[])
    begun = run_recbole(model, "toy", None, {**keys, "epochs": 1, "worker": 2}, argv=[])
    ended = run_recbole(config_dict={"epochs": 2, "worker": 1}, argv=[], resume=begun["checkpoint"])
    assert ended["test_result"] == alone["test_result"]
    states = [checkpoint.load(result["checkpoint"]) for result in (alone, ended)]
    assert states[0]["curves"] == states[1]["curves"]
    assert all(torch.equal(values, states[1]["state_dict"][name]) for name, values in states[0]["state_dict"].items())


def test_an_unchanged_model_has_the_same_score_in_every_epoch(make_config):
    config = make_config(eval_args={"mode": "uni10"}, learning_rate=1e-9, worker=1, epochs=3)
    train, valid, _ = data_preparation(config, create_dataset(config))
    trainer = get_trainer(config)(config, config.model_class(config, train._dataset))
    trainer.fit(train, valid, saved=False)
    assert len(set(trainer.curves.to_dict()["valid_score"])) == 1


def test_loaders_are_pickled_as_for_workers_that_are_spawned(load):
    train = load("BPR")[1]
    again = pickle.loads(pickle.dumps(train))
    assert type(again) is type(train)
    assert equal(batches(again), batches(train))


def test_masks_that_no_item_can_fill_are_refused(load):
    """RecBole would look for an item that is not in the history, for ever."""
    events = [("reader", f"i{number % 4}", 1_600_000_000 + number) for number in range(9)]
    keys = {"topk": [1], "valid_metric": "NDCG@1"}
    with pytest.raises(InputError, match="a history of user 'reader' contains all 4 items; lower MAX_ITEM_LIST_LENGTH"):
        load("BERT4Rec", events, **keys)
    train = load("BERT4Rec", events, MAX_ITEM_LIST_LENGTH=3, mask_ratio=0.5, **keys)[1]
    assert batches(train)


def test_dynamic_negatives_need_the_model_of_the_main_process(make_config):
    dynamic = {"distribution": "uniform", "sample_num": 1, "dynamic": True, "candidate_num": 3}
    with pytest.raises(InputError, match="worker is 2, but train_neg_sample_args is dynamic"):
        make_config("BPR", train_neg_sample_args=dynamic, worker=2)
