"""Several processes for a test: forked, so that they need not import anything, and never longer than a time limit."""

import multiprocessing
import os
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from recbole_ext.distributed import processes

LIMIT = 240  # seconds


@pytest.fixture
def in_processes(tmp_path: Path) -> Callable[..., list[Any]]:
    """Call a function in `count` processes that know each other; returns the result of each.

    An exception in one of them becomes the result of that process.
    """
    number = iter(range(100))

    def run(count: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        folder = tmp_path / f"processes-{next(number)}"
        folder.mkdir()
        context = multiprocessing.get_context("fork")
        children = [
            context.Process(target=_child, args=(rank, count, folder, function, arguments)) for rank in range(count)
        ]
        try:
            for child in children:
                child.start()
            for child in children:
                child.join(LIMIT)
        finally:
            for child in children:
                child.kill()
                child.join()
        return [pickle.loads((folder / f"result-{rank}").read_bytes()) for rank in range(count)]

    return run


def _child(rank: int, count: int, folder: Path, function: Callable[..., Any], arguments: tuple) -> None:
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(count),
        GLOO_SOCKET_IFNAME="lo", RECBOLE_EXT_STORE=str(folder / "store"),
    )  # fmt: skip
    torch.set_num_threads(1)
    try:
        with processes.joined():
            result = function(*arguments)
    except Exception as error:
        traceback.print_exc()
        result = error
    (folder / f"result-{rank}").write_bytes(pickle.dumps(result))
