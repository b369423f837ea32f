"""Reading one atomic file: RecBole's separated columns under a header of `name:type` fields."""

import csv
import io
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
from recbole.utils import FeatureType

from recbole_ext.errors import InputError

NO_NUMBER = ["", "nan", "NaN", "NA", "N/A", "null", "NULL", "None"]  # how programs write a missing number
LARGEST = 3.4e38  # of what models compute with
UNIT_SEPARATOR = b"\x1f"  # stands in for separators of several characters, which the fast parser does not take
KINDS = {kind.value: kind for kind in FeatureType}


@dataclass
class AtomicTable:
    """What a file holds.

    Attributes:
        path, encoding: of the file.
        frame: a row for each line, numbered from 0 by the index; tokens are text, numbers float64, sequences one array
            per row. Missing tokens and numbers are NaN, missing sequences empty.
        types: name and type of each column of `frame`, in file order.
        unread: names of the other columns of the file.
    """

    path: str
    encoding: str
    frame: pd.DataFrame
    types: dict[str, FeatureType]
    unread: tuple[str, ...] = ()

    def refuse(self, wrong: np.ndarray | pd.Series, name: str, wanted: str) -> None:
        """Raise `InputError` for the first row where `wrong`, bool [rows], is true, if there is one.

        Args:
            name: the column whose value is wrong.
            wanted: the end of the sentence, after the value.
        """
        rows = np.flatnonzero(wrong)
        if len(rows):
            value = self.frame[name].iloc[rows[0]]
            text = " ".join(map(str, value)) if isinstance(value, np.ndarray) else "" if pd.isna(value) else str(value)
            shown = f"'{text}'" if text else "empty"
            more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
            raise InputError(f"{self.path} line {self.line(rows[0])}{more}: {name} is {shown}; {wanted}.")

    def line(self, row: int) -> int:
        """Number in the file of the line of a row; the header is line 1, blank lines count."""
        numbers = (number for number, _ in _lines(_text(self.path, self.encoding)))
        return next(islice(numbers, int(self.frame.index[row]) + 1, None))


