"""The processes that train one model together: who they are, and what they tell each other.

`torchrun`, or the command line with `--nproc`, starts them and describes them in environment variables. In any other
program, every function here works for a single process and sends nothing.
"""

import contextlib
import datetime
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from recbole_ext.distributed import environment, rendezvous
from recbole_ext.distributed.environment import FILE_STORE, are_announced
from recbole_ext.errors import InputError, ProcessLost
from recbole_ext.utils.signals import ended_by_sigterm

# that a process waits for the others in a training step
TIMEOUT = datetime.timedelta(seconds=float(os.environ.get(environment.TIMEOUT) or 60))
PATIENCE = datetime.timedelta(days=1)  # that it waits while one of them reads, writes or evaluates
FAILED = "recbole_ext/failed"


@dataclass(frozen=True)
class Group:
    """The processes of this run.

    Attributes:
        rank: number of this process, from 0.
        size: number of processes.
        local_rank, local_size: the same among the processes of this machine.
        store: where the processes meet; it outlives each of them.
        patient: the group for waiting while one process reads, writes or evaluates.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    store: Any
    patient: Any


_group: Group | None = None
_latest: Group | None = None  # also after its end


def size() -> int:
    """The number of processes."""
    return _group.size if _group else 1


def rank() -> int:
    """The number of this process, from 0."""
    return _group.rank if _group else 0


def is_first() -> bool:
    """Whether this process logs and writes."""
    return rank() == 0


@contextlib.contextmanager
def joined() -> Iterator[None]:
    """In this context, the process belongs to those that its environment names; nothing happens without others.

    Raises:
        ProcessLost: the others do not come.
    """
    global _group, _latest
    if _group is not None or not are_announced():
        yield
        return
    number, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", count))
    # a lost process then ends NCCL's operations with an error instead of the process
    os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")
    has_nccl = torch.cuda.is_available() and dist.is_nccl_available()
    file = os.environ.get(FILE_STORE)
    with _lost_processes_named(), ended_by_sigterm():
        store = dist.FileStore(file, count) if file else rendezvous.fresh_store(number, count)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if has_nccl else "gloo", store=store, timeout=TIMEOUT, rank=number, world_size=count,
        )  # fmt: skip
        _group = _latest = Group(number, count, *local, store, dist.new_group(backend="gloo", timeout=PATIENCE))
    try:
        yield
    finally:
        _group = None
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()


def says_failure() -> bool:
    """Whether this process should say why the run fails: the first one that asks, so that there is one sentence."""
    if _latest is None:  # they have not met
        return True
    try:
        return _latest.store.compare_set(FAILED, "", str(_latest.rank)) == str(_latest.rank).encode()
    except RuntimeError:  # the machine of the store is gone
        return True


def device_of(device: torch.device) -> torch.device:
    """The device of this process, given the one of a single process.

    Raises:
        InputError: this machine has more processes than GPUs.
    """
    if _group is None or device.type != "cuda":
        return device
    if _group.local_size > torch.cuda.device_count():
        raise InputError(
            f"this machine has {_group.local_size} processes, but {torch.cuda.device_count()} GPUs; start fewer "
            f"processes, or set use_gpu to False."
        )
    torch.cuda.set_device(_group.local_rank)
    return torch.device("cuda", _group.local_rank)


# -------------------------------------------------------------------- what they tell each other


@contextlib.contextmanager
def _lost_processes_named() -> Iterator[None]:
    """Turn errors of communication into `ProcessLost`."""
    try:
        yield
    except ProcessLost:
        raise
    except RuntimeError as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ProcessLost(
            f"another process has ended, or has not answered for {TIMEOUT.total_seconds():g} seconds ({first[:160]})"
        ) from error


def wait() -> None:
    """Wait until all processes are here."""
    if _group is not None:
        with _lost_processes_named():
            dist.barrier(_group.patient)


@contextlib.contextmanager
def first_goes_ahead(ahead: bool = True) -> Iterator[None]:
    """The first process of each machine runs the block before the others do, if `ahead`."""
    if _group is None or not ahead:
        yield
        return
    if _group.local_rank:
        wait()
        yield
        return
    yield
    wait()


def largest(*values: float) -> list[float]:
    """The largest of each value over the processes."""
    return _reduced(values, dist.ReduceOp.MAX)


def total(*values: float) -> list[float]:
    """The sum of each value over the processes, in float64."""
    return _reduced(values, dist.ReduceOp.SUM)


def _reduced(values: Sequence[float], operation: Any) -> list[float]:
    if _group is None:
        return list(values)
    tensor = torch.tensor(values, dtype=torch.float64)
    with _lost_processes_named():
        dist.all_reduce(tensor, operation)
    return tensor.tolist()


def of_first(tensor: Tensor) -> Tensor:
    """Overwrite a tensor with that of the first process; it has the same shape everywhere."""
    if _group is not None:
        with _lost_processes_named():
            dist.broadcast(tensor, 0, None if tensor.is_cuda else _group.patient)
    return tensor


def text_of_first(text: str) -> str:
    """The text of the first process."""
    if _group is None:
        return text
    data = torch.frombuffer(bytearray(text.encode() or b" "), dtype=torch.uint8)
    length = int(of_first(torch.tensor(len(data))))
    return bytes(of_first(data if is_first() else torch.empty(length, dtype=torch.uint8)).tolist()).decode().strip()


def gathered(tensor: Tensor, patient: bool = False) -> list[Tensor]:
    """The tensors of all processes in their order, which may differ in their number of rows.

    Args:
        tensor: [N, ...]; the other dimensions are the same everywhere.
        patient: whether processes may come at very different times; on a CPU only.
    """
    if _group is None:
        return [tensor]
    group = _group.patient if patient else None
    with _lost_processes_named():
        counts = [torch.zeros(1, dtype=torch.int64) for _ in range(_group.size)]
        dist.all_gather(counts, torch.tensor([len(tensor)]), group)
        rows = [int(count) for count in counts]
        padded = tensor.new_zeros(max(rows), *tensor.shape[1:])
        padded[: len(tensor)] = tensor
        parts = [torch.empty_like(padded) for _ in rows]
        dist.all_gather(parts, padded, group)
    return [part[:count] for part, count in zip(parts, rows, strict=True)]


def sum_tensors(tensors: Sequence[Tensor]) -> None:
    """Replace each tensor by its sum over the processes; the result has the same bits everywhere."""
    if _group is None:
        return
    with _lost_processes_named():
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()
