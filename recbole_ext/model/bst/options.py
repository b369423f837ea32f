"""BST's keys: accepted values, and contradictions between keys."""

from typing import Any

from recbole_ext.errors import InputError
from recbole_ext.utils.validators import Bool, Int, ListOf, Number, OneOf, OrNone, Str, validate_keys

VALIDATORS = {
    **dict.fromkeys(
        ("embedding_size", "gap_embedding_size", "n_heads", "n_layers", "inner_size", "cross_buckets"), Int("[1, inf)")
    ),
    "time_gap": OrNone(OneOf("log", "day", "position")), "output": OneOf("target", "flatten"),
    "query_time": OneOf("target", "last"), "mlp_hidden_size": ListOf(Int("[1, inf)"), may_be_empty=True),
    **dict.fromkeys(("context_features", "history_features"), OrNone(ListOf(Str(), may_be_empty=True))),
    "cross_features": OrNone(ListOf(ListOf(Str(), count=2), may_be_empty=True)), "user_id_feature": Bool(),
    "mlp_dropout_prob": Number("[0, 1)"), "user_id_dropout_prob": Number("[0, 1)"),
}  # fmt: skip


class BSTOptions:
    """BST's keys, checked.

    Raises:
        InputError: names the key, its value, and what is expected.
    """

    def __init__(self, config: Any):
        values = validate_keys(config, VALIDATORS)
        self.time_gap, self.output, self.query_time = values["time_gap"], values["output"], values["query_time"]
        self.cross_features: list[list[str]] = values["cross_features"] or []
        self.context_features: list[str] = values["context_features"] or []
        self.history_features: list[str] = values["history_features"] or []
        self.user_id_feature: bool = values["user_id_feature"]
        self.mlp_hidden_size: list[int] = values["mlp_hidden_size"]
        if config["loss_type"] is not None:
            raise InputError(f"loss_type is {config['loss_type']!r}; BST has one loss and reads none: leave it out.")
        user, time = config["USER_ID_FIELD"], config["TIME_FIELD"]
        for key, names in (("context_features", self.context_features), ("history_features", self.history_features)):
            for name in names:
                if names.count(name) > 1:
                    raise InputError(f"{key} names '{name}' twice; name each column once.")
        for first, second in self.cross_features:
            if first == second:
                raise InputError(f"cross_features crosses '{first}' with itself; cross two different columns.")
        if user in self.context_features:
            raise InputError(f"context_features names '{user}'; set user_id_feature to True instead.")
        if not self.user_id_feature and any(user in pair for pair in self.cross_features):
            raise InputError(f"cross_features names '{user}', which is a feature only if user_id_feature is True.")
        self.user_id_dropout_prob: float = values["user_id_dropout_prob"]
        if self.user_id_dropout_prob and not self.user_id_feature:
            raise InputError(
                f"user_id_dropout_prob is {self.user_id_dropout_prob}, but user_id_feature is False; set the latter to "
                f"True, or the former to 0."
            )
        if config["history"] == "positive" and config["LABEL_FIELD"] in self.history_features:
            raise InputError(
                f"history_features names '{config['LABEL_FIELD']}', but with history: positive all events of a history "
                f"have label 1; set history to all."
            )
        lists = [name + config["LIST_SUFFIX"] for name in (time, *self.history_features)]
        for name in (config["unused_col"] or {}).get("inter") or ():
            if name in (time, *lists, config["LABEL_FIELD"], *self.context_features):
                raise InputError(f"unused_col leaves out '{name}', which BST reads; take it out of unused_col.")
