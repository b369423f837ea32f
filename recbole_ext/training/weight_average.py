"""`ema_decay`: an exponential moving average of the weights, which validation, checkpoints and scores use."""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn


class WeightAverage:
    """The moving average of a model's parameters: a <- decay a + (1 - decay) w after each step of the optimizer.

    The first step sets a = w. Buffers, such as the statistics of batch normalisation, are not averaged.

    Args:
        model: its floating-point parameters are averaged.
        decay: in [0, 1); 0 makes the average equal to the weights.
    """

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        self.parameters = {name: weights for name, weights in model.named_parameters() if weights.is_floating_point()}
        self.average: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self, *_) -> None:
        """Include the present weights. Any arguments are ignored, so that this can be a hook of an optimizer."""
        if not self.average:
            self.load({name: weights.detach() for name, weights in self.parameters.items()})
            return
        torch._foreach_lerp_(list(self.average.values()), list(self.parameters.values()), 1 - self.decay)

    @torch.no_grad()
    def load(self, average: dict[str, Tensor]) -> None:
        """Replace the average by copies of these weights, by name."""
        self.average = {
            name: average[name].to(device=weights.device, dtype=weights.dtype, copy=True)
            for name, weights in self.parameters.items()
        }

    @torch.no_grad()
    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Replace the model's weights, by name; the average stays."""
        for name, parameter in self.parameters.items():
            parameter.copy_(weights[name])

    def state(self, model: nn.Module) -> dict[str, Tensor]:
        """The model's state_dict with the average; parameters that several modules share have it under each name."""
        average = {id(weights): self.average.get(name) for name, weights in self.parameters.items()}
        named = model.named_parameters(remove_duplicate=False)
        averaged = {name: average[id(weights)] for name, weights in named if average.get(id(weights)) is not None}
        return {**model.state_dict(), **averaged}

    def weights(self) -> dict[str, Tensor]:
        """Copies of the model's weights, by name."""
        return {name: weights.detach().clone() for name, weights in self.parameters.items()}

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The model has the averaged weights in this context, and its own after it."""
        if not self.average:
            yield
            return
        weights = self.weights()
        self.load_weights(self.average)
        try:
            yield
        finally:
            self.load_weights(weights)
