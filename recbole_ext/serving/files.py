"""Histories from files, recommendations into files."""

import contextlib
import csv
import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

from recbole_ext.config.paths import writable_file
from recbole_ext.data.atomic import read_atomic
from recbole_ext.data.item_names import ITEM_NAME
from recbole_ext.errors import InputError
from recbole_ext.whole_file import write_whole

SOURCES = (".inter", ".csv", ".parquet")
TARGETS = (".csv", ".parquet", ".jsonl")


def suffix_of(path: str, known: tuple[str, ...], option: str) -> str:
    """The suffix of a file; `InputError` if nothing here knows it, or the package for it is missing."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in known:
        raise InputError(f"--{option} is {path!r}; it should be a file that ends in {', '.join(known)}.")
    if suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise InputError(f"--{option} is {path!r}, which needs the package pyarrow: pip install pyarrow.")
    return suffix


def read_events(path: str, wanted: list[str], needed: list[str], config: Any) -> pd.DataFrame:
    """The events of a file.

    Args:
        path: `.inter` in RecBole's atomic format, `.csv` with commas and a header of names, or `.parquet`.
        wanted: columns to read, as far as the file has them.
        needed: those of them that hold something in every row.
        config: its separators and encoding are those of `.inter` files.

    Raises:
        InputError: the file cannot be read; the message names it.
    """
    suffix = suffix_of(path, SOURCES, "histories")
    if not os.path.isfile(path):
        raise InputError(f"--histories is {path!r}; there is no such file.")
    if suffix == ".inter":
        separators = config["field_separator"], config["seq_separator"]
        table = read_atomic(path, *separators, config["encoding"] or "utf-8")
        for name in (name for name in needed if name in table.types):
            table.refuse(table.frame[name].isna(), name, "give every event one")
        return table.frame
    try:
        if suffix == ".csv":
            _check_header(path, list(pd.read_csv(path, nrows=0)), needed)
            return pd.read_csv(
                path, usecols=lambda name: name in wanted, dtype=str, keep_default_na=False,
                na_values={name: [""] for name in wanted},
            )  # fmt: skip
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(path) as file:
            _check_header(path, file.schema_arrow.names, needed)
            names = [name for name in wanted if name in file.schema_arrow.names]
            return file.read(names).to_pandas()
    except InputError:
        raise
    except (OSError, ValueError, csv.Error) as error:  # pyarrow's errors are ValueErrors, too
        raise InputError(f"{path} cannot be read: {str(error).strip().splitlines()[0]}.") from error


def _check_header(path: str, names: list[str], needed: list[str]) -> None:
    missing = [name for name in needed if name not in names]
    if missing:
        raise InputError(f"{path} has no column '{missing[0]}', which the model reads; it has {', '.join(names)}.")


def read_tokens(path: Any, option: str) -> list[str]:
    """One token a line; blank lines are none."""
    if not isinstance(path, str):
        raise InputError(f"--{option} has no value; give it the name of a file with one token a line.")
    try:
        with open(path, encoding="utf-8-sig") as file:
            return [line.strip() for line in file if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--{option} is {path!r}, which cannot be read: {error}.") from error


def target_file(path: Any) -> str:
    """The path to write to, after trying whether its folder lets us; `InputError` if it does not."""
    if not isinstance(path, str) or not os.path.basename(path) or os.path.isdir(path):
        raise InputError(f"--out is {path!r}; it should be the name of a file that ends in {', '.join(TARGETS)}.")
    suffix_of(path, TARGETS, "out")
    return writable_file(path, "--out")


Write = Callable[[pd.DataFrame], None]


@contextlib.contextmanager
def writer(path: str, user: str, item: str, named: bool = False) -> Iterator[Write]:
    """A function that appends a block of recommendations to a file, which is there once all of them are written.

    Args:
        path: `.csv`, `.parquet` or `.jsonl`.
        user, item: names of the columns.
        named: whether the blocks have a column `item_name`, too.
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
