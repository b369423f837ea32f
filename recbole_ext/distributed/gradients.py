"""The sum of the gradients of all processes.

`DistributedDataParallel` computes the same sums, but works around `forward`, from which RecBole's losses do not come,
and gives unused parameters gradients of zero, which optimizers do not ignore.
"""

from collections.abc import Iterable
from itertools import groupby

import torch
from torch import Tensor, nn

from recbole_ext.distributed import processes

LARGE = 2**18  # numbers, from which a gradient is sent by itself; smaller ones are sent together
NONE, DENSE, SPARSE = range(3)


@torch.no_grad()
def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace the gradients of parameters by their sums over all processes.

    A parameter without a gradient in all processes keeps none, so the optimizer leaves it alone as in a single process.
    Sparse gradients stay sparse.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    kinds = processes.largest(*map(_kind, trained))
    dense: list[Tensor] = []
    for parameter, kind in zip(trained, kinds, strict=True):
        if kind == SPARSE:
            parameter.grad = _sparse_sum(_sparse(parameter))
        elif kind == DENSE:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dense.append(parameter.grad)
    _sum(dense)


def _kind(parameter: nn.Parameter) -> int:
    if parameter.grad is None:
        return NONE
    return SPARSE if parameter.grad.is_sparse else DENSE


def _sum(gradients: list[Tensor]) -> None:
    """Sum dense gradients in place."""
    small = [gradient for gradient in gradients if gradient.numel() < LARGE]
    sent = [gradient for gradient in gradients if gradient.numel() >= LARGE]
    groups = [list(group) for _, group in groupby(small, key=lambda gradient: (gradient.dtype, gradient.device))]
    flat = [torch.cat([gradient.flatten() for gradient in group]) for group in groups]
    processes.sum_tensors([*sent, *flat])
    for group, summed in zip(groups, flat, strict=True):
        for gradient, values in zip(group, summed.split([gradient.numel() for gradient in group]), strict=True):
            gradient.copy_(values.view_as(gradient))


def _sparse(parameter: nn.Parameter) -> Tensor:
    """The gradient of a parameter, sparse in its first dimension; without rows where there is none."""
    if parameter.grad is None:
        index = torch.zeros(1, 0, dtype=torch.int64, device=parameter.device)
        values = parameter.new_zeros(0, *parameter.shape[1:])
        return torch.sparse_coo_tensor(index, values, parameter.shape, is_coalesced=True, check_invariants=False)
    return (parameter.grad if parameter.grad.is_sparse else parameter.grad.to_sparse(1)).coalesce()


def _sparse_sum(gradient: Tensor) -> Tensor:
    rows = torch.cat(processes.gathered(gradient.indices()[0]))
    values = torch.cat(processes.gathered(gradient.values()))
    return torch.sparse_coo_tensor(rows.unsqueeze(0), values, gradient.shape, check_invariants=False).coalesce()
