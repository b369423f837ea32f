"""The attentions that LightSANs' own is compared with: each against its paper's equations, and inside the model."""

from collections.abc import Callable

import pytest
import torch
from recbole.data.interaction import Interaction
from torch import Tensor, nn

from recbole_ext import LightSANs
from recbole_ext.model.lightsans.attention import FullAttention
from recbole_ext.model.lightsans.efficient_attention import LinearAttention, Linformer, Performer, Synthesizer
from tests.oracles import attentions as oracle

HIDDEN, LENGTH, RANK, ITEMS = 12, 8, 3, 30
HALF = [torch.bfloat16, torch.float16]

KINDS: dict[str, tuple[Callable[[int, float], nn.Module], Callable]] = {
    "full": (lambda heads, dropout: FullAttention(HIDDEN, heads, dropout), oracle.full),
    "linformer": (lambda heads, dropout: Linformer(HIDDEN, heads, LENGTH, RANK, dropout), oracle.linformer),
    "performer": (lambda heads, dropout: Performer(HIDDEN, heads, 15), oracle.performer),
    "linear": (lambda heads, dropout: LinearAttention(HIDDEN, heads), oracle.linear_attention),
    "synthesizer": (lambda heads, dropout: Synthesizer(HIDDEN, heads, LENGTH, dropout), oracle.synthesizer),
}
DROPPING = ["full", "linformer", "synthesizer"]  # the others never hold their attention weights


def random(*shape: int, seed: int = 0, deviation: float = 1.0) -> Tensor:
    return deviation * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def made(kind: str, heads: int = 2, dropout: float = 0.0) -> tuple[nn.Module, nn.Linear, dict[str, Tensor]]:
    """An attention and a block's value projection in float64, and the weights of both by name."""
    torch.manual_seed(0)
    module, value = KINDS[kind][0](heads, dropout).double(), nn.Linear(HIDDEN, HIDDEN).double()
    parameters = {**dict(module.named_parameters()), "value.weight": value.weight, "value.bias": value.bias}
    with torch.no_grad():
        for seed, parameter in enumerate(parameters.values()):
            parameter.copy_(random(*parameter.shape, seed=seed, deviation=0.4))
    return module, value, {**parameters, **dict(module.named_buffers())}


def histories(lengths: tuple[int, ...] = (1, LENGTH, 4, 7), width: int = LENGTH) -> tuple[Tensor, Tensor]:
    """Slots [B, width, H] with larger numbers in the padding, and which are real."""
    real = torch.arange(width) < torch.tensor(lengths).unsqueeze(1)
    x = random(len(lengths), width, HIDDEN, seed=9)
    return torch.where(real.unsqueeze(-1), x, 3 * x), real


# ---------------------------------------------------------------- the papers


