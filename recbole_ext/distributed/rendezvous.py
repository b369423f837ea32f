"""How processes that torchrun has started find each other, also after restarts.

All attempts of a torchrun job keep their addresses in one store. After a restart, a process could find the address of
one that has ended there, and wait for it in vain. So the processes of an attempt agree on a name that no other attempt
has, and keep their addresses below it.
"""

import datetime
import os
import time
import uuid

import torch.distributed as dist

# to start Python on all machines after the first one
PATIENCE = datetime.timedelta(minutes=10)
INTERVAL = 0.05  # seconds between two looks into the store


def fresh_store(rank: int, size: int, patience: datetime.timedelta = PATIENCE) -> dist.Store:
    """The part of torchrun's store that this attempt alone uses, the same in all processes.

    Args:
        rank: number of this process, from 0.
        size: number of processes.
        patience: how long it waits for the others.

    Raises:
        RuntimeError: the store cannot be reached, or other processes have not come.
    """
    is_agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # otherwise the first process holds the store
    shared = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=rank == 0 and not is_agents,
        timeout=patience, wait_for_workers=False,
    )  # fmt: skip
    return dist.PrefixStore(agree(dist.PrefixStore("recbole_ext", shared), rank, size, patience), shared)


def agree(store: dist.Store, rank: int, size: int, patience: datetime.timedelta) -> str:
    """A name for this attempt, which all its processes have and no process of an earlier attempt has.

    The first process makes up the name. It answers every process by the word that this process has made up, so that
    nobody takes an answer to an earlier attempt for its own. Each process then says that it has come, below the name.
    """
    end = time.monotonic() + patience.total_seconds()
    return _invite(store, size, end) if rank == 0 else _accept(store, rank, end)


def _invite(store: dist.Store, size: int, end: float) -> str:
    name = uuid.uuid4().hex
    missing = set(range(1, size))
    while missing:
        for rank in sorted(missing):
            if store.check([f"{name}/{rank}"]):
                missing.remove(rank)
            elif store.check([f"word/{rank}"]):
                store.set(f"answer/{store.get(f'word/{rank}').decode()}", name)
        if missing:
            _pause(end, f"of {size} processes, {', '.join(map(str, sorted(missing)))} have not come")
    store.set(f"{name}/all", "")
    return name


def _accept(store: dist.Store, rank: int, end: float) -> str:
    word, name = uuid.uuid4().hex, ""
    store.set(f"word/{rank}", word)
    while not (name and store.check([f"{name}/all"])):
        if store.check([f"answer/{word}"]):
            # the first process of an earlier attempt may have answered before that of this one
            name = store.get(f"answer/{word}").decode()
            store.set(f"{name}/{rank}", "")
        _pause(end, "the first process has not come" if not name else "not all processes have come")
    return name


def _pause(end: float, problem: str) -> None:
    if time.monotonic() > end:
        raise RuntimeError(problem)
    time.sleep(INTERVAL)
