"""Columns of users, items and interactions as vectors. e = embedding_size."""

from collections.abc import Mapping, Sequence

import torch
from recbole.utils import FeatureType
from torch import Tensor, nn

from recbole_ext.errors import InputError


def key_of(column: str) -> str:
    """A name that modules and buffers may have, for any name of a column."""
    return "of_" + column.replace("%", "%25").replace(".", "%2E")


class Features(nn.Module):
    """Embeds named columns and concatenates them, e features each.

    A token has a row of a table (padding a row of zeros), a sequence of tokens the mean of its rows, a number x becomes
    z a + b with learnt vectors a and b, where z is x in standard deviations from the mean, at most 10.

    Args:
        dataset: RecBole's, which knows type and size of each column.
        columns: name of each column, and values from which mean and deviation of a number are taken.
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
                self.embeddings[key_of(name)] = Number(without_bucket(values, 1), size)
            else:
                found = "is not loaded" if kind is None else f"is a {kind.value}"
                raise InputError(
                    f"column '{name}' {found}; features are token, token_seq and float columns: leave it out of "
                    f"load_col."
                )
        self.sequences = {name for name in columns if dataset.field2type[name] == FeatureType.TOKEN_SEQ}
        longest = max((values.shape[-1] for name, values in columns.items() if name in self.sequences), default=1)
        self.numbers = 2 * self.width + longest * size  # at once, for one slot

    def forward(self, values: Mapping[str, Tensor]) -> Tensor:
        """Columns [...] or, for sequences, [..., S] -> [..., width]."""
        return torch.cat([self._embed(name, values[name]) for name in self.names], dim=-1)

    def _embed(self, name: str, value: Tensor) -> Tensor:
        layer = self.embeddings[key_of(name)]
        if name not in self.sequences:
            return layer(value)
        count = (value > 0).sum(-1, keepdim=True).clamp(min=1)
        return layer(value).sum(-2) / count


def without_bucket(values: Tensor, dims: int) -> Tensor:
    """Numbers [...] of `dims` dimensions, where RecBole's discretisation has put a bucket beside each, [..., 2]."""
    return values[..., 0] if values.is_floating_point() and values.dim() > dims else values


class Number(nn.Linear):
    """A number in standard deviations from the mean, as z a + b: [...] -> [..., e].

    Args:
        values: from which mean and deviation are taken.
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
    """What a data set knows of every user or every item, as columns that move and are stored with the model.

    Args:
        feature: RecBole's table, a row for each id.
        names: the columns to keep.
    """

    def __init__(self, feature, names: Sequence[str]):
        super().__init__()
        self.names = list(names)
        for name in names:
            self.register_buffer(key_of(name), without_bucket(feature[name], 1).clone())

    def columns(self) -> dict[str, Tensor]:
        """All values, but those of the padding."""
        return {name: self.of(name)[1:] for name in self.names}

    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        """Rows of the given ids, any shape."""
        return {name: self.of(name)[ids] for name in self.names}

    def of(self, name: str) -> Tensor:
        """A column, a row for each id."""
        return getattr(self, key_of(name))


class Crosses(nn.Module):
    """Pairs of token columns as one: an embedding of each combination, hashed into a table of `buckets` rows.

    Args:
        dataset: RecBole's, which knows the size of each column.
        pairs: names of two token columns each.
        size: e.
        buckets: rows of each table; combinations that are more share them.

    Raises:
        InputError: a column is no token.
    """

    def __init__(self, dataset, pairs: Sequence[Sequence[str]], size: int, buckets: int):
        super().__init__()
        self.pairs, self.width = [tuple(pair) for pair in pairs], len(pairs) * size
        for name in (name for pair in pairs for name in pair):
            if dataset.field2type.get(name) != FeatureType.TOKEN:
                raise InputError(f"cross_features names '{name}', which is no token column that is loaded.")
        self.sizes = [(dataset.num(one), dataset.num(other)) for one, other in self.pairs]
        self.embeddings = nn.ModuleList(nn.Embedding(min(a * b, buckets), size) for a, b in self.sizes)

    def forward(self, values: Mapping[str, Tensor]) -> Tensor:
        """Columns of shapes that broadcast, [...] -> [..., width]."""
        parts = []
        for (one, other), (all_of_one, all_of_other), layer in zip(
            self.pairs, self.sizes, self.embeddings, strict=True
        ):
            place = values[one] * all_of_other + values[other]
            if all_of_one * all_of_other > layer.num_embeddings:
                place = place * 2654435761 % 2**32 % layer.num_embeddings  # Knuth's multiplicative hash
            parts.append(layer(place))
        return torch.cat(parts, dim=-1)
