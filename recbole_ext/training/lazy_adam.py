"""`sparse_updates`: Adam that reads and changes only those rows of an item table that have a gradient."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam


class LazyAdam(torch.optim.Adam):
    """Adam; of a parameter with sparse gradients, it updates the rows that have a gradient.

    Step t, with the gradient g of such a row: m <- beta_1 m + (1 - beta_1) g, v <- beta_2 v + (1 - beta_2) g^2, and
    w <- w - lr (m / (1 - beta_1^t)) / (sqrt(v / (1 - beta_2^t)) + eps). As in Adam, t counts all steps.

    The difference from Adam is in the other rows, whose g is 0: there, m and v decay, and w still moves by what is left
    of m. Here m, v and w stay. If every row has a gradient in every step, the two are the same.

    (`torch.optim.SparseAdam` takes no dense gradients. It does not divide the v beside eps by 1 - beta_2^t, so it
    differs from Adam even where every row has a gradient.)
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step; all gradients that are sparse become coalesced."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            updated = [parameter for parameter in group["params"] if parameter.grad is not None]
            dense = [parameter for parameter in updated if not parameter.grad.is_sparse]
            _adam(group, [(parameter.grad, *self._tensors(parameter)) for parameter in dense])
            for parameter in updated:
                gradient = sparse_gradient(parameter)
                if gradient is not None:
                    *whole, step = self._tensors(parameter)
                    rows = gradient.indices()[0]
                    part = [values[rows] for values in whole]
                    _adam(group, [(gradient.values(), *part, step)])
                    for values, changed in zip(whole, part, strict=True):
                        values.index_copy_(0, rows, changed)
        return loss

    def _tensors(self, parameter: nn.Parameter) -> tuple[Tensor, ...]:
        """A parameter, its m and v, and the number of its steps."""
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return parameter, state["exp_avg"], state["exp_avg_sq"], state["step"]


def sparse_gradient(parameter: Tensor) -> Tensor | None:
    """The gradient of a parameter if it is sparse, coalesced: `indices()[0]` are its rows, each once; else `None`."""
    if parameter.grad is None or not parameter.grad.is_sparse:
        return None
    parameter.grad = parameter.grad.coalesce()
    return parameter.grad


def _adam(group: dict[str, Any], tensors: list[tuple[Tensor, ...]]) -> None:
    """torch's Adam, with the options of a group, on gradients, weights, m, v and numbers of steps."""
    columns = [list(column) for column in zip(*tensors, strict=True)]
    if not columns:
        return
    gradients, weights, first, second, steps = columns
    beta1, beta2 = group["betas"]
    adam(
        weights, gradients, first, second, [], steps, amsgrad=False, beta1=beta1, beta2=beta2, lr=group["lr"],
        weight_decay=group["weight_decay"], eps=group["eps"], maximize=False,
    )  # fmt: skip
