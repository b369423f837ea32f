"""Loaders whose random draws depend on the seed, and not on the number of processes that load."""

import contextlib
import hashlib
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from recbole.data.dataloader import KnowledgeBasedDataLoader


class SeededLoader:
    """What this package adds to a loader of RecBole: see `seeded`.

    The mixin stands before a loader class of RecBole and changes it through `super()` only. Every batch seeds Python's,
    NumPy's and torch's generator and puts them back afterwards, so that loading leaves no trace in them. Hence worker
    processes, which torch seeds in ways of its own, draw what the main process would draw.
    """

    generator: torch.Generator
    config: Any
    evaluates: bool
    seed_of_pass: int

    def __iter__(self):
        # the generator moves on with each pass, and a checkpoint stores it, so that a resumed run draws the same
        state = self.generator.get_state().numpy()
        self.seed_of_pass = self.config["seed"] if self.evaluates else _number(state)
        return super().__iter__()

    def collate_fn(self, index):
        """RecBole's batch of the examples `index`, drawn from a seed that belongs to the pass and these examples."""
        with drawn_from(self.seed_of_pass, index):
            return super().collate_fn(index)

    def _neg_sampling(self, events):
        if not self.evaluates:
            return super()._neg_sampling(events)
        # RecBole asks for one user at a time; a seed for each makes candidates independent of eval_batch_size, too
        ids = [self.config[key] for key in ("USER_ID_FIELD", "ITEM_ID_FIELD")]
        with drawn_from(self.config["seed"], *(events[name] for name in ids if name in events)):
            return super()._neg_sampling(events)

    def __reduce__(self):  # worker processes that are spawned and not forked get a copy
        return _empty_copy, (type(self).__mro__[2],), self.__dict__


def seeded(loader: Any, evaluates: bool) -> Any:
    """The loader with draws that do not depend on the number of worker processes; the given one is not used any more.

    Args:
        loader: a loader of RecBole.
        evaluates: whether every pass is to draw the same. Otherwise each pass draws anew.
    """
    if isinstance(loader, KnowledgeBasedDataLoader):  # a pair of loaders
        loader.general_dataloader = seeded(loader.general_dataloader, evaluates)
        loader.kg_dataloader = seeded(loader.kg_dataloader, evaluates)
        return loader
    state = {name: value for name, value in loader.__dict__.items() if name != "collate_fn"}  # of the class before
    other = _empty_copy(type(loader))
    other.__dict__.update(state, evaluates=evaluates, seed_of_pass=loader.config["seed"])
    return other


@contextlib.contextmanager
def drawn_from(*seeds: Any) -> Iterator[None]:
    """Draw from generators seeded with numbers or arrays of them, then put the generators back where they were."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    seed = _number(*seeds)
    random.seed(seed)
    np.random.seed([seed & 0xFFFFFFFF, seed >> 32])
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def _number(*values: Any) -> int:
    """A number of 63 bits that depends on every value, and on nothing else."""
    digest = hashlib.blake2b(digest_size=8)
    for value in values:
        array = np.asarray(value)
        digest.update(str(array.shape).encode() + array.tobytes())
    return int.from_bytes(digest.digest(), "little") >> 1


@cache
def _with_seeds(base: type) -> type:
    return type(base.__name__, (SeededLoader, base), {"__doc__": base.__doc__})


def _empty_copy(base: type) -> Any:
    return object.__new__(_with_seeds(base))
