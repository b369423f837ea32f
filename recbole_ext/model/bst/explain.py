"""BST's attention from the target item to the events and to itself."""

from typing import Any

import torch
from torch import Tensor

from recbole_ext.model.attention_weights import Attention, Head
from recbole_ext.model.bst.model import BST
from recbole_ext.model.lightsans.item_attention import split_heads


def attention(model: BST, request: Any, item: Tensor, given: dict[str, Tensor]) -> Attention:
    """Weights of every block for a request of one row and an item, id [1]; the item stands behind the events."""
    prepared = model.prepare(request, given)
    target = model._targets(model.item_features(model.items(item)))  # [1, W]
    x = torch.cat([prepared.history, target.unsqueeze(1)], dim=1)
    real = torch.cat([prepared.real, prepared.real.new_ones(1, 1)], dim=1)
    heads = []
    for layer, block in enumerate(model.blocks, 1):
        query, key = split_heads(block.query(x[:, -1:]), block.heads), split_heads(block.key(x), block.heads)
        logits = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5  # [1, n, 1, T + 1]
        weights = logits.masked_fill(~real[:, None, None, :], -torch.inf).softmax(-1)[0, :, 0]
        heads += [Head(layer, f"head_{number}", row) for number, row in enumerate(weights, 1)]
        x = block(x, x, real)
    return Attention("target", heads)
