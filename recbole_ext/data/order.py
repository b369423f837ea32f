"""Sort and group events by digits of 16 bits, which NumPy sorts without comparisons: the time grows as their number.

N events.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

DIGIT = 16  # bits
MOST_DIGITS = 3  # per key; with more, comparisons are faster


def row_type(count: int) -> type:
    """The smaller type of whole numbers in which the rows of a table, and its number of rows, fit."""
    return np.int32 if count <= np.iinfo(np.int32).max else np.int64


def stable_order(*keys: np.ndarray) -> np.ndarray:
    """The rows sorted by keys, the least significant key first; equal rows keep their order. As `np.lexsort`. [N]

    Args:
        keys: numbers, [N] each.
    """
    if is_sorted(*keys):
        return np.arange(len(keys[0]), dtype=row_type(len(keys[0])))
    shifted = [_from_zero(key) if len(key) else None for key in keys]
    if any(key is None for key in shifted):
        return np.lexsort(keys)
    order: np.ndarray | None = None
    for key in shifted:
        assert key is not None
        for shift in range(0, max(int(key.max()).bit_length(), 1), DIGIT):
            digit = (key >> shift).astype(np.uint16)
            order = digit.argsort(kind="stable") if order is None else order[digit[order].argsort(kind="stable")]
    assert order is not None
    return order


def is_sorted(*keys: np.ndarray) -> bool:
    """Whether rows are in the order of `stable_order`; False if a value is missing."""
    *minor, major = keys
    if not (major[1:] >= major[:-1]).all():
        return False
    equal = major[1:] == major[:-1]
    for key in reversed(minor):
        if not ((key[1:] >= key[:-1]) | ~equal).all():
            return False
        equal &= key[1:] == key[:-1]
    return True


def _from_zero(key: np.ndarray) -> np.ndarray | None:
    """The whole numbers of a key less the smallest one, int64; None if they are not whole or need too many digits."""
    if key.dtype.kind not in "iuf":
        return None
    low = key.min()
    if not float(key.max()) - float(low) < 2.0 ** (DIGIT * MOST_DIGITS):  # also NaN
        return None
    if key.dtype.kind == "f":
        if not np.array_equal(np.floor(key), key):
            return None
        return (key.astype(np.float64) - float(low)).astype(np.int64)
    return (key - low).astype(np.int64)


@dataclass(frozen=True)
class Groups:
    """The rows of each group, the groups in the order of their first rows. Iteration yields an array for each group.

    Attributes:
        rows: of all groups one after the other, ascending within each, [N].
        ends: end of each group within `rows`.
    """

    rows: np.ndarray
    ends: np.ndarray

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self.rows[begin:end] for begin, end in pairwise((0, *self.ends)))

    def __len__(self) -> int:
        return len(self.ends)

    def last(self, count: int) -> list[np.ndarray]:
        """Split off the last rows of each group, at most `count` of them and at most all but one.

        Returns:
            the other rows; then the last but `count - 1` of each group that gives so many, and so on to the last.
        """
        taken = np.minimum(count, np.diff(self.ends, prepend=0) - 1)
        places = [self.ends[taken > place] - 1 - place for place in range(count - 1, -1, -1)]
        kept = np.ones(len(self.rows), dtype=bool)
        for place in places:
            kept[place] = False
        return [self.rows[kept], *(self.rows[place] for place in places)]


def grouped(values: np.ndarray) -> Groups:
    """The rows of equal values. None of the values, [N], is missing."""
    if len(values) and is_sorted(values):
        rows: np.ndarray = np.arange(len(values), dtype=row_type(len(values)))
        return Groups(rows, np.append(np.flatnonzero(values[1:] != values[:-1]) + 1, len(values)))
    code, distinct = pd.factorize(values)  # in the order of their first rows
    return Groups(stable_order(code), np.bincount(code, minlength=len(distinct)).cumsum())
