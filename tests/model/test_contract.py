"""What holds for every model of the package."""

import time
from collections.abc import Callable

import pytest
import torch
from recbole.data.interaction import Interaction
from recbole.utils import InputType
from torch import Tensor, nn

from recbole_ext import MODELS
from recbole_ext.model import contract

DAY = 86400
HALF = [torch.bfloat16, torch.float16]

pytestmark = pytest.mark.parametrize("name", MODELS)


@pytest.fixture
def trained(make_model, random_events) -> Callable[..., tuple]:
    """A model in evaluation with weights large enough to show, a batch of requests, and the training loader."""

    def make(name: str, **keys) -> tuple:
        events = random_events(users=80, longest=12) if "events" not in keys else keys.pop("events")
        model, train, _, test = make_model(name, events, **keys)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
            for table in padded_tables(model):
                table.weight[table.padding_idx] = 0
        return model.eval(), requests(test), train

    return make


def padded_tables(model: nn.Module) -> list[nn.Embedding]:
    return [part for part in model.modules() if isinstance(part, nn.Embedding) and part.padding_idx is not None]


def requests(loader) -> Interaction:
    """All of a loader's rows in one batch."""
    rows = [batch[0] for batch in loader]
    return Interaction({name: torch.cat([part[name] for part in rows]) for name in rows[0].interaction})


def changed(interaction: Interaction, **columns: Tensor) -> Interaction:
    return Interaction({**interaction.interaction, **columns})


def lists(interaction: Interaction) -> dict[str, Tensor]:
    return {name: values for name, values in interaction.interaction.items() if name.endswith("_list")}


def padded_to(interaction: Interaction, width: int) -> Interaction:
    """The same requests with lists of another width, at least the longest history."""

    def resize(values: Tensor) -> Tensor:
        more = values.new_zeros(len(values), max(width - values.shape[1], 0), *values.shape[2:])
        return torch.cat([values[:, :width], more], dim=1)

    return changed(interaction, **{name: resize(values) for name, values in lists(interaction).items()})


@torch.no_grad()
def scores(model: nn.Module, interaction: Interaction) -> Tensor:
    """Of the items, without the padding's."""
    return model.full_sort_predict(interaction).view(len(interaction), -1)[:, 1:]


def close(one: Tensor, other: Tensor, atol: float = 1e-5) -> bool:
    return torch.allclose(one, other, rtol=0, atol=atol)


# ---------------------------------------------------------------- training


def test_the_loss_is_finite_and_every_parameter_has_a_gradient(trained, name):
    model, _, train = trained(name)
    model.train()
    loss = model.calculate_loss(next(iter(train)))
    loss.backward()
    assert torch.isfinite(loss)
    assert loss.dim() == 0
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key


def test_an_epoch_of_training_changes_the_weights_but_not_the_padding_row(trained, name):
    model, _, train = trained(name)
    before = {key: parameter.detach().clone() for key, parameter in model.named_parameters()}
    optimizer = torch.optim.Adam(model.train().parameters(), 0.01)
    for interaction in train:
        optimizer.zero_grad()
        model.calculate_loss(interaction).backward()
        optimizer.step()
    assert all(not torch.equal(parameter, before[key]) for key, parameter in model.named_parameters())
    tables = padded_tables(model)
    assert tables
    assert all((table.weight[table.padding_idx] == 0).all() for table in tables)


def test_training_follows_the_seed(trained, name):
    model, _, train = trained(name)
    interaction, losses = next(iter(train)), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        losses.append(float(model.train().calculate_loss(interaction).detach()))
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


# ---------------------------------------------------------------- scoring


def test_predict_is_the_column_of_full_sort_predict(trained, name):
    model, batch, _ = trained(name)
    everything = scores(model, batch)
    for item in (1, 7, model.n_items - 1):
        items = torch.full((len(batch),), item)
        with torch.no_grad():
            one = model.predict(changed(batch, item_id=items))
        assert one.shape == (len(batch),)
        assert close(one, everything[:, item - 1])


