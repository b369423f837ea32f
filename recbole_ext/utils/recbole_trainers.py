"""What is known of the trainer class of RecBole to which this package adds its mixins."""

from typing import Any

from recbole.trainer import Trainer


def recbole_class(trainer: type) -> Any:
    """The class of RecBole from which a trainer class derives."""
    return next(parent for parent in trainer.__mro__ if parent.__module__.startswith("recbole."))


def has_own_epochs(trainer: type) -> bool:
    """Whether an epoch of this trainer class is more than one loop over the batches, which most have."""
    return recbole_class(trainer)._train_epoch is not Trainer._train_epoch
