"""Losses over sampled negatives: against plain formulations, and in expectation. See also test_cross_entropy.py."""

import math

import pytest
import torch

from recbole_ext.model import losses
from recbole_ext.model.losses import DISTRIBUTIONS, ItemLoss, NegativeSampler

TARGETS, HIDDEN, ITEMS = 7, 4, 12  # items with the padding
COUNTS = torch.tensor([0, 5, 0, 1, 9, 2, 2, 3, 1, 1, 4, 2])


def inputs(dtype=torch.float64, biased=True):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(TARGETS, HIDDEN, generator=generator, dtype=dtype, requires_grad=True)
    table = torch.randn(ITEMS, HIDDEN, generator=generator, dtype=dtype, requires_grad=True)
    bias = torch.randn(ITEMS, generator=generator, dtype=dtype, requires_grad=True) if biased else None
    return hidden, table, bias, torch.tensor([1, 4, 4, 11, 7, 3, 1])


def plain(loss_type, hidden, table, bias, target, negatives, log_probability, corrected, calibration):
    """The definition, target by target and negative by negative."""
    total = 0.0
    for vector, item in zip(hidden, target.tolist(), strict=True):
        score = [float(vector @ row) + (0.0 if bias is None else float(bias[n])) for n, row in enumerate(table)]
        wrong = [
            (score[k], float(log_q)) for k, log_q in zip(negatives.tolist(), log_probability, strict=True) if k != item
        ]
        if loss_type == "CE":
            total += math.log(sum(math.exp(value) for value in score[1:])) - score[item]
        elif loss_type == "SSM":
            size = len(negatives)
            others = sum(math.exp(s - (log_q + math.log(size) if corrected else 0)) for s, log_q in wrong)
            total += math.log(math.exp(score[item]) + others) - score[item]
        else:
            alpha = len(negatives) / (len(table) - 2)
            beta = 1 if loss_type == "BCE" else alpha * (calibration * (1 - 1 / alpha) + 1 / alpha)
            right = -beta * math.log(1 / (1 + math.exp(-score[item])))
            total += (right + sum(math.log(1 + math.exp(s)) for s, _ in wrong)) / (len(negatives) + 1)
    return total / len(target)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize(
    ("loss_type", "corrected", "calibration"),
    [("CE", True, 0), ("SSM", True, 0), ("SSM", False, 0), ("BCE", True, 0), ("gBCE", True, 0.75), ("gBCE", True, 1.0)],
)
def test_every_loss_is_its_definition(loss_type, corrected, calibration, distribution, biased):
    hidden, table, bias, target = inputs(biased=biased)
    sampler = NegativeSampler(distribution, 5, COUNTS)
    loss = ItemLoss(loss_type, sampler, corrected, calibration)
    torch.manual_seed(3)
    negatives, log_probability = sampler(target)
    torch.manual_seed(3)
    value = loss(hidden, table, bias, target)
    with torch.no_grad():
        expected = plain(loss_type, hidden, table, bias, target, negatives, log_probability, corrected, calibration)
    assert value.item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("distribution", ["uniform", "popularity", "mixed"])
def test_negatives_are_drawn_with_the_probabilities_they_report(distribution):
    sampler = NegativeSampler(distribution, 200_000, COUNTS)
    torch.manual_seed(0)
    negatives, log_probability = sampler(torch.tensor([1]))
    share = torch.bincount(negatives, minlength=ITEMS) / len(negatives)
    assert share[0] == 0
    torch.testing.assert_close(share[negatives], log_probability.exp().float(), atol=0.004, rtol=0)
    popularity = COUNTS / COUNTS.sum()
    uniform = torch.full((ITEMS,), 1 / (ITEMS - 1)).index_fill(0, torch.tensor(0), 0)
    expected = {"uniform": uniform, "popularity": popularity, "mixed": (uniform + popularity) / 2}[distribution]
    torch.testing.assert_close(share, expected, atol=0.004, rtol=0)


def test_negatives_of_the_batch_are_its_targets_without_repeats_of_a_row():
    target = torch.arange(1, 9)
    negatives, log_probability = NegativeSampler("in_batch", 5, COUNTS)(target)
    assert len(set(negatives.tolist())) == 5
    torch.testing.assert_close(log_probability, (COUNTS / COUNTS.sum()).double().log()[negatives], atol=1e-6, rtol=0)
    negatives, _ = NegativeSampler("in_batch", 50, COUNTS)(target)
    assert sorted(negatives.tolist()) == target.tolist()


@pytest.mark.parametrize("distribution", ["uniform", "mixed"])
def test_the_corrected_sum_over_negatives_is_that_over_all_other_items_in_expectation(distribution):
    hidden, table, bias, target = (x.detach() for x in inputs())
    sampler = NegativeSampler(distribution, 400_000, COUNTS)
    torch.manual_seed(0)
    sampled = ItemLoss("SSM", sampler)(hidden, table, bias, target)
    exact = ItemLoss("CE")(hidden, table, bias, target)
    assert sampled.item() == pytest.approx(exact.item(), abs=0.005)
    assert ItemLoss("SSM", sampler, logq_correction=False)(hidden, table, bias, target).item() > exact.item() + 1


def test_gradients_of_the_sampled_softmax_approach_those_of_the_full_one():
    torch.manual_seed(0)
    gradients = []
    for loss in (ItemLoss("CE"), ItemLoss("SSM", NegativeSampler("uniform", 400_000, COUNTS))):
        hidden, table, bias, target = inputs()
        gradients.append(torch.autograd.grad(loss(hidden, table, bias, target), (hidden, table, bias)))
    for exact, sampled in zip(*gradients, strict=True):
        torch.testing.assert_close(sampled, exact, atol=0.005, rtol=0)


@pytest.mark.parametrize("loss_type", ["SSM", "gBCE", "BCE"])
def test_chunks_change_no_value_and_no_gradient(loss_type, monkeypatch):
    found = []
    for most in (2**27, 24):  # 24 logits: four rows with five negatives
        monkeypatch.setattr(losses, "LOGITS_AT_ONCE", most)
        hidden, table, bias, target = inputs()
        torch.manual_seed(3)
        value = ItemLoss(loss_type, NegativeSampler("uniform", 5, COUNTS))(hidden, table, bias, target)
        found.append([value, *torch.autograd.grad(value, (hidden, table, bias))])
    for whole, parts in zip(*found, strict=True):
        torch.testing.assert_close(parts, whole, atol=1e-6, rtol=1e-6)


def test_a_sampler_adds_nothing_to_a_checkpoint():
    assert not ItemLoss("SSM", NegativeSampler("popularity", 5, COUNTS)).state_dict()


def test_a_single_item_has_a_finite_loss():
    counts = torch.tensor([0, 3])
    hidden, table = torch.ones(2, 3), torch.ones(2, 3)
    for loss_type in ("CE", "SSM", "gBCE", "BCE"):
        value = ItemLoss(loss_type, NegativeSampler("uniform", 4, counts))(hidden, table, None, torch.tensor([1, 1]))
        assert torch.isfinite(value)
