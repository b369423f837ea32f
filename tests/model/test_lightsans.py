"""LightSANs against the paper's equations and against RecBole's class."""

import pytest
import torch
from recbole.data.interaction import Interaction
from recbole.model.sequential_recommender.lightsans import LightSANs as RecBoleLightSANs

from recbole_ext import InputError, LightSANs
from recbole_ext.model.lightsans.recbole_compat import from_recbole
from tests.oracles import lightsans as oracle

ITEMS = 30


class Dataset:
    """What a model asks of its data set."""

    def num(self, field: str) -> int:
        return ITEMS + 1


@pytest.fixture
def build(make_config):
    """A model in float64 with weights large enough to show, in training without dropout."""

    def make(kind: type = LightSANs, **keys):
        small = {
            "hidden_size": 12, "inner_size": 20, "MAX_ITEM_LIST_LENGTH": 9, "k_interests": 3,
            "hidden_dropout_prob": 0.0, "attn_dropout_prob": 0.0, "allow_unknown": kind is RecBoleLightSANs,
        }  # fmt: skip
        torch.manual_seed(3)
        model = kind(make_config(kind, **{**small, **keys}), Dataset()).double()
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.3)
            model.item_embedding.weight[0] = 0
        return model

    return make


def batch(rows: int = 7, width: int = 9, seed: int = 0) -> Interaction:
    generator = torch.Generator().manual_seed(seed)
    length = torch.cat([torch.tensor([1, width]), torch.randint(1, width + 1, (rows - 2,), generator=generator)])
    items = torch.randint(1, ITEMS + 1, (rows, width), generator=generator)
    items[torch.arange(width) >= length.unsqueeze(1)] = 0
    target, other = torch.randint(1, ITEMS + 1, (2, rows), generator=generator)
    return Interaction({"item_id_list": items, "item_length": length, "item_id": target, "neg_item_id": other})


# ---------------------------------------------------------------- the paper


@pytest.mark.parametrize("position", ["decoupled", "absolute", "relative", "none"])
@pytest.mark.parametrize(("heads", "layers", "interests"), [(2, 2, 3), (1, 1, 1), (3, 3, 14)])
def test_the_states_are_those_of_the_papers_equations(build, position, heads, layers, interests):
    model = build(position=position, n_heads=heads, n_layers=layers, k_interests=interests)
    requests, weights = batch(), dict(model.named_parameters())
    for mode in (True, False):
        states = model.train(mode).forward(requests["item_id_list"], requests["item_length"])
        for row, length in enumerate(requests["item_length"].tolist()):
            history = requests["item_id_list"][row, :length].tolist()
            expected = oracle.state(weights, history, heads, layers, position, 1e-12)
            torch.testing.assert_close(states[row], expected, rtol=0, atol=1e-9)


def test_gradients_are_those_of_the_papers_equations(build):
    model = build()
    requests, weights = batch(), dict(model.named_parameters())
    loss = model.calculate_loss(requests)
    found = torch.autograd.grad(loss, list(weights.values()))
    states = [
        oracle.state(weights, items[:length].tolist(), 2, 2, "decoupled", 1e-12)
        for items, length in zip(requests["item_id_list"], requests["item_length"], strict=True)
    ]
    logits = torch.stack(states) @ weights["item_embedding.weight"][1:].T
    expected_loss = -logits.log_softmax(-1)[torch.arange(len(logits)), requests["item_id"] - 1].mean()
    expected = torch.autograd.grad(expected_loss, list(weights.values()))
    torch.testing.assert_close(loss, expected_loss, rtol=0, atol=1e-9)
    for name, one, other in zip(weights, found, expected, strict=True):
        if name == "item_embedding.weight":
            one, other = one[1:], other[1:]
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9, msg=name)


def test_weights_sum_to_1_over_what_they_attend_to_and_padding_has_none(build):
    model, requests = build(), batch()
    attention = model.blocks[0].attention
    x = model.norm(model.item_embedding(requests["item_id_list"]))
    real = torch.arange(9) < requests["item_length"].unsqueeze(1)
    items, positions = [], []
    attention.items(x, x, real, attention.value, items)
    attention.position(x, real, attention.value, torch.arange(9).expand(7, -1), positions)
    (aggregation, interaction), (position,) = items, positions
    one = torch.ones((), dtype=torch.float64)
    torch.testing.assert_close(aggregation.sum(-1), one.expand(7, 6))  # over the items, for each interest
    torch.testing.assert_close(interaction.sum(2), one.expand(7, 2, 9))  # over the interests, for each head and item
    torch.testing.assert_close(position.sum(-1), one.expand(7, 2, 9))  # over the positions
    assert (aggregation.transpose(1, 2)[~real] == 0).all()
    assert (position.transpose(1, 3)[~real] == 0).all()


