"""Losses of next-item prediction: over all items, or over sampled negatives.

All targets of a batch share its negatives, unless `unseen_negatives` draws some for each target.

M targets, H hidden, V items (id 0 is the padding), K negatives.
"""

import math
from collections.abc import Callable
from logging import getLogger
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from recbole_ext.distributed.share import common_draws
from recbole_ext.errors import InputError
from recbole_ext.model.cross_entropy import cross_entropy_over_items
from recbole_ext.utils.validators import Bool, Int, Number, OneOf

LOSSES = ("CE", "SSM", "gBCE", "BCE")
AUTO = "auto"  # CE or SSM, see `choose_loss`
DISTRIBUTIONS = ("uniform", "popularity", "in_batch", "mixed")
UNSEEN = "unseen"  # negatives of each target, from `unseen_negatives`
LOGITS_AT_ONCE = 2**27  # numbers; 512 MiB in float32

LOSS_VALIDATORS = {
    "num_negatives": Int("[1, 10000000]"), "negative_distribution": OneOf(*DISTRIBUTIONS), "logq_correction": Bool(),
    "gbce_calibration": Number("[0, 1]"), "sparse_updates": Bool(),
}  # fmt: skip

SAMPLING = ("num_negatives", "negative_distribution")
KEYS_OF_LOSS = {"SSM": (*SAMPLING, "logq_correction"), "gBCE": (*SAMPLING, "gbce_calibration"), "BCE": SAMPLING}
KEYS_OF_LOSS[AUTO] = KEYS_OF_LOSS["SSM"]
OTHER_KEYS = ("sparse_updates",)  # keys of `LOSS_VALIDATORS` that several losses read

SummedLoss = Callable[..., Tensor]  # of the item vectors [V, H], biases [V] or None, and columns of targets [M, ...]


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


def unseen_negatives(items: Tensor, num_negatives: int, n_items: int) -> tuple[Tensor, Tensor]:
    """Negatives for each position of some windows: drawn uniformly from the items that are not in the window.

    If a window has all items, its negatives are the last one.

    Args:
        items: ids of the windows, 0 in the padding, [B, T].
        num_negatives: K.
        n_items: V.

    Returns:
        item ids, and the logarithm of the probability of each in a single draw, [B, T, K] both.
    """
    seen = items.sort(1).values
    repeated = (seen == 0) | (seen == F.pad(seen, (1, 0))[:, :-1])
    rank = torch.arange(items.shape[1], device=items.device)
    seen = seen.masked_fill(repeated, n_items + len(rank)).sort(1).values  # distinct items first
    unseen = (n_items - 1 - (~repeated).sum(1, keepdim=True)).clamp(min=1)  # number of them, [B, 1]
    draw = torch.rand(len(items), len(rank) * num_negatives, dtype=torch.float64, device=items.device) * unseen
    number = draw.to(torch.int64)  # among the unseen items, in the order of their ids
    smaller = torch.searchsorted(seen - 1 - rank, number, right=True)  # seen items that come before it
    negatives = (1 + number + smaller).clamp(max=n_items - 1).view(*items.shape, num_negatives)
    return negatives, -unseen.to(torch.float64).log().unsqueeze(2).expand_as(negatives)


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
        sampler: draws the negatives that all targets share; not needed by `CE` or if each call has negatives.
        logq_correction: of `SSM`.
        calibration: t of `gBCE`, in [0, 1].
        sparse: whether gradients of item vectors and biases are sparse tensors; not with `CE`.
    """

    def __init__(
        self,
        loss_type: str,
        sampler: NegativeSampler | None = None,
        logq_correction: bool = True,
        calibration: float = 0.75,
        sparse: bool = False,
    ):
        super().__init__()
        self.loss_type, self.sampler = loss_type, sampler
        self.logq_correction, self.calibration, self.sparse = logq_correction, calibration, sparse

    def forward(
        self,
        hidden: Tensor,
        table: Tensor,
        bias: Tensor | None,
        target: Tensor,
        negatives: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """The loss of a batch.

        Args:
            hidden: [M, H].
            table: item vectors, the padding's included, [V, H]; with a bias, rows after the first V are no items.
            bias: [V], or `None`.
            target: item ids, [M].
            negatives: of each target, item ids [M, K], and the logarithm of the probability of each in a single draw
                [M, K]; `None` to draw some that all targets share.

        Returns:
            a scalar, in float32 or better.
        """
        n_items = len(table if bias is None else bias)
        if self.loss_type == "CE":
            return cross_entropy_over_items(hidden, table[1:n_items], None if bias is None else bias[1:], target - 1)
        shared: tuple[Tensor, ...] = ()
        if negatives is None:
            assert self.sampler is not None
            with common_draws():
                shared = self.sampler(target)  # [K]
        own = negatives or ()
        size = (shared or own)[0].shape[-1]

        def summed(table: Tensor, bias: Tensor | None, hidden: Tensor, target: Tensor, *drawn: Tensor) -> Tensor:
            items, log_probability = shared or drawn
            positive = (hidden * self._vectors(table, target)).sum(-1)
            if bias is not None:
                positive = positive + self._biases(bias, target)
            if shared:
                biases = None if bias is None else self._biases(bias, items)
                negative = F.linear(hidden, self._vectors(table, items), biases)  # [M, K]
            else:
                negative = (self._vectors(table, items) @ hidden.unsqueeze(-1)).squeeze(-1)
                negative = negative if bias is None else negative + self._biases(bias, items)
            positive, negative = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (positive, negative))
            is_target = items == target.unsqueeze(1)
            if self.loss_type == "SSM":
                if self.logq_correction:
                    negative = negative - (log_probability + math.log(size)).to(negative.dtype)
                logits = torch.cat([positive.unsqueeze(1), negative.masked_fill(is_target, -torch.inf)], dim=1)
                return F.cross_entropy(logits, torch.zeros_like(target), reduction="sum")
            wrong = F.softplus(negative).masked_fill(is_target, 0).sum()
            return (self._beta(size, n_items) * F.softplus(-positive).sum() + wrong) / (size + 1)

        numbers = size if shared else size * hidden.shape[-1]  # for each target: logits, or vectors of negatives
        return _in_chunks(summed, table, bias, (hidden, target, *own), numbers) / len(target)

    def _vectors(self, table: Tensor, items: Tensor) -> Tensor:
        return F.embedding(items, table, sparse=self.sparse)

    def _biases(self, bias: Tensor, items: Tensor) -> Tensor:
        return bias.gather(0, items.flatten(), sparse_grad=self.sparse).view_as(items)

    def _beta(self, num_negatives: int, n_items: int) -> float:
        """Exponent of a target's probability in gBCE."""
        if self.loss_type == "BCE":
            return 1.0
        alpha = min(num_negatives / max(n_items - 2, 1), 1.0)
        return alpha * (self.calibration * (1 - 1 / alpha) + 1 / alpha)


