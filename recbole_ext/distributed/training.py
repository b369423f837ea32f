"""Training by several processes: each computes its share of every batch, and all take the same steps."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from recbole.trainer import Trainer
from recbole.utils import ModelType
from torch import Tensor, nn

from recbole_ext.distributed import processes
from recbole_ext.distributed.gradients import sum_gradients
from recbole_ext.distributed.share import Share, same_draws_in_all
from recbole_ext.errors import InputError, ProcessLost
from recbole_ext.utils.batch_samplers import batches_of
from recbole_ext.utils.random_state import seed_from
from recbole_ext.utils.recbole_trainers import has_own_epochs, recbole_class

Loss = Tensor | tuple[Tensor, ...]


class SharedTraining:
    """A mixin, before all others, for the trainer of one of several processes.

    In each step, all processes have the same batch and the same weights. Each computes the gradient of its share of the
    batch. The sum over the processes is the gradient of the mean loss of the whole batch, however many there are.
    """

    config: Any
    model: Any
    takes_whole_batches: bool  # of the model; see its contract
    start_epoch: int
    saved_model_file: str
    resume_state: Any
    _owns_file: bool

    def fit(self, train_data, *args, **kwargs):
        """RecBole's training; see `ResumableCheckpoints.fit`.

        Raises:
            InputError: the model cannot be trained by several processes.
            ProcessLost: another process has ended; its `file` is the checkpoint of this run, if there is one.
        """
        check_keys(self.config, type(self))
        _check_model(self.config, self.model)
        try:
            processes.wait()
            for tensor in (*self.model.parameters(), *self.model.buffers()):
                processes.of_first(tensor.data)
            return super().fit(train_data, *args, **kwargs)
        except ProcessLost as error:
            error.file = self.saved_model_file if self._owns_file else None
            raise

    def _train_epoch(self, train_data, epoch_idx, loss_func=None, show_progress=False):
        same_draws_in_all()  # also after the evaluation of different users
        resumed = self.resume_state is not None and epoch_idx == self.start_epoch
        done = self.resume_state.checkpoint.get("partial", {}).get("batches", 0) if resumed else 0
        all_rows = train_data.batch_sampler
        own_rows = None if self._draws_for_batches(train_data) else OwnRows(all_rows)
        loss_func = SharedLoss(
            self.model, loss_func or self.model.calculate_loss, getattr(train_data, "times", 1), own_rows,
            self.takes_whole_batches, self.config["seed"], epoch_idx, done,
        )  # fmt: skip
        with batches_of(train_data, own_rows or all_rows):
            return super()._train_epoch(train_data, epoch_idx, loss_func, show_progress)

    def _draws_for_batches(self, loader: Any) -> bool:
        """Whether numbers are drawn for whole batches, which every process therefore needs."""
        negatives = getattr(loader, "neg_sample_args", {}).get("distribution", "none")
        return negatives != "none" or self.config["transform"] is not None or self.takes_whole_batches


class OwnRows:
    """The rows of each batch of a loader that this process computes, so that it does not prepare the others.

    Args:
        all_rows: the loader's sampler, which yields the rows of each batch.

    Attributes:
        examples: the number of rows in each whole batch, in their order.
    """

    def __init__(self, all_rows: Any):
        self.all_rows, self.examples = all_rows, list[int]()

    def __len__(self) -> int:
        return len(self.all_rows)

    def __iter__(self) -> Iterator[list[int]]:
        self.examples.clear()
        for rows in self.all_rows:
            self.examples.append(len(rows))
            share = Share(len(rows), processes.rank(), processes.size())
            yield rows[share.begin : share.end]


class SharedLoss:
    """A loss function whose value is the mean loss of a whole batch, of which this process computes its share.

    When its gradients have been computed, they are summed over all processes.

    Args:
        model: whose parameters get the gradients.
        loss_func: the mean loss of a batch of RecBole, or a tuple of losses.
        times: rows of each example in a batch: itself, and its negatives.
        own_rows: the rows in the batches that the loss function gets, if they are not all.
        whole: whether the loss function takes its rows of a whole batch itself.
        seed, epoch: from which, with the number of the batch, the random numbers of this process follow.
        batches: how many of the epoch are done.
    """

    def __init__(
        self, model: nn.Module, loss_func: Callable[[Any], Loss], times: int, own_rows: OwnRows | None,
        whole: bool, seed: int, epoch: int, batches: int = 0,
    ):  # fmt: skip
        self.model, self.loss_func, self.times, self.own_rows = model, loss_func, times, own_rows
        self.whole, self.seed, self.epoch, self.batches = whole, seed, epoch, batches

    def __call__(self, batch: Any) -> Loss:
        number, count = processes.rank(), processes.size()
        seed = seed_from(f"{self.seed} {self.epoch} {self.batches} {number}") >> 1  # torch takes no larger ones
        examples = len(batch) // self.times if self.own_rows is None else self.own_rows.examples[self.batches]
        self.batches += 1
        share = Share(examples, number, count, seed)
        if self.own_rows is None and not self.whole:
            batch = self._cut(batch, share)
        with share.computed():
            losses = self.loss_func(batch)
        parts = losses if isinstance(losses, tuple) else (losses,)
        terms = 0 if share.is_empty else share.terms
        sums = [terms * float(part.detach()) if terms else 0.0 for part in parts]
        all_terms, *sums = processes.total(terms, *sums)
        weighted = tuple(
            _Weighted.apply(part, terms / all_terms, total / all_terms, self._sum_gradients if place == 0 else None)
            for place, (part, total) in enumerate(zip(parts, sums, strict=True))
        )
        return weighted if isinstance(losses, tuple) else weighted[0]

    def _cut(self, batch: Any, share: Share) -> Any:
        """The rows of a share; all rows if it has no term of the loss, which then does not count.

        The loss of RecBole's BERT4Rec is a mean over the positions of `MASK_INDEX` above 0, NaN where there is none.
        """
        own, name = share.cut(batch), getattr(self.model, "MASK_INDEX", None)
        if name is None or not (batch[name] > 0).any():
            return own
        share.terms = 0 if share.is_empty else int((own[name] > 0).sum())
        return own if share.terms else batch

    def _sum_gradients(self) -> None:
        sum_gradients(self.model.parameters())


class _Weighted(torch.autograd.Function):
    """The loss of a whole batch as value, and the gradient of a share of it times the weight of the share."""

    @staticmethod
    def forward(
        ctx: Any, loss: Tensor, weight: float, value: float, after_backward: Callable[[], None] | None
    ) -> Tensor:
        ctx.weight, ctx.after_backward = weight, after_backward
        return torch.full_like(loss, value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.after_backward is not None:  # this is the first node of the backward pass
            torch.autograd.Variable._execution_engine.queue_callback(ctx.after_backward)
        return gradients[0] * ctx.weight, None, None, None


def check_keys(config: Any, trainer: type) -> None:
    """Refuse what several processes cannot train, as far as it is known before the data are read.

    Args:
        config: of the run.
        trainer: the trainer class of its model.

    Raises:
        InputError: says why.
    """
    if config["MODEL_TYPE"] == ModelType.TRADITIONAL:
        raise _refusal(config, "does not learn by gradients")
    if has_own_epochs(trainer) or recbole_class(trainer).fit is not Trainer.fit:
        raise _refusal(config, "has its own kind of epoch in RecBole")
    if config["loss_type"] != "CE" and config["negative_distribution"] == "in_batch":
        raise InputError(
            f"negative_distribution is in_batch, but each of {processes.size()} processes has a part of a batch; "
            f"choose popularity, which draws items as often."
        )


def _check_model(config: Any, model: nn.Module) -> None:
    """Refuse models that several processes cannot train."""
    if not list(model.parameters()):
        raise _refusal(config, "does not learn by gradients")
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()):
        raise _refusal(config, "normalises over the examples of a batch, of which each process has a part")


def _refusal(config: Any, reason: str) -> InputError:
    return InputError(f"nproc is {processes.size()}, but {config['model']} {reason}; train it in one process.")
