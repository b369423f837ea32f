"""The simulated device is as strict as a GPU, computes as the CPU does, and counts what a CPU would wait for."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.simulated_device import DEVICE, SimulatedTensor, simulated_device


@pytest.fixture
def waits():
    with simulated_device() as waits:
        yield waits


@pytest.fixture
def x(waits):
    """The numbers 0 to 11 on the device, [4, 3]."""
    values = torch.arange(12, dtype=torch.float32, device=DEVICE).view(4, 3)
    waits.clear()
    return values


MIXES = {
    "sum": lambda x: x + torch.ones(4, 3),
    "product": lambda x: torch.ones(2, 4) @ x,
    "rows": lambda x: F.embedding(torch.tensor([1, 2]), x),
    "gather": lambda x: x.gather(0, torch.zeros(1, 3, dtype=torch.int64)),
    "a number in a row of others": lambda x: torch.stack([x[0, 0], torch.tensor(1.0)]),
    "a device's rows of a tensor on the CPU": lambda x: torch.ones(4, 3)[x[0].long()],
    "values for a place": lambda x: x.index_put_((torch.tensor([0, 1]),), torch.ones(2, 3)),
    "in place": lambda x: torch.ones(4, 3).add_(x),
    "a generator of the CPU": lambda x: x.uniform_(generator=torch.Generator()),
}


@pytest.mark.parametrize("name", MIXES)
def test_tensors_of_two_devices_do_not_mix(x, name):
    with pytest.raises(RuntimeError, match=r"device|CPU"):
        MIXES[name](x)


def test_what_a_gpu_takes_from_the_cpu(x):
    assert (x + torch.tensor(1.0))[0, 0].item() == 1
    assert x[torch.tensor([1, 2])].shape == (2, 3)
    x[x > 5] = -1.0
    x[0].copy_(torch.ones(3))
    assert x.cpu().tolist() == [[1, 1, 1], [3, 4, 5], [-1] * 3, [-1] * 3]


def test_there_is_no_numpy_form(x):
    with pytest.raises(TypeError, match="cpu"):
        x.numpy()


WAITS = {
    "item": lambda x: x[0, 0].item(), "a number": lambda x: float(x[0, 0]), "a condition": lambda x: bool(x[0, 0]),
    "list": lambda x: x.tolist(), "the CPU": lambda x: x.cpu(), "nonzero": lambda x: x.nonzero(),
    "a mask": lambda x: x[x > 2], "selection": lambda x: x.masked_select(x > 2), "unique": lambda x: x.unique(),
    "runs": lambda x: x.unique_consecutive(), "counts": lambda x: x[0].long().bincount(),
    "repeats": lambda x: x.repeat_interleave(x[:, 0].long(), 0), "equality": lambda x: torch.equal(x, x + 0),
    "onto the CPU": lambda x: torch.ones(4, 3).copy_(x),
}  # fmt: skip


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_for_a_result_is_counted(x, waits, name):
    WAITS[name](x)
    assert sum(waits.of_results.values()) >= 1
    assert not waits.of_copies


FREE = {
    "rows": lambda x: x[x[0].long()], "a value for a mask": lambda x: x.masked_fill(x > 2, 0.0),
    "repeats of a known number": lambda x: torch.repeat_interleave(x[0].long(), output_size=3),
    "sort": lambda x: x.sort(0), "where": lambda x: torch.where(x > 2, x, 0.5), "shape": lambda x: len(x),
    "draw": lambda x: torch.rand(3, device=x.device), "new": lambda x: x.new_zeros(3),
    "copy": lambda x: torch.ones(3).to(DEVICE, non_blocking=True),
}  # fmt: skip


@pytest.mark.parametrize("name", FREE)
def test_what_needs_no_wait_is_not_counted(x, waits, name):
    FREE[name](x)
    assert not +waits.of_results
    assert not +waits.of_copies


COPIES = {
    "to": lambda x: torch.ones(3).to(DEVICE), "tensor": lambda x: torch.tensor([1, 2], device=DEVICE),
    "indices": lambda x: x[[0, 1]], "onto the device": lambda x: x.copy_(torch.ones(4, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_that_waits_is_counted(x, waits, name):
    COPIES[name](x)
    assert waits.of_copies
    assert not waits.of_results


def test_a_network_learns_as_on_the_cpu(waits):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Embedding(5, 8), nn.Linear(8, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 2))
    ours = copy.deepcopy(network).to(DEVICE)
    ids, targets = torch.tensor([0, 4, 2]), torch.tensor([0, 1, 1])
    for model, device in ((network, "cpu"), (ours, DEVICE)):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            rows = ids.to(device)
            scores = torch.where(rows.unsqueeze(1) > 1, model(rows), 0.5)
            F.cross_entropy(scores, targets.to(device)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    assert all(isinstance(weights, SimulatedTensor) for weights in ours.parameters())
    for weights, right in zip(copy.deepcopy(ours).parameters(), network.parameters(), strict=True):
        assert torch.equal(weights.cpu(), right)


def test_without_gradients(x):
    with torch.inference_mode():
        assert (x.requires_grad_()[1:] + 1).view(-1).tolist() == [4, 5, 6, 7, 8, 9, 10, 11, 12]


def test_a_file_loads_on_either_device(x, tmp_path):
    torch.save({"x": x}, tmp_path / "x.pt")
    for device, kind in ((DEVICE, SimulatedTensor), ("cpu", torch.Tensor)):
        loaded = torch.load(tmp_path / "x.pt", map_location=device, weights_only=True)["x"]
        assert type(loaded) is kind
        assert torch.equal(loaded.cpu(), x.cpu())


def test_outside_of_the_block_its_tensors_cannot_be_used():
    with simulated_device():
        x = torch.ones(3, device=DEVICE)
    with pytest.raises(RuntimeError, match="outside"):
        x + 1
