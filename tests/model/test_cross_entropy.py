"""The cross entropy over all items: against PyTorch's, in value, gradients and memory."""

import pytest
import torch
from torch.nn import functional as F

from recbole_ext.model import cross_entropy
from recbole_ext.model.cross_entropy import cross_entropy_over_items

ITEMS, HIDDEN, TARGETS = 50, 6, 13


def inputs(dtype=torch.float64, biased=True):
    generator = torch.Generator().manual_seed(0)
    hidden, table = (torch.randn(count, HIDDEN, generator=generator, dtype=dtype) for count in (TARGETS, ITEMS))
    bias = torch.randn(ITEMS, generator=generator, dtype=dtype) if biased else None
    return hidden, table, bias, torch.randint(0, ITEMS, (TARGETS,), generator=generator)


def plain(hidden, table, bias, target):
    return F.cross_entropy(F.linear(hidden, table, bias), target)


def value_and_gradients(loss, hidden, table, bias, target):
    """For a loss that is a part of a larger one: its gradient is not 1."""
    learned = [x.clone().requires_grad_() for x in (hidden, table, bias) if x is not None]
    value = loss(*learned, *([None] if bias is None else []), target)
    return [value.detach(), *torch.autograd.grad(3 * value, learned)]


def at_once(monkeypatch, targets):
    monkeypatch.setattr(cross_entropy, "targets_at_once", lambda items, device: targets)


@pytest.mark.parametrize("targets", [1, 4, 13, 100])
@pytest.mark.parametrize("biased", [True, False])
def test_value_and_gradients_are_those_of_pytorch(monkeypatch, biased, targets):
    at_once(monkeypatch, targets)
    found = value_and_gradients(cross_entropy_over_items, *inputs(biased=biased))
    right = value_and_gradients(plain, *inputs(biased=biased))
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-14)


def test_the_gradient_is_that_of_finite_differences():
    hidden, table, bias, target = inputs()
    assert torch.autograd.gradcheck(
        cross_entropy_over_items, (hidden.requires_grad_(), table.requires_grad_(), bias.requires_grad_(), target)
    )


@pytest.mark.parametrize("learned", [(0,), (1,), (2,), (0, 2), ()])
def test_what_is_not_learned_has_no_gradient(monkeypatch, learned):
    at_once(monkeypatch, 4)
    tensors, right = list(inputs()), list(inputs())
    for index in learned:
        tensors[index].requires_grad_()
        right[index].requires_grad_()
    found, expected = cross_entropy_over_items(*tensors), plain(*right)
    torch.testing.assert_close(found, expected)
    assert found.requires_grad is bool(learned)
    if learned:
        found.backward()
        expected.backward()
    for index in range(3):
        assert (tensors[index].grad is None) is (index not in learned)
        if index in learned:
            torch.testing.assert_close(tensors[index].grad, right[index].grad)


def test_large_scores_do_not_overflow():
    hidden, table, bias, target = inputs(torch.float32)
    found = value_and_gradients(cross_entropy_over_items, hidden * 1000, table * 1000, bias, target)
    right = value_and_gradients(plain, hidden * 1000, table * 1000, bias, target)
    for one, other in zip(found, right, strict=True):
        assert torch.isfinite(one).all()
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("targets", [4, 100])
def test_in_lower_precision_the_loss_is_float32(monkeypatch, targets):
    at_once(monkeypatch, targets)
    right = value_and_gradients(plain, *inputs(torch.float32))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = value_and_gradients(cross_entropy_over_items, *inputs(torch.float32))
    assert all(x.dtype == torch.float32 for x in found)
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.02)


def test_autocast_leaves_float64_as_it_is():
    right = cross_entropy_over_items(*inputs())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert cross_entropy_over_items(*inputs()).equal(right)


def test_in_float16_the_gradients_of_small_probabilities_are_not_lost():
    hidden, table = torch.ones(1, 1), torch.cat([torch.tensor([[18.0]]), torch.zeros(9, 1)])
    gradients = []
    for dtype in (torch.float32, torch.float16):
        learned = table.to(dtype).requires_grad_()
        loss = cross_entropy_over_items(hidden.to(dtype), learned, None, torch.tensor([0]))
        (gradient,) = torch.autograd.grad(2.0**16 * loss, learned)  # as a scaler of gradients does
        gradients.append(gradient.float())
    assert 0 < gradients[0][1] < 2.0**16 * 2.0**-25  # 2^-25 is 0 in float16
    torch.testing.assert_close(*gradients, rtol=0.001, atol=1e-6)


def test_without_targets_the_gradients_are_0():
    hidden, table, bias, target = inputs()
    table.requires_grad_()
    loss = cross_entropy_over_items(hidden[:0], table, bias, target[:0])
    assert loss.isnan()
    loss.backward()
    assert table.grad.equal(torch.zeros_like(table))


def test_hidden_vectors_of_autocast_and_a_table_of_float32_go_together():
    hidden, table, bias, target = inputs(torch.float32)
    hidden, table = hidden.bfloat16().requires_grad_(), table.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = cross_entropy_over_items(hidden, table, bias, target)
    loss.backward()
    assert (hidden.grad.dtype, table.grad.dtype) == (torch.bfloat16, torch.float32)


def test_few_scores_exist_at_once(monkeypatch):
    """No tensor of the loss or its gradient has more numbers than the largest of its inputs and a chunk of scores."""
    sizes = []

    class Sizes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            sizes.extend(x.numel() for x in torch.utils._pytree.tree_leaves(result) if isinstance(x, torch.Tensor))
            return result

    hidden, table, target = torch.randn(400, 4), torch.randn(300, 4), torch.randint(0, 300, (400,))
    at_once(monkeypatch, 8)
    with Sizes():
        value_and_gradients(cross_entropy_over_items, hidden, table, None, target)
    assert max(sizes) == 8 * 300 < 400 * 300


@pytest.mark.parametrize(("items", "threads"), [(10, 1), (3706, 1), (3706, 8), (10_000_000, 2)])
def test_the_scores_fill_the_caches_of_a_cpu(monkeypatch, items, threads):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    targets = cross_entropy.targets_at_once(items, torch.device("cpu"))
    assert targets == 32 or 0.9 < targets * items / (threads * cross_entropy.CACHED_SCORES) <= 1
