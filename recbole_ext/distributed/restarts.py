"""Restarts by torchrun: the processes continue the run that the ones before them have begun.

The first process keeps the name of the run's checkpoint in a file beside the checkpoint, under the name of the job
(`--rdzv-id`). A job without such a name continues after a restart by the same torchrun only.
"""

import contextlib
import os
import re
from pathlib import Path

from recbole_ext.distributed import processes
from recbole_ext.distributed.environment import CHECKPOINT, FILE_STORE
from recbole_ext.utils.atomic_write import write_whole

UNNAMED = "none"  # what torchrun calls a job without a name


def _job() -> str:
    return os.environ.get("TORCHELASTIC_RUN_ID", "")


def _file(folder: str) -> str | None:
    """The path of the file; None where torchrun has not started this process."""
    name = re.sub(r"[^\w-]", "_", _job())
    return os.path.join(folder, f".{name}.torchrun") if name and processes.size() > 1 else None


def keep_name(checkpoint: str) -> None:
    """Keep the name of the checkpoint of this run, in the first process: for torchrun, or for the parent process."""
    if not processes.is_first():
        return
    path, store = _file(os.path.dirname(checkpoint)), os.environ.get(FILE_STORE)
    if path is not None:
        with write_whole(path) as file:
            file.write(os.path.basename(checkpoint).encode())
    elif store:
        Path(store).with_name(CHECKPOINT).write_text(checkpoint, encoding="utf-8")


def to_resume(folder: str) -> str | None:
    """The checkpoint that this run continues, the same in all processes; None for a new run.

    Args:
        folder: `checkpoint_dir`.
    """
    path, found = _file(folder), ""
    if path is not None and processes.is_first():
        is_restart = int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0) > 0
        if _job() == UNNAMED and not is_restart:
            forget(folder)  # it is of another job
        with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
            found = os.path.join(folder, os.path.basename(file.read()))
        latest = found.removesuffix(".pth") + ".latest"
        if not any(os.path.exists(name) and os.path.getsize(name) for name in (found, latest) if found):
            found = ""
    return processes.text_of_first(found) or None


def forget(folder: str) -> None:
    """Remove the file at the end of a run."""
    path = _file(folder)
    if path is not None and processes.is_first():
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