def test_a_model_says_whether_times_matter(trained, name):
    model, batch, _ = trained(name)
    if not model.reads_times:
        kept = {key: values for key, values in batch.interaction.items() if not key.startswith("timestamp")}
        assert torch.equal(scores(model, Interaction(kept)), scores(model, batch))
    else:
        later = changed(batch, timestamp=batch["timestamp"] + 30 * DAY)
        assert close(scores(model, later), scores(model, batch), 1e-4) != contract.reads_request_time(model)
        apart = changed(batch, timestamp_list=batch["timestamp_list"] ** 2)
        assert not close(scores(model, apart), scores(model, batch), 1e-4)


def test_scores_do_not_know_the_item_to_predict(trained, name):
    model, batch, _ = trained(name)
    other = changed(batch, item_id=1 + batch["item_id"] % (model.n_items - 1))
    assert torch.equal(scores(model, batch), scores(model, other))


def test_a_row_alone_scores_as_in_a_batch_of_64(trained, name):
    model, batch, _ = trained(name)
    batch = batch[:64]
    assert len(batch) == 64
    together = scores(model, batch)
    for row in range(0, 64, 7):
        assert close(scores(model, batch[row : row + 1]), together[row : row + 1])


VARIANTS = {
    "MEANTIME": [{}, {"query_time": "last", "absolute_kernels": ["position"], "relative_kernels": ["sin"]}],
    "LightSANs": [
        {}, {"position": "relative"}, {"position": "absolute"}, {"recbole_compat": True}, {"n_layers": 1},
        *({"attention": kind} for kind in ("full", "linformer", "performer", "linear", "synthesizer")),
    ],
    "TiSASRec": [{}, {"time_interval": "global", "n_heads": 2, "loss_type": "CE"}],
    "BST": [{}, {"output": "flatten"}, {"n_layers": 2}, {"time_gap": "none", "query_time": "last"}],
}  # fmt: skip


def test_an_empty_batch_scores_to_an_empty_result(make_model, name):
    for keys in VARIANTS[name]:
        model, *_, test = make_model(name, **keys)
        model, batch = model.eval(), requests(test)
        empty = batch[:0]
        with torch.no_grad():
            some, none = (model.predict(rows) for rows in (batch, empty))
            everything, nothing = (model.full_sort_predict(rows) for rows in (batch, empty))
            prepared = model.score_items(model.prepare(empty), torch.tensor([1, 2]))
        assert none.shape == (0,), keys
        assert nothing.shape == (0, *everything.shape[1:]), keys
        assert prepared.shape == (0, 2), keys
        assert (none.dtype, nothing.dtype) == (some.dtype, everything.dtype), keys


def test_the_order_of_rows_does_not_matter(trained, name):
    model, batch, _ = trained(name)
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0))
    assert close(scores(model, batch[order]), scores(model, batch)[order])


def test_what_stands_in_padded_slots_changes_nothing(trained, name):
    model, batch, _ = trained(name)
    batch = padded_to(batch, 20)
    padding = torch.arange(20) >= batch["item_length"].unsqueeze(1)
    garbage = {}
    for number, (key, values) in enumerate(lists(batch).items()):
        random = torch.Generator().manual_seed(number)
        if values.is_floating_point():
            noise = torch.rand(values.shape, generator=random, dtype=values.dtype) * 1e9
        else:
            noise = torch.randint(1, 5, values.shape, generator=random)
        where = padding.view(*padding.shape, *[1] * (values.dim() - 2))
        garbage[key] = torch.where(where, noise, values)
    assert torch.equal(scores(model, changed(batch, **garbage)), scores(model, batch))


