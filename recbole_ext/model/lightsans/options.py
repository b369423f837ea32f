"""What LightSANs asks of its keys, before it is built."""

from typing import Any

from recbole_ext.errors import InputError
from recbole_ext.model.layers import ACTIVATIONS
from recbole_ext.model.options import check_choice, check_whole, or_none

POSITIONS = ("decoupled", "absolute", "relative", "none")
ATTENTIONS = ("low_rank", "full", "linformer", "performer", "linear", "synthesizer")
WHOLE = (
    "hidden_size", "inner_size", "n_heads", "n_layers", "k_interests", "random_features", "MAX_ITEM_LIST_LENGTH",
)  # fmt: skip


class Options:
    """LightSANs' keys, checked. Raises `InputError` with the value and the choices."""

    def __init__(self, config: Any):
        check_whole(config, WHOLE)
        choices = {"attention": ATTENTIONS, "hidden_act": tuple(ACTIVATIONS), "loss_type": ("CE", "BPR")}
        for key, names in choices.items():
            check_choice(key, config[key], names)
        self.position = or_none(config["position"])
        check_choice("position", self.position, POSITIONS)
        self.attention, self.heads, self.compat = config["attention"], config["n_heads"], config["recbole_compat"]
        if config["hidden_size"] % self.heads:
            raise InputError(f"hidden_size is {config['hidden_size']}, which n_heads {self.heads} does not divide.")
        if not isinstance(self.compat, bool):
            raise InputError(f"recbole_compat is {self.compat!r}; it should be True or False.")
        if self.compat and (self.position, self.attention) != ("decoupled", "low_rank"):
            raise InputError(
                f"recbole_compat is True with position {self.position} and attention {self.attention}; RecBole's "
                f"LightSANs has decoupled and low_rank only."
            )
