"""What BST asks of its keys, before it is built."""

from typing import Any

from recbole_ext.errors import InputError
from recbole_ext.model.gaps import WAYS

WHOLE = ("embedding_size", "gap_embedding_size", "n_heads", "n_layers", "inner_size", "cross_buckets")


class Options:
    """BST's keys, checked. Raises `InputError` with the value and the choices."""

    def __init__(self, config: Any):
        for key in WHOLE:
            if not isinstance(config[key], int) or config[key] < 1:
                raise InputError(f"{key} is {config[key]!r}; it should be a whole number, at least 1.")
        # YAML and the command line read the word none as nothing
        self.gap = "none" if config["time_gap"] is None else config["time_gap"]
        choices = {"time_gap": (self.gap, WAYS), "output": (config["output"], ("target", "flatten"))}
        choices["query_time"] = config["query_time"], ("target", "last")
        for key, (value, names) in choices.items():
            if value not in names:
                raise InputError(f"{key} is {value!r}; it should be one of {', '.join(names)}.")
        self.crosses = config["cross_features"] or []
        if not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in self.crosses):
            raise InputError(
                f"cross_features is {self.crosses!r}; it should be a list of pairs, [[age, item_id], ...]."
            )
        self.context = config["context_features"] or []
        layers = config["mlp_hidden_size"]
        if not isinstance(layers, list) or not all(isinstance(size, int) and size > 0 for size in layers):
            raise InputError(f"mlp_hidden_size is {layers!r}; it should be a list of whole numbers.")
        self.layers = list(layers)
