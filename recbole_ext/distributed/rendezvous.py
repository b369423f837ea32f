"""How processes that torchrun has started find each other, also after restarts.

All attempts of a torchrun job keep their addresses in one store. After a restart, a process could find the address of
one that has ended there, and wait for it in vain. So the processes of an attempt agree on a name that no other attempt
has, and keep their addresses below it.
"""

import datetime
import math
import os
import sys
import time
import uuid

import torch.distributed as dist

from recbole_ext.errors import ProcessLost

# to start Python on all machines after the first one
PATIENCE = datetime.timedelta(minutes=5)
NOTICE = 20.0  # seconds, after which a process says whom it waits for
INTERVAL = 0.05  # seconds between two looks into the store


class Waiting:
    """The time that a process waits for the others.

    Args:
        patience: how long.
    """

    def __init__(self, patience: datetime.timedelta = PATIENCE):
        self.patience, self.parent = patience, os.getppid()
        self.begin, self.notice = time.monotonic(), NOTICE

    def pause(self, who: str) -> None:
        """Wait a moment for `who`.

        Raises:
            ProcessLost: the time is over; or torchrun has ended, and has perhaps started other processes elsewhere.
        """
        waited = time.monotonic() - self.begin
        if waited > self.patience.total_seconds():
            raise ProcessLost(f"{who} did not come within {self.patience.total_seconds():g} seconds")
        if os.getppid() != self.parent:
            raise ProcessLost("the program that started this process has ended")
        if waited > self.notice:
            print(f"recbole-ext: waiting for {who}", file=sys.stderr, flush=True)
            self.notice = math.inf
        time.sleep(INTERVAL)


def fresh_store(rank: int, size: int) -> dist.Store:
    """The part of torchrun's store that this attempt alone uses, the same in all processes.

    Args:
        rank: number of this process, from 0.
        size: number of processes.

    Raises:
        ProcessLost: the store cannot be reached, or other processes have not come.
    """
    waiting = Waiting()
    shared = _connected(rank, waiting)
    return dist.PrefixStore(agree(dist.PrefixStore("recbole_ext", shared), rank, size, waiting), shared)


def _connected(rank: int, waiting: Waiting) -> dist.Store:
    """The store at `MASTER_ADDR`, which torchrun or the first process holds."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    holds = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    while True:
        try:
            store = dist.TCPStore(
                address, port, is_master=holds, timeout=datetime.timedelta(seconds=NOTICE), wait_for_workers=False
            )
        except RuntimeError:
            if holds:  # the port is taken
                raise
            waiting.pause(f"the first process at {address}:{port}")
        else:
            store.set_timeout(waiting.patience)
            return store


def agree(store: dist.Store, rank: int, size: int, waiting: Waiting) -> str:
    """A name for this attempt, the same in all its processes.

    The first process makes up the name. It answers every process by the word that this process has made up, so that
    nobody takes an answer to an earlier attempt for its own. Each process then says that it has come, below the name.
    """
    return _invite(store, size, waiting) if rank == 0 else _accept(store, rank, waiting)


def _invite(store: dist.Store, size: int, waiting: Waiting) -> str:
    name = uuid.uuid4().hex
    missing = set(range(1, size))
    while missing:
        for rank in sorted(missing):
            if store.check([f"{name}/{rank}"]):
                missing.remove(rank)
            elif store.check([f"word/{rank}"]):
                store.set(f"answer/{store.get(f'word/{rank}').decode()}", name)
        if missing:
            waiting.pause(f"process {', '.join(map(str, sorted(missing)))} of {size}")
    store.set(f"{name}/all", "")
    return name


def _accept(store: dist.Store, rank: int, waiting: Waiting) -> str:
    word, name = uuid.uuid4().hex, ""
    store.set(f"word/{rank}", word)
    while not (name and store.check([f"{name}/all"])):
        if store.check([f"answer/{word}"]):
            # the first process of an earlier attempt may have answered before that of this one
            name = store.get(f"answer/{word}").decode()
            store.set(f"{name}/{rank}", "")
        waiting.pause("the others" if name else "the first process")
    return name
