"""The same losses, weights and metrics with one process and with several, at one size of the batch of all together."""

import random
from typing import Any

import numpy as np
import pytest
import torch

from recbole_ext import create_dataset, data_preparation, get_trainer

NO_DROPOUT: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attn_dropout_prob": 0.0}
WINDOWS = {"train_batch_size": 7, "epochs": 4, "hidden_size": 16}  # one window of each user, 5 batches
SAMPLED = {"loss_type": "SSM", "num_negatives": 8, "negative_distribution": "popularity"}
TIME = {"relative_kernels": ["log"], "absolute_kernels": ["day"]}
CASES = {
    "masks": ("MEANTIME", {**NO_DROPOUT, **WINDOWS}),
    "masks and the padding as a class": ("MEANTIME", {**NO_DROPOUT, **WINDOWS, "pad_class": True, "loss_type": "CE"}),
    "next, shared negatives, sparse": (
        "MEANTIME",
        {**NO_DROPOUT, **WINDOWS, **SAMPLED, **TIME, "objective": "next", "sparse_updates": True, "ema_decay": 0.9},
    ),
    "negatives of each target": (
        "TiSASRec",
        {**NO_DROPOUT, **WINDOWS, "loss_type": "BCE", "negative_distribution": "unseen", "num_negatives": 2},
    ),
    "one target, clipped": ("LightSANs", {**NO_DROPOUT, "hidden_size": 16, "clip_grad_norm": {"max_norm": 0.1}}),
    "pairs": ("LightSANs", {**NO_DROPOUT, "hidden_size": 16, "loss_type": "BPR"}),
    "sampled labels": ("BST", {"hidden_dropout_prob": 0.0, "embedding_size": 8}),
    "a sequential model of RecBole": ("SASRec", {**NO_DROPOUT, "hidden_size": 16, "inner_size": 16}),
    "masks of RecBole": (  # the last batch has 10 examples, and a share may have no mask
        "BERT4Rec",
        {**NO_DROPOUT, "hidden_size": 16, "inner_size": 16, "mask_ratio": 0.2, "MAX_ITEM_LIST_LENGTH": 5},
    ),
    "a general model of RecBole": ("BPR", {"embedding_size": 8}),
    "two epochs of drawn targets": ("SASRec", {**NO_DROPOUT, "hidden_size": 16, "targets_per_user": 3}),
}


@pytest.fixture
def train(make_config, write_events, random_events):
    """Train a model on 31 users; returns losses of all steps, those of epochs, results, and the weights."""
    small = {
        "data_path": write_events(random_events(31, 23)),
        "train_batch_size": 21,
        "eval_batch_size": 9,
        "epochs": 4,
    }

    def run(model: str, keys: dict[str, Any], saved: bool = False) -> dict[str, Any]:
        config = make_config(model, **{**small, "eval_step": 1, **keys})
        random.seed(0), np.random.seed(0), torch.manual_seed(0)
        train, valid, test = data_preparation(config, create_dataset(config))
        trainer = get_trainer(config)(config, config.model_class(config, train._dataset))
        losses: list[float] = []
        trainer._check_nan = lambda loss: losses.append(loss.item())
        trainer.fit(train, valid, saved=saved, verbose=False)
        result = trainer.evaluate(test, load_best_model=saved)
        weights = torch.cat([values.flatten() for values in trainer.model.state_dict().values()])
        curves = trainer.curves.to_dict()
        return {"losses": losses, "curves": curves, "test": dict(result), "weights": weights, "random": torch.rand(1)}

    return run


@pytest.mark.parametrize("case", CASES)
def test_losses_and_metrics_do_not_depend_on_the_number_of_processes(case, train, in_processes):
    alone = train(*CASES[case])
    assert len(alone["losses"]) >= 20 or "targets" in case
    for count in (2, 3):
        results = in_processes(count, train, *CASES[case])
        for result in results:
            assert result["losses"] == pytest.approx(alone["losses"], abs=1e-6)
            assert result["curves"]["valid_score"] == alone["curves"]["valid_score"]
            assert result["test"] == alone["test"]
            assert torch.equal(result["weights"], results[0]["weights"])
            assert torch.equal(result["random"], alone["random"])
