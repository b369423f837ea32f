"""Description of a data set for checkpoints: what building and serving a model need, without the events."""

from typing import Any

import torch
from recbole.data.interaction import Interaction
from recbole.utils import FeatureSource, FeatureType
from torch import Tensor

from recbole_ext.data.examples import Examples
from recbole_ext.utils.literals import to_builtin

EVENTS, USERS, ITEMS = FeatureSource.INTERACTION, FeatureSource.USER, FeatureSource.ITEM


def describe(dataset: Any) -> dict[str, Any]:
    """Describe the columns, vocabularies, feature tables and value ranges of a data set as plain values and tensors.

    Args:
        dataset: an `ExactTimeDataset`, the part that a model is trained on.

    Returns:
        a dictionary with the keys
            columns: for each column, `type` and `source` (RecBole's names), `length` (of the longest sequence; for a
                list of sequences, of the list and of its longest member) and `values` (RecBole's `num`, or None).
            vocabularies: tokens of the columns of events and users, except user and item ids.
            tables: the columns of `user` and `item` features, a row for each id.
            extremes: minimum and maximum of each numeric column of events, as the model sees it.
            normalised: minimum and maximum of the columns that RecBole scaled to [0, 1], before scaling.
            first_time: time of the first event, in the file's unit.
            trained_items: whether the training data contain each item, as a target or in a history. bool [V + 1]
            item_names: `column` of the `.item` file and `names` of the items by id, '' where missing; None if the key
                `item_names` is not set.
    """
    ids = [dataset.field2id_token[name] for name in (dataset.uid_field, dataset.iid_field)]
    columns = {
        name: {
            "type": kind.value,
            "source": getattr(dataset.field2source[name], "value", dataset.field2source[name]),
            "length": to_builtin(dataset.field2seqlen[name]),
            "values": _size(dataset, name, kind),
        }
        for name, kind in dataset.field2type.items()
    }
    events = dataset.inter_feat
    numbers = [name for name, kind in dataset.field2type.items() if kind == FeatureType.FLOAT and name in events]
    return {
        "columns": columns,
        "vocabularies": {
            str(name): [str(token) for token in tokens]
            for name, tokens in dataset.field2id_token.items()
            if dataset.field2source.get(name) in (EVENTS, USERS) and not any(tokens is id_tokens for id_tokens in ids)
        },
        "tables": {
            "user": _table(dataset.user_feat, dataset.uid_field),
            "item": _table(dataset.item_feat, dataset.iid_field),
        },
        "extremes": {name: [float(events[name].min()), float(events[name].max())] for name in numbers},
        "normalised": {name: [float(low), float(high)] for name, (low, high) in dataset.normalised.items()},
        "first_time": float(dataset.first_time),
        "trained_items": _trained_items(dataset),
        "item_names": _item_names(dataset),
    }


def _trained_items(dataset: Any) -> Tensor | None:
    examples = getattr(dataset, "windows", None)
    examples = dataset.inter_feat if examples is None else examples
    if not isinstance(examples, Examples):
        return None
    trained = torch.zeros(dataset.item_num, dtype=torch.bool)
    trained[examples.distinct(dataset.iid_field)] = True
    return trained


def _item_names(dataset: Any) -> dict[str, Any] | None:
    if dataset.item_names is None:
        return None
    names = [dataset.item_names.get(str(token), "") for token in dataset.field2id_token[dataset.iid_field]]
    return {"column": dataset.config["item_names"], "names": names}


def _size(dataset: Any, name: str, kind: FeatureType) -> int | list[int] | None:
    if kind in (FeatureType.TOKEN, FeatureType.TOKEN_SEQ) and name not in dataset.field2id_token:
        return None  # the length of histories, a token column without a vocabulary
    return to_builtin(dataset.num(name))  # for histories of numeric sequences, two lengths


def _table(feature: Any, id_field: str) -> dict[str, Tensor]:
    return {} if feature is None else {name: feature[name] for name in feature if name != id_field}


class DatasetDescription:
    """Replaces the data set when a model is built from a checkpoint.

    It has the attributes that models read when they are built: sizes, types and sources of columns, and features of
    users and items. It has no events: each numeric column of `inter_feat` consists of its minimum and maximum, other
    columns consist of padding.

    Args:
        config: the configuration of the run.
        data: the result of `describe`.
        tokens: of users and items, by column.
        time_origin: seconds since 1970 of the first event.

    Attributes:
        trained_items: bool [V + 1]; None for an older checkpoint.
        item_names: `column` and `names`, or None.
    """

    def __init__(self, config: Any, data: dict[str, Any], tokens: dict[str, list[str]], time_origin: float | None):
        columns = data["columns"]
        self.config, self.time_origin = config, time_origin
        self.uid_field, self.iid_field = config["USER_ID_FIELD"], config["ITEM_ID_FIELD"]
        self.label_field, self.time_field = config["LABEL_FIELD"], config["TIME_FIELD"]
        self.first_time = data["first_time"]
        self.normalised = data["normalised"]
        # older checkpoints lack these two
        self.trained_items: Tensor | None = data.get("trained_items")
        self.item_names: dict[str, Any] | None = data.get("item_names")
        self.field2id_token = {**data["vocabularies"], **tokens}
        self.field2type = {name: FeatureType(column["type"]) for name, column in columns.items()}
        self.field2source = {name: _source(column["source"]) for name, column in columns.items()}
        self.field2seqlen = {name: _as_tuple(column["length"]) for name, column in columns.items()}
        self.sizes = {name: _as_tuple(column["values"]) for name, column in columns.items()}
        self.user_num, self.item_num = len(tokens[self.uid_field]), len(tokens[self.iid_field])
        tables = data["tables"]
        self.user_feat = self._feature(self.uid_field, self.user_num, tables["user"])
        self.item_feat = self._feature(self.iid_field, self.item_num, tables["item"])
        extremes = {name: torch.tensor(values, dtype=torch.float64) for name, values in data["extremes"].items()}
        self.inter_feat = {**dict.fromkeys(columns, torch.zeros(2, dtype=torch.int64)), **extremes}

    def _feature(self, id_field: str, count: int, table: dict[str, Tensor]) -> Interaction:
        return Interaction({id_field: torch.arange(count), **table})

    def num(self, field: str) -> Any:
        """RecBole's `num` of a column: its tokens with padding, or the buckets or length(s) of a numeric column."""
        if self.sizes.get(field) is None:
            raise ValueError(f"there is no column '{field}'")
        return self.sizes[field]

    def fields(self, ftype: Any = None, source: Any = None) -> list[str]:
        """Names of the columns of the given types and sources; `None` means all."""
        kinds, sources = set(ftype or FeatureType), set(source or FeatureSource)
        return [name for name, kind in self.field2type.items() if kind in kinds and self.field2source[name] in sources]

    def get_user_feature(self) -> Interaction:
        """A row for each user, padding first."""
        return self.user_feat

    def get_item_feature(self) -> Interaction:
        """A row for each item, padding first."""
        return self.item_feat


def _as_tuple(size: Any) -> Any:
    return tuple(size) if isinstance(size, list) else size


def _source(name: str) -> Any:
    try:
        return FeatureSource(name)
    except ValueError:  # the suffix of an additional file
        return name
