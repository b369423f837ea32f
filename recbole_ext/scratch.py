"""A temporary folder for what Ray Tune writes while a search runs."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recbole_ext.whole_file import is_alive

PREFIX = "recbole-ext-tune-"


@contextmanager
def scratch_folder() -> Iterator[str]:
    """A folder that is removed at the end. One that a killed process left is removed by the next search."""
    remove_abandoned()
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-") as folder:
        yield folder


def remove_abandoned() -> None:
    """Remove the folders of processes that no longer exist."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        process = folder.name.removeprefix(PREFIX).partition("-")[0]
        if not is_alive(process):
            shutil.rmtree(folder, ignore_errors=True)
