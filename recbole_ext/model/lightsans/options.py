"""LightSANs' keys: accepted values, and contradictions between keys."""

from typing import Any

from recbole_ext.errors import InputError
from recbole_ext.model.layers import ACTIVATIONS, check_heads
from recbole_ext.model.losses import AUTO, LOSS_VALIDATORS, LOSSES, check_sparse_updates, keys_without_effect
from recbole_ext.utils.validators import Bool, Int, OneOf, OrNone, validate_keys

VALIDATORS = {
    **dict.fromkeys(
        ("hidden_size", "inner_size", "n_heads", "n_layers", "k_interests", "random_features", "MAX_ITEM_LIST_LENGTH"),
        Int("[1, inf)"),
    ),
    "attention": OneOf("low_rank", "full", "linformer", "performer", "linear", "synthesizer"),
    "position": OrNone(OneOf("decoupled", "absolute", "relative")),
    "hidden_act": OneOf(*ACTIVATIONS), "loss_type": OneOf(*LOSSES, "BPR", AUTO), "recbole_compat": Bool(),
    **LOSS_VALIDATORS, "full_softmax_items": Int("[0, inf)"),
}  # fmt: skip


class LightSANsOptions:
    """LightSANs' keys, checked.

    Raises:
        InputError: names the key, its value, and what is expected.
    """

    def __init__(self, config: Any):
        values = validate_keys(config, VALIDATORS)
        self.position, self.attention, self.heads = values["position"], values["attention"], values["n_heads"]
        self.compat, self.loss_type = values["recbole_compat"], values["loss_type"]
        self.without_effect = keys_without_effect(self.loss_type)
        check_heads(values["hidden_size"], self.heads)
        check_sparse_updates(config)
        if self.compat and (self.position, self.attention) != ("decoupled", "low_rank"):
            raise InputError(
                f"recbole_compat is True with position {self.position} and attention {self.attention}; RecBole's "
                f"LightSANs has decoupled and low_rank only."
            )
