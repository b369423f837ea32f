"""Read one atomic file: RecBole's text table with a header of `name:type` fields."""

import os
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from logging import getLogger

import numpy as np
import pandas as pd
from recbole.data.dataset import Dataset
from recbole.utils import FeatureType

from recbole_ext.data.files import parsing
from recbole_ext.data.files.parsing import MISSING_NUMBER, parse
from recbole_ext.data.files.table import TextTable, quoting, read_text, refuse_repeated
from recbole_ext.errors import InputError

PADDING = "[PAD]"  # the token of id 0, in RecBole
LARGEST = 3.4e38  # of float32
# candidates that replace a separator of several characters, which the fast parser does not support
REPLACEMENTS = [bytes([code]) for code in range(31, 0, -1) if code not in b"\t\n\r"]
FIELD_TYPES = {kind.value: kind for kind in FeatureType}


@dataclass
class AtomicTable(TextTable):
    """The content of an atomic file.

    Token columns are text, numeric columns float64, sequence columns one array per row. Missing tokens and numbers are
    NaN, missing sequences are empty.

    Attributes:
        types: name and type of each column of `frame`, in file order.
        mentions_padding: whether the text contains `[PAD]`.
    """

    types: dict[str, FeatureType] = field(default_factory=dict)
    mentions_padding: bool = True


def read_atomic(
    path: str,
    separator: str,
    seq_separator: str,
    encoding: str = "utf-8",
    load: Collection[str] | None = None,
    unload: Collection[str] | None = None,
    allow_empty: bool = False,
    remedy: str = "set encoding to that of the file",
    as_text: Collection[str] = (),
    compact: bool = False,
) -> AtomicTable:
    """Read some columns of an atomic file.

    The file may have a byte order mark, Windows line ends and blank lines. If the complete file is a valid CSV table
    with one row per line, quotes have their meaning in CSV; otherwise they are ordinary characters.

    Args:
        path: the file.
        separator: between fields.
        seq_separator: between the members of a sequence field.
        encoding: of the file.
        load: names of the columns to read; `None` reads all.
        unload: names of columns to leave out.
        allow_empty: whether the file may consist of a header only.
        remedy: what to do about a file in another encoding, for the message.
        as_text: names of columns to read as tokens, whatever their type in the header.
        compact: whether token columns of a large file are categorical, which takes less time and memory.

    Raises:
        InputError: the file is not a valid table of text, a column is missing, or a value is not a number. The message
            names the file and, where possible, the line, the column and the value.
    """
    data, delimiter = read_text(path, encoding, remedy), separator.encode()
    if not data.strip():
        raise InputError(f"{path} is empty; it should begin with a header of name:type fields.")
    if len(delimiter) > 1:
        replacement = next((character for character in REPLACEMENTS if character not in data), None)
        if replacement is None:
            raise InputError(f"{path} contains every control character; use a field_separator of one character.")
        data, delimiter = data.replace(delimiter, replacement), replacement
    header = _header(path, data.partition(b"\n")[0].decode().split(delimiter.decode()), separator)
    missing = sorted(set(load or ()) - set(header))
    if missing:
        raise InputError(f"{path} has no column '{missing[0]}'; its columns are {', '.join(header)}.")
    columns = (set(header) if load is None else set(load)) - set(unload or ())
    types = {name: FeatureType.TOKEN if name in as_text else kind for name, kind in header.items() if name in columns}
    floats = [name for name, kind in types.items() if kind == FeatureType.FLOAT]
    unread = tuple(name for name in header if name not in types)
    quotes = quoting(path, data, delimiter, len(header), strict=False)

    def read(dtypes: dict[str, type | str]) -> AtomicTable:
        frame = parse(data, delimiter, quotes, list(header), dtypes)
        return AtomicTable(path, frame, unread, encoding, types=types, mentions_padding=PADDING.encode() in data)

    text = "category" if compact and len(data) > parsing.PARSED_AT_ONCE else object
    kinds = {FeatureType.FLOAT: np.float64, FeatureType.TOKEN: text}
    try:
        table = read({name: kinds.get(kind, object) for name, kind in types.items()})
    except ValueError as error:  # a value is not a number: read as text to find it
        as_read = read(dict.fromkeys(types, object))
        for name in floats:
            column = as_read.frame[name]
            wrong = pd.to_numeric(column, errors="coerce").isna() & ~column.isin([np.nan, *MISSING_NUMBER])
            as_read.refuse(wrong, name, f"it should be a number{_date_hint(column[wrong])}")
        raise InputError(f"{path}: {error}.") from error
    if types and not len(table.frame) and not allow_empty:
        raise InputError(f"{path} has only a header; it should have at least one row.")
    for name in floats:
        table.refuse(table.frame[name].abs() > LARGEST, name, "it should be a finite number, below 3.4e38")
    for name, kind in types.items():
        if kind in (FeatureType.TOKEN_SEQ, FeatureType.FLOAT_SEQ):
            if seq_separator == separator:
                raise InputError(
                    f"{path}: column '{name}' holds sequences, but seq_separator and field_separator are both "
                    f"{separator!r}; give them different values."
                )
            table.frame[name] = _sequences(table, name, seq_separator)
    return table


