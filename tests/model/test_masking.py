"""What MEANTIME hides from itself in training: at least one item per window, never padding, 80/10/10."""

import itertools

import pytest
import torch
from torch import Tensor

from recbole_ext.model.meantime.masking import mask_items
from tests.oracles.bare import bare_meantime, sequences

ITEMS = 40
LENGTHS = [1, 2, 5, 12, 12, 30]


def draw(
    mask_ratio: float = 0.2, rows: int = 3000, seed: int = 0, catalogue: int = ITEMS
) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """Items, tokens, chosen slots, real slots, and the id of [MASK]."""
    model = bare_meantime(catalogue, mask_ratio=mask_ratio, MAX_ITEM_LIST_LENGTH=30)
    items, _, length = sequences(LENGTHS, catalogue)
    items, length = items.repeat(rows // len(LENGTHS), 1), length.repeat(rows // len(LENGTHS))
    torch.manual_seed(seed)
    tokens, chosen = mask_items(items, length, mask_ratio, model.mask_id)
    return items, tokens, chosen, torch.arange(30) < length.unsqueeze(1), model.mask_id


@pytest.mark.parametrize("mask_ratio", [1e-9, 0.05, 0.2, 0.9, 1.0])
def test_every_row_has_a_masked_item_and_no_padding_is_masked(mask_ratio):
    items, tokens, chosen, real, _ = draw(mask_ratio)
    assert chosen.any(1).all()
    assert not chosen[~real].any()
    assert torch.equal(tokens[~chosen], items[~chosen])
    assert (tokens[~real] == 0).all()


def test_with_almost_no_ratio_one_item_per_row_is_masked_anywhere_in_it():
    _, _, chosen, real, _ = draw(1e-9)
    assert (chosen.sum(1) == 1).all()
    longest = chosen[real.sum(1) == 30].double().mean(0)  # each of 30 slots in 1 of 30 rows
    assert longest.min() > 0.005
    assert longest.max() < 0.08


def test_with_a_ratio_of_1_everything_is_masked():
    _, _, chosen, real, _ = draw(1.0)
    assert torch.equal(chosen, real)


@pytest.mark.parametrize("mask_ratio", [0.05, 0.2, 0.6])
def test_items_are_masked_with_the_given_probability(mask_ratio):
    _, _, chosen, real, _ = draw(mask_ratio, rows=6000)
    longest = real.sum(1) == 30
    # the one item that a row has at least adds (1 - p)^30 / 30
    expected = mask_ratio + (1 - mask_ratio) ** 30 / 30
    assert float(chosen[longest].double().mean()) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("catalogue", [2, ITEMS])
def test_of_the_masked_80_percent_are_hidden_10_random_and_10_kept(catalogue):
    items, tokens, chosen, _, mask = draw(0.5, rows=12000, catalogue=catalogue)
    now, before = tokens[chosen], items[chosen]
    assert len(now) > 50_000
    hidden, kept = float((now == mask).double().mean()), float((now == before).double().mean())
    assert hidden == pytest.approx(0.8, abs=0.01)
    assert kept == pytest.approx(0.1 + 0.1 / catalogue, abs=0.01)  # a random item may be the item itself
    assert 1 - hidden - kept == pytest.approx(0.1 - 0.1 / catalogue, abs=0.01)


def test_random_items_are_all_items_of_the_catalogue_and_only_those():
    items, tokens, chosen, _, mask = draw(0.9, rows=12000)
    strange = tokens[chosen & (tokens != mask) & (tokens != items)]
    counts = torch.bincount(strange, minlength=ITEMS + 2)
    assert counts[0] == 0
    assert counts[ITEMS + 1] == 0
    assert counts[1 : ITEMS + 1].min() > 0.5 * len(strange) / ITEMS
    assert counts[1 : ITEMS + 1].max() < 2 * len(strange) / ITEMS


def test_masks_follow_the_seed():
    one, same, other = (draw(seed=seed)[1] for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_the_loss_is_taken_at_masked_slots_only():
    model = bare_meantime(ITEMS, MAX_ITEM_LIST_LENGTH=30)
    items, time, length = sequences([6, 4], ITEMS)
    chosen = torch.zeros_like(items, dtype=torch.bool)
    chosen[0, 2] = chosen[1, 3] = True
    loss = model.cloze_loss(items, time, length, items, chosen)
    answers = items.clone()
    answers[~chosen] = 1 + answers[~chosen] % ITEMS
    assert torch.equal(model.cloze_loss(items, time, length, answers, chosen), loss)
    answers[0, 2] = 1 + answers[0, 2] % ITEMS
    assert not torch.equal(model.cloze_loss(items, time, length, answers, chosen), loss)


@pytest.mark.slow
def test_500_steps_of_single_tiny_windows_stay_finite(make_model):
    keys = {"mask_ratio": 0.05, "MAX_ITEM_LIST_LENGTH": 3, "train_batch_size": 1, "train_window": 1}
    model, train, _, _ = make_model(**keys)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for interaction in itertools.islice(itertools.chain.from_iterable(itertools.repeat(train)), 500):
        loss = model.calculate_loss(interaction)
        assert len(interaction) == 1
        assert torch.isfinite(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
