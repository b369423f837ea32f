"""Processes agree on the name of an attempt, whatever earlier attempts have left in the store."""

import datetime
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch.distributed as dist

from recbole_ext.distributed.rendezvous import agree

LONG, SHORT = datetime.timedelta(seconds=60), datetime.timedelta(seconds=0.3)


def attempt(store: dist.Store, size: int) -> set[str]:
    """The names that the processes of one attempt have found."""
    with ThreadPoolExecutor(size) as threads:
        return {future.result() for future in [threads.submit(agree, store, rank, size, LONG) for rank in range(size)]}


@pytest.mark.parametrize("size", [2, 3])
def test_each_attempt_has_one_name_of_its_own(size):
    store = dist.HashStore()
    names = [attempt(store, size) for _ in range(3)]
    assert [len(found) for found in names] == [1, 1, 1]
    assert len(set.union(*names)) == 3


def test_an_attempt_that_lost_a_process_leaves_nothing_that_the_next_one_takes():
    store = dist.HashStore()
    for rank in (1, 2):  # they wait for a first process that does not come
        with pytest.raises(RuntimeError, match="the first process has not come"):
            agree(store, rank, 3, SHORT)
    with pytest.raises(RuntimeError, match="of 3 processes, 1, 2 have not come"):
        agree(store, 0, 3, SHORT)
    assert len(attempt(store, 3)) == 1


def test_an_answer_from_the_first_process_of_an_earlier_attempt_is_replaced():
    """It still runs while the processes of the next attempt start."""
    store = dist.HashStore()
    with ThreadPoolExecutor(4) as threads:
        earlier = threads.submit(agree, store, 0, 3, datetime.timedelta(seconds=2))  # its process 2 has been killed
        second = threads.submit(agree, store, 1, 3, LONG)
        with pytest.raises(RuntimeError, match="of 3 processes, 2 have not come"):
            earlier.result()
        assert not second.done()
        first, third = threads.submit(agree, store, 0, 3, LONG), threads.submit(agree, store, 2, 3, LONG)
        assert first.result() == second.result() == third.result()