@pytest.mark.parametrize("scale", [10, 30, 1000])
@pytest.mark.parametrize("position", ["relative", "decoupled"])
def test_logits_of_positions_may_be_any_distance_apart(build, position, scale):
    model, requests = build(position=position), batch()
    with torch.no_grad():
        for block in model.blocks:
            for weights in block.attention.position.parameters():
                weights.mul_(scale)
    together = model.forward(requests["item_id_list"], requests["item_length"])
    for row, length in enumerate(requests["item_length"].tolist()):
        alone = model.forward(requests["item_id_list"][row : row + 1, :length], torch.tensor([length]))
        torch.testing.assert_close(together[row], alone[0], rtol=0, atol=1e-9)
    model.calculate_loss(requests).backward()
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name


def test_bpr_compares_with_the_negative_item(build):
    model, requests = build(loss_type="BPR"), batch()
    scores = model.full_sort_predict(requests)
    rows = torch.arange(len(scores))
    difference = scores[rows, requests["item_id"]] - scores[rows, requests["neg_item_id"]]
    torch.testing.assert_close(model.calculate_loss(requests), -difference.sigmoid().log().mean())


def test_of_longer_histories_the_newest_items_count(build):
    model, wide = build(), batch(width=14)
    items = wide["item_id_list"]
    newest = torch.stack(
        [row[max(length - 9, 0) :][:9] for row, length in zip(items, wide["item_length"].tolist(), strict=True)]
    )
    expected = model.forward(newest, wide["item_length"].clamp(max=9))
    assert torch.equal(model.forward(items, wide["item_length"]), expected)


# ---------------------------------------------------------------- RecBole's


@pytest.mark.parametrize(
    ("length", "interests", "heads", "layers"), [(9, 3, 2, 2), (5, 1, 1, 1), (20, 7, 3, 2), (9, 12, 4, 3)]
)
@pytest.mark.parametrize("loss_type", ["CE", "BPR"])
def test_recbole_compat_is_recboles_class(build, length, interests, heads, layers, loss_type):
    keys = {
        "MAX_ITEM_LIST_LENGTH": length, "k_interests": interests, "n_heads": heads, "n_layers": layers,
        "loss_type": loss_type,
    }  # fmt: skip
    theirs = build(RecBoleLightSANs, hidden_act="gelu", initializer_range=0.02, layer_norm_eps=1e-12, **keys)
    with torch.no_grad():
        theirs.item_embedding.weight[0] = 0.3  # as RecBole initialises it
    ours = build(recbole_compat=True, **keys)
    ours.load_state_dict(from_recbole(theirs.state_dict()))
    requests = batch(width=length)
    for mode in (True, False):
        ours.train(mode), theirs.train(mode)
        for method in ("full_sort_predict", "predict", "calculate_loss"):
            found, expected = getattr(ours, method)(requests), getattr(theirs, method)(requests)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-8)
    ours.calculate_loss(requests).backward()
    theirs.calculate_loss(requests).backward()
    gradients = from_recbole({name: parameter.grad for name, parameter in theirs.named_parameters()})
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=0, atol=1e-8, msg=name)


def test_recbole_compat_begins_with_a_vector_for_the_padding_as_recbole_does(make_config):
    for compat in (True, False):
        model = LightSANs(make_config(LightSANs, recbole_compat=compat), Dataset())
        assert bool((model.item_embedding.weight[0] != 0).any()) == compat


def test_weights_of_recbole_are_for_recbole_compat_alone(build):
    weights = from_recbole(build(RecBoleLightSANs, hidden_act="gelu", initializer_range=0.02).state_dict())
    with pytest.raises(RuntimeError, match="recbole_compat"):
        build().load_state_dict(weights)
    for wrong in (None, 3, {}, {"a": 1}, {1: 2}, build().state_dict()):
        with pytest.raises(InputError, match="from_recbole needs the state_dict of RecBole's LightSANs"):
            from_recbole(wrong)


def test_recbole_compat_has_what_is_wrong_there(build):
    model, requests = build(recbole_compat=True), batch()
    narrow = requests["item_length"] <= 4
    items, length = requests["item_id_list"][narrow], requests["item_length"][narrow]
    assert not torch.allclose(model.forward(items[:, :4], length), model.forward(items, length), atol=1e-3)


# ---------------------------------------------------------------- keys


@pytest.mark.parametrize(
    ("keys", "match"),
    [
        ({"k_interests": 0}, "'k_interests' is 0; it should be a whole number"),
        ({"n_layers": 0}, "'n_layers' is 0"),
        ({"hidden_size": 10, "n_heads": 3}, "hidden_size is 10, which n_heads 3 does not divide"),
        ({"position": "middle"}, "'position' is 'middle'; it should be one of decoupled, absolute, relative, or None"),
        ({"attention": "flash"}, "'attention' is 'flash'; it should be one of low_rank, full, linformer"),
        ({"hidden_act": "elu"}, "'hidden_act' is 'elu'; it should be one of gelu"),
        ({"loss_type": "MSE"}, "'loss_type' is 'MSE'"),
        ({"recbole_compat": True, "position": "none"}, "recbole_compat is True with position None"),
    ],
)
def test_what_cannot_be_is_refused_before_data_is_read(make_config, keys, match):
    with pytest.raises(InputError, match=match):
        make_config(LightSANs, **keys)
