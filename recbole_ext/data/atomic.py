"""Reading one atomic file: RecBole's tab-separated format with `name:type` headers."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from recbole.utils import FeatureType

from recbole_ext.errors import InputError

NO_NUMBER = ["", "nan", "NaN", "NA", "N/A", "null", "NULL", "None"]


@dataclass
class AtomicTable:
    """The columns of a file: `frame` (sequence columns as arrays per row) and the type of each."""

    frame: pd.DataFrame
    types: dict[str, FeatureType]


def read_header(path: str, separator: str, encoding: str) -> dict[str, FeatureType]:
    """Names and types of the columns, in file order.

    Raises:
        InputError: the file cannot be read, or a header field is not `name:type` with a type RecBole knows.
    """
    try:
        with open(path, encoding=encoding, newline=None) as file:
            line = file.readline().rstrip("\r\n").removeprefix("\ufeff")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    except (UnicodeError, LookupError) as error:
        raise InputError(f"{path} is not {encoding} text ({error}); set encoding to that of the file.") from error
    types: dict[str, FeatureType] = {}
    for word in line.split(separator):
        name, colon, kind = word.rpartition(":")
        if not colon or not name or kind not in {known.value for known in FeatureType}:
            raise InputError(
                f"{path} line 1: header '{word}' should read name:type with type token, token_seq, float or "
                f"float_seq, the fields separated by {separator!r}."
            )
        if name in types:
            raise InputError(f"{path} line 1: column '{name}' stands there twice.")
        types[name] = FeatureType(kind)
    return types


def read_atomic(path: str, separator: str, seq_separator: str, encoding: str, columns: set[str] | None) -> AtomicTable:
    """Read the named columns of an atomic file.

    Args:
        path: the file; a byte order mark and Windows line ends are fine.
        separator: between fields.
        seq_separator: between the members of a sequence field.
        encoding: of the file; utf-8 unless the user says otherwise.
        columns: names to load; `None` loads all.

    Raises:
        InputError: a column is missing, a number is none, or the file is not a table.
    """
    encoding = "utf-8-sig" if encoding.lower().replace("_", "-") in {"utf-8", "utf8"} else encoding
    header = read_header(path, separator, encoding)
    missing = sorted((columns or set()) - set(header))
    if missing:
        raise InputError(f"{path} has no column '{missing[0]}'; its columns are {', '.join(header)}.")
    types = {name: kind for name, kind in header.items() if columns is None or name in columns}
    floats = [name for name, kind in types.items() if kind == FeatureType.FLOAT]
    try:
        frame = _read(path, separator, encoding, list(header), types, dict.fromkeys(floats, np.float64))
    except ValueError:  # not a number somewhere: read as text, find out where
        text = _read(path, separator, encoding, list(header), types, {})
        for name in floats:
            _refuse_text(path, text[name])
        raise
    for name in floats:
        endless = np.isinf(frame[name].to_numpy())
        if endless.any():
            raise InputError(f"{path} line {_line(endless)}: {name} is infinite; it should be a finite number.")
    for name, kind in types.items():
        if kind in (FeatureType.TOKEN_SEQ, FeatureType.FLOAT_SEQ):
            frame[name] = _sequences(path, frame[name], seq_separator, kind)
    return AtomicTable(frame, types)


def _read(path, separator, encoding, names, types, dtypes) -> pd.DataFrame:
    options = {
        "sep": separator, "names": names, "header": 0, "usecols": list(types), "encoding": encoding,
        "dtype": {name: dtypes.get(name, str) for name in types}, "index_col": False,
        # a token may well be called NA or None: only an empty one is missing
        "keep_default_na": False, "na_values": {name: NO_NUMBER if name in dtypes else [""] for name in types},
    }  # fmt: skip
    if len(separator) == 1:
        options |= {"engine": "c", "float_precision": "round_trip"}
    else:
        options |= {"engine": "python"}
    try:
        with open(path, "rb") as file:
            quoted = b'"' in file.read()
        frame = pd.read_csv(path, **options)
        if quoted and len(frame) != _count_lines(path) - 1:
            # an unpaired quote swallowed line ends: quotes are ordinary characters in this file
            frame = pd.read_csv(path, quoting=csv.QUOTE_NONE, **options)
    except pd.errors.ParserError as error:
        detail = str(error).replace("Error tokenizing data. C error: ", "").strip()
        raise InputError(f"{path} is not a table with {len(names)} columns: {detail}.") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not {encoding} text ({error.reason}); set encoding to that of the file."
        ) from error
    return frame[list(types)]


def _count_lines(path: str) -> int:
    return sum(1 for line in Path(path).read_bytes().splitlines() if line.strip())


def _line(bad: np.ndarray) -> int:
    return int(np.flatnonzero(bad)[0]) + 2  # the header is line 1


def _refuse_text(path: str, column: pd.Series) -> None:
    numbers = pd.to_numeric(column, errors="coerce")
    bad = (numbers.isna() & column.notna()).to_numpy()
    if bad.any():
        value = column[bad].iloc[0]
        raise InputError(f"{path} line {_line(bad)}: {column.name} is '{value}'; it should be a number.")


def _sequences(path: str, column: pd.Series, separator: str, kind: FeatureType) -> list[np.ndarray]:
    rows = []
    for number, text in enumerate(column.fillna("").to_numpy()):
        words = [word for word in text.split(separator) if word]
        try:
            rows.append(np.array(words) if kind == FeatureType.TOKEN_SEQ else np.array(words, dtype=np.float64))
        except ValueError as error:
            raise InputError(f"{path} line {number + 2}: {column.name} is '{text}'; it should be numbers.") from error
    return rows
