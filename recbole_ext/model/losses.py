"""Losses of next-item prediction: over all items, or over sampled negatives that all targets of a batch share.

M targets, H hidden, V items (id 0 is the padding), K negatives.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from recbole_ext.utils.validators import Bool, Int, Number, OneOf

LOSSES = ("CE", "SSM", "gBCE", "BCE")
DISTRIBUTIONS = ("uniform", "popularity", "in_batch", "mixed")
LOGITS_AT_ONCE = 2**27  # numbers; 512 MiB in float32

LOSS_VALIDATORS = {
    "num_negatives": Int("[1, 10000000]"), "negative_distribution": OneOf(*DISTRIBUTIONS), "logq_correction": Bool(),
    "gbce_calibration": Number("[0, 1]"),
}  # fmt: skip

SAMPLING = ("num_negatives", "negative_distribution")
KEYS_OF_LOSS = {"SSM": (*SAMPLING, "logq_correction"), "gBCE": (*SAMPLING, "gbce_calibration"), "BCE": SAMPLING}

SummedLoss = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


class NegativeSampler(nn.Module):
    """Draws the negatives of a batch, and tells how probable each was.

    Distributions: `uniform` over all items; `popularity`, in proportion to the training events of an item; `in_batch`,
    the targets of the batch itself, each at most once; `mixed`, half uniform and half popularity.

    Args:
        distribution: one of `DISTRIBUTIONS`.
        num_negatives: K; `in_batch` gives fewer where the batch has fewer targets.
        item_counts: training events of each item, [V]. Not read by `uniform`.
    """

    def __init__(self, distribution: str, num_negatives: int, item_counts: Tensor):
        super().__init__()
        counts = item_counts.to(torch.float64).clone()
        counts[0] = 0
        uniform = torch.ones_like(counts)
        uniform[0] = 0
        uniform, popularity = uniform / uniform.sum(), counts / counts.sum().clamp(min=1)
        share = {"uniform": 0.0, "mixed": 0.5}.get(distribution, 1.0)
        probability = share * popularity + (1 - share) * uniform
        self.distribution, self.num_negatives = distribution, num_negatives
        self.log_probability: Tensor
        self.cumulative: Tensor
        # not in the state_dict: they follow from the training data
        self.register_buffer("log_probability", probability.log(), persistent=False)
        self.register_buffer("cumulative", probability.cumsum(0), persistent=False)

    def forward(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """Negatives of a batch.

        Args:
            target: item ids, [M].

        Returns:
            item ids [K], and the logarithm of each one's probability in a single draw [K].
        """
        if self.distribution == "in_batch":
            chosen = torch.randperm(len(target), device=target.device)[: self.num_negatives]
            negatives = target[chosen]
        else:
            draw = torch.rand(self.num_negatives, dtype=torch.float64, device=target.device) * self.cumulative[-1]
            negatives = torch.searchsorted(self.cumulative, draw, right=True).clamp(max=len(self.cumulative) - 1)
        return negatives, self.log_probability[negatives]


class ItemLoss(nn.Module):
    """The loss that `loss_type` names, as a mean over targets.

    With s+ the score of a target and s_k those of its K negatives, a negative that is the target left out:

    - `CE`: -log(exp s+ / sum over all items of exp s).
    - `SSM`, sampled softmax: -log(exp s+ / (exp s+ + sum_k exp(s_k - c_k))). With `logq_correction`, c_k = log(K q_k),
      q_k the probability of k in one draw: the sum is then an unbiased estimate of that over all other items (Bengio
      and Senécal, IEEE Transactions on Neural Networks 2008). Without it c_k = 0.
    - `BCE`: -(log sigmoid(s+) + sum_k log sigmoid(-s_k)) / (K + 1).
    - `gBCE`: BCE with beta log sigmoid(s+) in place of log sigmoid(s+). beta = alpha (t (1 - 1 / alpha) + 1 / alpha);
      alpha = K / (V - 2) is the share of the other items that are drawn, and t the calibration: 0 gives BCE, 1 gives
      probabilities calibrated like those of CE (Petrov and Macdonald, gSASRec, RecSys 2023).

    Args:
        loss_type: one of `LOSSES`.
        sampler: draws the negatives; not read by `CE`.
        logq_correction: of `SSM`.
        calibration: t of `gBCE`, in [0, 1].
    """

    def __init__(
        self,
        loss_type: str,
        sampler: NegativeSampler | None = None,
        logq_correction: bool = True,
        calibration: float = 0.75,
    ):
        super().__init__()
        self.loss_type, self.sampler = loss_type, sampler
        self.logq_correction, self.calibration = logq_correction, calibration

    def forward(self, hidden: Tensor, table: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
        """The loss of a batch.

        Args:
            hidden: [M, H].
            table: item vectors, the padding's included, [V, H].
            bias: [V], or `None`.
            target: item ids, [M].

        Returns:
            a scalar, in float32 or better.
        """
        if self.loss_type == "CE":
            return cross_entropy_over_items(hidden, table[1:], None if bias is None else bias[1:], target - 1)
        assert self.sampler is not None
        negatives, log_probability = self.sampler(target)
        size = len(negatives)
        correction = log_probability + math.log(size)

        def summed(hidden: Tensor, target: Tensor, table: Tensor, bias: Tensor | None) -> Tensor:
            positive = (hidden * F.embedding(target, table)).sum(-1)
            if bias is not None:
                positive = positive + bias[target]
            negative = F.linear(hidden, table[negatives], None if bias is None else bias[negatives])  # [M, K]
            positive, negative = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (positive, negative))
            is_target = negatives == target.unsqueeze(1)
            if self.loss_type == "SSM":
                if self.logq_correction:
                    negative = negative - correction.to(negative.dtype)
                logits = torch.cat([positive.unsqueeze(1), negative.masked_fill(is_target, -torch.inf)], dim=1)
                return F.cross_entropy(logits, torch.zeros_like(target), reduction="sum")
            wrong = F.softplus(negative).masked_fill(is_target, 0).sum()
            return (self._beta(size, len(table)) * F.softplus(-positive).sum() + wrong) / (size + 1)

        return _in_chunks(summed, hidden, table, bias, target, size) / len(target)

    def _beta(self, num_negatives: int, n_items: int) -> float:
        """Exponent of a target's probability in gBCE."""
        if self.loss_type == "BCE":
            return 1.0
        alpha = min(num_negatives / max(n_items - 2, 1), 1.0)
        return alpha * (self.calibration * (1 - 1 / alpha) + 1 / alpha)


