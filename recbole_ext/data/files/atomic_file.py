"""Reading one atomic file: RecBole's separated columns under a header of `name:type` fields."""

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

from recbole_ext.data.files.table import NO_NUMBER, TextTable, parse, quoting, read_text, refuse_repeated
from recbole_ext.errors import InputError

PADDING = "[PAD]"  # the token of id 0, in RecBole
LARGEST = 3.4e38  # of what models compute with
# one of these stands in for a separator of several characters, which the fast parser does not take
STAND_INS = [bytes([code]) for code in range(31, 0, -1) if code not in b"\t\n\r"]
KINDS = {kind.value: kind for kind in FeatureType}


@dataclass
class AtomicTable(TextTable):
    """What an atomic file holds.

    Its columns are text for tokens, float64 for numbers, and one array per row for sequences. Missing tokens and
    numbers are NaN, missing sequences empty.

    Attributes:
        types: name and type of each column of `frame`, in file order.
    """

    types: dict[str, FeatureType] = field(default_factory=dict)


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
) -> AtomicTable:
    """Read some columns of an atomic file.

    A byte order mark, Windows line ends and blank lines are fine. Quotes are those of CSV where the whole file is a
    table by CSV's rules with one row a line; otherwise they are characters as any other.

    Args:
        path: the file.
        separator: between fields.
        seq_separator: between the members of a sequence field.
        encoding: of the file.
        load: names of the columns to read; `None` reads all.
        unload: names of columns to leave out.
        allow_empty: whether a header alone will do.
        remedy: what to do about a file in another encoding, for the message.
        as_text: names of columns to read as tokens, whatever type the header gives them.

    Raises:
        InputError: the file is no text or no table, a column is missing, or a number is none. The message names the
            file and, where there is one, the line, the column and the value.
    """
    data, split = read_text(path, encoding, remedy), separator.encode()
    if not data.strip():
        raise InputError(f"{path} is empty; it should begin with a header of name:type fields.")
    if len(split) > 1:
        stand_in = next((character for character in STAND_INS if character not in data), None)
        if stand_in is None:
            raise InputError(f"{path} holds every control character; give it a field_separator of one character.")
        data, split = data.replace(split, stand_in), stand_in
    header = _header(path, data.partition(b"\n")[0].decode().split(split.decode()), separator)
    missing = sorted(set(load or ()) - set(header))
    if missing:
        raise InputError(f"{path} has no column '{missing[0]}'; its columns are {', '.join(header)}.")
    wanted = (set(header) if load is None else set(load)) - set(unload or ())
    types = {name: FeatureType.TOKEN if name in as_text else kind for name, kind in header.items() if name in wanted}
    floats = [name for name, kind in types.items() if kind == FeatureType.FLOAT]
    unread = tuple(name for name in header if name not in types)
    quotes = quoting(path, data, split, len(header), strict=False)

    def read(dtypes: dict[str, type]) -> AtomicTable:
        return AtomicTable(path, parse(data, split, quotes, list(header), dtypes), unread, encoding, types=types)

    try:
        table = read({name: np.float64 if name in floats else object for name in types})
    except ValueError as error:  # not a number somewhere: read as text, find out where
        text = read(dict.fromkeys(types, object))
        for name in floats:
            column = text.frame[name]
            none = pd.to_numeric(column, errors="coerce").isna() & ~column.isin([np.nan, *NO_NUMBER])
            text.refuse(none, name, f"it should be a number{_of_date(text.frame[name][none])}")
        raise InputError(f"{path}: {error}.") from error
    if types and not len(table.frame) and not allow_empty:
        raise InputError(f"{path} holds a header and nothing else; it should hold at least one row.")
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
    """Refuse the token of id 0 in data to train on: a vocabulary would hold it twice.

    Raises:
        InputError: a token column holds `[PAD]`; the message names file, line and column.
    """
    for name, kind in table.types.items():
        if kind in (FeatureType.TOKEN, FeatureType.TOKEN_SEQ):
            column = table.frame[name]
            padding = [PADDING in words for words in column] if kind == FeatureType.TOKEN_SEQ else column == PADDING
            table.refuse(np.asarray(padding, dtype=bool), name, "that token stands for the padding; give another name")


def read_header(path: str, separator: str, encoding: str = "utf-8") -> dict[str, FeatureType]:
    """Names and types of the columns of an atomic file, in file order; `InputError` where the header is wrong."""
    try:
        with open(path, encoding=encoding) as file:
            line = file.readline().removeprefix("\ufeff").rstrip("\n")
    except (OSError, LookupError, ValueError):  # the whole file tells where it is wrong
        line = read_text(path, encoding).decode().partition("\n")[0]
    return _header(path, line.split(separator), separator)


def _of_date(values: pd.Series) -> str:
    """What to do about the first of some values, if it is a date."""
    text = str(next(iter(values), ""))
    if re.match(r"\d{1,2}[-/.]\d{1,2}[-/.]\d{2}(\d{2})?(\s|$)", text):  # day or month may come first: no guess
        return ", of a date the seconds since 1970"
    date = pd.to_datetime(text, errors="coerce", utc=True) if re.match(r"\d{4}[-/.]\d+[-/.]\d", text) else pd.NaT
    return "" if date is pd.NaT else f", as {date.timestamp():.0f}, the seconds since 1970 of that date"


def _header(path: str, words: list[str], separator: str) -> dict[str, FeatureType]:
    """Names and types of the columns, in file order."""
    types: dict[str, FeatureType] = {}
    for word in words:
        name, _, kind = word.partition(":")
        if not name or kind not in KINDS:
            word = f"{word[:80]}{'..' * (len(word) > 80)}"  # a whole file in one field, where the encoding is another
            raise InputError(
                f"{path} line 1: header field '{word}' should read name:type with type {', '.join(KINDS)}, "
                f"and {separator!r} between the fields."
            )
        types[name] = KINDS[kind]
    refuse_repeated((word.partition(":")[0] for word in words), f"{path} line 1")
    return types


def _sequences(table: AtomicTable, name: str, separator: str) -> list[np.ndarray]:
    """The column cut into members: an array of text or float64 per row."""
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
    wrong[np.repeat(np.arange(len(rows)), lengths)[~(np.abs(values) <= LARGEST)]] = True  # NaN, too
    table.refuse(wrong, name, "it should be finite numbers, below 3.4e38")
    return np.split(values, np.cumsum(lengths)[:-1]) if rows else []


def download(config) -> None:
    """Let RecBole fetch the data set of `config` into its `data_path`, for a model of any kind.

    Raises:
        InputError: it could not be fetched.
    """
    folder, name = config["data_path"], config["dataset"]
    bare = Dataset.__new__(Dataset)  # fetching is a method of data sets, of which nothing else is there yet
    bare.config, bare.dataset_path, bare.dataset_name, bare.logger = config, folder, name, getLogger()
    try:
        bare._download()
    except (OSError, EOFError) as error:
        with suppress(OSError):
            os.rmdir(folder)  # where one is, RecBole does not try again
        raise InputError(
            f"data set '{name}' is not in {folder} and could not be downloaded: {error}; set data_path to the folder "
            f"that holds it, or unpack {bare._get_download_url('url')} there."
        ) from error
    except (ValueError, RuntimeError, AttributeError):
        # at the end RecBole waits for its other processes, which one process alone is not able to
        if not os.path.isfile(os.path.join(folder, f"{name}.inter")):
            raise
