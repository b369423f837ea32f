"""Tables that know the source of each row, and a strict reader of separated text for atomic files and CSV."""

import codecs
import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from recbole_ext.data.files.parsing import parse
from recbole_ext.errors import InputError

LINES_AT_ONCE = 2**24  # bytes of text whose lines are counted together
LONGEST_VALUE = 100  # characters of a value in a message


@dataclass
class Table:
    """Rows and their positions in the source.

    Attributes:
        path: the file, or the name of another source, such as `histories` for a DataFrame.
        frame: the rows; the index holds their positions in the source, from 0.
        unread: names of the source's columns that are not in `frame`.
    """

    path: str
    frame: pd.DataFrame
    unread: tuple[str, ...] = ()

    def take(self, rows: np.ndarray) -> "Table":
        """Select rows by position or by mask."""
        return replace(self, frame=self.frame.iloc[rows])

    def location(self, row: int) -> str:
        """The source and number of a row, for a message."""
        return f"{self.path} row {self.frame.index[row]} (counted from 0)" if self.path else ""

    def refuse(self, wrong: np.ndarray | pd.Series, name: str, reason: str) -> None:
        """Raise `InputError` for the first row where `wrong`, bool [rows], is true.

        Args:
            name: the column whose value is wrong.
            reason: the end of the sentence, after the value.
        """
        rows = np.flatnonzero(wrong)
        if len(rows):
            more = f" (and {len(rows) - 1:,} more)" if len(rows) > 1 else ""
            location = f"{self.location(rows[0])}{more}: " if self.path else ""
            raise InputError(f"{location}{name} is {_shown(self.frame[name].iloc[rows[0]])}; {reason}.")


@dataclass
class TextTable(Table):
    """A table from a text file.

    Attributes:
        encoding: of the file.
        header: whether the file has a header.
    """

    encoding: str = "utf-8"
    header: bool = True

    def line(self, row: int) -> int:
        """Line number of a row, from 1; header and blank lines count."""
        numbers = (number for number, _ in lines(read_text(self.path, self.encoding)))
        return next(islice(numbers, int(self.frame.index[row]) + self.header, None))

    def location(self, row: int) -> str:
        return f"{self.path} line {self.line(row)}"


def values_table(values: Iterable[Any] | Table, name: str, source: str) -> Table:
    """A table with one column of values; a table is returned unchanged.

    Args:
        values: a list or another iterable of values.
        name: of the column.
        source: the name of the argument, for messages.

    Raises:
        InputError: `values` is a single value instead of a list.
    """
    if isinstance(values, Table):
        return values
    single = isinstance(values, (str, bytes, pd.DataFrame)) or not isinstance(values, Iterable)
    if single or getattr(values, "ndim", 1) == 0:  # an array without dimensions is a single value
        shown = f"a {type(values).__name__}" if isinstance(values, pd.DataFrame) else repr(values)
        raise InputError(f"{source} is {shown}; it should be a list of {name}.")
    column = values.reset_index(drop=True) if isinstance(values, pd.Series) else pd.Series(list(values), dtype=object)
    return Table(source, column.to_frame(name))


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        text = " ".join(map(str, value))
    else:
        text = "" if np.ndim(value) == 0 and pd.isna(value) else str(value)
    text = " ".join(text.splitlines())
    text = text if text.isprintable() else repr(text)[1:-1]  # makes control characters visible
    return f"'{text[:LONGEST_VALUE]}{'..' * (len(text) > LONGEST_VALUE)}'" if text else "empty"


# -------------------------------------------------------------------- text


def read_text(path: str, encoding: str, remedy: str = "set encoding to that of the file") -> bytes:
    """The content of a text file as UTF-8, with lines that end in `\\n`, without a byte order mark.

    Args:
        path: the file.
        encoding: of the file.
        remedy: what to do about a file in another encoding, for the message.

    Raises:
        InputError: the file cannot be read, or is not text in this encoding. The message names the line.
    """
    try:
        data = Path(path).read_bytes()
        if data.isascii() and codecs.lookup(encoding).name in ("utf-8", "ascii") and b"\0" not in data:
            return _unix_lines(data)  # as it is, which saves two copies of a large file
        text = data.decode(encoding)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        line = _line_of(data[: error.start].decode(encoding, "replace"))
        raise InputError(f"{path} line {line} is not {encoding} text; {remedy}.") from error
    except (LookupError, UnicodeError, ValueError) as error:
        raise InputError(f"encoding is {encoding!r}, which cannot decode {path}; try utf-8.") from error
    text = text.removeprefix("\ufeff")
    if "\0" in text:
        line = _line_of(text[: text.index("\0")])
        raise InputError(f"{path} line {line} has a NUL character; {remedy}.")
    return _unix_lines(text.encode())


