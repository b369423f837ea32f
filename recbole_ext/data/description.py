"""What a model and a request need of a data set, as plain values that fit in a checkpoint; and the way back."""

from typing import Any

import torch
from recbole.data.interaction import Interaction
from recbole.utils import FeatureSource, FeatureType
from torch import Tensor

from recbole_ext.data.examples import Examples
from recbole_ext.utils.literals import to_builtin

EVENTS, USERS, ITEMS = FeatureSource.INTERACTION, FeatureSource.USER, FeatureSource.ITEM


def describe(dataset: Any) -> dict[str, Any]:
    """The sizes, vocabularies, tables and ranges of a data set, without its events.

    Args:
        dataset: an `ExactTimeDataset`, the part that a model is trained on.

    Returns:
        plain values and tensors:
            columns: of each column its `type` and `source` as RecBole names them, `length` (of its longest sequence; of
                a list of sequences, that of the list and of its longest member) and `values` (RecBole's `num`, `None`
                where it has none; the two lengths for a list of sequences of numbers).
            vocabularies: the tokens of the columns of events and users, but for the ids of users and items.
            tables: the columns of `user` and `item` features, a row for each id.
            extremes: least and largest value of the numbers among the columns of events, as the model sees them.
            normalised: the same before RecBole scaled the column to [0, 1].
            first_time: time of the first event, in the file's unit.
            trained_items: which items stand in the training data, as an event to predict or in a history. bool [V + 1]
            item_names: `column` of the `.item` file and `names` of the items by id, '' without one; None unless the key
                `item_names` asks for them.
    """
    known = [dataset.field2id_token[name] for name in (dataset.uid_field, dataset.iid_field)]
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
            if dataset.field2source.get(name) in (EVENTS, USERS) and not any(tokens is own for own in known)
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
        return None  # the length of histories: a token without a vocabulary
    return to_builtin(dataset.num(name))  # of histories of sequences of numbers, RecBole gives both lengths


def _table(feature: Any, own: str) -> dict[str, Tensor]:
    return {} if feature is None else {name: feature[name] for name in feature if name != own}


class DatasetDescription:
    """Stands in for the data set where a model is built from a checkpoint.

    It answers what models ask for when they are built: sizes, types and sources of columns, features of users and
    items, and the ranges of times and numbers. It has no events: `inter_feat` holds, for each column of numbers, its
    least and its largest value, and padding for the others.

    Args:
        config: the configuration of the run.
        description: what `describe` returned.
        tokens: of users and items, by the names of their columns.
        time_origin: seconds since 1970 of the first event.

    Attributes:
        trained_items: bool [V + 1]; None where an older checkpoint does not say.
        item_names: `column` and `names`, or None.
    """

    def __init__(
        self, config: Any, description: dict[str, Any], tokens: dict[str, list[str]], time_origin: float | None
    ):
        columns = description["columns"]
        self.config, self.time_origin = config, time_origin
        self.uid_field, self.iid_field = config["USER_ID_FIELD"], config["ITEM_ID_FIELD"]
        self.label_field, self.time_field = config["LABEL_FIELD"], config["TIME_FIELD"]
        self.first_time = description["first_time"]
        self.normalised = description["normalised"]
        # older checkpoints lack these two
        self.trained_items: Tensor | None = description.get("trained_items")
        self.item_names: dict[str, Any] | None = description.get("item_names")
        self.field2id_token = {**description["vocabularies"], **tokens}
        self.field2type = {name: FeatureType(column["type"]) for name, column in columns.items()}
        self.field2source = {name: _source(column["source"]) for name, column in columns.items()}
        self.field2seqlen = {name: _as_recbole_has_it(column["length"]) for name, column in columns.items()}
        self.sizes = {name: _as_recbole_has_it(column["values"]) for name, column in columns.items()}
        self.user_num, self.item_num = len(tokens[self.uid_field]), len(tokens[self.iid_field])
        tables = description["tables"]
        self.user_feat = self._feature(self.uid_field, self.user_num, tables["user"])
        self.item_feat = self._feature(self.iid_field, self.item_num, tables["item"])
        ends = {name: torch.tensor(values, dtype=torch.float64) for name, values in description["extremes"].items()}
        self.inter_feat = {**dict.fromkeys(columns, torch.zeros(2, dtype=torch.int64)), **ends}

    def _feature(self, own: str, count: int, table: dict[str, Tensor]) -> Interaction:
        return Interaction({own: torch.arange(count), **table})

    def num(self, field: str) -> Any:
        """RecBole's size of a column: values of a token, padding included; buckets or length(s) of numbers."""
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


def _as_recbole_has_it(size: Any) -> Any:
    return tuple(size) if isinstance(size, list) else size


def _source(name: str) -> Any:
    try:
        return FeatureSource(name)
    except ValueError:  # the suffix of an additional file
        return name
