"""The temporal kernels against their definitions in float64, from an hour to a century."""

import math

import pytest
import torch
from torch import Tensor

from recbole_ext.model.meantime.kernels import LONGEST_GAP, TABULATED, GapTable, SinPhases, frequencies
from tests.oracles.bare import DAY, bare_meantime, plain_like, randomise, sequences

HIDDEN, FREQ = 64, 10000.0
SPANS = {"an hour": 3600.0, "30 days": 30 * DAY, "1000 days": 1000 * DAY, "100 years": 36525 * DAY}


def moments(span: float, slots: int = 50, seed: int = 0) -> Tensor:
    """Times [3, slots] in whole seconds, sorted, the first at 0 and the last at `span`; some are equal or near."""
    generator = torch.Generator().manual_seed(seed)
    time = torch.floor(torch.rand(3, slots, generator=generator, dtype=torch.float64) * span)
    time[:, :6] = torch.tensor([0.0, 0.0, 1.0, 2.0, 10.0, 60.0])
    time[:, -1] = span
    return time.sort(1).values


def coefficients(slots: int = 50) -> Tensor:
    """What a query asks of the features, [3, slots, HIDDEN], of unit variance: larger than a trained model's."""
    return torch.randn(3, slots, HIDDEN, generator=torch.Generator().manual_seed(1))


def gaps(time: Tensor) -> Tensor:
    return time.unsqueeze(2) - time.unsqueeze(1)


def features(name: str, gap: Tensor) -> Tensor:
    """Of the definitions in the paper, in float64: [...] -> [..., HIDDEN]."""
    w = torch.tensor([FREQ ** (-c / HIDDEN) for c in range(HIDDEN)], dtype=torch.float64)
    gap = gap.double().unsqueeze(-1)
    if name == "sin":
        return torch.cat([torch.sin(gap * w[::2]), torch.cos(gap * w[::2])], dim=-1)
    return {"exp": torch.exp(-gap.abs() * w), "log": torch.log1p(gap.abs() * w)}[name]


def logits(name: str, a: Tensor, gap: Tensor) -> Tensor:
    return torch.einsum("bih,bijh->bij", a.double(), features(name, gap))


def error(ours: Tensor, right: Tensor) -> float:
    return float((ours.double() - right).detach().abs().max())


def test_frequencies_fall_from_1_to_almost_1_over_freq():
    w = frequencies(HIDDEN, FREQ)
    assert w.dtype == torch.float64
    assert w[0] == 1
    assert float(w[-1]) == pytest.approx(FREQ ** (-63 / 64))


# ---------------------------------------------------------------- sin


def sin_logits(a: Tensor, time: Tensor) -> Tensor:
    kernel = SinPhases(HIDDEN, FREQ)
    sin, cos = kernel(time, a.dtype)
    return kernel.rotate(a, sin, cos) @ torch.cat([cos, sin], dim=-1).transpose(1, 2)


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
def test_the_sin_kernel_in_float32_is_exact_to_1e_4(span):
    a, time = coefficients(), moments(span)
    right = logits("sin", a, gaps(time))
    assert right.abs().max() > 10
    assert error(sin_logits(a, time - span), right) < 1e-4


def test_phases_in_float32_would_be_noise():
    a, gap = coefficients(), gaps(moments(1000 * DAY)).float().unsqueeze(-1)
    w = frequencies(HIDDEN, FREQ).float()[::2]
    naive = torch.einsum("bih,bijh->bij", a, torch.cat([torch.sin(gap * w), torch.cos(gap * w)], dim=-1))
    assert error(naive, logits("sin", a, gaps(moments(1000 * DAY)))) > 1


def test_the_sin_head_of_the_model_in_float32_is_exact_to_1e_4_over_1000_days():
    model = bare_meantime(absolute_kernels=[], relative_kernels=["sin"], n_layers=1, MAX_ITEM_LIST_LENGTH=30)
    randomise(model, 0.1)
    plain = plain_like(model).double()
    items, time, length = sequences([30, 30, 12], span=1000 * DAY)
    real = torch.arange(30) < length.unsqueeze(1)
    assert error(model.encode(items, time, length)[real], plain.encode(items, time, real)[real]) < 1e-4


def test_the_sin_kernel_tells_before_from_after():
    a, time = coefficients(), moments(3600.0)
    assert error(sin_logits(a, time), logits("sin", a, -gaps(time))) > 1


