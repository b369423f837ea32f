"""Files about items: display names, such as film titles (`item_names`), and pretrained vectors (`preload_weight`).

Names come from a column of the `.item` file, or from a file of two columns. Items without a name are shown by token.
"""

import csv
import io
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from logging import getLogger
from typing import Any

import numpy as np
import pandas as pd
from recbole.utils import FeatureType

from recbole_ext.data.files.atomic_file import AtomicTable, read_atomic, read_header
from recbole_ext.data.files.table import read_text
from recbole_ext.errors import InputError
from recbole_ext.utils.wording import counted

ITEM_NAME = "item_name"  # the column of names in results


# -------------------------------------------------------------------- names


def resolve_item_names(value: Any, stored: dict[str, Any] | None, tokens: Collection[str]) -> np.ndarray | None:
    """The display name of each item of a model.

    Args:
        value: `None` selects the names in the checkpoint, if any; `False` selects no names; otherwise the column that
            the names in the checkpoint come from, the path of a file of two columns, or a mapping from items to names.
        stored: `column` and `names` in the checkpoint.
        tokens: of all items, the padding first.

    Returns:
        an object array [V + 1], with the token of each item that has no name; None without names.

    Raises:
        InputError: the value is invalid, or no item has a name.
    """
    if value is False or (value is None and stored is None):
        return None
    column = None if stored is None else stored["column"]
    if stored is not None and (value is None or (isinstance(value, str) and value == column)):
        return _names_or_tokens(stored["names"], tokens)
    if isinstance(value, (Mapping, pd.Series)):
        names, source = _names_in_mapping(value), "item_names"
    elif isinstance(value, (str, os.PathLike)) and os.path.isfile(os.path.expanduser(value)):
        source = os.path.expanduser(os.fspath(value))
        names = names_in_file(source)
    else:
        alternative = "as the checkpoint has no names"
        if column is not None:
            alternative = f"or '{column}', the column of names in the checkpoint"
        shown = repr(value) if np.ndim(value) == 0 else f"a {type(value).__name__}"
        raise InputError(
            f"item_names is {shown}; it should be a file with two columns, items and names, {alternative}."
        )
    check_names(names, list(tokens)[1:], source)
    return _names_or_tokens([names.get(token, "") for token in tokens], tokens)


def _names_or_tokens(names: Sequence[str], tokens: Collection[str]) -> np.ndarray:
    return np.array([name or token for name, token in zip(names, tokens, strict=True)], dtype=object)


def _names_in_mapping(value: Mapping[Any, Any] | pd.Series) -> dict[str, str]:
    names: dict[str, str] = {}
    for item, name in value.items():
        if np.ndim(name) == 0 and pd.isna(name):
            continue
        if not isinstance(name, str):
            raise InputError(f"item_names has {name!r} for item '{item}'; a name should be text.")
        if names.setdefault(str(item), name) != name:
            raise InputError(f"item_names has {names[str(item)]!r} and {name!r} for item '{item}'; give it one name.")
    return {item: name for item, name in names.items() if name.strip()}


def names_in_item_file(path: str, item_field: str, column: str, config: Any) -> dict[str, str]:
    """Names by item token from a column of any type of an `.item` file, as text.

    Args:
        path: of the file.
        item_field: the column of items.
        column: the column of names.
        config: contains the separators and the encoding of the file.

    Raises:
        InputError: the file or the column is missing, or an item has two names.
    """
    if not os.path.isfile(path):
        raise InputError(f"item_names is '{column}', a column of the .item file, but there is no file {path}.")
    try:
        table = _read(config, path, [item_field, column], as_text=[column])
    except InputError as error:
        raise InputError(f"item_names is '{column}', but {error}") from error
    named = table.frame.dropna()
    different = named.drop_duplicates()
    second_names = different.index[different.duplicated(item_field)]
    table.refuse(table.frame.index.isin(second_names), column, "the item has another name in an earlier line")
    return dict(zip(named[item_field], named[column], strict=True))


def names_in_file(path: str) -> dict[str, str]:
    """Names by item token from a file of two columns, items and names, in UTF-8.

    The separator is a tab if the first line has one, else a comma. Quotes have their meaning in CSV, except in a file
    with tabs that is not valid CSV, where they are ordinary characters. A header is read as the name of an unknown
    item, which has no effect.

    Raises:
        InputError: the file cannot be read, a line does not have two fields, or an item has two names.
    """
    names: dict[str, str] = {}
    lines: dict[str, int] = {}
    for line, fields in _rows(path, read_text(path, "UTF-8", "save the file of item names as UTF-8").decode()):
        item, name = (field.strip() for field in fields)
        if not item:
            raise InputError(f"{path} line {line}: the item is empty; every line should have an item.")
        if names.get(item, name) != name:
            raise InputError(
                f"{path} line {line}: item '{item}' is '{name}', but '{names[item]}' in line {lines[item]}; give it "
                f"one name."
            )
        names[item], lines[item] = name, line
    return {item: name for item, name in names.items() if name}


