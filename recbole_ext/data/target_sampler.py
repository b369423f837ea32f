"""`targets_per_user`: each training epoch has at most so many examples of a user, which it draws anew."""

from collections.abc import Iterator
from logging import getLogger
from typing import Any

import numpy as np
import torch
from recbole.data.dataloader import TrainDataLoader
from recbole.utils import ModelType
from torch.utils.data import BatchSampler, Sampler

from recbole_ext.data.order import stable_order
from recbole_ext.data.ranges import starts_run
from recbole_ext.errors import InputError


class TargetSampler(Sampler[int]):
    """Yields the rows of examples in random order, at most `count` of each user; each pass draws other ones.

    Args:
        users: of the n examples, [n].
        count: examples of a user in a pass.
        generator: of all draws.
        shuffle: False: yield the drawn rows in ascending order.
    """

    def __init__(self, users: np.ndarray, count: int, generator: torch.Generator, shuffle: bool = True):
        self.count, self.generator, self.shuffle = count, generator, shuffle
        self.rows = stable_order(users)  # of the first user, then of the second, ...
        starts = np.flatnonzero(starts_run(users[self.rows]))
        sizes = np.diff(starts, append=len(users))
        self.user = np.repeat(np.arange(len(sizes)), sizes)  # of each of these rows
        self.start = np.repeat(starts, sizes)
        self.length = int(np.minimum(sizes, count).sum())

    def __iter__(self) -> Iterator[int]:
        shuffled = torch.randperm(len(self.rows), generator=self.generator).numpy()
        of_users = shuffled[stable_order(self.user[shuffled])]  # the shuffled rows of each user, one after the other
        rows = self.rows[of_users[np.arange(len(of_users)) - self.start < self.count]]
        if not self.shuffle:
            return iter(np.sort(rows).tolist())
        # a second permutation: in the first, the earliest rows of a user with many rows come early
        return iter(rows[torch.randperm(len(rows), generator=self.generator).numpy()].tolist())

    def __len__(self) -> int:
        return self.length


def limit_targets(loader: Any, config: Any) -> None:
    """Let a loader of training data draw its examples, if `targets_per_user` is set.

    Raises:
        InputError: the model does not learn from one event at a time, or there are no users.
    """
    count = config["targets_per_user"]
    if count is None:
        return
    dataset, reason = loader.__dict__.get("_dataset"), ""
    # RecBole has loaders of whole users and of knowledge graphs, and models that take all data at once
    at_once = config["MODEL_TYPE"] in (ModelType.DECISIONTREE, ModelType.TRADITIONAL)
    if not isinstance(loader, TrainDataLoader) or at_once:
        reason = f"{config['model']} does not learn from one event at a time"
    elif getattr(dataset, "windows", None) is not None:
        reason = f"{config['model']} learns from windows of events, whose number train_window sets"
    elif not config["USER_ID_FIELD"]:
        reason = "the data have no users, as USER_ID_FIELD is empty"
    if reason:
        raise InputError(f"targets_per_user is {count}, but {reason}; leave targets_per_user out.")
    users = dataset.inter_feat[dataset.uid_field].numpy()
    sampler = TargetSampler(users, count, loader.generator, loader.shuffle)
    getLogger().info(f"each epoch draws {len(sampler):,} of {len(users):,} training events (targets_per_user)")
    # torch does not let them be assigned
    loader.__dict__.update(sampler=sampler, batch_sampler=BatchSampler(sampler, loader.step, drop_last=False))
