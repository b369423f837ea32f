"""Counted pairs: a baseline that recommends what has followed the items of a history most often.

    python benchmarks/counted_pairs.py --dataset=ml-100k --exclude_history=True --directions=both [--key=value ...]

It takes the options and keys of `recbole-ext run`. Nothing is trained: the model counts the ordered pairs of items that
are up to `REACH` events apart in the training events of one user. The score of item i is

    sum over the history, newest item h_0 first, of DECAY^j * log(count(h_j, i) + PSEUDO_COUNTS / V)

for V items, with pairs of distance d counted as d^-0.5. Popularity decides between equal scores. The
constants are those of "Do Sequential Recommendation Benchmarks Really Require Higher-Order Sequence Modelling?" (RecSys
2026); the formula is ours.

Keys: `directions` is forward (i came after h_j) or both; `counted_events` is train, or valid: with the events of the
validation data, as published. For leave-one-out only, and its validation metrics then mean nothing.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from recbole.model.abstract_recommender import SequentialRecommender
from recbole.utils import InputType
from scipy import sparse
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recbole_ext import run_recbole  # noqa: E402
from recbole_ext.cli.run import json_file, parser, publish, table  # noqa: E402
from recbole_ext.utils.validators import OneOf  # noqa: E402

REACH, DECAY, PSEUDO_COUNTS = 10, 0.6, 11_250


class CountedPairs(SequentialRecommender):
    """Scores from counted pairs of items; it has no weights."""

    input_type = InputType.POINTWISE
    validators = {"directions": OneOf("forward", "both"), "counted_events": OneOf("train", "valid")}

    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        self.no_weight = nn.Parameter(torch.zeros(1))  # an optimizer needs one
        log, ranges = dataset.inter_feat.targets.columns, dataset.inter_feat.ranges
        users, items = log[dataset.uid_field].numpy(), log[dataset.iid_field].numpy()
        counted = np.zeros(len(items) + 1, dtype=np.int64)
        np.add.at(counted, ranges.start, 1), np.add.at(counted, ranges.end, -1)
        counted = counted.cumsum()[:-1] > 0  # in a history of the training data
        counted[ranges.target] = True
        if config["counted_events"] == "valid":
            counted[:-1] |= users[:-1] == users[1:]  # all but the last event of each user
        pairs = count_pairs(users[counted], items[counted], self.n_items)
        if config["directions"] == "both":
            pairs = (pairs + pairs.T).tocsr()
        pairs.data = np.log1p(pairs.data / (PSEUDO_COUNTS / (self.n_items - 1)))  # less the logarithm of no pair
        self.pairs = pairs
        popularity = np.bincount(items[counted], minlength=self.n_items)
        self.popularity = 1e-9 * popularity / popularity.sum()

    def calculate_loss(self, interaction):
        return self.no_weight.sum()

    def full_sort_predict(self, interaction) -> Tensor:
        """Scores of all items, [B, V + 1]."""
        histories, lengths = interaction[self.ITEM_SEQ].cpu(), interaction[self.ITEM_SEQ_LEN].cpu()
        age = lengths.unsqueeze(1) - 1 - torch.arange(histories.shape[1])  # 0: the newest item
        row, slot = torch.nonzero(age >= 0, as_tuple=True)
        weights = (DECAY ** age[row, slot].double()).numpy()
        shape = (len(histories), self.n_items)
        of_history = sparse.csr_matrix((weights, (row.numpy(), histories[row, slot].numpy())), shape)
        scores = (of_history @ self.pairs).toarray() + self.popularity
        return torch.from_numpy(scores).to(self.no_weight.device)


def count_pairs(users: np.ndarray, items: np.ndarray, n_items: int) -> sparse.csr_matrix:
    """Weighted counts of item b after item a, [n_items, n_items] with a as the row.

    Args:
        users, items: of events that are sorted by user and time, [N] each.
        n_items: number of items with the padding.
    """
    pairs = sparse.csr_matrix((n_items, n_items))
    for distance in range(1, REACH + 1):
        same = users[:-distance] == users[distance:]
        ends = items[:-distance][same], items[distance:][same]
        pairs = pairs + sparse.csr_matrix((np.full(same.sum(), distance**-0.5), ends), (n_items, n_items))
    return pairs


def main() -> None:
    options, keys = parser.parse_with_keys(sys.argv[1:])
    defaults = {"directions": "forward", "counted_events": "train", "epochs": 0}
    result = run_recbole(CountedPairs, options.dataset, None, defaults, argv=keys, per_user=options.per_user)
    publish(result, table(result), json_file(options.json))


if __name__ == "__main__":
    main()
