"""Names of items for people, such as the title of a film: from a column of the `.item` file, or a file of two columns.

An item without a name is shown by its token.
"""

import csv
import io
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from recbole_ext.data.files.atomic_file import read_atomic
from recbole_ext.errors import InputError
from recbole_ext.utils.wording import counted

ITEM_NAME = "item_name"  # the column of names in results


def names_in_item_file(path: str, item_field: str, column: str, config: Any) -> dict[str, str]:
    """Names by item token, from a column of an `.item` file: the text of the file, whatever type the column has.

    Args:
        path: of the file.
        item_field: the column of items.
        column: the column of names.
        config: its separators and encoding are those of the file.

    Raises:
        InputError: there is no such file or column, or an item has two names.
    """
    if not os.path.isfile(path):
        raise InputError(f"item_names is '{column}', a column of the .item file, but there is no file {path}.")
    separators, wanted = (config["field_separator"], config["seq_separator"]), [item_field, column]
    try:
        table = read_atomic(path, *separators, config["encoding"] or "utf-8", wanted, as_text=[column])
    except InputError as error:
        raise InputError(f"item_names is '{column}', but {error}") from error
    named = table.frame.dropna()
    second = _second_names(named, item_field)
    table.refuse(table.frame.index.isin(second), column, "the item has another name in an earlier line")
    return dict(zip(named[item_field], named[column], strict=True))


def _second_names(named: pd.DataFrame, item_field: str) -> pd.Index:
    different = named.drop_duplicates()
    return different.index[different.duplicated(item_field)]


def names_in_file(path: str) -> dict[str, str]:
    """Names by item token, from a file of two columns, items and names, in UTF-8.

    The separator is a tab if the first line has one, else a comma. Quotes are those of CSV; in a file with tabs that
    is no CSV, they are characters like others. A header needs no special care: it names an item that no model knows.

    Raises:
        InputError: the file cannot be read, a line has more or less than two fields, or an item has two names.
    """
    names: dict[str, str] = {}
    lines: dict[str, int] = {}
    for line, fields in _rows(path, _text(path)):
        item, name = (field.strip() for field in fields)
        if not item:
            raise InputError(f"{path} line {line}: the item is empty; every name should belong to an item.")
        if names.get(item, name) != name:
            raise InputError(
                f"{path} line {line}: item '{item}' is '{name}', but '{names[item]}' in line {lines[item]}; give it "
                f"one name."
            )
        names[item], lines[item] = name, line
    return {item: name for item, name in names.items() if name}


def _text(path: str) -> str:
    try:
        data = Path(path).read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}, the file of item names, cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path} line {line} is not UTF-8 text; save the file of item names as UTF-8.") from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError(f"{path} line {line} holds a NUL character; save the file of item names as UTF-8.")
    return text


def _rows(path: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """Number of the first line, and the two fields, of each row."""
    separator = "\t" if "\t" in text.lstrip("\r\n").split("\n", 1)[0] else ","
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    if separator == "\t" and not _is_csv(text, separator):
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, quoting=csv.QUOTE_NONE)
    line = 1
    try:
        for fields in reader:
            if len(fields) not in (0, 2):  # blank lines have no field
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
            f"{path} line {line} is not CSV: its quotes do not pair up, or a field has more than "
            f"{csv.field_size_limit():,} characters."
        ) from error


def _is_csv(text: str, separator: str) -> bool:
    try:
        return all(len(row) in (0, 2) for row in csv.reader(io.StringIO(text), delimiter=separator, strict=True))
    except csv.Error:
        return False


def check_names(names: Mapping[str, str], tokens: Collection[str], source: str) -> None:
    """Count the items without a name in a warning; `InputError` if there is none with one.

    Args:
        names: by item token.
        tokens: of all items.
        source: where the names come from, for the messages.
    """
    nameless = sum(token not in names for token in tokens)
    if nameless == len(tokens) and nameless:
        raise InputError(
            f"{source} names none of the {nameless:,} items, such as '{next(iter(tokens))}'; the names should belong "
            f"to items as the training's files spell them."
        )
    if nameless:
        getLogger().warning(f"{source}: {counted(nameless, 'item')} of {len(tokens):,} without a name, shown by token.")


def resolve_item_names(value: Any, stored: dict[str, Any] | None, tokens: Collection[str]) -> np.ndarray | None:
    """The name of each item that a model knows.

    Args:
        value: `None`, for the names that the checkpoint holds, if any; the column they come from; the path of a file of
            two columns; a mapping from items to names; or `False`, for no names.
        stored: `column` and `names` of the checkpoint.
        tokens: of all items, the padding first.

    Returns:
        an object array [V + 1], with the token of an item that has no name; None for no names.

    Raises:
        InputError: the value is none of these, or no item has a name.
    """
    if value is False or (value is None and stored is None):
        return None
    column = None if stored is None else stored["column"]
    if stored is not None and (value is None or (isinstance(value, str) and value == column)):
        return _filled(stored["names"], tokens)
    if isinstance(value, (Mapping, pd.Series)):
        names, source = _texts(value), "item_names"
    elif isinstance(value, (str, os.PathLike)) and os.path.isfile(os.path.expanduser(value)):
        source = os.path.expanduser(os.fspath(value))
        names = names_in_file(source)
    else:
        held = f"or '{column}', the column of names in the checkpoint" if column else "as the checkpoint holds no names"
        given = repr(value) if np.ndim(value) == 0 else f"a {type(value).__name__}"
        raise InputError(f"item_names is {given}; it should be a file with two columns, items and names, {held}.")
    check_names(names, list(tokens)[1:], source)
    return _filled([names.get(token, "") for token in tokens], tokens)


def _texts(value: Mapping[Any, Any] | pd.Series) -> dict[str, str]:
    names: dict[str, str] = {}
    for item, name in value.items():
        if np.ndim(name) == 0 and pd.isna(name):
            continue
        if not isinstance(name, str):
            raise InputError(f"item_names has {name!r} for item '{item}'; a name should be text.")
        if names.setdefault(str(item), name) != name:
            raise InputError(f"item_names has {names[str(item)]!r} and {name!r} for item '{item}'; give it one name.")
    return {item: name for item, name in names.items() if name.strip()}


def _filled(names: Sequence[str], tokens: Collection[str]) -> np.ndarray:
    return np.array([name or token for name, token in zip(names, tokens, strict=True)], dtype=object)
