"""Learning curves: the training loss and the validation score of each epoch, as plain numbers for a checkpoint."""

from typing import Any

NAMES = ("train_loss", "valid_score")


class Curves:
    """Two lists with a number for each epoch from the first; None where there is none.

    Args:
        stored: what `plain` returned before; None to begin with, and of checkpoints without curves.
    """

    def __init__(self, stored: dict[str, list[float | None]] | None = None):
        self.lists: dict[str, list[float | None]] = {name: list((stored or {}).get(name, [])) for name in NAMES}

    def trained(self, epoch: int, loss: Any) -> None:
        """Note the loss of an epoch, counted from 0, or the losses that add up to it; later epochs are forgotten."""
        for values in self.lists.values():
            del values[epoch:]
            values += [None] * (epoch + 1 - len(values))
        self.lists["train_loss"][epoch] = float(sum(loss) if isinstance(loss, (tuple, list)) else loss)

    def validated(self, score: float) -> None:
        """Note the score of the epoch that was trained last."""
        if self.lists["valid_score"]:
            self.lists["valid_score"][-1] = float(score)

    def plain(self) -> dict[str, list[float | None]]:
        return {name: list(values) for name, values in self.lists.items()}
