"""MEANTIME equals the plain oracle: states, scores, loss and gradients, for every kernel and many mixtures."""

import pytest
import torch
from torch import Tensor

from recbole_ext.model import batching
from tests.oracles.bare import DAY, bare_meantime, plain_like, randomise, sequences

LENGTHS = [11, 2, 1, 7, 11, 5]
ITEMS, SPAN = 40, 1000 * DAY
TOLERANCE = {"sin": 1e-7, "exp": 1e-5, "log": 1e-5}
MIXTURES = [
    (["position"], []), (["day"], []), (["constant"], []), ([], ["sin"]), ([], ["exp"]), ([], ["log"]),
    (["position", "day"], ["sin", "log"]), (["constant", "position"], ["exp"]), (["day"], ["log", "sin", "exp"]),
    ([], ["exp", "log"]), (["day", "constant", "position"], []),
    (["position", "day", "constant"], ["sin", "exp", "log"]),
]  # fmt: skip
NAMES = ["-".join(absolute) + "_" + "-".join(relative) for absolute, relative in MIXTURES]


def tolerance(relative: list[str]) -> float:
    return max([1e-9, *(TOLERANCE[name] for name in relative)])


def both(absolute, relative, **keys):
    """Our model and the plain one, in float64 and with the same large random weights."""
    keys = {"hidden_size": 12, "inner_size": 20, "MAX_ITEM_LIST_LENGTH": 13, **keys}
    model = bare_meantime(ITEMS, 1001, absolute_kernels=absolute, relative_kernels=relative, **keys).double()
    randomise(model)
    return model, plain_like(model, keys.get("content_bias", False), freq=keys.get("kernel_freq"))


def batch(seed: int = 3) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Items, times, lengths and which slots are real."""
    items, time, length = sequences(LENGTHS, ITEMS, SPAN, seed)
    return items, time, length, torch.arange(items.shape[1]) < length.unsqueeze(1)


def apart(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).detach().abs().max())


ARCHITECTURES = ["bert4rec", "sasrec"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("content_bias", [False, True], ids=["", "content_bias"])
@pytest.mark.parametrize(("absolute", "relative"), MIXTURES, ids=NAMES)
def test_states_and_scores_are_the_oracles(absolute, relative, content_bias, architecture):
    model, plain = both(absolute, relative, content_bias=content_bias, architecture=architecture)
    items, time, length, real = batch()
    states, expected = model.encode(items, time, length), plain.encode(items, time, real)
    assert apart(states[real], expected[real]) < tolerance(relative)
    scores = model.represent(states) @ model.item_embedding.weight[: model.n_items].T + model.item_bias
    assert apart(scores[real], plain.scores(expected)[real]) < tolerance(relative)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("pad_class", [False, True], ids=["", "pad_class"])
@pytest.mark.parametrize(("absolute", "relative"), MIXTURES, ids=NAMES)
def test_loss_and_gradients_are_the_oracles(absolute, relative, pad_class, architecture):
    model, plain = both(absolute, relative, pad_class=pad_class, content_bias=True, architecture=architecture)
    items, time, length, real = batch()
    chosen = real & (torch.rand(items.shape, generator=torch.Generator().manual_seed(5)) < 0.5)
    chosen[:, 0] = True
    tokens = torch.where(chosen & (items % 3 > 0), model.mask_id, items)
    loss, expected = (
        model.cloze_loss(tokens, time, length, items, chosen),
        plain.loss(tokens, time, real, items, chosen),
    )
    assert apart(loss, expected) < tolerance(relative)
    loss.backward()
    expected.backward()
    ours, theirs = dict(model.named_parameters()), dict(plain.named_parameters())
    assert ours.keys() == theirs.keys()
    for name, parameter in ours.items():
        assert parameter.grad is not None, name
        right = torch.zeros_like(parameter) if theirs[name].grad is None else theirs[name].grad
        assert apart(parameter.grad, right) < tolerance(relative), name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_selected_slots_are_those_slots_of_all(layers, architecture):
    kernels = (["position", "day", "constant"], ["sin", "exp", "log"])
    model, _ = both(*kernels, n_layers=layers, architecture=architecture)
    items, time, length, _ = batch()
    rows = torch.stack([torch.zeros_like(length), length - 1, length // 2], dim=1)
    everything = model.encode(items, time, length)
    some = model.encode(items, time, length, rows)
    assert apart(some, everything.gather(1, rows.unsqueeze(-1).expand(-1, -1, 12))) < 1e-12


def test_a_batch_of_one_row_and_one_slot_is_the_oracles():
    model, plain = both(["position", "constant"], ["sin", "log"])
    items, time, length, real = (values[2:3, :1] if values.dim() == 2 else values[2:3] for values in batch())
    rows = torch.zeros(1, 1, dtype=torch.int64)
    assert apart(model.encode(items, time, length, rows), plain.encode(items, time, real)) < 1e-5


def test_padding_on_the_left_gives_the_oracle_the_same_states():
    _, plain = both(["position", "day", "constant"], ["sin", "exp", "log"])
    items, time, length, real = batch()
    moved = real.flip(1)
    left_items, left_time = torch.zeros_like(items), torch.zeros_like(time)
    left_items[moved], left_time[moved] = items[real], time[real]
    right, left = plain.encode(items, time, real), plain.encode(left_items, left_time, moved)
    assert apart(right[real], left[moved]) < 1e-12


@pytest.mark.parametrize(
    "keys", [{"kernel_time_unit": 86400.0}, {"kernel_time_unit": 0.5}, {"kernel_freq": 100.0}], ids=str
)
def test_unit_and_frequency_of_the_kernels_are_the_oracles(keys):
    model, plain = both([], ["sin", "exp", "log"], **keys)
    items, time, length, real = batch()
    assert apart(model.encode(items, time, length)[real], plain.encode(items, time, real)[real]) < 1e-5


def test_parts_of_a_batch_give_the_loss_of_the_whole(monkeypatch):
    model, plain = both(["position", "day"], ["sin", "log"])
    items, time, length, real = batch()
    expected = plain.loss(items, time, real, items, real)
    monkeypatch.setattr(batching, "MAX_PAIRS", (100, 100))
    assert len(list(batching.length_buckets(length))) > 3
    assert apart(model.cloze_loss(items, time, length, items, real), expected) < 1e-5


def test_the_first_block_hands_out_its_attention():
    model, _ = both(["position"], ["exp"])
    items, time, length, real = batch()
    weights: list[Tensor] = []
    model.encode(items, time, length, weights=weights)
    assert [tuple(head.shape) for head in weights] == [(6, 11, 11)] * 2
    for head in weights:
        assert torch.allclose(head.sum(-1), torch.ones(6, 11).double())
        assert (head.masked_select(~real.unsqueeze(1)) == 0).all()
