"""Parse separated text, a large one in blocks."""

import io
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

MISSING_NUMBER = ["", "nan", "NaN", "NA", "N/A", "null", "NULL", "None"]
PARSED_AT_ONCE = 2**25  # bytes of text


def parse(
    data: bytes, separator: bytes, quotes: int, header: list[str], dtypes: Mapping[str, type | str]
) -> pd.DataFrame:
    """Parse some columns of separated text that `quoting` has checked.

    Args:
        data, separator: as for `quoting`.
        quotes: the result of `quoting`.
        header: names of all columns, in file order.
        dtypes: of the columns to read: `np.float64`, or `object` or `"category"` for text. Empty text and missing
            numbers become NaN. With a category, the text is parsed in blocks, and each different value is stored once.

    Raises:
        ValueError: a value is not a number.
    """
    if not data.partition(b"\n")[2].strip(b" \n"):  # pandas fails on a header only
        return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in dtypes.items()})
    index = {name: header.index(name) for name in dtypes}
    in_blocks = "category" in dtypes.values()

    def read(text: bytes | memoryview, first: int | None) -> pd.DataFrame:
        return pd.read_csv(
            io.BytesIO(text), sep=separator.decode(), header=first, names=list(range(len(header))),
            usecols=list(index.values()), dtype={index[name]: dtype for name, dtype in dtypes.items()},
            quoting=quotes, engine="c", float_precision="round_trip", keep_default_na=False, low_memory=not in_blocks,
            # tokens may be called NA or None: only empty text is missing
            na_values={index[name]: MISSING_NUMBER if dtype is np.float64 else [""] for name, dtype in dtypes.items()},
        )  # fmt: skip

    if not in_blocks:
        return read(data, 0)[list(index.values())].set_axis(list(index), axis=1)
    columns = {name: _JoinedColumn() for name in dtypes}
    for block in _blocks(data):
        frame = read(block, None)
        for name, column in columns.items():
            column.append(frame[index[name]])
    return pd.DataFrame({name: columns.pop(name).joined() for name in dtypes}, copy=False)


def _blocks(data: bytes) -> Iterator[memoryview]:
    """The lines after the header, in parts that are not blank."""
    begin = data.index(b"\n") + 1
    while begin < len(data):
        end = data.find(b"\n", begin + PARSED_AT_ONCE) + 1 or len(data)
        if data[begin:end].strip(b" \n"):
            yield memoryview(data)[begin:end]
        begin = end


class _JoinedColumn:
    """The parts of a column one after the other; text as codes of its different values, in their order."""

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = []
        self.code: dict[str, int] | None = None

    def append(self, part: pd.Series) -> None:
        if not isinstance(part.dtype, pd.CategoricalDtype):
            self.parts.append(part.to_numpy())
            return
        code = self.code = {} if self.code is None else self.code
        codes = [code.setdefault(value, len(code)) for value in part.cat.categories]
        self.parts.append(np.array([*codes, -1], dtype=np.int32)[part.cat.codes])  # the code of no value is -1

    def joined(self) -> Any:
        values = np.concatenate(self.parts)
        self.parts.clear()
        if self.code is None:
            return values
        return pd.Categorical.from_codes(values, pd.Index(list(self.code), dtype=object), validate=False)