def test_one_history_padded_to_3_10_and_50_scores_the_same(trained, name):
    model, batch, _ = trained(name, MAX_ITEM_LIST_LENGTH=50)
    short = batch[batch["item_length"] <= 3]
    assert len(short) > 3
    three, ten, fifty = (scores(model, padded_to(short, width)) for width in (3, 10, 50))
    assert close(three, ten)
    assert close(three, fifty)


def test_evaluation_is_deterministic(trained, name):
    model, batch, _ = trained(name)
    assert torch.equal(scores(model, batch), scores(model, batch))


def test_histories_of_one_item_score_by_that_item(trained, name):
    model, batch, _ = trained(name)
    first = batch[:2]
    history = torch.zeros_like(first["item_id_list"])
    history[:, 0] = torch.tensor([5, 7])
    same = {key: values[:1].expand_as(values) for key, values in first.interaction.items()}
    pair = Interaction({**same, "item_id_list": history, "item_length": torch.tensor([1, 1])})
    found = scores(model, pair)
    assert torch.isfinite(found).all()
    assert not close(found[0], found[1], 1e-3)


def test_history_changes_scores(trained, name):
    model, batch, _ = trained(name)
    items = batch["item_id_list"].clone()
    items[:, 0] = 1 + items[:, 0] % (model.n_items - 1)
    assert not close(scores(model, changed(batch, item_id_list=items)), scores(model, batch), 1e-4)


def test_the_last_items_of_the_catalogue_are_items_like_others(trained, name):
    model, batch, train = trained(name)
    items = torch.where(batch["item_id_list"] > 0, model.n_items - 1, 0)
    extreme = changed(batch, item_id_list=items, item_id=torch.full((len(batch),), model.n_items - 1))
    assert torch.isfinite(scores(model, extreme)).all()
    window = next(iter(train))
    items = torch.where(window["item_id_list"] > 0, model.n_items - 1, 0)
    window = changed(window, item_id_list=items, item_id=torch.full((len(window),), model.n_items - 1))
    assert torch.isfinite(model.train().calculate_loss(window))


@pytest.mark.parametrize("width", [2, 3, 4])
def test_short_lists_work(trained, name, width):
    model, batch, train = trained(name, MAX_ITEM_LIST_LENGTH=width)
    assert batch["item_id_list"].shape[1] == width
    assert torch.isfinite(scores(model, batch)).all()
    assert torch.isfinite(model.train().calculate_loss(next(iter(train))))


def test_state_dict_round_trip_gives_the_same_scores(trained, make_model, random_events, name):
    model, batch, _ = trained(name)
    other, *_ = make_model(name, random_events(users=80, longest=12))
    assert not close(scores(other.eval(), batch), scores(model, batch), 1e-3)
    other.load_state_dict(model.state_dict())
    assert torch.equal(scores(other, batch), scores(model, batch))


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the time zone of a process cannot be changed here")
def test_the_time_zone_changes_nothing(trained, monkeypatch, name):
    found = []
    try:
        for zone in ("UTC", "Asia/Kathmandu", "America/Los_Angeles"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            model, batch, _ = trained(name)
            found.append(scores(model, batch))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_autocast_gives_finite_losses_and_scores(trained, name, dtype):
    model, batch, train = trained(name)
    right = scores(model, batch)
    with torch.autocast("cpu", dtype=dtype):
        rough = scores(model, batch).float()
        loss = model.train().calculate_loss(next(iter(train)))
    if getattr(model, "input_type", None) == InputType.POINTWISE:  # scores are probabilities
        right, rough = right.logit(), rough.logit()
    assert close(rough, right, 0.15 * float(right.std()))
    assert torch.isfinite(loss)
    loss.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_gives_the_scores_of_the_cpu(trained, name):
    model, batch, train = trained(name)
    right = scores(model, batch)
    model, window = model.to("cuda"), next(iter(train)).to("cuda")
    assert close(scores(model, batch.to("cuda")).cpu(), right, 1e-4)
    loss = model.train().calculate_loss(window)
    loss.backward()
    assert torch.isfinite(loss)
