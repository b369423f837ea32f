"""The layers that models share: dropout, the feed-forward layer, and the loss over all items."""

import pytest
import torch
from torch import Tensor

from recbole_ext.model import layers as feed_forward
from recbole_ext.model.layers import ACTIVATIONS, Dropout, FeedForward

# ---------------------------------------------------------------- dropout


def dropped(p: float, x: Tensor, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    return Dropout(p)(x)


@pytest.mark.parametrize("p", [0.001, 0.1, 0.2, 0.5, 0.9])
def test_dropout_zeroes_the_given_share_and_scales_the_rest(p):
    count = 400_000
    y = dropped(p, torch.full((count,), 3.0))
    zeroed = int((y == 0).sum())
    assert abs(zeroed - p * count) < 5 * (p * (1 - p) * count) ** 0.5 + 2
    assert torch.allclose(y[y != 0], torch.tensor(3 / (1 - p)))


def test_dropout_with_a_probability_near_1_zeroes_nearly_everything():
    y = dropped(0.999999, torch.ones(100_000))
    assert int((y != 0).sum()) < 20


def test_dropout_decides_for_each_number_alone():
    y = dropped(0.5, torch.ones(100_000)) == 0
    for step in (1, 2, 3, 4, 8):  # the four numbers of one 64-bit word among them
        same = (y[step:] == y[:-step]).double().mean()
        assert abs(float(same) - 0.5) < 0.01


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (5,), (3, 7), (2, 3, 5)])
def test_dropout_takes_any_shape(shape):
    y = dropped(0.5, torch.ones(shape))
    assert y.shape == shape
    assert set(y.flatten().tolist()) <= {0.0, 2.0}


def test_dropout_repeats_itself_with_a_seed_and_not_without():
    x = torch.ones(1000)
    assert torch.equal(dropped(0.5, x, seed=1), dropped(0.5, x, seed=1))
    assert not torch.equal(dropped(0.5, x, seed=1), dropped(0.5, x, seed=2))
    torch.manual_seed(1)
    assert not torch.equal(Dropout(0.5)(x), Dropout(0.5)(x))


def test_dropout_does_nothing_in_evaluation_or_with_probability_0():
    x = torch.randn(100, generator=torch.Generator().manual_seed(0))
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)


def test_dropout_passes_the_gradient_of_what_it_kept():
    x = torch.ones(1000, requires_grad=True)
    y = dropped(0.2, x)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())  # 0 or 1 / 0.8, as x is 1


def test_dropout_leaves_its_input_alone():
    x = torch.ones(100)
    dropped(0.5, x)
    assert (x == 1).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_dropout_keeps_the_type_of_numbers(dtype):
    y = dropped(0.2, torch.ones(1000, dtype=dtype))
    assert y.dtype == dtype
    assert set(y.tolist()) == {0.0, torch.tensor(1 / 0.8, dtype=dtype).item()}


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5, float("nan")])
def test_dropout_refuses_a_probability_outside_0_to_1(p):
    with pytest.raises(ValueError, match="dropout probability"):
        Dropout(p)


# ---------------------------------------------------------------- feed-forward


FUNCTIONS = {
    "gelu": lambda x: x * (1 + torch.erf(x / 2**0.5)) / 2,
    "gelu_tanh": lambda x: x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2,
    "relu": lambda x: x.clamp(min=0),
    "swish": lambda x: x / (1 + torch.exp(-x)),
    "tanh": torch.tanh,
    "sigmoid": lambda x: 1 / (1 + torch.exp(-x)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("at_once", [1, 25, 1000])  # inner features: parts of 1 and 2 rows, all rows
def test_feed_forward_is_linear_activation_linear(name, at_once, monkeypatch):
    monkeypatch.setattr(feed_forward, "INNER_AT_ONCE", at_once)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    torch.manual_seed(0)
    layer, x = FeedForward(6, 11, 0.0, name).double(), torch.randn(4, 3, 6, dtype=torch.float64) * 3
    weights = [x.requires_grad_(), *layer.parameters()]
    assert [tuple(p.shape) for p in weights[1:]] == [(11, 6), (11,), (6, 11), (6,)]
    right, upstream = layer.outer(FUNCTIONS[name](layer.inner(x))), torch.randn(4, 3, 6, dtype=torch.float64)
    torch.testing.assert_close(layer(x), right)
    torch.testing.assert_close(
        torch.autograd.grad(layer(x), weights, upstream), torch.autograd.grad(right, weights, upstream)
    )
    with torch.no_grad():
        torch.testing.assert_close(layer(x), right)
    assert layer(x[:0]).shape == (0, 3, 6)


def test_feed_forward_has_gradients_for_weights_alone_and_for_inputs_alone():
    layer, x = FeedForward(6, 11, 0.0), torch.randn(5, 6)
    layer(x).sum().backward()
    assert layer.inner.weight.grad.abs().sum() > 0
    layer.requires_grad_(False)
    layer(x.requires_grad_()).sum().backward()
    assert x.grad.abs().sum() > 0


def test_feed_forward_drops_inner_features():
    torch.manual_seed(0)
    layer, x = FeedForward(6, 11, 0.5), torch.randn(1, 6)
    with torch.no_grad():
        layer.outer.weight.fill_(0)
        assert torch.equal(layer(x), layer.outer.bias.unsqueeze(0))  # the output itself is never dropped
        layer.outer.weight.fill_(1)
        assert not torch.equal(layer(x), layer(x))
        assert torch.equal(layer.eval()(x), layer(x))
