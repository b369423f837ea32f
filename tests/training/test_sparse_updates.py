"""`sparse_updates`: only the rows of the item table that a batch reads get gradients and are updated."""

import copy
from itertools import chain

import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from recbole_ext import InputError, Recommender, create_dataset, data_preparation, get_trainer, run_recbole
from recbole_ext.checkpoint import file as checkpoint
from recbole_ext.model import LightSANs, losses
from recbole_ext.model.losses import ItemLoss, NegativeSampler
from recbole_ext.training.lazy_adam import LazyAdam
from recbole_ext.training.weight_average import WeightAverage
from tests.oracles.bare import _Data, bare_config, bare_meantime, bare_tisasrec, sequences

ROWS, HIDDEN, LR, BETAS, EPS = 9, 3, 0.1, (0.9, 0.999), 1e-8
SPARSE = {"sparse_updates": True, "learner": "adam"}
MODELS = [
    ("MEANTIME", {"loss_type": "SSM", "objective": "next", "architecture": "sasrec"}),
    ("MEANTIME", {"loss_type": "gBCE"}),
    ("MEANTIME", {"loss_type": "BCE"}),
    ("LightSANs", {"loss_type": "SSM", "negative_distribution": "popularity"}),
    ("LightSANs", {"loss_type": "BPR"}),
    ("TiSASRec", {"reg_weight": 0.0}),
    ("TiSASRec", {"reg_weight": 0.0, "loss_type": "SSM", "negative_distribution": "uniform"}),
]  # fmt: skip


