"""The Triton kernel of the gap table beside the plain path, in Triton's interpreter:

TRITON_INTERPRET=1 python -m pytest tests/model/test_gap_kernel.py
"""

import os
import sys

import pytest
import torch

from recbole_ext.errors import InputError
from recbole_ext.model import meantime
from recbole_ext.model.meantime.kernels import DAY, LONGEST_GAP, TABULATED, GapTable
from tests.oracles.bare import bare_meantime

FREQ, HIDDEN = 10000.0, 16
interpreted = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="TRITON_INTERPRET is not 1")


def tables(name: str) -> tuple[GapTable, GapTable]:
    """The table as read by the plain path, and by the kernel."""
    pytest.importorskip("triton")
    return GapTable([name], HIDDEN, FREQ, 1.0), GapTable([name], HIDDEN, FREQ, 1.0, in_triton=True)


@interpreted
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("keys", [1, 5, 300])  # 300: two programs for a row
@pytest.mark.parametrize("name", TABULATED)
def test_values_and_gradients_are_those_of_the_plain_path(name, keys, dtype):
    generator = torch.Generator().manual_seed(0)
    time = torch.rand(2, keys, dtype=torch.float64, generator=generator) * 1000 * DAY
    time[0, 0], time[1, -1] = 0, 2 * LONGEST_GAP  # gaps of 0, and beyond the longest
    query = time[:, : min(keys, 3)]
    found = []
    for table in tables(name):
        a = torch.randn(2, query.shape[1], HIDDEN, dtype=dtype, generator=torch.Generator().manual_seed(1))
        a.requires_grad_()
        located = table.locate(query, time, dtype)
        assert (located[1] is None) == table.in_triton
        out = table(name, a, *located)
        (out * torch.linspace(-1, 1, out.numel(), dtype=dtype).view_as(out)).sum().backward()
        found.append((out.detach(), a.grad))
    for plain, kernel in zip(*found, strict=True):
        torch.testing.assert_close(kernel, plain, rtol=1e-5 if dtype == torch.float32 else 1e-12, atol=1e-5)


@interpreted
@pytest.mark.parametrize("objective", ["cloze", "next"])
def test_a_model_has_the_same_states(objective):
    pytest.importorskip("triton")
    states = []
    for kernel in ("torch", "triton"):
        torch.manual_seed(0)
        model = bare_meantime(20, 100, objective=objective, gap_kernel=kernel, relative_kernels=["exp", "log"]).eval()
        items = torch.randint(1, 20, (3, 12), generator=torch.Generator().manual_seed(2))
        time = torch.arange(36.0, dtype=torch.float64).view(3, 12) * DAY
        states.append(model.encode(items, time, torch.tensor([12, 7, 1])))
    torch.testing.assert_close(states[1], states[0], rtol=1e-5, atol=1e-5)


@interpreted
def test_no_rows_and_no_keys():
    _, table = tables("log")
    empty = torch.zeros(0, 4, dtype=torch.float64)
    assert table("log", torch.zeros(0, 4, HIDDEN), *table.locate(empty, empty, torch.float32)).shape == (0, 4, 4)
    nothing = torch.zeros(2, 0, dtype=torch.float64)
    assert table("log", torch.zeros(2, 0, HIDDEN), *table.locate(nothing, nothing, torch.float32)).shape == (2, 0, 0)


def test_without_triton_one_sentence_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "recbole_ext.model.meantime.gap_kernel", raising=False)
    monkeypatch.delattr(meantime, "gap_kernel", raising=False)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    table, time = GapTable(["log"], HIDDEN, FREQ, 1.0, in_triton=True), torch.zeros(1, 2, dtype=torch.float64)
    with pytest.raises(InputError, match="gap_kernel is triton, but triton is not installed; set it to torch."):
        table("log", torch.zeros(1, 2, HIDDEN), *table.locate(time, time, torch.float32))


def test_a_cpu_takes_the_plain_path(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    time = torch.tensor([[0.0, DAY]], dtype=torch.float64)
    plain, table = GapTable(["log"], HIDDEN, FREQ, 1.0), GapTable(["log"], HIDDEN, FREQ, 1.0, in_triton=True)
    for found, right in zip(
        table.locate(time, time, torch.float32), plain.locate(time, time, torch.float32), strict=True
    ):
        assert torch.equal(found, right)
