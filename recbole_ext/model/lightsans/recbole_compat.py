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
    """The parameters of `Attention`, used as in RecBole, padding included; the logits need all T = L positions."""

    def forward(self, x: Tensor, mask: Tensor, positions: Tensor | None = None) -> Tensor:
        """x [B, L, H] -> [B, L, H], or [B, R, H] at `positions` [B, R]."""
        heads, d = self.items.heads, x.shape[-1] // self.items.heads
        logits, values, _ = self.items.interact(x, x, torch.ones_like(mask), self.value)
        attention = logits.softmax(-1)  # over the queries, [B, n, K, L]
        position = (self.position.logits(x.shape[1]) / (2 * d) ** 0.5).softmax(-2)  # over the queries, [n, L, L]
        if positions is None:
            by_position = join_heads(position @ split_heads(self.value(x), heads))
        else:
            chosen = positions[:, None, None].expand(-1, *attention.shape[1:3], -1)
            attention, position = attention.gather(-1, chosen), position[:, positions].transpose(0, 1)  # [B, n, R, L]
            # for few queries, project the sums of the states instead of all states
            sums = (position @ x.unsqueeze(1)).unbind(1), position.sum(-1, keepdim=True).unbind(1)
            parts = zip(*sums, self.value.weight.split(d), self.value.bias.split(d), strict=True)
            by_position = torch.cat([states @ weight.T + total * bias for states, total, weight, bias in parts], -1)
        return self.output(self.items.context(attention, values) + by_position)
