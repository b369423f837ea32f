"""The batch sampler of a loader, which torch does not let be assigned."""

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def batches_of(loader: Any, rows: Any) -> Iterator[None]:
    """In this context, an iterator over the loader yields the batches with these rows.

    Args:
        loader: a loader of torch.
        rows: a sampler, which yields the rows of each batch.
    """
    before = loader.batch_sampler
    loader.__dict__["batch_sampler"] = rows
    try:
        yield
    finally:
        loader.__dict__["batch_sampler"] = before
