"""Columns of a DataFrame in a model's terms: tokens as text and ids, times in seconds, numbers as it knows them."""

from typing import Any

import numpy as np
import pandas as pd
import torch
from recbole.utils import FeatureType
from torch import Tensor

from recbole_ext.data.catalogue import Catalogue
from recbole_ext.data.times import seconds_per_unit
from recbole_ext.errors import InputError


def as_text(column: Any, name: str) -> np.ndarray:
    """Tokens as the atomic files write them, [N]: 7 and 7.0 are '7'.

    Raises:
        InputError: a token is missing.
    """
    values = column if isinstance(column, pd.Series) else pd.Series(column, dtype=object if not len(column) else None)
    missing = np.flatnonzero(values.isna())
    if len(missing):
        raise InputError(f"{name} is missing in row {missing[0]} of the histories; give every event one.")
    if pd.api.types.is_float_dtype(values) and (values % 1 == 0).all():  # whole numbers beside missing ones
        values = values.astype(np.int64)
    return values.astype(str).to_numpy(dtype=object)


class Vocabulary:
    """From tokens to ids; ids of unknown tokens are 0, as that of the padding.

    Args:
        tokens: by their ids; that of id 0 stands for the padding.
    """

    def __init__(self, tokens: list[str]):
        self.tokens = np.asarray(tokens, dtype=object)
        self.index = pd.Index(self.tokens[1:])

    def ids(self, tokens: np.ndarray) -> np.ndarray:
        """int64, the shape of `tokens`."""
        return self.index.get_indexer(pd.Index(tokens, dtype=object)).astype(np.int64) + 1


def seconds(times: Any, catalogue: Catalogue, what: str) -> np.ndarray:
    """Seconds since the first event that the model was trained on, float64 [N].

    Args:
        times: numbers in the unit of the training's file (`time_unit`), or dates (texts by ISO 8601 will do), which are
            UTC unless they say so.
        catalogue: of the model.
        what: the name for the message.

    Raises:
        InputError: a time is missing or is none.
    """
    column = pd.Series(times)
    unit = seconds_per_unit(catalogue.config["time_unit"])
    words = len(column) and column.map(lambda value: isinstance(value, str)).all()
    if words and pd.to_numeric(column, errors="coerce").isna().all():
        dates = pd.to_datetime(column, format="ISO8601", utc=True, errors="coerce")
        column = dates if dates.notna().all() else column
    if pd.api.types.is_datetime64_any_dtype(column):
        if column.dt.tz is None:
            column = column.dt.tz_localize("UTC")
        found = (column - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(seconds=1) / unit
    else:
        found = pd.to_numeric(column, errors="coerce")
    found = found.to_numpy(dtype=np.float64)
    wrong = np.flatnonzero(~np.isfinite(found))
    if len(wrong):
        shown = column.iloc[wrong[0]]
        raise InputError(
            f"{what} is {shown!r} in row {wrong[0]}; it should be a number in time_unit {catalogue.config['time_unit']}"
            f", or a date."
        )
    return (found - catalogue.first_time) * unit


def numbers(column: pd.Series, name: str) -> np.ndarray:
    """A column of numbers, float64 [N]; `InputError` if one is missing or none."""
    found = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64)
    wrong = np.flatnonzero(~np.isfinite(found))
    if len(wrong):
        raise InputError(f"{name} is {column.iloc[wrong[0]]!r} in the histories; it should be a number.")
    return found


def feature(column: pd.Series, name: str, catalogue: Catalogue) -> Tensor:
    """A column of features as the model takes it: ids [N] or [N, S], or numbers, float32 [N].

    Unknown and missing tokens are padding.

    Raises:
        InputError: a number is missing or none; the column was cut into buckets (`discretization`).
    """
    kind = catalogue.field2type[name]
    if kind == FeatureType.FLOAT:
        if name in (catalogue.config["discretization"] or {}):
            raise InputError(f"column '{name}' is discretised, which histories cannot bring; leave it out of them.")
        found = numbers(column, name)
        low, high = catalogue.normalised.get(name, (0.0, 1.0))
        scaled = (found - low) / (high - low) if high > low else np.ones_like(found)
        return torch.from_numpy(scaled).to(torch.float32)
    vocabulary = Vocabulary(catalogue.field2id_token[name])
    if kind == FeatureType.TOKEN:
        known = column.notna().to_numpy()
        ids = np.zeros(len(column), dtype=np.int64)
        ids[known] = vocabulary.ids(as_text(column[known], name))
        return torch.from_numpy(ids)
    separator, width = catalogue.config["seq_separator"], catalogue.field2seqlen[name]
    ids = np.zeros((len(column), width), dtype=np.int64)
    for row, words in enumerate(column):
        members = words.split(separator) if isinstance(words, str) else ([] if np.ndim(words) == 0 else list(words))
        found = vocabulary.ids(np.array([str(word) for word in members], dtype=object))[:width]
        ids[row, : len(found)] = found
    return torch.from_numpy(ids)