class Rows(nn.Module):
    """Item vectors and biases with sparse gradients, and a matrix with a dense one."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(ROWS, HIDDEN, sparse=True, dtype=torch.float64)
        self.bias = nn.Parameter(torch.randn(ROWS, dtype=torch.float64))
        self.dense = nn.Linear(HIDDEN, HIDDEN, dtype=torch.float64)

    def forward(self, items: torch.Tensor) -> torch.Tensor:
        return (self.dense(self.table(items)).sum(-1) * self.bias.gather(0, items, sparse_grad=True)).square().sum()


def batches(number: int = 12) -> list[torch.Tensor]:
    """Ids with repetitions; row 0 is touched early and late only, row 8 never."""
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randint(1, ROWS - 1, (4,), generator=generator) for _ in range(number)]
    drawn[1][0] = drawn[-1][0] = 0
    drawn[3][:] = drawn[3][0]
    return drawn


def train(model: nn.Module, optimizer: torch.optim.Optimizer, ids: list[torch.Tensor]) -> None:
    for items in ids:
        optimizer.zero_grad()
        model(items).backward()
        optimizer.step()


# ---------------------------------------------------------------- the optimizer


def test_a_row_with_a_gradient_is_updated_as_by_adam_and_the_others_stay():
    torch.manual_seed(0)
    model = Rows()
    plain = copy.deepcopy(model)
    state = {name: [torch.zeros_like(weights) for _ in "mv"] for name, weights in plain.named_parameters()}
    for step, items in enumerate(batches(), 1):
        values = plain(items)
        gradients = torch.autograd.grad(values, list(plain.parameters()))
        for (name, weights), gradient in zip(plain.named_parameters(), gradients, strict=True):
            touched = range(len(weights)) if "dense" in name else set(items.tolist())
            gradient = gradient.to_dense()
            m, v = state[name]
            with torch.no_grad():
                for row in touched:
                    m[row] = BETAS[0] * m[row] + (1 - BETAS[0]) * gradient[row]
                    v[row] = BETAS[1] * v[row] + (1 - BETAS[1]) * gradient[row] ** 2
                    denominator = (v[row] / (1 - BETAS[1] ** step)).sqrt() + EPS
                    weights[row] -= LR * m[row] / (1 - BETAS[0] ** step) / denominator
    train(model, LazyAdam(model.parameters(), LR), batches())
    for (name, ours), theirs in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert (ours - theirs).abs().max() < 1e-12, name


def test_with_gradients_in_all_rows_it_is_adam():
    torch.manual_seed(0)
    lazy = Rows()
    dense = copy.deepcopy(lazy)
    dense.table.sparse = False
    everything = [torch.cat([torch.arange(ROWS), items]) for items in batches()]
    adam, forward = torch.optim.Adam(dense.parameters(), LR), dense.forward

    def with_dense_bias(items: torch.Tensor) -> torch.Tensor:
        return (dense.dense(dense.table(items)).sum(-1) * dense.bias[items]).square().sum()

    assert torch.equal(with_dense_bias(everything[0]), forward(everything[0]))
    dense.forward = with_dense_bias
    train(lazy, LazyAdam(lazy.parameters(), LR), everything)
    train(dense, adam, everything)
    for (name, ours), theirs in zip(lazy.named_parameters(), dense.parameters(), strict=True):
        assert (ours - theirs).abs().max() < 1e-13, name
        assert not torch.equal(ours, dict(Rows().named_parameters())[name])


def test_without_sparse_gradients_it_is_adam_bit_for_bit():
    torch.manual_seed(0)
    ours = nn.Linear(HIDDEN, 2)
    theirs = copy.deepcopy(ours)
    for model, optimizer in ((ours, LazyAdam), (theirs, torch.optim.Adam)):
        train(nn.Sequential(model, nn.Flatten(0), _Sum()), optimizer(model.parameters(), LR), [torch.ones(4, 3)] * 5)
    assert torch.equal(ours.weight, theirs.weight)
    assert torch.equal(ours.bias, theirs.bias)


class _Sum(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.square().sum()


def test_its_state_continues_bit_for_bit():
    torch.manual_seed(0)
    model = Rows()
    optimizer = LazyAdam(model.parameters(), LR)
    train(model, optimizer, batches()[:5])
    other, content = copy.deepcopy(model), copy.deepcopy(optimizer.state_dict())
    resumed = LazyAdam(other.parameters(), LR)
    resumed.load_state_dict(content)
    train(model, optimizer, batches()[5:])
    train(other, resumed, batches()[5:])
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)


# ---------------------------------------------------------------- the average of the weights


@pytest.mark.parametrize("decay", [0.9, 0.0])
def test_the_average_of_untouched_rows_is_that_of_every_step(decay):
    torch.manual_seed(0)
    model = Rows()
    average, optimizer = WeightAverage(model, decay), LazyAdam(model.parameters(), LR)
    optimizer.register_step_pre_hook(average.before_step)
    optimizer.register_step_post_hook(average.update)
    expected: dict[str, torch.Tensor] = {}
    for number, items in enumerate(batches()):
        train(model, optimizer, [items])
        for name, weights in model.named_parameters():
            expected[name] = decay * expected.get(name, weights.detach()) + (1 - decay) * weights.detach()
        if number in (0, 4, 5, 11):  # reading it in between changes nothing
            assert all((average.complete()[name] - value).abs().max() < 1e-14 for name, value in expected.items())
    assert average.averaged_steps.keys() == {"table.weight", "bias"}


# ---------------------------------------------------------------- the loss


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("logits", [2**27, 24])
@pytest.mark.parametrize("loss_type", ["SSM", "gBCE", "BCE"])
def test_sparse_gradients_are_the_dense_ones(loss_type, logits, own, monkeypatch):
    monkeypatch.setattr(losses, "LOGITS_AT_ONCE", logits)
    generator, found = torch.Generator().manual_seed(0), []
    hidden, table, bias = (torch.randn(*shape, dtype=torch.float64, generator=generator, requires_grad=True)
                           for shape in ((7, 4), (14, 4), (12,)))  # fmt: skip
    target = torch.tensor([1, 4, 4, 11, 7, 3, 1])
    items = torch.randint(1, 12, (7, 5), generator=generator)
    negatives = (items, torch.full(items.shape, -2.0)) if own else None
    for sparse in (False, True):
        loss = ItemLoss(loss_type, NegativeSampler("uniform", 5, torch.ones(12)), sparse=sparse)
        torch.manual_seed(1)
        value = loss(hidden, table, bias, target, negatives)
        found.append((value, *torch.autograd.grad(value, (hidden, table, bias))))
    assert found[1][2].is_sparse
    assert found[1][3].is_sparse
    for dense, sparse in zip(*found, strict=True):
        assert (dense - sparse.to_dense()).abs().max() < 1e-14


# ---------------------------------------------------------------- a training step


def make_bare(name: str, items: int, **keys) -> nn.Module:
    keys = {**SPARSE, "hidden_size": 8, "inner_size": 8, "MAX_ITEM_LIST_LENGTH": 7, "num_negatives": 20, **keys}
    if name == "LightSANs":
        return LightSANs(bare_config("LightSANs", keys), _Data(items=items + 1))
    return (bare_meantime if name == "MEANTIME" else bare_tisasrec)(items, **keys)


def request(items: int) -> dict[str, torch.Tensor]:
    tokens, time, length = sequences([6, 3, 2, 6], items)
    last = length.unsqueeze(1) - 1
    return {
        "item_id_list": tokens[:, :-1], "timestamp_list": time[:, :-1], "item_length": length - 1,
        "item_id": tokens.gather(1, last).squeeze(1), "timestamp": time.gather(1, last).squeeze(1),
        "neg_item_id": torch.randint(1, items, (len(length),)),
    }  # fmt: skip


class NewTensors(TorchDispatchMode):
    """The results of operations that have memory of their own."""

    def __init__(self, known):
        super().__init__()
        self.known = {tensor.untyped_storage().data_ptr() for tensor in known}
        self.largest = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if not isinstance(tensor, torch.Tensor):
                continue
            parts = [tensor._indices(), tensor._values()] if tensor.is_sparse else [tensor]
            new = [part for part in parts if part.untyped_storage().data_ptr() not in self.known]
            self.largest = max([self.largest, *(part.numel() for part in new)])
        return result


@pytest.mark.parametrize(("name", "keys"), MODELS)
def test_no_step_makes_a_tensor_of_all_items(name, keys):
    items = 20_000
    model, batch = make_bare(name, items, **keys), request(items)
    optimizer = LazyAdam(model.parameters(), LR)
    average = WeightAverage(model, 0.9)
    trainer = get_trainer({"MODEL_TYPE": model.type, "model": name})
    clip = type("Clip", (), {"model": model, "config": {"clip_grad_norm": {"max_norm": 0.1}}})()
    optimizer.register_step_pre_hook(average.before_step)
    optimizer.register_step_post_hook(average.update)
    optimizer.register_step_pre_hook(lambda *_: trainer._clip(clip))

    def step() -> None:
        optimizer.zero_grad()
        model.calculate_loss(batch).backward()
        optimizer.step()

    step(), step()  # these make the moments, the average, and the steps of rows
    state = chain.from_iterable(values.values() for values in optimizer.state.values())
    rows = (average.average.values(), average.averaged_steps.values(), model.parameters(), model.buffers(), state)
    with NewTensors(chain.from_iterable(rows)) as new:
        step()
    assert 0 < new.largest < items
    dense = make_bare(name, items, **{**keys, "sparse_updates": False})
    with NewTensors([*dense.parameters(), *dense.buffers()]) as new:
        dense.calculate_loss(batch).backward()
    assert new.largest >= items  # that is, the test can fail


def test_the_norm_counts_each_row_of_a_sparse_gradient_once():
    found = {}
    for sparse in (False, True):
        torch.manual_seed(0)
        model = make_bare("MEANTIME", 40, loss_type="SSM", sparse_updates=sparse).double()
        trainer = get_trainer({"MODEL_TYPE": model.type, "model": "MEANTIME"})
        clip = type("Clip", (), {"model": model, "config": {"clip_grad_norm": {"max_norm": 0.1}}})()
        model.calculate_loss(request(40)).backward()
        trainer._clip(clip)
        found[sparse] = [weights.grad.to_dense() for weights in model.parameters() if weights.grad is not None]
    norm = torch.stack([gradient.norm() for gradient in found[True]]).norm()
    assert float(norm) == pytest.approx(0.1, rel=1e-4)
    for dense, sparse in zip(found[False], found[True], strict=True):
        assert (dense - sparse).abs().max() < 1e-14


# ---------------------------------------------------------------- runs


@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize("name", ["MEANTIME", "LightSANs", "TiSASRec"])
def test_a_trainer_learns(name, amp, make_config):
    keys = {"reg_weight": 0.0} if name == "TiSASRec" else {"loss_type": "SSM", "num_negatives": 10}
    keys |= {"objective": "next", "architecture": "sasrec"} if name == "MEANTIME" else {}
    config = make_config(
        name, sparse_updates=True, epochs=5, enable_amp=amp, ema_decay=0.5, learning_rate=0.02,
        clip_grad_norm={"max_norm": 1.0}, **keys,
    )  # fmt: skip
    torch.manual_seed(0)
    train_data, valid_data, _ = data_preparation(config, create_dataset(config))
    trainer = get_trainer(config)(config, config.model_class(config, train_data._dataset))
    trainer.fit(train_data, valid_data, saved=False)
    curve = list(trainer.train_loss_dict.values())
    assert curve[-1] < curve[0]
    assert trainer.model.item_embedding.weight.grad.is_sparse
    assert isinstance(trainer.optimizer, LazyAdam)


@pytest.mark.parametrize(
    ("model", "keys", "message"),
    [
        ("MEANTIME", {"loss_type": "CE"}, "sparse_updates is True, but loss_type CE reads all items"),
        ("LightSANs", {"loss_type": "CE"}, "sparse_updates is True, but loss_type CE reads all items"),
        ("MEANTIME", {"weight_decay": 1e-5}, "weight_decay is 1e-05, which changes all item vectors"),
        ("TiSASRec", {"loss_type": "SSM"}, "reg_weight is 2.5e-05, which changes all item vectors"),
        ("MEANTIME", {"learner": "sgd"}, "learner is sgd, but sparse_updates is True, which only adam"),
    ],
)
def test_keys_that_touch_all_rows_are_refused(model, keys, message, make_config):
    with pytest.raises(InputError, match=message):
        make_config(model, **{"loss_type": "SSM", "sparse_updates": True, **keys})


# ---------------------------------------------------------------- loss_type: auto


@pytest.mark.parametrize("model", ["MEANTIME", "LightSANs"])
@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, ("CE", False)),
        ({"full_softmax_items": 20}, ("CE", False)),
        ({"full_softmax_items": 19}, ("SSM", True)),
        ({"full_softmax_items": 19, "sparse_updates": False}, ("SSM", False)),
        ({"full_softmax_items": 19, "weight_decay": 0.1}, ("SSM", False)),
        ({"full_softmax_items": 19, "learner": "sgd"}, ("SSM", False)),
        ({"full_softmax_items": 19, "only_softmax": True}, ("CE", False)),
        ({"full_softmax_items": 19, "loss_type": "CE"}, ("CE", False)),
    ],
)
def test_auto_is_the_full_softmax_up_to_a_number_of_items(model, keys, expected, make_model, caplog):
    only_softmax = "pad_class" if model == "MEANTIME" else "recbole_compat"
    keys = {only_softmax if key == "only_softmax" else key: value for key, value in keys.items()}
    caplog.set_level("INFO")
    network, train_data, *_ = make_model(model, num_negatives=7, **keys)  # 20 items
    config = train_data._dataset.config
    assert (config["loss_type"], config["sparse_updates"]) == expected
    assert network.loss.loss_type == expected[0]
    assert network.item_embedding.sparse == network.loss.sparse == expected[1]
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("loss_type auto:")]
    sentence = {
        "CE": "loss_type auto: CE, the softmax over all 20 items; it draws no negatives.",
        "SSM": f"loss_type auto: SSM with 7 negatives and sparse_updates: {expected[1]}, because the data set has 20",
    }[expected[0]]
    assert [line.startswith(sentence) for line in lines] == [True] * ("loss_type" not in keys)


def test_sparse_updates_of_the_full_softmax_that_auto_chooses_are_refused(make_model):
    with pytest.raises(InputError, match="sparse_updates is True, but loss_type CE reads all items"):
        make_model(sparse_updates=True)


def test_a_checkpoint_has_the_choice_and_serves_and_resumes_it(make_config, make_checkpoint):
    path = make_checkpoint(make_config(full_softmax_items=5, num_negatives=7, epochs=1), validate=True)
    stored = checkpoint.load(path)
    assert (stored["config"]["loss_type"], stored["config"]["sparse_updates"]) == ("SSM", True)
    for keys in ({"loss_type": "CE", "sparse_updates": False}, {"sparse_updates": False}):
        with pytest.raises(InputError, match="but checkpoint .* was trained with"):
            run_recbole(resume=path, config_dict=keys, argv=[])
    assert run_recbole(resume=path, config_dict={"epochs": 2}, argv=[])["config"]["loss_type"] == "SSM"
    events = pd.DataFrame({"user_id": ["u", "u"], "item_id": ["i1", "i2"], "timestamp": [1.6e9, 1.6e9 + 5]})
    assert len(Recommender.load(path).recommend(events, k=3)) == 3
