"""Reads histories and tokens from files, and writes recommendations into files."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

from recbole_ext.data.files.atomic_file import read_atomic, read_header
from recbole_ext.data.files.item_files import ITEM_NAME
from recbole_ext.data.files.table import Table, TextTable, lines, read_csv, read_text, refuse_repeated
from recbole_ext.errors import InputError
from recbole_ext.utils.atomic_write import write_whole
from recbole_ext.utils.paths import check_suffix, writable_file

SOURCES = (".inter", ".csv", ".parquet")
TARGETS = (".csv", ".parquet", ".jsonl")


def check_histories_file(path: str) -> str:
    """The suffix of a file of histories; `InputError` if it is not supported."""
    return check_suffix(path, SOURCES, "--histories")


def read_events(path: str, columns: list[str], config: Any) -> Table:
    """The events of a file, which may be empty.

    Args:
        path: `.inter` in RecBole's atomic format, `.csv` with commas and a header of names, or `.parquet`.
        columns: names of the columns to read; missing ones are skipped.
        config: of the model, with the separators of `.inter` files and the encoding of text files.

    Raises:
        InputError: the file cannot be read; the message names it and, where there is one, the line.
    """
    suffix = check_histories_file(path)
    if not os.path.isfile(path):
        raise InputError(f"--histories is {path!r}; there is no such file.")
    if suffix == ".parquet":
        return _read_parquet(path, columns)
    encoding = _encoding(config)
    if suffix == ".csv":
        return read_csv(path, encoding, columns, _remedy(encoding))
    separators = config["field_separator"], config["seq_separator"]
    load = None  # `read_atomic` refuses a file without a header
    if os.path.getsize(path):
        load = [name for name in read_header(path, separators[0], encoding) if name in columns]
    return read_atomic(path, *separators, encoding, load, allow_empty=True, remedy=_remedy(encoding))


def _encoding(config: Any) -> str:
    return config["encoding"] or "utf-8"


def _remedy(encoding: str) -> str:
    return f"save it as {encoding}, the encoding of the files that the model was trained on"


def _read_parquet(path: str, columns: list[str]) -> Table:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            refuse_repeated(names, path)
            read = [name for name in names if name in columns]
            # pandas' metadata may turn a column into the index; integers stay exact beside missing values
            frame = file.read(read).to_pandas(ignore_metadata=True, integer_object_nulls=True)
    except InputError:
        raise
    except (OSError, ValueError, OverflowError, pyarrow.ArrowException) as error:
        reason = (str(error).strip().splitlines() or ["no reason given"])[0].rstrip(".")
        raise InputError(f"{path} cannot be read as a parquet file: {reason}.") from error
    return Table(path, frame, tuple(name for name in names if name not in read))


def read_tokens(path: str, option: str, field: str, config: Any) -> Table:
    """A file with a user or an item token on each line, as a table with one column.

    Commas and quotes belong to the token, blanks around it do not. Blank lines are skipped, and so is a first line that
    is the name of the column.

    Args:
        path: the file.
        option: its option, for messages.
        field: the name of the column.
        config: of the model, with the encoding of the file.

    Raises:
        InputError: the file cannot be read. The message names it and, where there is one, the line.
    """
    if not os.path.isfile(path):
        raise InputError(f"--{option} is {path!r}, which cannot be read: there is no such file.")
    encoding = _encoding(config)
    tokens = [line.decode().strip() for _, line in lines(read_text(path, encoding, _remedy(encoding)))]
    column = pd.Series(tokens, dtype=object)
    if tokens[:1] == [field]:
        column = column.iloc[1:]
    return TextTable(path, column.to_frame(field), encoding=encoding, header=False)


def recommendations_file(path: str) -> str:
    """The absolute path of the file to write; `InputError` if it cannot be written."""
    check_suffix(path, TARGETS, "--out")
    return writable_file(path, "--out")


Write = Callable[[pd.DataFrame], None]


@contextlib.contextmanager
def writer(path: str, user: str, item: str, named: bool = False) -> Iterator[Write]:
    """A function that appends a block of recommendations; the file appears when the context ends.

    Args:
        path: `.csv`, `.parquet` or `.jsonl`.
        user, item: names of the columns.
        named: whether the blocks have a column `item_name`.
    """
    items = [item, ITEM_NAME] if named else [item]
    with write_whole(path) as file, contextlib.ExitStack() as stack:
        suffix = os.path.splitext(path)[1].lower()
        if suffix == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            texts = [(name, pa.string()) for name in items]
            schema = pa.schema([(user, pa.string()), ("rank", pa.int64()), *texts, ("score", pa.float64())])
            table = stack.enter_context(pq.ParquetWriter(file, schema))

            def write(block: pd.DataFrame) -> None:
                table.write_table(pa.Table.from_pandas(block, schema, preserve_index=False))

        elif suffix == ".csv":
            file.write(f"{_csv_line([user, 'rank', *items, 'score'])}\n".encode())

            def write(block: pd.DataFrame) -> None:
                file.write(block.to_csv(index=False, header=False, lineterminator="\n").encode())

        else:

            def write(block: pd.DataFrame) -> None:
                for name, rows in block.groupby(user, sort=False):
                    line = {user: name, **{column: rows[column].tolist() for column in (*items, "score")}}
                    file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")

        yield write


def _csv_line(names: list[str]) -> str:
    return pd.DataFrame(columns=names).to_csv(index=False, lineterminator="").strip()
