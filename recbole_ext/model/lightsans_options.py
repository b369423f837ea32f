"""What LightSANs asks of its keys, before it is built."""

from typing import Any

from recbole_ext.errors import InputError
from recbole_ext.model.layers import ACTIVATIONS

POSITIONS = ("decoupled", "absolute", "relative", "none")
ATTENTIONS = ("low_rank", "full", "linformer", "performer", "linear", "synthesizer")
WHOLE = (
    "hidden_size", "inner_size", "n_heads", "n_layers", "k_interests", "random_features", "MAX_ITEM_LIST_LENGTH",
)  # fmt: skip


class Options:
    """LightSANs' keys, checked. Raises `InputError` with the value and the choices."""

    def __init__(self, config: Any):
        for key in WHOLE:
            if not isinstance(config[key], int) or config[key] < 1:
                raise InputError(f"{key} is {config[key]!r}; it should be a whole number, at least 1.")
        choices = {"attention": ATTENTIONS, "hidden_act": tuple(ACTIVATIONS), "loss_type": ("CE", "BPR")}
        for key, names in choices.items():
            if config[key] not in names:
                raise InputError(f"{key} is {config[key]!r}; it should be one of {', '.join(names)}.")
        # YAML and the command line read the word none as nothing
        self.position = "none" if config["position"] is None else config["position"]
        if self.position not in POSITIONS:
            raise InputError(f"position is {config['position']!r}; it should be one of {', '.join(POSITIONS)}.")
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
