"""Sampled evaluation with items that the user has not had: `mode: uniN-unseen` and `popN-unseen`."""

from typing import Any

import numpy as np
import torch
from recbole.data.dataloader import NegSampleEvalDataLoader
from scipy.sparse import csr_matrix
from torch import Tensor

from recbole_ext.config.negative_sampling import draws_unseen, sample_count
from recbole_ext.data.examples import Examples
from recbole_ext.errors import InputError


def with_unseen_candidates(loaders: tuple, dataset: Any, config: Any) -> tuple:
    """Replace the loaders of validation and test whose mode is `uniN-unseen` or `popN-unseen`.

    Args:
        loaders: of training, validation and test data.
        dataset: all events, after `build`.
        config: of the run.

    Raises:
        InputError: a user has had too many items.
    """
    modes = [None, config["eval_args"]["mode"]["valid"], config["eval_args"]["mode"]["test"]]
    replaced = list(loaders)
    for mode in dict.fromkeys(mode for mode in modes if mode is not None and draws_unseen(mode)):
        parts = [number for number in range(3) if modes[number] == mode]
        users = np.unique(np.concatenate([loaders[number].uid_list for number in parts])).astype(np.int64)
        items = draw_unseen(dataset, users, mode, config["seed"])
        for number in parts:
            sampler = UnseenCandidates(items, loaders[number]._sampler.phase)
            replaced[number] = UnseenCandidatesLoader(config, loaders[number]._dataset, sampler)
    return tuple(replaced)


def draw_unseen(dataset: Any, users: np.ndarray, mode: str, seed: int) -> np.ndarray:
    """Draw N different items for each user, none of them an item of the user's events in any part of the split.

    Items are drawn one after the other without replacement. For `popN-unseen`, the probability of an item is
    proportional to its number of events in all parts of the split, as in the code of MEANTIME's authors; for
    `uniN-unseen`, all items are equally likely. The items of a user depend only on the data, `seed` and the user, and
    not on the other users.

    Args:
        dataset: all events, after `build`.
        users: ids of the users, [n].
        mode: the mode of the evaluation.
        seed: of the run.

    Returns:
        item ids by user id, [number of users, N]; 0 for other users.

    Raises:
        InputError: fewer than N items are left for a user.
    """
    popularity, seen = _events(dataset)
    weights = popularity.astype(np.float64) if mode.startswith("pop") else np.ones(len(popularity))
    weights[0] = 0  # the padding
    count = sample_count(mode)
    _check_enough_items(dataset, users, mode, count, weights > 0, seen)
    items = np.zeros((dataset.user_num, count), dtype=np.int64)
    for user in users:
        probabilities = weights.copy()
        probabilities[seen.indices[seen.indptr[user] : seen.indptr[user + 1]]] = 0
        probabilities /= probabilities.sum()
        # RandomState draws the same in every version of NumPy
        generator = np.random.RandomState([seed, user])
        items[user] = generator.choice(len(weights), count, replace=False, p=probabilities)
    return items


def _events(dataset: Any) -> tuple[np.ndarray, csr_matrix]:
    """The number of events of each item, [V + 1], and the items of each user, [number of users, V + 1]."""
    examples = dataset.inter_feat
    if isinstance(examples, Examples):
        users, items = (examples.targets.columns[name].numpy() for name in (dataset.uid_field, dataset.iid_field))
    else:
        matrix = dataset.inter_matrix()
        users, items = matrix.row, matrix.col
    popularity = np.bincount(items, minlength=dataset.item_num)
    if isinstance(examples, Examples) and dataset.uid_field not in examples.history.columns:
        # files with histories: each row of a file is an example with its history
        users = np.concatenate([users, np.repeat(users, np.diff(examples.ranges.end, prepend=0))])
        items = np.concatenate([items, examples.history.columns[dataset.iid_field].numpy()])
    ones = np.ones(len(users), dtype=np.int64)
    return popularity, csr_matrix((ones, (users, items)), shape=(dataset.user_num, dataset.item_num))


def _check_enough_items(
    dataset: Any, users: np.ndarray, mode: str, count: int, drawable: np.ndarray, seen: csr_matrix
) -> None:
    left = drawable.sum() - (seen[users][:, np.flatnonzero(drawable)]).getnnz(axis=1)
    short = np.flatnonzero(left < count)
    if len(short):
        more = f" (and {len(short) - 1:,} more)" if len(short) > 1 else ""
        raise InputError(
            f"eval_args mode is {mode}, but only {left[short[0]]:,} of {drawable.sum():,} items are left to draw for "
            f"user '{dataset.id2token(dataset.uid_field, users[short[0]])}'{more}, who has had the others; draw fewer "
            f"items, or remove such users, e.g. with user_inter_num_interval."
        )


class UnseenCandidates:
    """The result of `draw_unseen`, with the interface of RecBole's samplers."""

    def __init__(self, items: np.ndarray, phase: str):
        self.items, self.phase = items, phase

    def sample_by_user_ids(self, user_ids: np.ndarray, item_ids: np.ndarray, num: int) -> Tensor:
        """The candidates of n targets, [num * n]: the first of each target, then the second of each, and so on."""
        return torch.from_numpy(self.items[user_ids].T.ravel())


class UnseenCandidatesLoader(NegSampleEvalDataLoader):
    """RecBole's loader of sampled evaluation, in which all targets of a user have the same candidates.

    RecBole puts all targets of a user and their candidates into one ranking. For sequential models, each target is in a
    ranking of its own here, as in mode full, because the score of a candidate depends on the history of the target.
    """

    def collate_fn(self, index):
        """The candidates of the users `index`.

        Returns:
            a row for each target and each of its candidates, a target with its candidates after the other, so that
            models can encode a history once for all of them; the ranking of each row; the ranking and the item of
            each target.
        """
        users = self.uid_list[np.asarray(index)]
        rows = np.concatenate([np.arange(part.start, part.stop) for part in self.uid2index[users]])
        targets = self.transform(self._dataset, self._dataset[rows])
        ranking = torch.arange(len(rows))
        if not self.is_sequential:
            ranking = torch.repeat_interleave(torch.from_numpy(self.uid2items_num[users]))
        candidates = self._neg_sampling(targets)  # all targets, then the first candidate of each, and so on
        by_target = torch.arange(len(candidates)).view(self.times, -1).T.flatten()
        return candidates[by_target], ranking.repeat_interleave(self.times), ranking, targets[self.iid_field]
