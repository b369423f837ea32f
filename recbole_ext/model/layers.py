"""Layers that the models share. B batch, L length, H hidden, V items."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from recbole_ext.errors import InputError

LOGITS_AT_ONCE = 2**27  # numbers; 512 MiB in float32


class Dropout(nn.Module):
    """Dropout with its mask from 16 random bits per number: on CPUs 7 times faster than one draw per number.

    Args:
        p: probability of zeroing a number, in [0, 1); rounded to a multiple of 2^-16.
    """

    def __init__(self, p: float):
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout probability is {p}; it should lie in [0, 1).")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        bits = words.view(torch.int16)[: x.numel()].view(x.shape)
        dropped = min(round(self.p * 2**16), 2**16 - 1)  # of the 2^16 values of 16 bits
        keep = (bits >= dropped - 2**15).to(x.dtype)
        return x * keep.mul_(1 / (1 - self.p))

    def extra_repr(self) -> str:
        return f"p={self.p}"


def cross_entropy_over_items(hidden: Tensor, table: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    """Mean cross entropy of a softmax over all items, without ever holding more than `LOGITS_AT_ONCE` logits.

    With more, the rows are taken in chunks whose logits are computed again for the gradient: the same value, memory
    that does not grow with the number of rows, for catalogues of millions.

    Args:
        hidden: [M, H].
        table: item vectors [V, H].
        bias: [V], or `None`.
        target: index of the right item, [M].

    Returns:
        The loss, a scalar in float32 or better.
    """

    def summed(rows: Tensor, answer: Tensor, table: Tensor, bias: Tensor | None) -> Tensor:
        return F.cross_entropy(F.linear(rows, table, bias), answer, reduction="sum")

    rows = max(1, LOGITS_AT_ONCE // len(table))
    if len(hidden) <= rows:
        return F.cross_entropy(F.linear(hidden, table, bias), target)
    parts = zip(hidden.split(rows), target.split(rows), strict=True)
    losses = [checkpoint(summed, part, answer, table, bias, use_reentrant=False) for part, answer in parts]
    return torch.stack(losses).sum() / len(hidden)


def load_item_vectors(table: nn.Embedding, size_key: str, config, dataset) -> None:
    """Begin with the pretrained item vectors that `preload_weight` names, if it names any.

    Items without a vector, or with one of zeros, and the rows behind those of items keep what they have.

    Args:
        table: of items, [V or more, D]; row 0 is the padding.
        size_key: the key that sets D, for the message.
        config: of the run.
        dataset: RecBole's, which has the vectors, [V, D].

    Raises:
        InputError: the vectors are of another size.
    """
    for column in (config["preload_weight"] or ()) if "preload_weight" in config else ():
        vectors = torch.as_tensor(dataset.get_preload_weight(column), dtype=table.weight.dtype)
        if vectors.shape[1:] != table.weight.shape[1:]:
            size = vectors[0].numel()
            raise InputError(
                f"{size_key} is {table.embedding_dim}, but the vectors that preload_weight names have {size} numbers; "
                f"set {size_key} to {size}."
            )
        given = vectors.any(dim=1).nonzero().flatten()
        given = given[given > 0]
        with torch.no_grad():
            table.weight[given] = vectors[given].to(table.weight.device)


def take(x: Tensor, rows: Tensor) -> Tensor:
    """The slots [B, R] of x [B, T, ...] -> [B, R, ...]; an x that is the same for all slots stays as it is."""
    if x.shape[0] != rows.shape[0] or x.shape[1] == 1:
        return x
    index = rows.view(*rows.shape, *[1] * (x.dim() - 2)).expand(*rows.shape, *x.shape[2:])
    return x.gather(1, index)
