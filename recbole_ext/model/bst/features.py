"""BST's inputs as vectors: columns of users, items and interactions, and time gaps; e is `embedding_size`."""

from collections.abc import Mapping, Sequence

import torch
from recbole.utils import FeatureSource, FeatureType
from torch import Tensor, nn

from recbole_ext.errors import InputError


def key_of(column: str) -> str:
    """A valid name of a module or buffer for any column name."""
    return "of_" + column.replace("%", "%25").replace(".", "%2E")


class Features(nn.Module):
    """Embed columns and concatenate them, e features for each column.

    A token has a learnt vector (0 for padding), a sequence of tokens the mean of its vectors, and a number a
    `NumericEmbedding`.

    Args:
        dataset: RecBole's data set, with the type and size of each column.
        columns: the columns by name, for the mean and standard deviation of numbers.
        size: e.

    Raises:
        InputError: a column is a sequence of numbers, or is not loaded.
    """

    def __init__(self, dataset, columns: Mapping[str, Tensor], size: int):
        super().__init__()
        self.names, self.width = list(columns), len(columns) * size
        self.embeddings = nn.ModuleDict()
        for name, values in columns.items():
            kind = dataset.field2type.get(name)
            if kind in (FeatureType.TOKEN, FeatureType.TOKEN_SEQ):
                self.embeddings[key_of(name)] = nn.Embedding(dataset.num(name), size, padding_idx=0)
            elif kind == FeatureType.FLOAT:
                self.embeddings[key_of(name)] = NumericEmbedding(without_bucket(values, 1), size)
            else:
                problem = "is not loaded" if kind is None else f"is a {kind.value}"
                raise InputError(
                    f"column '{name}' {problem}, but features are token, token_seq or float columns; take it out of "
                    f"load_col."
                )
        self.sequences = {name for name in columns if dataset.field2type[name] == FeatureType.TOKEN_SEQ}
        longest = max((values.shape[-1] for name, values in columns.items() if name in self.sequences), default=1)
        self.numbers = 2 * self.width + longest * size  # numbers in memory for one position

    def forward(self, values: Mapping[str, Tensor]) -> Tensor:
        """Columns [...] or, for sequences, [..., S] -> [..., width]."""
        return torch.cat([self._embed(name, values[name]) for name in self.names], dim=-1)

    def _embed(self, name: str, value: Tensor) -> Tensor:
        layer = self.embeddings[key_of(name)]
        if name not in self.sequences:
            return layer(value)
        count = (value > 0).sum(-1, keepdim=True).clamp(min=1)
        return layer(value).sum(-2) / count


class PastFeatures(Features):
    """Embed columns of the events of a history.

    Args:
        dataset: as for `Features`.
        names: the columns.
        size: e.
        suffix: RecBole's `LIST_SUFFIX`.
    """

    def __init__(self, dataset, names: Sequence[str], size: int, suffix: str):
        super().__init__(dataset, {name: dataset.inter_feat[name] for name in names}, size)
        self.list_names = [name + suffix for name in names]

    def lists(self, interaction) -> list[Tensor]:
        """The lists of the columns, [B, L] each."""
        return [without_bucket(interaction[name], 2) for name in self.list_names]

    def at(self, interaction, index: Tensor) -> Tensor:
        """Vectors of the events at the positions `index` [B, T] of the lists: [B, T, width]."""
        lists = zip(self.names, self.lists(interaction), strict=True)
        return self({name: values.gather(1, index) for name, values in lists})


def without_bucket(values: Tensor, dims: int) -> Tensor:
    """Numbers with `dims` dimensions, without the bucket that RecBole's discretisation adds in one more dimension."""
    return values[..., 0] if values.is_floating_point() and values.dim() > dims else values


