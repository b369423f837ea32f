"""MEANTIME in float32 and under autocast: close to float64, finite even for extreme inputs."""

import pytest
import torch
from torch import Tensor

from recbole_ext import create_dataset, data_preparation, get_trainer
from recbole_ext.model import MEANTIME
from tests.oracles.bare import DAY, bare_meantime, plain_like, randomise, sequences

ITEMS, SPAN = 40, 1000 * DAY
KERNELS = ["position", "day", "constant", "sin", "exp", "log"]
HALF = [torch.bfloat16, torch.float16]


def model_of(kernels: list[str], deviation: float = 0.1, **keys) -> MEANTIME:
    absolute = [name for name in kernels if name in ("position", "day", "constant")]
    relative = [name for name in kernels if name not in absolute]
    keys = {"hidden_size": 12 * len(kernels), "MAX_ITEM_LIST_LENGTH": 50, **keys}
    model = bare_meantime(ITEMS, 1001, absolute_kernels=absolute, relative_kernels=relative, **keys)
    randomise(model, deviation)
    return model


def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    items, time, length = sequences([50, 3, 1, 30], ITEMS, SPAN)
    return items, time, length, torch.arange(50) < length.unsqueeze(1)


def everything(model: MEANTIME) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Scores at every slot, loss, and gradients, for one batch."""
    items, time, length, real = batch()
    states = model.encode(items, time, length)
    scores = model.represent(states) @ model.item_embedding.weight.T
    loss = model.cloze_loss(items, time, length, items, real)
    loss.backward()
    return scores[real].detach(), loss.detach(), {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("kernels", [*([name] for name in KERNELS), KERNELS], ids=[*KERNELS, "all"])
def test_float32_is_close_to_float64(kernels):
    model = model_of(kernels)
    items, time, length, real = batch()
    plain = plain_like(model).double()
    expected = plain.represent(plain.encode(items, time, real))[real]
    states = model.represent(model.encode(items, time, length))[real]
    assert states.dtype == torch.float32
    assert float((states - expected).detach().abs().max()) < 2e-4


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("kernels", [*([name] for name in KERNELS), KERNELS], ids=[*KERNELS, "all"])
def test_autocast_is_close_to_float32(kernels, dtype):
    model = model_of(kernels)
    scores, loss, _ = everything(model)
    model.zero_grad()
    with torch.autocast("cpu", dtype=dtype):
        half_scores, half_loss, gradients = everything(model)
    scale = float(scores.std())
    assert float((half_scores.float() - scores).abs().mean()) < 0.02 * scale
    assert float(half_loss) == pytest.approx(float(loss), rel=0.02)
    assert all(torch.isfinite(gradient).all() for gradient in gradients.values())


@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
def test_padding_stays_masked_in_every_precision(dtype):
    model = model_of(KERNELS)
    items, time, length, real = batch()
    weights: list[Tensor] = []
    with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
        model.encode(items, time, length, weights=weights)
    assert len(weights) == len(KERNELS)
    for attention in weights:
        assert (attention.masked_select(~real.unsqueeze(1)) == 0).all()
        assert torch.allclose(attention.float().sum(-1), torch.tensor(1.0), atol=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
def test_large_weights_and_gaps_of_a_century_stay_finite(dtype):
    model = model_of(KERNELS, deviation=0.5)
    items, time, length, real = batch()
    with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
        loss = model.cloze_loss(items, time * 36.5, length, items, real)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_dropout_and_training_steps_under_autocast_lower_the_loss(dtype):
    torch.manual_seed(0)
    model = model_of(["position", "sin", "log"], 0.05, hidden_dropout_prob=0.2, attn_dropout_prob=0.2)
    optimizer, losses = torch.optim.Adam(model.parameters(), 0.01), []
    items, time, length, real = batch()
    for _ in range(30):
        with torch.autocast("cpu", dtype=dtype):
            loss = model.cloze_loss(items, time, length, items, real)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float16, 0.01), (torch.bfloat16, 0.05)], ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_model_cast_to_half_keeps_exact_times(kernel, dtype, atol):
    model = model_of([kernel])
    items, time, length, real = batch()
    right = model.represent(model.encode(items, time, length))[real]
    model = model.to(dtype)
    states = model.represent(model.encode(items, time, length))[real]
    assert states.dtype == dtype
    assert float((states.float() - right).detach().abs().mean()) < atol * float(right.detach().std())
    assert torch.isfinite(model.cloze_loss(items, time, length, items, real))


def test_recboles_trainer_trains_and_evaluates_with_amp(make_config):
    config = make_config(enable_amp=True, enable_scaler=True)
    train, valid, _ = data_preparation(config, create_dataset(config))
    model = config.model_class(config, train._dataset)
    trainer = get_trainer(config)(config, model)
    score, result = trainer.fit(train, valid, saved=False, show_progress=False)
    assert 0 <= score <= 1
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
    assert result


def test_times_far_from_0_cost_no_precision():
    model = model_of(["sin", "exp", "log"])
    items, time, length, real = batch()
    near, far = model.encode(items, time, length), model.encode(items, time + 2.0**31, length)
    assert torch.equal(near[real], far[real])
