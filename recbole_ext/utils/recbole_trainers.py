"""What is known of the trainer class of RecBole to which this package adds its mixins."""

from typing import Any

from recbole.trainer import Trainer


def recbole_class(trainer: Any) -> Any:
    """The class of RecBole from which the class of a trainer derives."""
    return next(parent for parent in type(trainer).__mro__ if parent.__module__.startswith("recbole."))


def has_own_epochs(trainer: Any) -> bool:
    """Whether an epoch of this trainer is more than one loop over the batches, which most have."""
    return recbole_class(trainer)._train_epoch is not Trainer._train_epoch
