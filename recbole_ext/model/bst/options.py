"""What BST asks of its keys, before it is built."""

from typing import Any

from recbole_ext.errors import InputError
from recbole_ext.model.bst.time_gaps import WAYS
from recbole_ext.model.options import check_choice, check_whole, or_none

WHOLE = ("embedding_size", "gap_embedding_size", "n_heads", "n_layers", "inner_size", "cross_buckets")


class Options:
    """BST's keys, checked. Raises `InputError` with the value and the choices."""

    def __init__(self, config: Any):
        check_whole(config, WHOLE)
        self.gap = or_none(config["time_gap"])
        check_choice("time_gap", self.gap, WAYS)
        check_choice("output", config["output"], ("target", "flatten"))
        check_choice("query_time", config["query_time"], ("target", "last"))
        self.crosses = config["cross_features"] or []
        if not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in self.crosses):
            raise InputError(
                f"cross_features is {self.crosses!r}; it should be a list of pairs, [[age, item_id], ...]."
            )
        self.context = config["context_features"] or []
        if config["loss_type"] is not None:
            raise InputError(f"loss_type is {config['loss_type']!r}; BST has one loss and reads none: leave it out.")
        time = config["TIME_FIELD"]
        for name in (config["unused_col"] or {}).get("inter") or ():
            if name in (time, time + config["LIST_SUFFIX"], config["LABEL_FIELD"], *self.context):
                raise InputError(f"unused_col leaves out '{name}', which BST reads; take it out of unused_col.")
        layers = config["mlp_hidden_size"]
        if not isinstance(layers, list) or not all(isinstance(size, int) and size > 0 for size in layers):
            raise InputError(f"mlp_hidden_size is {layers!r}; it should be a list of whole numbers.")
        self.layers = list(layers)
