"""What the environment says about the processes of a run. Nothing here imports torch."""

import os
import re
import shutil
import threading

TIMEOUT = "RECBOLE_EXT_TIMEOUT"  # seconds that a process waits for the others in a training step; 60 if it is not set
FILE_STORE = "RECBOLE_EXT_STORE"  # the file by which the processes of `--nproc` find each other
CHECKPOINT = "checkpoint"  # beside that file: the one with the path of the run's checkpoint
PARENT = "RECBOLE_EXT_PARENT"  # the file descriptor that ends when the process that launched this one has ended
LOST = 3  # exit status of a launched process that has lost another one; the parent says which


def are_announced() -> bool:
    """Whether the environment says that this process is one of several."""
    return (os.environ.get("WORLD_SIZE") or "1").strip() != "1" and "RANK" in os.environ


def problem() -> str | None:
    """What is wrong with the variables that describe the processes, as a sentence; None where they are right."""
    seconds = os.environ.get(TIMEOUT) or "60"
    if not re.fullmatch(r"\d+(\.\d+)?", seconds) or not 0 < float(seconds) < 1e6:
        return f"{TIMEOUT} is {seconds!r}; it should be a number of seconds above 0."
    if not are_announced():
        return None
    size, rank = os.environ["WORLD_SIZE"], os.environ["RANK"]
    if not re.fullmatch(r"\d+", size) or int(size) < 1:
        return f"WORLD_SIZE is {size!r}; it should be the number of processes."
    if not re.fullmatch(r"\d+", rank) or int(rank) >= int(size):
        return f"RANK is {rank!r}, but WORLD_SIZE is {size}; it should be a number from 0 to {int(size) - 1}."
    if FILE_STORE in os.environ:
        return None
    port = os.environ.get("MASTER_PORT", "")
    if not os.environ.get("MASTER_ADDR") or not re.fullmatch(r"\d{1,5}", port) or not 0 < int(port) < 2**16:
        return (
            f"WORLD_SIZE is {size}, but MASTER_ADDR and MASTER_PORT are {os.environ.get('MASTER_ADDR', '')!r} and "
            f"{port!r}, no address of the first process; start several processes with torchrun or --nproc."
        )
    return None


def was_launched() -> bool:
    """Whether `launcher.launch` has started this process."""
    return PARENT in os.environ


def end_with_parent() -> None:
    """End this process as soon as the one that launched it has ended, and remove the folder of the run's file."""

    def watch() -> None:
        os.read(int(os.environ[PARENT]), 1)
        shutil.rmtree(os.path.dirname(os.environ[FILE_STORE]), ignore_errors=True)  # a killed parent has left it
        os._exit(143)

    if was_launched():
        threading.Thread(target=watch, daemon=True).start()