def _rows(path: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """First line number and two fields of each row; quoted fields may contain line ends."""
    separator = "\t" if "\t" in text.lstrip("\n").split("\n", 1)[0] else ","
    reader = csv.reader(io.StringIO(text), delimiter=separator, strict=True)
    if separator == "\t" and not _is_csv(text, separator):
        reader = csv.reader(io.StringIO(text), delimiter=separator, quoting=csv.QUOTE_NONE)
    line = 1
    try:
        for fields in reader:
            if len(fields) not in (0, 2):  # a blank line has no fields
                hint = ", with quotes around a name that has commas" if separator == "," and len(fields) > 2 else ""
                raise InputError(
                    f"{path} line {line} has {counted(len(fields), 'field')}; it should have two, an item and its "
                    f"name, with a comma or a tab between them{hint}."
                )
            if fields:
                yield line, fields
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{path} line {line} is not CSV: it has an unpaired quote, or a field of more than "
            f"{csv.field_size_limit():,} characters."
        ) from error


def _is_csv(text: str, separator: str) -> bool:
    try:
        return all(len(row) in (0, 2) for row in csv.reader(io.StringIO(text), delimiter=separator, strict=True))
    except csv.Error:
        return False


def check_names(names: Mapping[str, str], tokens: Collection[str], source: str) -> None:
    """Warn of items without a name; `InputError` if no item has a name.

    Args:
        names: by item token.
        tokens: of all items.
        source: of the names, for the messages.
    """
    nameless = sum(token not in names for token in tokens)
    if nameless == len(tokens) and nameless:
        raise InputError(
            f"{source} has a name for none of the {nameless:,} items, such as '{next(iter(tokens))}'; its items should "
            f"be spelled as in the training data."
        )
    if nameless:
        getLogger().warning(
            f"{source}: {counted(nameless, 'item')} of {len(tokens):,} without a name; they are shown by token."
        )


# -------------------------------------------------------------------- pretrained vectors


def read_item_vectors(config: Any, tokens: np.ndarray) -> np.ndarray:
    """The pretrained vectors of the items of a data set.

    Args:
        config: `preload_weight` is {name of the column of item ids: name of the column of vectors}, both in one file
            `NAME.<suffix>`, with a suffix from `additional_feat_suffix`, or `item`.
        tokens: of the items by id; the first is the padding. [V]

    Returns:
        float64 [V, D]; zeros for items without a vector.

    Raises:
        InputError: the key or the file is invalid; the message names the key, or file and line.
    """
    id_column, vector_column, path = _vector_file(config)
    table = _read(config, path, [id_column, vector_column])
    _refuse_line(table, table.frame[id_column].isna(), f"no {id_column}; every line should have one")
    _refuse_line(table, table.frame[id_column].duplicated(), "the item has a vector in an earlier line; remove one")
    sizes = table.frame[vector_column].map(len)
    size = int(sizes.iloc[0])
    _refuse_line(table, sizes == 0, f"{vector_column} is empty; every line should have a vector")
    _refuse_line(table, sizes != size, f"{vector_column} has another length than the first vector, {size}")

    id_of_token = {str(token): number for number, token in enumerate(tokens) if number}
    ids = table.frame[id_column].map(id_of_token)
    in_data = ids.notna().to_numpy()
    if not in_data.any():
        example = next(iter(id_of_token), None)
        raise InputError(
            f"{path}: none of its {len(ids):,} vectors belongs to an item of the data set; {id_column} should contain "
            f"tokens of {config['ITEM_ID_FIELD']} such as '{example}', but contains '{table.frame[id_column].iloc[0]}'."
        )
    vectors = np.zeros((len(tokens), size))
    vectors[ids[in_data].astype(np.int64)] = np.stack(table.frame[vector_column][in_data].to_list())
    getLogger().info(
        f"preload_weight: {vectors.any(axis=1).sum():,} of {len(id_of_token):,} items have a vector in {path}; the "
        f"others keep their random initialisation. {counted((~in_data).sum(), 'vector')} of unknown items ignored."
    )
    return vectors


def vector_columns(config: Any) -> dict[str, str]:
    """The value of `preload_weight`, or `{}`."""
    return config["preload_weight"] or {}


def holds_vectors(config: Any, path: str) -> bool:
    """Whether a file is the one that `preload_weight` names."""
    columns = vector_columns(config)
    return bool(columns) and os.path.isfile(path) and bool(columns.keys() & _header(config, path).keys())


def _vector_file(config: Any) -> tuple[str, str, str]:
    """The column of ids, the column of vectors and the path of their file."""
    if len(columns := vector_columns(config)) != 1:
        raise InputError(f"preload_weight is {columns}; it should have one column of item ids and one of vectors.")
    ((column, values),) = columns.items()
    if column != config["ITEM_ID_FIELD"] and column not in (config["alias_of_item_id"] or ()):
        raise InputError(
            f"preload_weight names '{column}', which is missing in alias_of_item_id; add it there, because it contains "
            f"items."
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
    files = "; ".join(f"{path} has {', '.join(header)}" for path, header in headers.items())
    raise InputError(
        f"preload_weight names '{column}' and '{values}', but no file of additional_feat_suffix has these columns: "
        f"{files or 'there is no file ' + paths[0]}."
    )


def _read(config: Any, path: str, columns: list[str], **options: Any) -> AtomicTable:
    separators = config["field_separator"], config["seq_separator"]
    return read_atomic(path, *separators, config["encoding"] or "utf-8", columns, **options)


def _header(config: Any, path: str) -> dict[str, FeatureType]:
    return read_header(path, config["field_separator"], config["encoding"] or "utf-8")


def _refuse_line(table: AtomicTable, wrong: Any, reason: str) -> None:
    if np.any(wrong):
        raise InputError(f"{table.path} line {table.line(int(np.argmax(wrong)))}: {reason}.")