def refuse_padding(table: AtomicTable) -> None:
    """Refuse the padding token in training data: a vocabulary would contain it twice.

    Raises:
        InputError: a token column contains `[PAD]`; the message names file, line and column.
    """
    for name, kind in table.types.items():
        if table.mentions_padding and kind in (FeatureType.TOKEN, FeatureType.TOKEN_SEQ):
            column = table.frame[name]
            padding = [PADDING in tokens for tokens in column] if kind == FeatureType.TOKEN_SEQ else column == PADDING
            table.refuse(np.asarray(padding, dtype=bool), name, "that token is reserved for padding; rename it")


def read_header(path: str, separator: str, encoding: str = "utf-8") -> dict[str, FeatureType]:
    """Names and types of the columns of an atomic file, in file order; `InputError` for an invalid header."""
    try:
        with open(path, encoding=encoding) as file:
            line = file.readline().removeprefix("\ufeff").rstrip("\n")
    except (OSError, LookupError, ValueError):  # reading the complete file gives a precise error
        line = read_text(path, encoding).decode().partition("\n")[0]
    return _header(path, line.split(separator), separator)


def _date_hint(values: pd.Series) -> str:
    """The end of the sentence about some values, if the first of them is a date."""
    text = str(next(iter(values), ""))
    if re.match(r"\d{1,2}[-/.]\d{1,2}[-/.]\d{2}(\d{2})?(\s|$)", text):  # ambiguous: the day or the month may come first
        return ", of a date the seconds since 1970"
    date = pd.to_datetime(text, errors="coerce", utc=True) if re.match(r"\d{4}[-/.]\d+[-/.]\d", text) else pd.NaT
    return "" if date is pd.NaT else f", as {date.timestamp():.0f}, the seconds since 1970 of that date"


def _header(path: str, words: list[str], separator: str) -> dict[str, FeatureType]:
    """Names and types of the columns, in file order."""
    types: dict[str, FeatureType] = {}
    for word in words:
        name, _, kind = word.partition(":")
        if not name or kind not in FIELD_TYPES:
            word = f"{word[:80]}{'..' * (len(word) > 80)}"  # with a wrong encoding, a field can be the complete file
            raise InputError(
                f"{path} line 1: header field '{word}' should be name:type with a type of {', '.join(FIELD_TYPES)}, "
                f"and {separator!r} between the fields."
            )
        types[name] = FIELD_TYPES[kind]
    refuse_repeated((word.partition(":")[0] for word in words), f"{path} line 1")
    return types


def _sequences(table: AtomicTable, name: str, separator: str) -> list[np.ndarray]:
    """Split a column of sequences: an array of text or float64 per row."""
    column = table.frame[name].fillna("")
    if not len(column):
        return []
    rows = [[word for word in text.split(separator) if word] for text in column]
    if table.types[name] == FeatureType.TOKEN_SEQ:
        return [np.array(words, dtype=str) for words in rows]
    numbers = pd.to_numeric(pd.Series([word for words in rows for word in words], dtype=object), errors="coerce")
    lengths = np.array([len(words) for words in rows], dtype=np.int64)
    wrong = np.zeros(len(rows), dtype=bool)
    values = numbers.to_numpy(dtype=np.float64)
    wrong[np.repeat(np.arange(len(rows)), lengths)[~(np.abs(values) <= LARGEST)]] = True  # also NaN
    table.refuse(wrong, name, "all should be finite numbers, below 3.4e38")
    return np.split(values, np.cumsum(lengths)[:-1]) if rows else []


def download(config) -> None:
    """Let RecBole download the data set of `config` into its `data_path`, for any model.

    Raises:
        InputError: the download failed.
    """
    folder, name = config["data_path"], config["dataset"]
    bare = Dataset.__new__(Dataset)  # RecBole downloads in a method of data sets, which needs these attributes only
    bare.config, bare.dataset_path, bare.dataset_name, bare.logger = config, folder, name, getLogger()
    try:
        bare._download()
    except (OSError, EOFError) as error:
        with suppress(OSError):
            os.rmdir(folder)  # RecBole does not try again if the folder exists
        raise InputError(
            f"data set '{name}' is not in {folder} and could not be downloaded: {error}; set data_path to the folder "
            f"that contains it, or unpack {bare._get_download_url('url')} there."
        ) from error
    except (ValueError, RuntimeError, AttributeError):
        # at the end RecBole waits for its other processes, which fails without distributed training
        if not os.path.isfile(os.path.join(folder, f"{name}.inter")):
            raise