def keys_without_effect(loss_type: str) -> tuple[str, ...]:
    """The keys of `LOSS_VALIDATORS` that a loss does not read."""
    return tuple(key for key in LOSS_VALIDATORS if key not in (*KEYS_OF_LOSS.get(loss_type, ()), *OTHER_KEYS))


def choose_loss(config: Any, n_items: int) -> None:
    """Replace `loss_type: auto` in a configuration by the loss for this number of items, and log it.

    CE up to `full_softmax_items` items, and with keys that only CE has. Above, SSM; with `sparse_updates` unless the
    user sets that key, or an optimizer with which it does not work.

    Args:
        config: changed in place, so that checkpoints have the choice.
        n_items: V, the padding's included.
    """
    if config["loss_type"] != AUTO:
        return
    limit, only_softmax = config["full_softmax_items"], ("pad_class", "recbole_compat")
    if n_items - 1 <= limit or any(key in config and config[key] for key in only_softmax):
        config["loss_type"] = "CE"
        getLogger().info(f"loss_type auto: CE, the softmax over all {n_items - 1} items; it draws no negatives.")
        return
    config["loss_type"] = "SSM"
    if "sparse_updates" not in getattr(config, "user_keys", ("sparse_updates",)):  # RecBole's trainer has no LazyAdam
        config["sparse_updates"] = config["learner"] == "adam" and not config["weight_decay"]
    getLogger().info(
        f"loss_type auto: SSM with {config['num_negatives']} negatives and sparse_updates: {config['sparse_updates']}, "
        f"because the data set has {n_items - 1} items, more than full_softmax_items, {limit}; set loss_type: CE for "
        f"the softmax over all items."
    )


def check_sparse_updates(config: Any) -> None:
    """Refuse keys that change or read rows of the item table which a batch does not touch.

    Raises:
        InputError: names the key, its value, and what would be right with `sparse_updates`.
    """
    if not config["sparse_updates"]:
        return
    if config["loss_type"] == "CE":
        raise InputError(
            "sparse_updates is True, but loss_type CE reads all items in each step (auto chooses it for up to "
            "full_softmax_items items); set loss_type to SSM, or leave sparse_updates out."
        )
    if config["learner"] != "adam":
        raise InputError(f"learner is {config['learner']}, but sparse_updates is True, which only adam supports.")
    for key in ("weight_decay", "reg_weight"):
        if key in config and config[key]:
            raise InputError(
                f"{key} is {config[key]}, which changes all item vectors in each step, but sparse_updates is True; set "
                f"{key} to 0."
            )


def item_loss(config: Any, dataset: Any, n_items: int) -> ItemLoss:
    """The loss that a configuration asks for.

    Args:
        config: `loss_type` and, for losses with negatives, the keys of `LOSS_VALIDATORS`. With `negative_distribution`
            `unseen`, each call of the loss needs its negatives.
        dataset: its training events tell the popularity of items. A model that is only served has none.
        n_items: V.
    """
    if config["loss_type"] == "CE":
        return ItemLoss("CE")
    distribution, sampler = config["negative_distribution"], None
    if distribution != UNSEEN:
        counts = torch.ones(n_items, dtype=torch.float64)
        if distribution != "uniform" and hasattr(dataset, "inter_feat"):
            counts = torch.bincount(dataset.inter_feat[dataset.iid_field], minlength=n_items)
        sampler = NegativeSampler(distribution, config["num_negatives"], counts)
    corrected, calibration = bool(config["logq_correction"]), float(config["gbce_calibration"])
    return ItemLoss(config["loss_type"], sampler, corrected, calibration, bool(config["sparse_updates"]))


def _in_chunks(
    summed: SummedLoss, table: Tensor, bias: Tensor | None, columns: tuple[Tensor, ...], numbers_per_target: int
) -> Tensor:
    """The sum of losses with negatives, without ever holding more than `LOGITS_AT_ONCE` logits.

    With more, targets are taken in chunks whose logits are computed again for the gradient: the same value, and memory
    that does not grow with the number of targets.
    """
    size = max(1, LOGITS_AT_ONCE // numbers_per_target)
    if len(columns[0]) <= size:
        return summed(table, bias, *columns)
    chunks = zip(*(column.split(size) for column in columns), strict=True)
    losses = [checkpoint(summed, table, bias, *chunk, use_reentrant=False) for chunk in chunks]
    return torch.stack(losses).sum()
