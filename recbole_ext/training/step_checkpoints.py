"""`checkpoint_minutes`: checkpoints between two batches of an epoch, from which training continues exactly."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from logging import getLogger
from time import monotonic
from typing import Any

from torch import Tensor

from recbole_ext.checkpoint.training_run import ResumeState, latest_file
from recbole_ext.distributed import processes
from recbole_ext.errors import InputError
from recbole_ext.training.device_batches import reading_once
from recbole_ext.training.weight_average import WeightAverage
from recbole_ext.utils import signals as stopping
from recbole_ext.utils.batch_samplers import batches_of
from recbole_ext.utils.recbole_trainers import has_own_epochs

Loss = float | tuple[float, ...]


class StepCheckpoints:
    """A mixin for RecBole's trainer classes, between `ResumableCheckpoints` and RecBole's class.

    With `checkpoint_minutes`, the file of the latest epoch (`latest_file`) is replaced during an epoch, too, and a
    signal stops training after the current batch. Such a checkpoint is of the last complete epoch, with the weights,
    the optimizer and the random generators after some batches of the next one: see `EpochProgress`.
    """

    config: Any
    model: Any
    saved_model_file: str
    start_epoch: int
    best_valid_result: dict[str, float] | None
    save_enabled: bool
    save_latest: bool
    resume_state: ResumeState | None
    weight_average: WeightAverage | None
    _reserved_file: Callable[[], str]
    _write: Callable[..., None]

    def fit(self, train_data, *args, **kwargs):
        """RecBole's training; `InputError` if the trainer passes over the data more than once in an epoch."""
        if self.config["checkpoint_minutes"] and has_own_epochs(type(self)):
            raise InputError(
                f"checkpoint_minutes is {self.config['checkpoint_minutes']}, but {self.config['model']} has its own "
                f"kind of epoch, which is stored at its end only; leave it out."
            )
        return super().fit(train_data, *args, **kwargs)

    def _train_epoch(self, train_data, epoch_idx, loss_func=None, show_progress=False):
        progress, writes = self._resumed(train_data, epoch_idx), self._writes_steps()
        if progress is None and not writes:
            return super()._train_epoch(train_data, epoch_idx, loss_func, show_progress)
        progress = progress or EpochProgress(train_data.generator.get_state())
        written, seconds, first = monotonic(), 60 * (self.config["checkpoint_minutes"] or 0), progress.batches

        def between_batches() -> None:
            nonlocal written
            if not writes or progress.batches == first:  # there is nothing new to store
                return
            signal, is_due = processes.largest(stopping.requested(), monotonic() - written >= seconds)
            stopping.adopt(signal)
            if signal or is_due:
                self._write_step(epoch_idx, progress, len(train_data))
                written = monotonic()
            stopping.stop_if_requested(self.saved_model_file)

        batches = RemainingBatches(train_data, first, between_batches)
        loss_func = progress.recording(loss_func or self.model.calculate_loss)
        with stopping.steps() if writes else nullcontext():
            super()._train_epoch(batches, epoch_idx, loss_func, show_progress)
        return progress.loss  # RecBole's sum is of the remaining batches only

    def _write_step(self, epoch_idx: int, progress: "EpochProgress", total: int) -> None:
        """Store the state within an epoch of `total` batches, as the one after the epoch before, with `partial`."""
        loss = list(progress.loss) if isinstance(progress.loss, tuple) else progress.loss
        pending = self.weight_average.pending() if self.weight_average is not None else {}
        partial = {"batches": progress.batches, "of": total, "loss": loss, "average": pending}
        latest = latest_file(self._reserved_file())
        self._write(latest, epoch_idx - 1, self.best_valid_result, sampler=progress.order, partial=partial)
        if self.weight_average is not None:  # writing has completed it
            self.weight_average.restore(pending)

    def _writes_steps(self) -> bool:
        return bool(self.config["checkpoint_minutes"]) and self.save_enabled and self.save_latest

    def _resumed(self, train_data, epoch_idx: int) -> "EpochProgress | None":
        """The progress of the epoch in which a resumed training was stored; None for other epochs."""
        state = self.resume_state
        if state is None or epoch_idx != self.start_epoch or "partial" not in state.checkpoint:
            return None
        partial, total = state.checkpoint["partial"], len(train_data)
        if partial["of"] != total:
            raise InputError(
                f"checkpoint {state.path} was stored after {partial['batches']} of {partial['of']} batches of an "
                f"epoch, but an epoch has {total} batches with these keys; set the keys of its training."
            )
        try:
            if self.weight_average is not None:
                self.weight_average.restore(partial.get("average", {}))
        except ValueError as error:
            raise InputError(f"checkpoint {state.path} does not fit the model: {error}; it was edited.") from error
        getLogger().info(f"Epoch {epoch_idx} continues after {partial['batches']} of {total} batches.")
        loss = partial["loss"]
        loss = tuple(loss) if isinstance(loss, list) else loss
        return EpochProgress(train_data.generator.get_state(), partial["batches"], loss)


@dataclass
class EpochProgress:
    """What is known of an epoch between two batches.

    Attributes:
        order: the state of the loader's generator at the start of the epoch. The order of the batches and the seeds of
            their negatives follow from it.
        batches: the number of batches that the model has learnt from.
        loss: the sum of their losses, or of each term, added in their order, as RecBole does; None before the first.
    """

    order: Tensor
    batches: int = 0
    loss: Loss | None = None

    def recording(self, loss_func: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A loss function that also counts the batch and adds its loss."""
        loss_func = reading_once(loss_func)

        def calculate(interaction: Any) -> Any:
            losses = loss_func(interaction)
            if isinstance(losses, tuple):
                terms = tuple(loss.item() for loss in losses)
                before = self.loss if isinstance(self.loss, tuple) else None
                self.loss = terms if before is None else tuple(map(sum, zip(before, terms, strict=True)))
            else:
                term = losses.item()
                self.loss = term if not isinstance(self.loss, float) else self.loss + term
            self.batches += 1
            return losses

        return calculate


class RemainingBatches:
    """The batches of a loader without the first ones, which are not built.

    Args:
        loader: a loader of RecBole.
        first: how many batches to leave out.
        before: is called when a batch, or the end, is asked for: the step with the batch before it is then done.
    """

    def __init__(self, loader: Any, first: int, before: Callable[[], None]):
        self.loader, self.first, self.before = loader, first, before

    def __len__(self) -> int:
        return len(self.loader) - self.first

    def __iter__(self) -> Iterator[Any]:
        batches = self._remaining()
        while True:
            self.before()
            try:
                batch = next(batches)
            except StopIteration:
                return
            yield batch

    def _remaining(self) -> Iterator[Any]:
        with batches_of(self.loader, _RowsFrom(self.loader.batch_sampler, self.first)):
            return iter(self.loader)  # which keeps the sampler of this moment


@dataclass(frozen=True)
class _RowsFrom:
    """The rows of each batch, from a batch on."""

    rows: Any
    first: int

    def __iter__(self) -> Iterator[list[int]]:
        return islice(iter(self.rows), self.first, None)
