"""MEANTIME's keys: accepted values, and contradictions between keys."""

from typing import Any

from recbole_ext.errors import InputError
from recbole_ext.model.losses import AUTO, LOSS_VALIDATORS, LOSSES, check_sparse_updates, keys_without_effect
from recbole_ext.model.meantime.kernels import TABULATED
from recbole_ext.utils.validators import Int, ListOf, Number, OneOf, OrNone, validate_keys

VALIDATORS = {
    "absolute_kernels": OrNone(ListOf(OneOf("position", "day", "constant"), may_be_empty=True)),
    "relative_kernels": OrNone(ListOf(OneOf("sin", *TABULATED), may_be_empty=True)),
    "kernel_freq": Number("(0, inf)"), "kernel_time_unit": Number("[1e-6, 4294967296]"),  # seconds
    "gap_kernel": OneOf("torch", "triton"), "objective": OneOf("cloze", "next"),
    "architecture": OneOf("bert4rec", "sasrec"),
    **LOSS_VALIDATORS, "loss_type": OneOf(*LOSSES, AUTO), "full_softmax_items": Int("[0, inf)"),
    "query_time": OneOf("target", "last"), "mask_ratio": Number("(0, 1]"), "train_window": Int("[1, inf)"),
    "hidden_size": Int("[1, inf)"), "inner_size": Int("[1, inf)"), "n_layers": Int("[1, inf)"),
    "MAX_ITEM_LIST_LENGTH": Int("[2, inf)"), "layer_norm_eps": Number("(0, inf)"),
    "initializer_range": Number("(0, inf)"),
}  # fmt: skip


class MeantimeOptions:
    """MEANTIME's keys, checked.

    Raises:
        InputError: names the key, its value, and what is expected.
    """

    def __init__(self, config: Any):
        values = validate_keys(config, VALIDATORS)
        self.absolute: list[str] = values["absolute_kernels"] or []
        self.relative: list[str] = values["relative_kernels"] or []
        self.query_time, self.mask_ratio = values["query_time"], float(values["mask_ratio"])
        self.freq, self.tau = float(values["kernel_freq"]), float(values["kernel_time_unit"])
        self.in_triton: bool = values["gap_kernel"] == "triton"
        for key, names in (("absolute_kernels", self.absolute), ("relative_kernels", self.relative)):
            if len(set(names)) < len(names):
                raise InputError(f"{key} is {names}; kernels must be distinct.")
        heads, hidden = len(self.absolute) + len(self.relative), values["hidden_size"]
        if heads == 0:
            raise InputError("absolute_kernels and relative_kernels are both empty; name at least one kernel.")
        if hidden % heads:
            raise InputError(f"hidden_size is {hidden}, which {heads} kernels (one head each) do not divide.")
        if "sin" in self.relative and hidden % 2:
            raise InputError(f"hidden_size is {hidden}; the sin kernel needs an even number.")
        self.objective: str = values["objective"]
        self.architecture: str = values["architecture"]
        self.without_effect = keys_without_effect(values["loss_type"])
        if self.objective == "next":
            self.without_effect += ("mask_ratio",)
        if values["loss_type"] not in ("CE", AUTO) and config["pad_class"]:
            raise InputError(f"pad_class is True with loss_type {values['loss_type']}; it is an option of CE.")
        check_sparse_updates(config)