def _unix_lines(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data


def _line_of(before: str) -> int:
    """The line number at the end of a text; a line ends with CR LF, LF or CR."""
    return _unix_lines(before.encode("utf-8", "replace")).count(b"\n") + 1


def lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of the lines that are not blank, including the header."""
    return ((number, line) for number, line in enumerate(io.BytesIO(data), 1) if line.strip(b" \n"))


# -------------------------------------------------------------------- rows of fields


def refuse_repeated(names: Iterable[Any], source: str) -> None:
    """Refuse a header with a repeated name. Empty names are allowed: of an index, or after a final comma."""
    named = pd.Index([name for name in names if name != ""], dtype=object)
    if not named.is_unique:
        raise InputError(f"{source}: column '{named[named.duplicated()][0]}' appears twice; remove one.")


def quoting(path: str, data: bytes, separator: bytes, width: int, strict: bool) -> int:
    """Check that every line is a row of `width` fields, and determine the meaning of quotes.

    Args:
        path: the file, for the message.
        data: its text, from `read_text`.
        separator: one byte between fields.
        width: number of fields of the header.
        strict: quotes must enclose a field on one line, as in CSV. Otherwise they have this meaning only if the
            complete file is valid with it, and are ordinary characters if not.

    Returns:
        `csv.QUOTE_MINIMAL` or `csv.QUOTE_NONE`.

    Raises:
        InputError: a line has more or fewer fields, or invalid quotes.
    """
    if b'"' in data:
        invalid = _first_invalid_row(data, separator, width, strict)
        if invalid is None:
            return csv.QUOTE_MINIMAL
        if strict:
            raise InputError(f"{path} line {invalid[0]} {invalid[1]}.")
    if not _all_lines_have(data, separator, width - 1):  # blank lines, or errors
        for number, line in lines(data):
            fields = line.count(separator) + 1
            if fields != width:
                raise InputError(f"{path} line {number} {_field_count(fields, width)}.")
    return csv.QUOTE_NONE


def _all_lines_have(data: bytes, separator: bytes, count: int) -> bool:
    """Whether every line has `count` separators."""
    begin = 0
    while begin < len(data):
        end = data.find(b"\n", begin + LINES_AT_ONCE) + 1 or len(data)
        text = np.frombuffer(data, np.uint8, end - begin, begin)
        separators, ends = np.flatnonzero(text == separator[0]), np.flatnonzero(text == ord("\n"))
        ends = ends if data[end - 1 : end] == b"\n" else np.append(ends, len(text))
        # the separators before each end of a line
        if not np.array_equal(np.searchsorted(separators, ends), np.arange(1, len(ends) + 1) * count):
            return False
        begin = end
    return True


def _field_count(fields: int, width: int) -> str:
    return f"has {fields} field{'s' * (fields != 1)}; the header has {width}"


def _first_invalid_row(data: bytes, separator: bytes, width: int, strict: bool) -> tuple[int, str] | None:
    """The first line that is not a CSV row of `width` fields, and the reason."""
    rows = csv.reader((line.decode() for _, line in lines(data)), delimiter=separator.decode(), strict=strict)
    for count, (number, _) in enumerate(lines(data), 1):
        try:
            row = next(rows)
            one_line = rows.line_num == count  # an unpaired quote makes a field continue on the next line
        except csv.Error:  # with `strict`, or if the field is too long
            one_line = False
        if not one_line:
            limit = csv.field_size_limit()
            return (
                number,
                f"has a wrong quote; quotes should enclose a field on one line, of at most {limit:,} characters",
            )
        if len(row) != width:
            return number, _field_count(len(row), width)
    if _ends_inside_quotes(data, separator):
        return number, "has a quote that is not closed"
    return None


def _ends_inside_quotes(data: bytes, separator: bytes) -> bool:
    """Whether a quote in the last line is never closed, which Python's csv accepts and pandas does not."""
    last_line = data.rstrip(b" \n").rpartition(b"\n")[2].decode()
    try:
        list(csv.reader([last_line], delimiter=separator.decode(), strict=True))
    except csv.Error as error:
        return "unexpected end of data" in str(error)
    return False


def read_csv(path: str, encoding: str, columns: Iterable[str] | None, remedy: str) -> TextTable:
    """Read some columns of a CSV file as text.

    The first line names the columns. The file may have a byte order mark, any line ends, blank lines, and quotes around
    fields, but no line ends inside quotes.

    Args:
        path: the file.
        encoding: of the file.
        columns: to read; columns that the file does not have are ignored. None means all.
        remedy: what to do about a file in another encoding, for the message.

    Raises:
        InputError: the file is not a valid table of text. The message names the file and the line.
    """
    data = read_text(path, encoding, remedy)
    if not data.strip():
        raise InputError(f"{path} is empty; it should begin with a header of column names.")
    first = data.partition(b"\n")[0].decode()
    if not first.strip():
        raise InputError(f"{path} line 1 is blank; it should be a header of column names.")
    header = next(csv.reader([first]))
    quotes = quoting(path, data, b",", len(header), strict=True)
    refuse_repeated(header, f"{path} line 1")
    loaded = [name for name in header if name and (columns is None or name in set(columns))]
    frame = parse(data, b",", quotes, header, dict.fromkeys(loaded, object))
    return TextTable(path, frame, tuple(name for name in header if name not in loaded), encoding)
