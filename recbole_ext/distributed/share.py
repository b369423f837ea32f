"""The share of a training batch that a process computes.

`train_batch_size` is the size of a batch of all processes together. Every process has the same order of batches and
computes the gradient of some rows of each, its share.

There are two streams of random numbers. The common stream is the same in all processes and goes on as in a single one:
masks and negatives of a whole batch come from it. The stream of the process is seeded for each step; what is left,
dropout above all, comes from it.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from recbole_ext.distributed.processes import of_first
from recbole_ext.utils.random_state import fixed_seed

States = tuple[Tensor, Tensor | None]


class Share:
    """The rows of a batch that one process computes.

    A process without rows, because the batch is too small, computes the first one, whose loss does not count: all
    processes then take the same steps.

    Args:
        examples: of the whole batch; the rows of a batch are these examples, repeated with their negatives.
        number: of the process, from 0.
        processes: how many there are.
        seed: of the process in this step.

    Attributes:
        terms: the number of terms whose mean the loss of this share is.
    """

    def __init__(self, examples: int, number: int, processes: int, seed: int = 0):
        self.begin, self.end = examples * number // processes, examples * (number + 1) // processes
        self.is_empty = self.begin == self.end
        if self.is_empty:
            self.begin, self.end = 0, 1
        self.examples, self.seed, self.terms = examples, seed, self.end - self.begin
        self.common: States

    def cut(self, batch: Any) -> Any:
        """The rows of a batch of RecBole that belong to this share: its examples, and their negatives."""
        begins = range(self.begin, len(batch), self.examples)
        size = self.end - self.begin
        return type(batch)(
            {
                name: torch.cat([column[begin : begin + size] for begin in begins])
                for name, column in batch.interaction.items()
            }
        )

    @contextlib.contextmanager
    def computed(self) -> Iterator[None]:
        """In this context, `own_rows`, `common_draws` and `count_terms` refer to this share."""
        global _active
        self.common = _states()
        with fixed_seed(self.seed):
            if self.common[1] is not None:
                torch.cuda.manual_seed(self.seed)
            _active = self
            try:
                yield
            finally:
                _active = None
        _set_states(self.common)


_active: Share | None = None


def own_rows(*columns: Tensor) -> tuple[Tensor, ...]:
    """The rows [b, ...] of columns [B, ...] that this process computes; all of them in a single process."""
    if _active is None:
        return columns
    return tuple(column[_active.begin : _active.end] for column in columns)


def count_terms(terms: int) -> None:
    """Say that the loss of this share is a mean over so many terms; without it, over examples."""
    if _active is not None:
        _active.terms = terms


@contextlib.contextmanager
def common_draws() -> Iterator[None]:
    """Random numbers in this context are the same in all processes, if all of them draw as many."""
    if _active is None:
        yield
        return
    own = _states()
    _set_states(_active.common)
    try:
        yield
    finally:
        _active.common = _states()
        _set_states(own)


def same_draws_in_all() -> None:
    """Continue the random numbers of the first process: others may have drawn more or fewer, for other users."""
    cpu, gpu = _states()
    _set_states((of_first(cpu), None if gpu is None else of_first(gpu)))


def _states() -> States:
    """The states of torch's generators, of the CPU and of the present GPU if one is used."""
    return torch.get_rng_state(), torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None


def _set_states(states: States) -> None:
    torch.set_rng_state(states[0])
    if states[1] is not None:
        torch.cuda.set_rng_state(states[1])
