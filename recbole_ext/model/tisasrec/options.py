"""TiSASRec's keys: accepted values, and contradictions between keys."""

from typing import Any

from recbole_ext.model.layers import check_heads
from recbole_ext.model.losses import (
    DISTRIBUTIONS,
    LOSS_VALIDATORS,
    LOSSES,
    UNSEEN,
    check_sparse_updates,
    keys_without_effect,
)
from recbole_ext.utils.validators import Int, Number, OneOf, validate_keys

VALIDATORS = {
    "time_interval": OneOf("personalised", "global"), "interval_unit": Number("[1e-6, 4294967296]"),  # seconds
    "time_span": Int("[1, 1000000]"),
    **dict.fromkeys(("hidden_size", "n_layers", "n_heads", "train_window"), Int("[1, inf)")),
    **LOSS_VALIDATORS, "loss_type": OneOf(*LOSSES), "negative_distribution": OneOf(UNSEEN, *DISTRIBUTIONS),
    "reg_weight": Number("[0, inf)"), "MAX_ITEM_LIST_LENGTH": Int("[2, inf)"), "layer_norm_eps": Number("(0, inf)"),
    "initializer_range": Number("(0, inf)"),
}  # fmt: skip


class TiSASRecOptions:
    """TiSASRec's keys, checked.

    Raises:
        InputError: names the key, its value, and what is expected.
    """

    def __init__(self, config: Any):
        values = validate_keys(config, VALIDATORS)
        check_heads(values["hidden_size"], values["n_heads"])
        check_sparse_updates(config)
        self.unit: float | None = None if values["time_interval"] == "personalised" else values["interval_unit"]
        self.without_effect = keys_without_effect(values["loss_type"])
        if self.unit is None:
            self.without_effect += ("interval_unit",)