def read_atomic(
    path: str,
    separator: str,
    seq_separator: str,
    encoding: str = "utf-8",
    load: Collection[str] | None = None,
    unload: Collection[str] | None = None,
    may_be_empty: bool = False,
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
        may_be_empty: whether a header without a row will do.

    Raises:
        InputError: the file is no text or no table, a column is missing, or a number is none. The message names the
            file and, where there is one, the line, the column and the value.
    """
    data, split = _text(path, encoding), separator.encode()
    if len(split) > 1:
        data, split = data.replace(split, UNIT_SEPARATOR), UNIT_SEPARATOR
    header = _header(path, data.partition(b"\n")[0].decode().split(split.decode()), separator)
    missing = sorted(set(load or ()) - set(header))
    if missing:
        raise InputError(f"{path} has no column '{missing[0]}'; its columns are {', '.join(header)}.")
    wanted = (set(header) if load is None else set(load)) - set(unload or ())
    types = {name: kind for name, kind in header.items() if name in wanted}
    floats = [name for name, kind in types.items() if kind == FeatureType.FLOAT]

    def parse(dtypes: dict[str, type]) -> AtomicTable:
        frame = pd.read_csv(
            io.BytesIO(data), sep=split.decode(), header=0, names=list(header), usecols=list(types), dtype=dtypes,
            quoting=quoting, engine="c", float_precision="round_trip", keep_default_na=False,
            # a token may well be called NA or None: only an empty one is missing
            na_values={name: NO_NUMBER if dtype is np.float64 else [""] for name, dtype in dtypes.items()},
        )  # fmt: skip
        return AtomicTable(path, encoding, frame[list(types)], types, tuple(header.keys() - types.keys()))

    quoting = _quoting(path, data, split, len(header))
    try:
        table = parse({name: np.float64 if name in floats else object for name in types})
    except ValueError as error:  # not a number somewhere: read as text, find out where
        text = parse(dict.fromkeys(types, object))
        for name in floats:
            column = text.frame[name]
            none = pd.to_numeric(column, errors="coerce").isna() & ~column.isin([np.nan, *NO_NUMBER])
            text.refuse(none, name, f"it should be a number{_of_date(text.frame[name][none])}")
        raise InputError(f"{path}: {error}.") from error
    if types and not len(table.frame) and not may_be_empty:
        raise InputError(f"{path} holds a header and nothing else; it should hold at least one row.")
    for name in floats:
        table.refuse(table.frame[name].abs() > LARGEST, name, "it should be a finite number, below 3.4e38")
    for name, kind in types.items():
        if kind in (FeatureType.TOKEN_SEQ, FeatureType.FLOAT_SEQ):
            table.frame[name] = _sequences(table, name, seq_separator)
    return table


def _of_date(values: pd.Series) -> str:
    """What to do about the first of some values, if it is a date."""
    text = str(next(iter(values), ""))
    date = pd.to_datetime(text, errors="coerce", utc=True) if re.match(r"\d+[-/.]\d+[-/.]\d", text) else pd.NaT
    return "" if date is pd.NaT else f", as {date.timestamp():.0f}, the seconds since 1970 of that date"


def _text(path: str, encoding: str) -> bytes:
    """The file in UTF-8, lines ended by `\\n`, without a byte order mark."""
    try:
        data = Path(path).read_bytes()
        text = data.decode(encoding)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path} line {line} is not {encoding} text; set encoding to that of the file.") from error
    except (LookupError, UnicodeError, ValueError) as error:
        raise InputError(f"encoding is {encoding!r}, which does not read {path}; use utf-8, say.") from error
    text = text.removeprefix("\ufeff")
    if not text or text.isspace():
        raise InputError(f"{path} is empty; it should begin with a header of name:type fields.")
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError(f"{path} line {line} holds a NUL character; set encoding to that of the file.")
    data = text.encode()
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data


def _header(path: str, words: list[str], separator: str) -> dict[str, FeatureType]:
    """Names and types of the columns, in file order."""
    types: dict[str, FeatureType] = {}
    for word in words:
        name, _, kind = word.partition(":")
        if not name or kind not in KINDS:
            raise InputError(
                f"{path} line 1: header field '{word}' should read name:type with type {', '.join(KINDS)}, "
                f"and {separator!r} between the fields."
            )
        if name in types:
            raise InputError(f"{path} line 1: column '{name}' stands there twice.")
        types[name] = KINDS[kind]
    return types


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of the lines that are not blank, the header's included."""
    return ((number, line) for number, line in enumerate(io.BytesIO(data), 1) if line.strip(b" \n"))


def _quoting(path: str, data: bytes, separator: bytes, width: int) -> int:
    """What quotes are, as a constant of `csv`; `InputError` if a line has not `width` fields."""
    if b'"' in data:
        rows = csv.reader((line.decode() for _, line in _lines(data)), delimiter=separator.decode())
        try:
            # an unpaired quote swallows line ends
            if all(len(row) == width and rows.line_num == number for number, row in enumerate(rows, 1)):
                return csv.QUOTE_MINIMAL
        except csv.Error:  # it swallowed so many that the field is too long
            pass
    if {line.count(separator) for line in io.BytesIO(data)} != {width - 1}:  # blank lines, or worse
        for number, line in _lines(data):
            fields = line.count(separator) + 1
            if fields != width:
                raise InputError(
                    f"{path} line {number} has {fields} field{'s' * (fields != 1)}; the header has {width}."
                )
    return csv.QUOTE_NONE


def _sequences(table: AtomicTable, name: str, separator: str) -> list[np.ndarray]:
    """The column cut into members: an array of text or float64 per row."""
    column = table.frame[name].fillna("")
    rows = [[word for word in text.split(separator) if word] for text in column]
    if table.types[name] == FeatureType.TOKEN_SEQ:
        return [np.array(words, dtype=str) for words in rows]
    numbers = pd.to_numeric(pd.Series([word for words in rows for word in words], dtype=object), errors="coerce")
    lengths = np.array([len(words) for words in rows], dtype=np.int64)
    wrong = np.zeros(len(rows), dtype=bool)
    wrong[np.repeat(np.arange(len(rows)), lengths)[~np.isfinite(numbers.to_numpy(dtype=np.float64))]] = True
    table.refuse(wrong, name, "it should be finite numbers")
    return np.split(numbers.to_numpy(dtype=np.float64), np.cumsum(lengths)[:-1]) if rows else []
