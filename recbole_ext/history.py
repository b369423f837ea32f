"""Rankings without the items that a user has had before (`exclude_history`)."""

from logging import getLogger
from typing import Any

import torch
from torch import Tensor

from recbole_ext.data.examples import Examples
from recbole_ext.errors import InputError


class History:
    """Takes the items of histories out of the scores of one pass over evaluation data.

    All earlier events of the user count, also those too old for the model's list; only of RecBole's own data sets (of
    DIEN, say) no more than the list is known. A target that is in the history itself cannot be hit, and is counted in
    the log.

    Args:
        dataset: the data to evaluate, which the loader goes through in order.
        config: of the run.
    """

    def __init__(self, dataset: Any, config: Any):
        self.dataset = dataset
        self.examples = dataset.inter_feat if isinstance(dataset.inter_feat, Examples) else None
        self.user, self.item = dataset.uid_field, dataset.iid_field
        self.items = self.item + config["LIST_SUFFIX"]
        self.most = max(config["topk"])
        self.rows, self.done, self.repeated = len(dataset.inter_feat), 0, 0

    def _name(self, user: Tensor) -> str:
        return str(self.dataset.id2token(self.user, int(user)))

    def take_out(self, scores: Tensor, batch: Any) -> None:
        """Set the scores of the next rows' histories to -inf, in place.

        Args:
            scores: of all items, [B, V + 1], that of the padding being -inf.
            batch: the rows, B of them.

        Raises:
            InputError: fewer items are left for a row than its ranking is to have (`topk`).
        """
        if self.examples is None:
            scores.scatter_(1, batch[self.items].to(scores.device), -torch.inf)
        else:
            rows, items = self.examples[slice(self.done, self.done + len(batch))].past(self.item, self.user)
            scores[rows.to(scores.device), items.to(scores.device)] = -torch.inf
        target = batch[self.item].to(scores.device)
        self.repeated += int((scores.gather(1, target.unsqueeze(1)) == -torch.inf).sum())
        left, row = (scores > -torch.inf).sum(1).min(0)
        if left < self.most:
            raise InputError(
                f"exclude_history leaves {int(left)} items to rank for user '{self._name(batch[self.user][row])}', but "
                f"topk is {self.most}; {'lower topk' if left else 'leave out users who have had every item'}."
            )
        self.done += len(batch)
        if self.done == self.rows and self.repeated:
            getLogger().info(f"exclude_history: {self.repeated:,} of {self.rows:,} targets are in their own history.")
