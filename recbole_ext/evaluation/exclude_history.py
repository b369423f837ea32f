"""Rankings without the items in a user's history (`exclude_history`)."""

from logging import getLogger
from typing import Any

import torch
from torch import Tensor

from recbole_ext.data.examples import Examples
from recbole_ext.distributed import processes
from recbole_ext.errors import InputError


class SeenItemFilter:
    """Excludes the items of histories from the scores of one pass over evaluation data.

    It uses all earlier events of the user, also those that do not fit in the model's list; for RecBole's own data sets
    (DIEN's, for example), the list only. A target that is in its own history is never ranked; the log reports the
    number of such targets.

    Args:
        dataset: the data to evaluate, in the order of the loader.
        config: of the run.
    """

    def __init__(self, dataset: Any, config: Any):
        self.dataset = dataset
        self.examples = dataset.inter_feat if isinstance(dataset.inter_feat, Examples) else None
        self.user_field, self.item_field = dataset.uid_field, dataset.iid_field
        self.list_field = self.item_field + config["LIST_SUFFIX"]
        self.max_k = max(config["topk"])
        self.row_count = len(dataset.inter_feat)
        self.next_row = self.repeated_targets = 0

    def exclude(self, scores: Tensor, batch: Any) -> None:
        """Set the scores of the items in the next rows' histories to -inf, in place.

        Args:
            scores: of all items, [B, V + 1].
            batch: the next B rows.

        Raises:
            InputError: fewer items than `topk` are left for a row.
        """
        rows, items = self.pairs(batch)
        scores[rows.to(scores.device), items.to(scores.device)] = -torch.inf

    def pairs(self, batch: Any) -> tuple[Tensor, Tensor]:
        """The items in the next rows' histories: rows and items, [P] each, every pair once, in ascending order.

        Args:
            batch: the next B rows.

        Raises:
            InputError: fewer items than `topk` are left for a row.
        """
        if self.examples is None:
            items = batch[self.list_field]
            rows = torch.arange(len(items), device=items.device).unsqueeze(1).expand_as(items)[items > 0]
            items = items[items > 0]
        else:
            examples = self.examples[slice(self.next_row, self.next_row + len(batch))]
            rows, items = examples.past(self.item_field, self.user_field)
        count = self.dataset.item_num
        pairs = (rows * count + items).unique()
        rows, items = pairs // count, pairs % count
        target = batch[self.item_field].to(pairs.device)
        self.repeated_targets += int(
            torch.isin(torch.arange(len(batch), device=pairs.device) * count + target, pairs).sum()
        )
        items_left, row = (count - 1 - rows.bincount(minlength=len(batch))).min(0)
        if items_left < self.max_k:
            user = self.dataset.id2token(self.user_field, int(batch[self.user_field][row]))
            remedy = "lower topk" if items_left else "remove users who have had every item"
            raise InputError(
                f"exclude_history leaves {int(items_left)} items to rank for user '{user}', but topk is {self.max_k}; "
                f"{remedy}."
            )
        self.next_row += len(batch)
        return rows, items

    def log_repeated_targets(self) -> None:
        """Log how many targets are in their own history, after all batches."""
        (repeated,) = processes.total(self.repeated_targets)
        if repeated:
            getLogger().info(
                f"exclude_history: {int(repeated):,} of {self.row_count:,} targets are in their own history."
            )
