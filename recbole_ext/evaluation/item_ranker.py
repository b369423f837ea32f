"""The best items of evaluation data, without a matrix of all scores."""

from typing import Any

import torch
from torch import Tensor

from recbole_ext.evaluation.best_items import RankedItems, best_items, product_scores, upper_bounds

GPU_ITEMS = 2**16  # scored at once on a GPU


class ItemRanker:
    """Ranks all items for batches of evaluation data, by a model whose score is an inner product.

    Args:
        model: in evaluation mode; it has `item_table` (see `model/contract.py`), and keeps its weights.
        k: number of items for each row.
    """

    def __init__(self, model: Any, k: int):
        self.model, self.k = model, k
        self.table, self.bias = model.item_table()
        self.bounds = upper_bounds(self.table, self.bias)

    @torch.no_grad()
    def rank(self, batch: Any, seen: tuple[Tensor, Tensor] | None) -> RankedItems:
        """The best items of each row of a batch.

        Args:
            batch: B rows, on the device of the model.
            seen: rows and items that are not ranked, [P] each; None ranks all items.
        """
        users = self.model.prepare(batch)
        row, item = users.new_zeros(2, 0, dtype=torch.int64) if seen is None else (x.to(users.device) for x in seen)
        return best_items(
            product_scores(users, self.table, self.bias), slice(1, len(self.table)), self.k, (row, item - 1),
            requests=len(users), chunk=GPU_ITEMS, users=None if self.bounds is None else self.bounds.of_users(users),
        )  # fmt: skip
