"""`ema_decay`: an exponential moving average of the weights, which validation, checkpoints and scores use."""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from recbole_ext.training.lazy_adam import sparse_gradient


class WeightAverage:
    """The moving average of a model's parameters: a <- decay a + (1 - decay) w after each step of the optimizer.

    The first step sets a = w. Buffers, such as the statistics of batch normalisation, are not averaged.

    Rows of a parameter with sparse gradients are averaged when they are needed: before their weights change, and before
    the average is read. Over n steps with the same w, a becomes w + decay^n (a - w).

    Args:
        model: its floating-point parameters are averaged.
        decay: in [0, 1); 0 makes the average equal to the weights.
    """

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        self.parameters = {name: weights for name, weights in model.named_parameters() if weights.is_floating_point()}
        self.average: dict[str, Tensor] = {}
        self.steps = 0  # since the average was loaded
        self.averaged_steps: dict[str, Tensor] = {}  # those that each row includes, of parameters with sparse gradients

    @torch.no_grad()
    def before_step(self, *_) -> None:
        """Average the rows that a step will change. Any arguments are ignored, as in `update`."""
        for name, weights in self.parameters.items():
            gradient = sparse_gradient(weights)
            if gradient is None or not self.average:
                continue
            rows = gradient.indices()[0]
            if name not in self.averaged_steps:
                self.averaged_steps[name] = torch.full((len(weights),), self.steps, device=weights.device)
            average = self.average[name][rows]
            self._catch_up(average, weights[rows], self.averaged_steps[name][rows])
            self.average[name].index_copy_(0, rows, average)
            self.averaged_steps[name].index_fill_(0, rows, self.steps)

    @torch.no_grad()
    def update(self, *_) -> None:
        """Include the present weights. Any arguments are ignored, so that this can be a hook of an optimizer."""
        if not self.average:
            self.load({name: weights.detach() for name, weights in self.parameters.items()})
            return
        self.steps += 1
        names = self.average.keys() - self.averaged_steps.keys()
        averages, weights = ([tensors[name] for name in names] for tensors in (self.average, self.parameters))
        torch._foreach_lerp_(averages, weights, 1 - self.decay)

    @torch.no_grad()
    def complete(self) -> dict[str, Tensor]:
        """The average, by name, with all rows up to date; empty before the first step."""
        for name, averaged_steps in self.averaged_steps.items():
            self._catch_up(self.average[name], self.parameters[name], averaged_steps)
            averaged_steps.fill_(self.steps)
        return self.average

    def pending(self) -> dict[str, dict[str, Tensor]]:
        """Of each parameter with sparse gradients, copies of `average` and of the number of steps that a row `lacks`.

        `complete` and then `restore` change nothing. Without them, a row would be averaged in other portions of steps,
        which rounds differently.
        """
        return {
            name: {"average": self.average[name].clone(), "lacks": self.steps - averaged_steps}
            for name, averaged_steps in self.averaged_steps.items()
        }

    def restore(self, pending: dict[str, dict[str, Tensor]]) -> None:
        """Return to what `pending` has returned, possibly in another process; `ValueError` if it does not fit."""
        for name, rows in pending.items():
            weights = self.parameters.get(name)
            if weights is None or (rows["average"].shape, rows["lacks"].shape) != (weights.shape, weights.shape[:1]):
                raise ValueError(f"the average of '{name}' does not fit")
            self.average[name].copy_(rows["average"])
            self.averaged_steps[name] = self.steps - rows["lacks"].to(weights.device)

    def _catch_up(self, average: Tensor, weights: Tensor, averaged_steps: Tensor) -> None:
        """Include the same weights once for each step since `averaged_steps`, for each row; in place."""
        share = 1 - self.decay ** (self.steps - averaged_steps).to(torch.float64)
        average.lerp_(weights, share.to(average.dtype).view(-1, *[1] * (average.dim() - 1)))

    @torch.no_grad()
    def load(self, average: dict[str, Tensor]) -> None:
        """Replace the average by copies of these weights, by name."""
        self.steps, self.averaged_steps = 0, {}
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
        averages = self.complete()
        average = {id(weights): averages.get(name) for name, weights in self.parameters.items()}
        named = model.named_parameters(remove_duplicate=False)
        averaged = {name: average[id(weights)] for name, weights in named if average.get(id(weights)) is not None}
        return {**model.state_dict(), **averaged}

    def weights(self) -> dict[str, Tensor]:
        """Copies of the model's weights, by name."""
        return {name: weights.detach().clone() for name, weights in self.parameters.items()}

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The model has the averaged weights in this context, and its own after it."""
        average = self.complete()
        if not average:
            yield
            return
        weights = self.weights()
        self.load_weights(average)
        try:
            yield
        finally:
            self.load_weights(weights)
