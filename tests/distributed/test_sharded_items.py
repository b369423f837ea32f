"""The item tables of the benchmark sharded_items.py, and what they send."""

import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from benchmarks.sharded_items import BATCHES, TABLES, Training, counted, drawn
from recbole_ext.distributed import processes
from tests.snippets import ROOT

ITEMS, HIDDEN, COUNT = 60, 8, 2
OPTIONS = Namespace(seed=2020, length=6, negatives=5)  # some items occur in several windows


def trained(name: str, steps: int) -> tuple[list, int]:
    """The weights of all items after so many steps, and the bytes that this process sent."""
    weights = torch.randn(ITEMS, HIDDEN, generator=torch.Generator().manual_seed(1))
    training = Training(TABLES[name](ITEMS, HIDDEN), HIDDEN, 2)
    own = training.table.tensors[0]
    own.copy_(weights[training.table.first :][: len(own)])
    with counted() as sent:
        for windows, negatives in drawn(8, OPTIONS, ITEMS)[:steps]:
            training.step(windows, negatives)
    own = training.table.tensors[0]
    result = own if len(own) == ITEMS else torch.cat(processes.gathered(own))
    assert not torch.equal(result, weights)
    return result.tolist(), sum(sent)


def test_a_table_in_shards_is_trained_as_a_whole_one(in_processes) -> None:
    alone = torch.tensor(trained("whole", BATCHES)[0])
    for name in ("whole", "rows"):
        for weights, _ in in_processes(COUNT, trained, name, BATCHES):
            torch.testing.assert_close(torch.tensor(weights), alone, atol=2e-6, rtol=0)


def test_fsdp2_takes_the_same_first_step(in_processes) -> None:
    # later, Adam also moves the rows that a batch does not touch
    alone = torch.tensor(trained("whole", 1)[0])
    for weights, _ in in_processes(COUNT, trained, "FSDP2", 1):
        torch.testing.assert_close(torch.tensor(weights), alone, atol=2e-6, rtol=0)


def test_bytes_are_those_of_the_rows_that_are_sent(in_processes) -> None:
    windows, negatives = drawn(8, OPTIONS, ITEMS)[0]
    own = [torch.cat([share.flatten(), negatives]).unique() for share in windows.chunk(COUNT)]
    vector, half = 4 * HIDDEN, ITEMS // COUNT
    whole = in_processes(COUNT, trained, "whole", 1)
    longest = max(map(len, own))  # shorter ones are padded
    assert [count for _, count in whole] == [longest * (8 + vector) + 2 * 8] * COUNT  # and two numbers of rows
    asked = [int((rows >= half).sum() if rank == 0 else (rows < half).sum()) for rank, rows in enumerate(own)]
    rows = in_processes(COUNT, trained, "rows", 1)
    # one number of rows, the rows and their gradients, and the vectors that the other one asks for
    expected = [8 + asked[rank] * (8 + vector) + asked[1 - rank] * vector for rank in range(COUNT)]
    assert [count for _, count in rows] == expected
    fsdp2 = in_processes(COUNT, trained, "FSDP2", 1)
    assert [count for _, count in fsdp2] == [2 * half * vector] * COUNT


@pytest.mark.slow
def test_the_page_has_all_tables(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    command = [
        sys.executable,
        "benchmarks/sharded_items.py",
        "--items=1000",
        "--batches=8",
        "--length=6",
        "--repeats=1",
    ]
    subprocess.run([*command, f"--output={page}"], cwd=ROOT, check=True, capture_output=True)
    text = page.read_text(encoding="utf-8")
    for name in TABLES:
        assert f"| 1,000 | 8 | {name} |" in text
    assert "| 80 GiB | 112 million | 56 million |" in text
    assert "nan" not in text
