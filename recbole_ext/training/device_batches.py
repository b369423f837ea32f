"""Training on a device other than the CPU: batches are copied without waiting for it, and the loss is read once."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from recbole.data.interaction import Interaction
from torch import Tensor

from recbole_ext.model.host_copies import with_copy
from recbole_ext.utils.recbole_trainers import has_own_epochs


class DeviceBatches:
    """A mixin for RecBole's trainer classes, right before RecBole's class.

    On a GPU, RecBole's loop would wait for the end of all earlier work at each column of a batch and, in each step,
    twice for the loss. Here it waits once in a step, for the loss: while the GPU computes the gradients, the CPU makes
    the next batch.
    """

    config: Any
    model: Any
    device: torch.device

    def _train_epoch(self, train_data, epoch_idx, loss_func=None, show_progress=False):
        if self.device.type != "cpu" and not has_own_epochs(type(self)):
            train_data = BatchesOnDevice(train_data, self.device, self.config["ITEM_LIST_LENGTH_FIELD"])
            loss_func = reading_once(loss_func or self.model.calculate_loss)
        return super()._train_epoch(train_data, epoch_idx, loss_func, show_progress)


class BatchesOnDevice:
    """The batches of a loader on a device. The lengths of histories have a copy on the CPU (`model/host_copies.py`).

    Args:
        loader: a loader of RecBole, or a stand-in for one.
        device: of the batches.
        length_field: RecBole's `ITEM_LIST_LENGTH_FIELD`.
    """

    def __init__(self, loader: Any, device: torch.device, length_field: str):
        self.loader, self.device, self.length_field = loader, device, length_field

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Interaction]:
        return map(self._moved, self.loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["loader"], name)  # not self.loader: a copy has no attributes at first

    def _moved(self, batch: Interaction) -> Interaction:
        columns = {name: self._copy(values) for name, values in batch.interaction.items()}
        if self.length_field in columns:
            with_copy(columns[self.length_field], batch[self.length_field])
        return Interaction(columns)

    def _copy(self, values: Tensor) -> Tensor:
        # only from pinned memory can a GPU copy while the CPU goes on
        values = values.pin_memory() if self.device.type == "cuda" else values
        return values.to(self.device, non_blocking=True)


def reading_once(loss_func: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A loss function whose results wait for the device at the first call of their `item` only."""

    def calculate(interaction: Any) -> Any:
        losses = loss_func(interaction)
        for loss in losses if isinstance(losses, tuple) else (losses,):
            read_once(loss)
        return losses

    return calculate


def read_once(loss: Tensor) -> Tensor:
    """A loss whose value is read now; each later call of its `item` returns that number."""
    if "item" not in vars(loss):
        value = loss.item()
        loss.item = lambda: value  # type: ignore[method-assign]
    return loss
