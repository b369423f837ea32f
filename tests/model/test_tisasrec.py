"""TiSASRec against a plain formulation that makes every [T, T, H] tensor; its intervals, negatives and keys."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from recbole_ext import InputError
from recbole_ext.model import losses
from recbole_ext.model.losses import unseen_negatives
from recbole_ext.model.tisasrec import model as tisasrec
from recbole_ext.model.tisasrec.intervals import count_intervals, used_intervals
from tests.golden import tisasrec as golden
from tests.oracles.bare import DAY, bare_tisasrec, randomise, sequences
from tests.oracles.tisasrec import bce, encode, intervals, squared_norm

ITEMS, LENGTHS, LIMIT = 40, [11, 1, 2, 3, 7, 12, 5], 50  # events of each history, without the one to predict
UNITS = {"personalised": None, "global": 2.0}


def small(**keys):
    model = bare_tisasrec(
        ITEMS, hidden_size=12, n_layers=2, time_span=LIMIT, MAX_ITEM_LIST_LENGTH=13,
        **{"interval_unit": 2.0, **keys},
    ).double()  # fmt: skip
    randomise(model)
    with torch.no_grad():
        model.item_embedding.weight[0] = 0
    return model


def requests(seed=3, span=200.0):
    """Histories and an event to predict for each; the times of one history are all equal."""
    items, time, length = sequences([count + 1 for count in LENGTHS], ITEMS, span, seed)
    last = length.unsqueeze(1) - 1
    inside = torch.arange(items.shape[1]) < last
    time[2] = 5.0
    return {
        "item_id_list": items * inside, "timestamp_list": time * inside, "item_length": length - 1,
        "item_id": items.gather(1, last).squeeze(1),
    }  # fmt: skip


def plain_states(model, batch, row, heads, time_interval):
    count = int(batch["item_length"][row])
    items, time = batch["item_id_list"][row, :count], batch["timestamp_list"][row, :count].tolist()
    weights = dict(model.named_parameters())
    return encode(weights, items, intervals(time, LIMIT, UNITS[time_interval]), 12, 2, heads, 1e-8)


# ---------------------------------------------------------------- against the oracle


@pytest.mark.parametrize("time_interval", UNITS)
@pytest.mark.parametrize("heads", [1, 3])
def test_scores_are_those_of_the_oracle(heads, time_interval):
    model, batch = small(n_heads=heads, time_interval=time_interval).eval(), requests()
    scores = model.full_sort_predict(batch)
    for row in range(len(LENGTHS)):
        state = plain_states(model, batch, row, heads, time_interval)[-1]
        assert (scores[row] - model.item_embedding.weight @ state).abs().max() < 1e-12


@pytest.mark.parametrize("time_interval", UNITS)
@pytest.mark.parametrize("heads", [1, 3])
def test_the_loss_and_its_gradients_are_those_of_the_oracle(heads, time_interval, monkeypatch):
    model, batch = small(n_heads=heads, time_interval=time_interval, reg_weight=0.01), requests()
    drawn = {}

    def draw(window, number, n_items):
        drawn["items"], log_probability = unseen_negatives(window, number, n_items)
        return drawn["items"], log_probability

    monkeypatch.setattr(tisasrec, "unseen_negatives", draw)
    loss = model.calculate_loss(batch)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    weights, parts = dict(model.named_parameters()), []
    for row, count in enumerate(LENGTHS):
        targets = torch.cat([batch["item_id_list"][row, 1:count], batch["item_id"][row : row + 1]])
        states = plain_states(model, batch, row, heads, time_interval)
        parts.append(bce(weights, states, targets, drawn["items"][row, 1 : count + 1, 0]))
    expected = torch.cat(parts).mean() + 0.01 * squared_norm(weights)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-12)
    right = torch.autograd.grad(expected, list(model.parameters()))
    for (name, _), ours, theirs in zip(model.named_parameters(), gradients, right, strict=True):
        assert (ours - theirs).abs().max() < 1e-12, name


def test_the_histories_have_intervals_of_every_kind():
    batch, found = requests(), set()
    for row, count in enumerate(LENGTHS):
        found |= set(intervals(batch["timestamp_list"][row, :count].tolist(), LIMIT).flatten().tolist())
    assert {0, 1, LIMIT} < found
    assert len(found) > 20


def test_only_the_newest_events_count():
    model, batch = small().eval(), requests()
    wide = {
        name: torch.nn.functional.pad(batch[name][5:6], (4, 0), value=1) for name in ("item_id_list", "timestamp_list")
    }
    longer = {**wide, "item_length": torch.tensor([16]), "item_id": batch["item_id"][5:6]}
    assert torch.equal(model.full_sort_predict(longer), model.full_sort_predict({k: v[5:6] for k, v in batch.items()}))


@pytest.mark.parametrize("name", golden.FILES)
def test_scores_and_gradients_are_those_of_the_reference_file(name):
    with np.load(golden.FOLDER / f"{name}.npz") as file:
        reference = {key: torch.from_numpy(file[key]) for key in file.files}
    model = golden.model_of(name)
    model.load_state_dict({key.partition("/")[2]: v for key, v in reference.items() if key.startswith("param/")})
    columns = {"item_id_list": "items", "timestamp_list": "time", "item_length": "length"}
    scores = model.full_sort_predict({column: reference[f"in/{key}"] for column, key in columns.items()})
    assert (scores - reference["out/scores"]).abs().max() < 1e-12
    scores.sum().backward()
    for key, weights in model.named_parameters():
        assert (weights.grad - reference[f"grad/{key}"])[1 if key.startswith("item") else 0 :].abs().max() < 1e-11, key


class LargestTensor(TorchDispatchMode):
    """The largest number of elements of any result."""

    numbers = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        tensors = [value for value in tree_leaves(result) if isinstance(value, torch.Tensor)]
        self.numbers = max([self.numbers, *(value.numel() for value in tensors)])
        return result


def test_no_step_makes_embeddings_of_all_pairs():
    rows, events, hidden = 4, 30, 32
    model = bare_tisasrec(ITEMS, hidden_size=hidden, time_span=LIMIT, MAX_ITEM_LIST_LENGTH=events + 1)
    items, time, length = sequences([events] * rows, ITEMS)
    batch = {"item_id_list": items, "timestamp_list": time, "item_length": length, "item_id": items[:, 0]}
    with LargestTensor() as largest:
        model.calculate_loss(batch).backward()
    assert rows * events * events <= largest.numbers < rows * events * events * hidden / 8


# ---------------------------------------------------------------- intervals


def test_intervals_are_counted_in_the_smallest_gap_of_each_row():
    time = torch.tensor([[0.0, 0, 10, 35, 1000], [3, 3, 3, 3, 3], [100, 107, 107, 107, 107]], dtype=torch.float64)
    found = count_intervals(time, None, 50)
    assert found[0].tolist() == [
        [0, 0, 1, 3, 50], [0, 0, 1, 3, 50], [1, 1, 0, 2, 50], [3, 3, 2, 0, 50], [50, 50, 50, 50, 0]
    ]  # fmt: skip
    assert (found[1] == 0).all()  # no positive gap
    assert found[2, :2, :2].tolist() == [[0, 1], [1, 0]]


def test_multiples_of_a_fraction_of_a_second_are_exact():
    time = 1e9 + torch.arange(1000, dtype=torch.float64).unsqueeze(0) / 10  # 0.3 / 0.1 is less than 3 in float64
    steps = torch.arange(1000)
    for unit in (None, 0.1):
        found = count_intervals(time, unit, 1000)
        assert torch.equal(found[0], (steps.unsqueeze(1) - steps).abs())


def test_a_global_unit_is_the_same_for_all_rows():
    time = torch.tensor([[0.0, 59, 60, 7200]], dtype=torch.float64)
    assert count_intervals(time, 60.0, 100)[0, 0].tolist() == [0, 0, 1, 100]


def test_intervals_are_numbered_without_gaps():
    interval = torch.tensor([[[0, 5], [7, 0]]])
    used, numbers = used_intervals(interval, 9)
    assert used.tolist() == [0, 5, 7]
    assert torch.equal(used[numbers], interval)


def test_a_later_event_changes_earlier_states_only_through_the_smallest_gap():
    items, time, length = sequences([8], ITEMS, seed=1)
    later = time.clone()
    later[0, -1] += 1000 * DAY
    nearer = time.clone()
    nearer[0, -1] = time[0, -2] + 0.25
    for time_interval in UNITS:
        model = small(time_interval=time_interval).eval()
        states, moved, closer = (model.encode(items, times, length)[0, :-1] for times in (time, later, nearer))
        assert torch.allclose(states, moved, rtol=0, atol=1e-12)
        assert torch.allclose(states, closer, rtol=0, atol=1e-12) == (time_interval == "global")


# ---------------------------------------------------------------- negatives of each target


def test_negatives_are_uniform_over_the_items_that_are_not_in_the_window():
    torch.manual_seed(0)
    window = torch.tensor([[3, 1, 3, 6, 0], [2, 2, 2, 2, 2]])
    negatives, log_probability = unseen_negatives(window, 40_000, 9)
    assert negatives.shape == log_probability.shape == (2, 5, 40_000)
    for row, unseen in enumerate(([2, 4, 5, 7, 8], [1, 3, 4, 5, 6, 7, 8])):
        share = torch.bincount(negatives[row].flatten(), minlength=9) / negatives[row].numel()
        assert share.nonzero().flatten().tolist() == unseen
        assert (share[unseen] - 1 / len(unseen)).abs().max() < 0.005
        assert log_probability[row].exp().unique().tolist() == pytest.approx([1 / len(unseen)])


def test_a_window_with_all_items_has_negatives_that_exist():
    negatives, log_probability = unseen_negatives(torch.tensor([[1, 2, 3]]), 4, 4)
    assert negatives.unique().tolist() == [3]
    assert (log_probability == 0).all()


@pytest.mark.parametrize("loss_type", ["SSM", "gBCE", "BCE"])
@pytest.mark.parametrize("distribution", ["unseen", "uniform", "in_batch"])
def test_every_loss_takes_either_kind_of_negatives(loss_type, distribution, monkeypatch):
    found = []
    for at_once in (2**27, 40):  # the second: a few targets at once
        monkeypatch.setattr(losses, "LOGITS_AT_ONCE", at_once)
        model = small(loss_type=loss_type, negative_distribution=distribution, num_negatives=3)
        torch.manual_seed(0)
        loss = model.calculate_loss(requests())
        found.append((loss, *torch.autograd.grad(loss, list(model.parameters()))))
    for whole, parts in zip(*found, strict=True):
        torch.testing.assert_close(parts, whole, atol=1e-12, rtol=1e-9)


# ---------------------------------------------------------------- keys


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"n_heads": 5}, "hidden_size is 16, which n_heads 5 does not divide"),
        ({"time_interval": "days"}, "'time_interval' is 'days'; it should be one of personalised, global"),
        ({"time_span": 0}, "'time_span' is 0; it should be a whole number in"),
        ({"interval_unit": 0}, "'interval_unit' is 0; it should be a number in"),
        ({"reg_weight": -1}, "'reg_weight' is -1; it should be a number in"),
        ({"MAX_ITEM_LIST_LENGTH": 1}, "'MAX_ITEM_LIST_LENGTH' is 1; it should be a whole number in"),
        ({"loss_type": "BPR"}, "'loss_type' is 'BPR'; it should be one of CE, SSM, gBCE, BCE"),
    ],
)  # fmt: skip
def test_wrong_keys_are_refused(make_config, keys, message):
    with pytest.raises(InputError, match=message):
        make_config("TiSASRec", **{"hidden_size": 16, **keys})


def test_the_penalty_counts_every_embedding():
    model, batch = small(reg_weight=0.0), requests()
    torch.manual_seed(0)
    without = model.calculate_loss(batch).item()
    model.reg_weight = 0.5
    torch.manual_seed(0)
    tables = [
        weights
        for name, weights in model.named_parameters()
        if "item_emb" in name or name[:8] in ("position", "interval")
    ]
    assert len(tables) == 5
    expected = without + 0.5 * sum(float(table.detach().square().sum()) for table in tables)
    assert model.calculate_loss(batch).item() == pytest.approx(expected, abs=1e-9)