class NumericEmbedding(nn.Linear):
    """z a + b of a number, with learnt vectors a and b: [...] -> [..., e].

    z is the distance from the mean in standard deviations, clamped to [-10, 10].

    Args:
        values: training values, for mean and standard deviation.
        size: e.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, values: Tensor, size: int):
        super().__init__(1, size)
        values = values.double()
        deviation = values.std(correction=0)
        self.register_buffer("mean", values.mean())
        self.register_buffer("deviation", torch.where(deviation > 0, deviation, 1.0))

    def forward(self, value: Tensor) -> Tensor:
        z = ((value.double() - self.mean) / self.deviation).clamp(-10, 10)
        return super().forward(z.to(self.weight.dtype).unsqueeze(-1))


class FeatureTable(nn.Module):
    """The columns of all users or all items, as buffers of the model.

    Args:
        feature: RecBole's table, a row for each id.
        names: the columns.
    """

    def __init__(self, feature, names: Sequence[str]):
        super().__init__()
        self.names = list(names)
        for name in names:
            self.register_buffer(key_of(name), without_bucket(feature[name], 1).clone())

    def columns(self) -> dict[str, Tensor]:
        """All columns without row 0, the padding."""
        return {name: self.column(name)[1:] for name in self.names}

    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        """Rows of ids of any shape."""
        return {name: self.column(name)[ids] for name in self.names}

    def column(self, name: str) -> Tensor:
        """One column, a row for each id."""
        return getattr(self, key_of(name))


def trained_users(dataset, id_field: str) -> Tensor:
    """The id of each user who has a training event, 0 for the others; [users + 1]."""
    ids = torch.arange(dataset.num(id_field))
    return ids.masked_fill(~torch.isin(ids, dataset.inter_feat[id_field]), 0)


def feature_columns(feature, id_field: str) -> list[str]:
    """Columns of a table of users or items, without the ids; sorted, because their order in a file may change."""
    return sorted(name for name in feature if name != id_field)


def check_event_columns(key: str, names: list[str], config, dataset) -> list[str]:
    """The names that a key gives if each is a column of the .inter file that the model may read.

    Args:
        key: `context_features`, whose columns must be known before the event, or `history_features`, whose columns may
            also be its outcomes.
        names: the columns.

    Raises:
        InputError: names the first wrong column.
    """
    taken = {config[f"{key}_FIELD"] for key in ("USER_ID", "ITEM_ID", "TIME", "ITEM_LIST_LENGTH")}
    taken |= {name for name in names if name.endswith(config["LIST_SUFFIX"])}
    kinds = "id, time or history"
    if key == "context_features":
        taken |= {config["LABEL_FIELD"], *(config["threshold"] or ())}
        kinds = "id, time, label or history"
    for name in names:
        if name in taken or dataset.field2source.get(name) != FeatureSource.INTERACTION:
            raise InputError(
                f"{key} names '{name}', which is not a loaded column of the .inter file, or is an {kinds}; name other "
                f"columns that load_col loads."
            )
    return list(names)


class Crosses(nn.Module):
    """Embeddings of pairs of token columns, hashed into tables of `buckets` rows; 0 for pairs with an unknown user.

    Args:
        dataset: RecBole's data set, with the type and size of each column.
        features: the model's features, to which the columns must belong.
        pairs: names of two token columns each.
        size: e.
        buckets: rows of each table; if there are more combinations, some share a row.
        user: the column of user ids, with 0 for unknown users.

    Raises:
        InputError: a column is not a feature, or not a token column.
    """

    def __init__(
        self, dataset, features: Sequence[str], pairs: Sequence[Sequence[str]], size: int, buckets: int, user: str
    ):
        super().__init__()
        self.pairs, self.width, self.user = [tuple(pair) for pair in pairs], len(pairs) * size, user
        for name in (name for pair in pairs for name in pair):
            if dataset.field2type.get(name) != FeatureType.TOKEN:
                raise InputError(f"cross_features names '{name}', which is not a loaded token column.")
            if name not in features:
                raise InputError(
                    f"cross_features names '{name}', which is not a feature; choose from {', '.join(sorted(features))}."
                )
        self.sizes = [(dataset.num(first), dataset.num(second)) for first, second in self.pairs]
        self.embeddings = nn.ModuleList(nn.Embedding(min(a * b, buckets), size) for a, b in self.sizes)

    def forward(self, values: Mapping[str, Tensor]) -> Tensor:
        """Columns of shapes that broadcast, [...] -> [..., width]."""
        vectors = []
        for (first, second), sizes, layer in zip(self.pairs, self.sizes, self.embeddings, strict=True):
            index = values[first] * sizes[1] + values[second]
            if sizes[0] * sizes[1] > layer.num_embeddings:
                index = index * 2654435761 % 2**32 % layer.num_embeddings  # Knuth's multiplicative hash
            vector = layer(index)
            if self.user in (first, second):
                vector = vector * (values[self.user] > 0).unsqueeze(-1)
            vectors.append(vector)
        return torch.cat(vectors, dim=-1)


# -------------------------------------------------------------------- time gaps to the target

HALF_OCTAVES = 66  # of gaps up to 2^32 seconds, and row 0
MAX_GAP_DAYS = 366


def gap_rows(time_gap: str | None, length: int) -> int:
    """Rows of the table that `gap_index` needs for histories of at most `length` events."""
    return {"log": HALF_OCTAVES, "day": MAX_GAP_DAYS + 2, "position": length + 1, None: 1}[time_gap]


def gap_index(time_gap: str | None, time: Tensor, target: Tensor, length: Tensor) -> Tensor:
    """The table row of each event's gap to the target (section 2.1: pos(v_i) = t(v_t) - t(v_i)); row 0 is the target's.

    The paper does not define the rows. `log` uses half octaves, row 1 + floor(2 log2(1 + gap)), so one and two hours
    are as far apart as one and two weeks; 64 half octaves reach 136 years. The other choices are for comparison.

    Args:
        time_gap: `log`, `day` (whole days, at most a year), `position` (counted back from the target), or `None` (row 0
            for all).
        time: of the events, seconds [B, T].
        target: time of the target, seconds [B].
        length: events of each history, [B].

    Returns:
        int64 [B, T].
    """
    if time_gap is None:
        return torch.zeros(time.shape, dtype=torch.int64, device=time.device)
    if time_gap == "position":
        position = torch.arange(time.shape[1], device=time.device)
        return (length.unsqueeze(1) - position).clamp(min=1)
    gap = (target.unsqueeze(1) - time).to(torch.float64).clamp(min=0)
    if time_gap == "day":
        return 1 + (gap / 86400).floor().clamp(max=MAX_GAP_DAYS).to(torch.int64)
    return 1 + (2 * torch.log2(1 + gap)).floor().clamp(max=HALF_OCTAVES - 2).to(torch.int64)
