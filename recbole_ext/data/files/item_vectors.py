"""Pretrained vectors of items: `preload_weight` and the file that it names."""

import os
from logging import getLogger
from typing import Any

import numpy as np
from recbole.utils import FeatureType

from recbole_ext.data.files.atomic_file import AtomicTable, read_atomic, read_header
from recbole_ext.errors import InputError
from recbole_ext.utils.wording import counted


def read_item_vectors(config: Any, tokens: np.ndarray) -> np.ndarray:
    """The vectors of the items of a data set.

    Args:
        config: with `preload_weight`: {name of the column of item ids: name of the column of vectors}. Both are columns
            of one file `NAME.<suffix>`, whose suffix is one of `additional_feat_suffix`, or `item`.
        tokens: of the items, by id; the first is the padding. [V]

    Returns:
        float64 [V, D]; zeros for items without a vector.

    Raises:
        InputError: the key or the file cannot be used; the message names the key, or file and line.
    """
    column, values, path = _place(config)
    separators = config["field_separator"], config["seq_separator"]
    table = read_atomic(path, *separators, config["encoding"] or "utf-8", [column, values])
    _refuse(table, table.frame[column].isna(), f"no {column}; every line should have one")
    _refuse(table, table.frame[column].duplicated(), f"a second vector of an item; {column} should appear once")
    sizes = table.frame[values].map(len)
    size = int(sizes.iloc[0])
    _refuse(table, sizes == 0, f"{values} is empty; every line should have a vector")
    _refuse(table, sizes != size, f"{values} has another number of values than the {size} of the first line")

    ids = {str(token): number for number, token in enumerate(tokens) if number}
    found = table.frame[column].map(ids)
    known = found.notna().to_numpy()
    if not known.any():
        example = next(iter(ids), None)
        raise InputError(
            f"{path}: none of its {len(known):,} vectors is of an item of the data set; {column} should hold tokens of "
            f"{config['ITEM_ID_FIELD']} such as '{example}', and holds '{table.frame[column].iloc[0]}'."
        )
    vectors = np.zeros((len(tokens), size))
    vectors[found[known].astype(np.int64)] = np.stack(table.frame[values][known].to_list())
    getLogger().info(
        f"preload_weight: {vectors.any(axis=1).sum():,} of {len(ids):,} items have a vector in {path}; the others keep "
        f"their random initialisation. {counted((~known).sum(), 'vector')} of no item of the data set left out."
    )
    return vectors


def vector_columns(config: Any) -> dict[str, str]:
    """`preload_weight`, or `{}`."""
    return config["preload_weight"] or {}


def holds_vectors(config: Any, path: str) -> bool:
    """Whether a file is the one that `preload_weight` names."""
    columns = vector_columns(config)
    return bool(columns) and os.path.isfile(path) and bool(columns.keys() & _header(config, path).keys())


def _header(config: Any, path: str) -> dict[str, FeatureType]:
    return read_header(path, config["field_separator"], config["encoding"] or "utf-8")


def _place(config: Any) -> tuple[str, str, str]:
    """The column of ids, the column of vectors and the path of their file."""
    if len(columns := vector_columns(config)) != 1:
        raise InputError(f"preload_weight is {columns}; it should name one column of item ids and one of vectors.")
    ((column, values),) = columns.items()
    if column != config["ITEM_ID_FIELD"] and column not in (config["alias_of_item_id"] or ()):
        raise InputError(
            f"preload_weight names '{column}', which alias_of_item_id does not; add it there, for its tokens are those "
            f"of items."
        )
    suffixes = [*(config["additional_feat_suffix"] or ()), "item"]
    paths = [os.path.join(config["data_path"], f"{config['dataset']}.{suffix}") for suffix in suffixes]
    headers = {path: _header(config, path) for path in paths if os.path.isfile(path)}
    for path, header in headers.items():
        if column not in header or values not in header:
            continue
        for name, kind in ((column, FeatureType.TOKEN), (values, FeatureType.FLOAT_SEQ)):
            if header[name] != kind:
                wrong = f"{name}:{header[name].value}"
                raise InputError(
                    f"{path} line 1: '{wrong}' is named by preload_weight; it should be {name}:{kind.value}."
                )
        return column, values, path
    there = "; ".join(f"{path} has {', '.join(header)}" for path, header in headers.items())
    raise InputError(
        f"preload_weight names '{column}' and '{values}', but no file of additional_feat_suffix has these columns: "
        f"{there or 'there is no file ' + paths[0]}."
    )


def _refuse(table: AtomicTable, wrong: Any, reason: str) -> None:
    if np.any(wrong):
        raise InputError(f"{table.path} line {table.line(int(np.argmax(wrong)))}: {reason}.")
