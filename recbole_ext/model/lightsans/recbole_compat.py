"""LightSANs exactly as in RecBole 1.2.1: for its checkpoints, and for comparison.

There, the softmaxes run over the queries instead of the keys, padding is not masked, and the position logits are scaled
by 1/sqrt(2d) and again by 1/sqrt(d). `LightSANs` with `recbole_compat: True` uses this.
"""

import re

import torch
from torch import Tensor

from recbole_ext.errors import InputError
from recbole_ext.model.layers import join_heads, split_heads
from recbole_ext.model.lightsans.attention import Attention

# RecBole's parameter names -> ours
NAMES = {
    r"trm_encoder\.layer\.": "blocks.",
    r"multi_head_attention\.(query|key)\.": r"attention.items.\1.",
    r"multi_head_attention\.attpooling_(key|value)\.theta": r"attention.items.\1_interests",
    r"multi_head_attention\.value\.": "attention.value.",
    r"multi_head_attention\.pos_q_linear\.": "attention.position.query.",
    r"multi_head_attention\.pos_k_linear\.": "attention.position.key.",
    r"multi_head_attention\.pos_ln\.": "attention.position.norm.",
    r"multi_head_attention\.dense\.": "attention.output.",
    r"multi_head_attention\.LayerNorm\.": "attention_norm.",
    r"feed_forward\.dense_1\.": "feed_forward.inner.",
    r"feed_forward\.dense_2\.": "feed_forward.outer.",
    r"feed_forward\.LayerNorm\.": "feed_forward_norm.",
    r"^LayerNorm\.": "norm.",
}


def from_recbole(state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of RecBole's LightSANs under the names of ours, for `load_state_dict` with `recbole_compat: True`.

    Raises:
        InputError: the weights are not those of RecBole's LightSANs.
    """
    names = state_dict if isinstance(state_dict, dict) else ()
    if not any(str(name).endswith("attpooling_key.theta") for name in names):
        raise InputError("from_recbole needs the state_dict of RecBole's LightSANs; this is not one.")
    renamed = {"recbole_compat": torch.tensor(True)}
    for name, weights in state_dict.items():
        for pattern, ours in NAMES.items():
            name = re.sub(pattern, ours, name)
        renamed[name] = weights
    return renamed


class RecBoleAttention(Attention):
    """The parameters of `Attention`, used as in RecBole: x [B, L, H] -> [B, L, H], padding included."""

    def forward(self, x: Tensor, mask: Tensor, positions: Tensor | None = None) -> Tensor:
        def interests(projected: Tensor, theta: Tensor) -> Tensor:
            return (projected @ theta).softmax(dim=1).transpose(1, 2) @ projected  # [B, K, H]

        items, key, value = self.items, self.items.key(x), self.value(x)
        parts = items.query(x), interests(key, items.key_interests), interests(value, items.value_interests), value
        query, key, pooled, value = (split_heads(part, items.heads) for part in parts)
        d = query.shape[-1]
        attention = (query @ key.transpose(2, 3) / d**0.5).softmax(dim=-2)
        position = (self.position.logits(x.shape[1]) / (2 * d) ** 0.5).softmax(dim=-2)
        return self.output(join_heads(items.dropout(attention) @ pooled + position @ value))
