"""Processes agree on the name of an attempt, whatever earlier attempts have left in the store."""

import datetime
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch.distributed as dist

from recbole_ext.cli.entry import main
from recbole_ext.distributed.rendezvous import Waiting, agree
from recbole_ext.errors import ProcessLost

LONG, SHORT = datetime.timedelta(seconds=60), datetime.timedelta(seconds=0.3)


def attempt(store: dist.Store, size: int) -> set[str]:
    """The names that the processes of one attempt have found."""
    with ThreadPoolExecutor(size) as threads:
        started = [threads.submit(agree, store, rank, size, Waiting(LONG)) for rank in range(size)]
        return {future.result() for future in started}


@pytest.mark.parametrize("size", [2, 3])
def test_each_attempt_has_one_name_of_its_own(size):
    store = dist.HashStore()
    names = [attempt(store, size) for _ in range(3)]
    assert [len(found) for found in names] == [1, 1, 1]
    assert len(set.union(*names)) == 3


def test_an_attempt_that_lost_a_process_leaves_nothing_that_the_next_one_takes():
    store = dist.HashStore()
    for rank in (1, 2):  # they wait for a first process that does not come
        with pytest.raises(ProcessLost, match="the first process did not come within 0.3 seconds"):
            agree(store, rank, 3, Waiting(SHORT))
    with pytest.raises(ProcessLost, match="process 1, 2 of 3 did not come"):
        agree(store, 0, 3, Waiting(SHORT))
    assert len(attempt(store, 3)) == 1


def test_an_answer_from_the_first_process_of_an_earlier_attempt_is_replaced():
    """It still runs while the processes of the next attempt start."""
    store = dist.HashStore()
    with ThreadPoolExecutor(4) as threads:
        earlier = threads.submit(
            agree, store, 0, 3, Waiting(datetime.timedelta(seconds=2))
        )  # its process 2 has been killed
        second = threads.submit(agree, store, 1, 3, Waiting(LONG))
        with pytest.raises(ProcessLost, match="process 2 of 3 did not come"):
            earlier.result()
        assert not second.done()
        first, third = (
            threads.submit(agree, store, 0, 3, Waiting(LONG)),
            threads.submit(agree, store, 2, 3, Waiting(LONG)),
        )
        assert first.result() == second.result() == third.result()


def test_a_process_says_whom_it_waits_for(monkeypatch, capsys):
    monkeypatch.setattr("recbole_ext.distributed.rendezvous.NOTICE", 0.1)
    with pytest.raises(ProcessLost):
        agree(dist.HashStore(), 0, 2, Waiting(SHORT))
    assert capsys.readouterr().err == "recbole-ext: waiting for process 1 of 2\n"


def test_a_process_whose_parent_has_ended_waits_no_longer(monkeypatch):
    waiting = Waiting(LONG)
    monkeypatch.setattr("os.getppid", lambda: 1)
    with pytest.raises(ProcessLost, match="the program that started this process has ended"):
        agree(dist.HashStore(), 1, 2, waiting)


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"RANK": "0", "WORLD_SIZE": "abc"}, "WORLD_SIZE is 'abc'; it should be the number of processes."),
        ({"RANK": "0", "WORLD_SIZE": "-2"}, "WORLD_SIZE is '-2'; it should be the number of processes."),
        ({"RANK": "5"}, "RANK is '5', but WORLD_SIZE is 2; it should be a number from 0 to 1."),
        ({"RANK": "x"}, "RANK is 'x', but WORLD_SIZE is 2; it should be a number from 0 to 1."),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR and MASTER_PORT are '' and '29500', no address of the first process"),
        ({"MASTER_PORT": "99999"}, "'127.0.0.1' and '99999', no address of the first process; start several"),
        ({"RECBOLE_EXT_TIMEOUT": "abc"}, "RECBOLE_EXT_TIMEOUT is 'abc'; it should be a number of seconds above 0."),
        ({"RECBOLE_EXT_TIMEOUT": "0"}, "RECBOLE_EXT_TIMEOUT is '0'; it should be a number of seconds above 0."),
    ],
    ids=repr,
)
def test_a_wrong_environment_is_refused_in_one_sentence(variables, sentence, monkeypatch, capsys):
    right = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, value in {**right, **variables}.items():
        monkeypatch.setenv(name, value)
    assert main(["--model=MEANTIME", "--dataset=ml-100k"]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert len(error.splitlines()) == 1
