"""What the environment says about the processes of a run. Nothing here imports torch."""

import os
import threading

FILE_STORE = "RECBOLE_EXT_STORE"  # the file by which the processes of `--nproc` find each other
CHECKPOINT = "checkpoint"  # beside that file: the one with the path of the run's checkpoint
PARENT = "RECBOLE_EXT_PARENT"  # the file descriptor that ends when the process that launched this one has ended
LOST = 3  # exit status of a launched process that has lost another one; the parent says which


def are_announced() -> bool:
    """Whether the environment says that this process is one of several."""
    return int(os.environ.get("WORLD_SIZE") or 1) > 1 and "RANK" in os.environ


def was_launched() -> bool:
    """Whether `launcher.launch` has started this process."""
    return PARENT in os.environ


def end_with_parent() -> None:
    """End this process as soon as the one that launched it has ended."""

    def watch() -> None:
        os.read(int(os.environ[PARENT]), 1)
        os._exit(143)

    if was_launched():
        threading.Thread(target=watch, daemon=True).start()