@pytest.mark.parametrize("heads", [1, 2, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_context_and_gradients_are_those_of_the_papers_equations(kind, heads):
    module, value, weights = made(kind, heads)
    slots, real = histories()
    slots.requires_grad_()
    found = module(slots, slots, real, value)[real]
    parts = [KINDS[kind][1](weights, row[own], heads) for row, own in zip(slots, real, strict=True)]
    expected = torch.cat(parts)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    direction = random(*found.shape, seed=5)
    names = ["slots", *(name for name, weight in weights.items() if weight.requires_grad)]
    leaves = [slots, *(weights[name] for name in names[1:])]
    ours, theirs = (torch.autograd.grad((context * direction).sum(), leaves) for context in (found, expected))
    for name, one, other in zip(names, ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9, msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_few_query_rows_have_the_context_that_they_have_among_all(kind):
    module, value, _ = made(kind)
    slots, real = histories()
    index = torch.tensor([[0, 0], [7, 2], [3, 1], [6, 5]]).unsqueeze(-1).expand(-1, -1, HIDDEN)
    everything = module(slots, slots, real, value)
    torch.testing.assert_close(module(slots.gather(1, index), slots, real, value), everything.gather(1, index))


@pytest.mark.parametrize("kind", DROPPING)
def test_dropout_acts_on_weights_in_training_only_and_keeps_the_mean(kind):
    slots, real = histories((5,), width=5)
    right, (module, value, _) = made(kind), made(kind, dropout=0.3)
    context = right[0](slots, slots, real, right[1])
    assert torch.equal(module.eval()(slots, slots, real, value), context)
    many = slots.expand(20000, -1, -1)
    torch.manual_seed(0)
    drawn = module.train()(many, many, real.expand(20000, -1), value).detach()
    assert float(drawn.std(0).min()) > 0.01
    error = (drawn.mean(0) - context[0].detach()).abs() / (
        drawn.std(0) / 20000**0.5
    )  # in standard deviations of the mean
    assert float(error.max()) < 5


def test_linear_attention_of_queries_and_keys_far_below_0_is_exact():
    module, value, weights = made("linear")
    with torch.no_grad():
        module.query.bias -= 30
        module.key.bias -= 30
    slots, real = histories()
    parts = [oracle.linear_attention(weights, row[own], 2) for row, own in zip(slots, real, strict=True)]
    slots, expected = slots.float(), torch.cat(parts).float()
    torch.testing.assert_close(module.float()(slots, slots, real, value.float())[real], expected, rtol=0, atol=1e-4)


def test_performer_of_queries_and_keys_of_any_size_takes_means_of_the_values():
    module, value, _ = made("performer")
    with torch.no_grad():
        module.query.weight *= 100
        module.key.weight *= 100
    module, value = module.float(), value.float()
    slots, real = histories()
    slots = slots.float()
    context, values = module(slots, slots, real, value), value(slots)
    for row, own in enumerate(real):
        among = values[row, own]
        assert (context[row, own] >= among.amin(0) - 1e-4).all()
        assert (context[row, own] <= among.amax(0) + 1e-4).all()


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("kind", ["linear", "performer"])
def test_sums_over_long_histories_are_not_taken_in_half_precision(kind, dtype):
    module, value, _ = made(kind)
    slots, real = histories((5000,), width=5000)
    if kind == "linear":
        with torch.no_grad():
            module.query.bias += 5
            module.key.bias += 5
    else:
        slots = 0.1 * slots  # alike, so that thousands of keys are as large as the largest
    module, value, slots = module.float(), value.float(), slots.float()
    right = module(slots, slots, real, value).detach()
    with torch.autocast("cpu", dtype=dtype):
        rough = module(slots, slots, real, value).detach().float()
    assert float((rough - right).abs().max()) < 0.02 * float(right.abs().max())


# ---------------------------------------------------------------- random features


def performer_like(full: FullAttention, heads: int, features: int, seed: int) -> Performer:
    """With the projections of a full attention, and directions of its own."""
    torch.manual_seed(seed)
    module = Performer(full.query.in_features, heads, features).double()
    module.load_state_dict({**full.state_dict(), "directions": module.directions})
    return module


@pytest.mark.parametrize("d", [1, 2, 6])
def test_more_random_features_come_closer_to_softmax_attention(d):
    full, value = FullAttention(2 * d, 2, 0.0).double(), nn.Linear(2 * d, 2 * d).double()
    with torch.no_grad():
        for seed, parameter in enumerate([*full.parameters(), *value.parameters()]):
            parameter.copy_(random(*parameter.shape, seed=seed, deviation=0.7 * (2 * d) ** -0.5))
    slots, real = random(3, 8, 2 * d, seed=9), torch.arange(8) < torch.tensor([[8], [3], [5]])
    context = full(slots, slots, real, value)
    errors = {}
    for features in (16, 256, 4096):
        modules = [performer_like(full, 2, features, seed) for seed in range(12)]
        found = torch.stack([module(slots, slots, real, value) for module in modules])
        errors[features] = float((found - context).detach()[:, real].abs().mean())
    assert errors[256] < 0.5 * errors[16]
    assert errors[4096] < 0.5 * errors[256]
    assert errors[4096] < 0.06 * float(context[real].detach().std())


@pytest.mark.parametrize("d", [1, 2, 6])
def test_random_features_have_no_favourite_direction(d):
    torch.manual_seed(0)
    directions = Performer(d, 1, 20000 * d).directions.double()
    count = len(directions)
    assert float(directions.mean(0).abs().max()) < 5 * count**-0.5
    covariance = directions.T @ directions / count
    torch.testing.assert_close(covariance, torch.eye(d, dtype=torch.float64), rtol=0, atol=10 * count**-0.5)


@pytest.mark.parametrize(("d", "features"), [(6, 18), (6, 20), (6, 4), (2, 7), (1, 3)])
def test_directions_are_orthogonal_in_blocks_of_the_size_of_a_head(d, features):
    torch.manual_seed(0)
    directions = Performer(3 * d, 3, features).directions
    assert directions.shape == (features, d)
    for block in directions.split(d):
        unit = block / block.norm(dim=1, keepdim=True)
        torch.testing.assert_close(unit @ unit.T, torch.eye(len(block)), rtol=0, atol=1e-5)


def test_directions_are_as_long_as_gaussian_vectors():
    torch.manual_seed(0)
    squares = Performer(12, 2, 30000).directions.square().sum(1)  # chi square with 6 degrees: mean 6, variance 12
    assert float(squares.mean()) == pytest.approx(6, abs=0.15)
    assert float(squares.var()) == pytest.approx(12, abs=1)


def test_directions_are_stored_and_not_trained():
    one, value, _ = made("performer")
    torch.manual_seed(1)
    other = KINDS["performer"][0](2, 0.0).double()
    slots, real = histories()
    assert not torch.allclose(other.directions, one.directions)
    other.load_state_dict(one.state_dict())
    assert torch.equal(other(slots, slots, real, value), one(slots, slots, real, value))
    assert "directions" not in dict(one.named_parameters())


def test_exponents_of_keys_count_from_the_largest_of_the_history():
    module, value, _ = made("performer")
    slots, real = histories()
    with torch.no_grad():
        module.key.bias += 30  # exponents of -1000 for all keys, which softmax attention would not see
        slots[~real] = torch.linalg.solve(module.key.weight, -module.key.bias)  # and of 0 in the padding
    module, slots = module.float(), slots.float()
    assert torch.isfinite(module(slots, slots, real, value.float())[real]).all()


# ---------------------------------------------------------------- in the model

in_the_model = pytest.mark.parametrize(
    ("attention", "position"),
    [(kind, position) for kind in ["low_rank", *KINDS] for position in ("absolute", "decoupled", "relative")],
)


class Dataset:
    """What a model asks of its data set."""

    def num(self, field: str) -> int:
        return ITEMS + 1


@pytest.fixture
def build(make_config):
    """A model with weights large enough to show, in evaluation."""

    def make(attention: str, position: str, **keys) -> LightSANs:
        small = {
            "hidden_size": HIDDEN, "inner_size": 20, "MAX_ITEM_LIST_LENGTH": 20, "k_interests": RANK,
            "random_features": 16, "attention": attention, "position": position,
        }  # fmt: skip
        torch.manual_seed(3)
        model = LightSANs(make_config(LightSANs, events=[("u", "i", 1)], **{**small, **keys}), Dataset())
        with torch.no_grad():
            for seed, parameter in enumerate(model.parameters()):
                parameter.add_(random(*parameter.shape, seed=seed, deviation=0.3))
            model.item_embedding.weight[0] = 0
        return model.eval()

    return make


def requests(width: int = 9, longest: int = 7, garbage: bool = False) -> Interaction:
    """Histories of 1 to `longest` items, the same ones for any width."""
    generator = torch.Generator().manual_seed(0)
    length = torch.tensor([1, longest, 3, 5, 2, longest])
    items = torch.zeros(6, width, dtype=torch.long)
    items[:, :longest] = torch.randint(1, ITEMS + 1, (6, longest), generator=generator)
    target = torch.randint(1, ITEMS + 1, (6,), generator=generator)
    padding = torch.arange(width) >= length.unsqueeze(1)
    noise = torch.randint(1, ITEMS + 1, items.shape, generator=generator)
    items = torch.where(padding, noise if garbage else 0, items)
    return Interaction({"item_id_list": items, "item_length": length, "item_id": target})


def states(model: LightSANs, batch: Interaction) -> Tensor:
    """Of all slots of the batch as they are: `forward` would cut padding off that all rows share."""
    return model.encode(batch["item_id_list"], batch["item_length"])


@in_the_model
def test_padding_of_any_width_and_content_changes_nothing(build, attention, position):
    model = build(attention, position).double()
    bare = requests()
    alone = [
        model.encode(items[None, :length], length[None])
        for items, length in zip(bare["item_id_list"], bare["item_length"], strict=True)
    ]
    for width in (9, 20):
        for garbage in (False, True):
            found = states(model, requests(width, garbage=garbage))
            torch.testing.assert_close(found, torch.cat(alone), rtol=0, atol=1e-10)


@in_the_model
def test_a_row_alone_scores_as_in_a_batch(build, attention, position):
    model, batch = build(attention, position).double(), requests()
    together = model.full_sort_predict(batch)
    assert float(together[:, 1:].detach().std(0).min()) > 0.01
    for row in range(len(batch)):
        alone = model.full_sort_predict(batch[row : row + 1])
        torch.testing.assert_close(alone, together[row : row + 1], rtol=0, atol=1e-10)


@in_the_model
def test_every_parameter_has_a_finite_gradient(build, attention, position):
    model = build(attention, position, hidden_dropout_prob=0.2, attn_dropout_prob=0.2).double().train()
    torch.manual_seed(0)
    model.calculate_loss(requests(20, longest=20, garbage=True)).backward()
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name
        if not name.endswith("key.bias"):  # softmax does not see what all keys share
            assert parameter.grad.abs().max() > 1e-9, name


@in_the_model
def test_the_last_rows_alone_are_those_of_all_rows(build, attention, position):
    model, batch = build(attention, position).double(), requests(garbage=True)
    real = torch.arange(9) < batch["item_length"].unsqueeze(1)
    last = batch["item_length"].unsqueeze(1) - 1
    x = model.item_embedding(batch["item_id_list"])
    for block in model.blocks:
        everything = block(x, real)
        some = block(x, real, torch.cat([last, torch.zeros_like(last)], dim=1))
        expected = torch.stack([everything[torch.arange(6), last[:, 0]], everything[:, 0]], dim=1)
        torch.testing.assert_close(some, expected, rtol=0, atol=1e-10)
        x = everything


@in_the_model
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_precision_is_finite_and_near_float32(build, attention, position, dtype):
    model, batch = build(attention, position), requests(20, longest=20, garbage=True)
    right, loss = model.full_sort_predict(batch).detach(), float(model.calculate_loss(batch).detach())
    with torch.autocast("cpu", dtype=dtype):
        rough, rough_loss = model.full_sort_predict(batch).detach().float(), model.calculate_loss(batch)
    assert not torch.equal(rough, right)
    assert float((rough - right).abs().mean()) < 0.03 * float(right.std())
    assert float(rough_loss.detach()) == pytest.approx(loss, rel=0.03)
    rough_loss.backward()
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name
