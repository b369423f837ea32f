"""What MEANTIME's `cloze` objective hides in a training window, as in BERT4Rec (F. Sun et al., CIKM 2019)."""

import torch
from torch import Tensor

from recbole_ext.model.host_copies import on_host, with_copy


def mask_items(items: Tensor, length: Tensor, mask_ratio: float, mask_id: int) -> tuple[Tensor, Tensor]:
    """Choose positions to predict, each with probability `mask_ratio` and at least one in each row.

    Of the chosen, 80 % become [MASK], 10 % a random item, 10 % keep their item.

    Args:
        items: ids of B windows, 0 in the padding on the right, [B, T].
        length: positions in use, [B].
        mask_ratio: in (0, 1].
        mask_id: id of [MASK], one above the last item's.

    Returns:
        tokens [B, T], and the chosen positions, bool [B, T]. The CPU chooses, as the shapes of a step follow from it,
        so on another device they have a copy on the CPU.
    """
    draw = torch.rand(items.shape).masked_fill(torch.arange(items.shape[1]) >= on_host(length).unsqueeze(1), 2.0)
    chosen = (draw < mask_ratio) | (draw == draw.amin(dim=1, keepdim=True))
    if items.device.type != "cpu":
        chosen = with_copy(chosen.to(items.device, non_blocking=True), chosen)
    action = torch.rand(items.shape, device=items.device)
    random_items = torch.randint(1, mask_id, items.shape, device=items.device)
    tokens = torch.where(chosen & (action < 0.8), mask_id, items)
    return torch.where(chosen & (action >= 0.8) & (action < 0.9), random_items, tokens), chosen
