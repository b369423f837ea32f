"""A digest of the events of a data set, by which a checkpoint knows its data again."""

import hashlib
from typing import Any

import numpy as np


def data_digest(dataset: Any) -> str:
    """A number that changes with the events of a data set: any value of any column that is loaded, or their order.

    Args:
        dataset: as RecBole's `create_dataset` returns it, before it is split.
    """
    digest = hashlib.sha256(repr(getattr(dataset, "time_origin", None)).encode())
    for field in sorted(dataset.inter_feat):
        digest.update(field.encode())
        values = dataset.inter_feat[field]
        if values.dtype == object:  # sequences
            digest.update(np.array([len(value) for value in values]).tobytes())
            values = np.concatenate([np.ravel(value) for value in values])
        digest.update(np.asarray(values, dtype=np.float64).tobytes())
    return digest.hexdigest()
