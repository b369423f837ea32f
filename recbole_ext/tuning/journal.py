"""The folder of a search: what was asked for, and one line for each trial that has ended.

search.yaml          the request, from which the search can be resumed
trials.jsonl         a line for each trial that has ended, written at once, so that it survives a crash
checkpoints/         of the best trials
best.yaml            keys of the best trial, for --config_files
trials.csv           a row for each trial
report.html          the same as pictures
"""

import json
import math
import os
import shlex
from typing import Any

import yaml

from recbole_ext.errors import InputError
from recbole_ext.utils.atomic_write import named_errors, write_whole
from recbole_ext.utils.literals import read_yaml, to_builtin
from recbole_ext.utils.paths import writable_dir

REQUEST, TRIALS, CHECKPOINTS = "search.yaml", "trials.jsonl", "checkpoints"
CUT_SHORT = "the time budget was used up."  # the reason of a trial that nothing else ended
BEHIND = "it was behind the others."  # of one that the scheduler ended
Record = dict[str, Any]
PARTS: dict[str, Any] = {  # of a request, with their types
    "model": str, "dataset": str, "keys": dict, "space": dict, "options": dict, "data_digest": str,
    "first": dict | None, "points": list | None,
}  # fmt: skip
FIELDS: dict[str, Any] = {  # of a record; another line is none
    "trial": int, "status": str, "reason": str, "keys": dict, "best_score": float | int | None,
    "best_epoch": int | None, "best_metrics": dict, "epochs": int, "seconds": float | int, "machine": str, "node": str,
    "curve": list,
}  # fmt: skip


def checkpoint_name(number: int) -> str:
    """Of a trial, within the folder of its search."""
    return os.path.join(CHECKPOINTS, f"trial-{number:04d}.pth")


class Journal:
    """Reads and writes the folder of a search.

    A record has `trial` (its number, from 1), `status` (`finished`, `stopped` early, or `failed`), `reason`, `keys`,
    `best_score`, `best_epoch`, `best_metrics`, `epochs`, `seconds`, `machine`, `node` (as Ray has it), `curve`:
    [epoch, score, loss] of each validation, and `repeats`: the number of the trial whose time was up, or None.
    """

    def __init__(self, folder: str):
        self.folder = folder

    def path(self, *names: str) -> str:
        return os.path.join(self.folder, *names)

    # ------------------------------------------------------------------ the request

    def begin(self, request: dict[str, Any]) -> None:
        """Write down what is asked for; `InputError` if the folder holds a search already."""
        if self.begun():
            folder = shlex.quote(self.folder)
            raise InputError(f"{self.folder} holds a search already; continue it with --resume={folder}.")
        writable_dir(self.path(CHECKPOINTS), "the search")
        self.write_yaml(REQUEST, request)

    def begun(self) -> bool:
        """Whether the folder holds a search."""
        return os.path.isfile(self.path(REQUEST))

    def request(self) -> dict[str, Any]:
        """What was asked for; `InputError` if the folder holds no search."""
        if not self.begun():
            raise InputError(f"there is no search to resume in {self.folder}: it has no {REQUEST}.")
        found = read_yaml(self.path(REQUEST))
        for key, kind in PARTS.items():
            if not isinstance(found.get(key, NotImplemented), kind):
                what = (
                    f"has {key}: {found[key]!r}, which a search does not write" if key in found else f"has no '{key}'"
                )
                raise InputError(f"{self.path(REQUEST)} {what}; start the search anew.")
        return found

    # ------------------------------------------------------------------ trials

    def add(self, record: Record) -> None:
        """Append a record; it is on the disk when this returns."""
        text = json.dumps(to_builtin(record), allow_nan=True) + "\n"
        with named_errors(self.path(TRIALS)), open(self.path(TRIALS), "a+b") as file:
            if file.tell() and not _ends_a_line(file):  # a crash cut the last line short
                text = "\n" + text
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())

    def records(self) -> list[Record]:
        """All records, in the order in which the trials ended; a line that a crash cut short is none."""
        found = {}
        try:
            with open(self.path(TRIALS), encoding="utf-8", errors="replace") as file:
                lines = file.readlines()
        except FileNotFoundError:
            return []
        for line in lines:
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict) and all(isinstance(record.get(key), kind) for key, kind in FIELDS.items()):
                found[record["trial"]] = record
        return list(found.values())

    # ------------------------------------------------------------------ checkpoints

    def checkpoint(self, number: int) -> str:
        return self.path(checkpoint_name(number))

    def drop_checkpoints(self, keep: set[int], running: set[int] | None = None) -> None:
        """Remove the checkpoints of trials that have ended, but for those to keep; half-written ones if none runs."""
        wanted = {os.path.basename(self.checkpoint(number)) for number in keep | (running or set())}
        for name in os.listdir(self.path(CHECKPOINTS)):
            half = name.startswith(".trial-") and not running
            if half or (name.startswith("trial-") and name not in wanted):
                os.unlink(self.path(CHECKPOINTS, name))

    # ------------------------------------------------------------------ files

    def write(self, name: str, text: str) -> str:
        with write_whole(self.path(name)) as file:
            file.write(text.encode())
        return self.path(name)

    def write_yaml(self, name: str, values: dict[str, Any], comment: str = "") -> str:
        return self.write(name, comment + "".join(_lines(key, value) for key, value in to_builtin(values).items()))


def _lines(key: str, value: Any) -> str:
    """A key of a YAML file: innermost lists and dictionaries on one line, and no key beside another."""
    style = None if isinstance(value, (list, dict)) else False
    return yaml.safe_dump({key: value}, sort_keys=False, allow_unicode=True, default_flow_style=style, width=1000)


def _ends_a_line(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def ranked(records: list[Record], bigger: bool) -> list[Record]:
    """The trials that came to a result, best first; of equals the earlier one."""
    found = [record for record in records if record["status"] != "failed" and record["best_score"] is not None]
    good = [record for record in found if not math.isnan(record["best_score"])]
    return sorted(good, key=lambda record: (-record["best_score"] if bigger else record["best_score"], record["trial"]))