def keys_without_effect(loss_type: str) -> tuple[str, ...]:
    """The keys of `LOSS_VALIDATORS` that a loss does not read."""
    return tuple(key for key in LOSS_VALIDATORS if key not in KEYS_OF_LOSS.get(loss_type, ()))


def item_loss(config: Any, dataset: Any, n_items: int) -> ItemLoss:
    """The loss that a configuration asks for.

    Args:
        config: `loss_type` and, for losses with negatives, the keys of `LOSS_VALIDATORS`.
        dataset: its training events tell the popularity of items. A model that is only served has none.
        n_items: V.
    """
    if config["loss_type"] == "CE":
        return ItemLoss("CE")
    counts = torch.ones(n_items, dtype=torch.float64)
    if config["negative_distribution"] != "uniform" and hasattr(dataset, "inter_feat"):
        counts = torch.bincount(dataset.inter_feat[dataset.iid_field], minlength=n_items)
    sampler = NegativeSampler(config["negative_distribution"], config["num_negatives"], counts)
    return ItemLoss(config["loss_type"], sampler, bool(config["logq_correction"]), float(config["gbce_calibration"]))


def cross_entropy_over_items(hidden: Tensor, table: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    """Mean cross entropy of a softmax over all rows of a table.

    Args:
        hidden: [M, H].
        table: item vectors [V, H].
        bias: [V], or `None`.
        target: index of the right row, [M].

    Returns:
        a scalar, in float32 or better.
    """

    def summed(hidden: Tensor, target: Tensor, table: Tensor, bias: Tensor | None) -> Tensor:
        return F.cross_entropy(F.linear(hidden, table, bias), target, reduction="sum")

    if len(hidden) * len(table) <= LOGITS_AT_ONCE:
        return F.cross_entropy(F.linear(hidden, table, bias), target)
    return _in_chunks(summed, hidden, table, bias, target, len(table)) / len(hidden)


def _in_chunks(
    summed: SummedLoss, hidden: Tensor, table: Tensor, bias: Tensor | None, target: Tensor, logits_per_target: int
) -> Tensor:
    """The sum of the losses, without ever holding more than `LOGITS_AT_ONCE` logits.

    With more, targets are taken in chunks whose logits are computed again for the gradient: the same value, and memory
    that does not grow with the number of targets.
    """
    size = max(1, LOGITS_AT_ONCE // logits_per_target)
    if len(hidden) <= size:
        return summed(hidden, target, table, bias)
    chunks: Iterator[tuple[Tensor, Tensor]] = zip(hidden.split(size), target.split(size), strict=True)
    losses = [checkpoint(summed, *chunk, table, bias, use_reentrant=False) for chunk in chunks]
    return torch.stack(losses).sum()
