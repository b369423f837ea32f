"""Time gaps to the target as positions (BST, section 2.1: pos(v_i) = t(v_t) - t(v_i)).

The paper does not say how gaps become rows of a table. Here they are cut into half octaves, since what happened two
hours ago differs from one hour ago as two weeks from one: bucket 1 + floor(2 log2(1 + gap)) for seconds before the
target, 0 for the target itself. 64 buckets reach 136 years. The other ways are for comparison.
"""

import torch
from torch import Tensor

WAYS = ("log", "day", "position", "none")
BUCKETS = 66  # half octaves of 2^32 seconds, and the target
MOST_DAYS = 366


def buckets(way: str, length: int) -> int:
    """Rows of the table that `bucket` needs for histories of at most `length` items."""
    return {"log": BUCKETS, "day": MOST_DAYS + 2, "position": length + 1, "none": 1}[way]


def bucket(way: str, time: Tensor, target: Tensor, length: Tensor) -> Tensor:
    """The row of each slot of a history, from 1; row 0 is the target's.

    Args:
        way: `log` (half octaves of seconds), `day` (whole days, at most a year), `position` (counted back from the
            target) or `none` (0 for all).
        time: of the events, seconds [B, T].
        target: time of the target, [B].
        length: slots in use, [B].

    Returns:
        int64 [B, T].
    """
    if way == "none":
        return torch.zeros(time.shape, dtype=torch.int64, device=time.device)
    if way == "position":
        slot = torch.arange(time.shape[1], device=time.device)
        return (length.unsqueeze(1) - slot).clamp(min=1)
    gap = (target.unsqueeze(1) - time).to(torch.float64).clamp(min=0)
    if way == "day":
        return 1 + (gap / 86400).floor().clamp(max=MOST_DAYS).to(torch.int64)
    return 1 + (2 * torch.log2(1 + gap)).floor().clamp(max=BUCKETS - 2).to(torch.int64)