def test_the_sin_kernel_needs_an_even_number_of_features():
    with pytest.raises(ValueError, match="even"):
        SinPhases(5, FREQ)


# ---------------------------------------------------------------- exp and log


def table_logits(name: str, a: Tensor, time: Tensor, tau: float = 1.0) -> Tensor:
    table = GapTable([name], HIDDEN, FREQ, tau)
    return table(name, a, *table.locate(time / tau, time / tau, a.dtype))


@pytest.mark.parametrize("tau", [1.0, DAY], ids=["a second", "a day"])
@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
@pytest.mark.parametrize("name", TABULATED)
def test_the_table_is_exact(name, span, tau):
    a, time = coefficients(), moments(span)
    right = logits(name, a, gaps(time) / tau)
    scale = float(right.abs().max())
    assert error(table_logits(name, a.double(), time, tau), right) < 2e-6
    assert error(table_logits(name, a, time, tau), right) < 1e-5 + 1e-6 * scale


@pytest.mark.parametrize("name", TABULATED)
def test_a_gap_of_0_is_exact(name):
    a, time = coefficients(), torch.full((3, 50), 1e9, dtype=torch.float64)
    right = logits(name, a, gaps(time))
    assert error(table_logits(name, a.double(), time), right) < 1e-12


@pytest.mark.parametrize("name", TABULATED)
def test_gaps_of_a_fraction_of_the_unit_are_exact(name):
    a, time = coefficients(), moments(3600.0) / 3600
    assert error(table_logits(name, a.double(), time), logits(name, a, gaps(time))) < 1e-5


@pytest.mark.parametrize("name", TABULATED)
def test_the_sign_of_a_gap_does_not_matter(name):
    a, time = coefficients(), moments(30 * DAY)
    assert torch.equal(table_logits(name, a, time), table_logits(name, a, -time))


@pytest.mark.parametrize("name", TABULATED)
def test_gaps_beyond_the_longest_count_as_the_longest(name):
    a, time = coefficients(2), torch.tensor([[0.0, 1.0]] * 3, dtype=torch.float64)
    longest = table_logits(name, a, time * LONGEST_GAP)
    for times in (10, 1e6):
        beyond = table_logits(name, a, time * LONGEST_GAP * times)
        assert torch.isfinite(beyond).all()
        assert error(beyond, longest.double()) < 1e-3


@pytest.mark.parametrize("name", TABULATED)
def test_the_gradient_of_a_table_read_is_right(name):
    table = GapTable([name], 4, FREQ, 1.0)
    time = torch.tensor([[0.0, 0.0, 5.0, 5000.0], [1.0, 90.0, 90.0, 4e9]], dtype=torch.float64)
    located = table.locate(time[:, :3], time, torch.float64)
    a = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: table(name, a, *located), (a,))


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
@pytest.mark.parametrize("name", TABULATED)
def test_the_gradient_is_that_of_the_definition(name, span):
    time = moments(span)
    ours, theirs = coefficients().double().requires_grad_(), coefficients().double().requires_grad_()
    weight = torch.randn(3, 50, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    (table_logits(name, ours, time) * weight).sum().backward()
    (logits(name, theirs, gaps(time)) * weight).sum().backward()
    scale = float(theirs.grad.abs().max())
    assert error(ours.grad, theirs.grad) < 1e-6 * scale


@pytest.mark.parametrize("name", TABULATED)
def test_logits_do_not_depend_on_the_rest_of_the_batch(name):
    table, a, time = GapTable([name], HIDDEN, FREQ, 1.0), coefficients(), moments(1000 * DAY)
    time[0] /= 1000
    together, alone = (table.locate(rows, rows, torch.float32) for rows in (time, time[:1]))
    assert torch.equal(together[0][:1], alone[0])
    assert torch.equal(together[1][:, :1], alone[1])
    assert error(table(name, a, *together)[:1], table(name, a[:1], *alone).double()) < 1e-5


def test_the_table_of_a_small_unit_reaches_as_far():
    for tau in (1e-3, 1.0, 60.0, DAY):
        assert GapTable(["log"], 4, FREQ, tau).longest == pytest.approx(math.log1p(LONGEST_GAP / tau))
    a, time = coefficients(), moments(36525 * DAY)
    right = logits("log", a, gaps(time) / 1e-3)
    assert error(table_logits("log", a.double(), time, 1e-3), right) < 1e-5
