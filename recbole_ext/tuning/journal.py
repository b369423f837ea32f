"""The folder of a search.

search.yaml          the plan, from which the search can be resumed
trials.jsonl         one line for each trial that has ended, written at once, so that it survives a crash
checkpoints/         checkpoints of the best trials
best.yaml            keys of the best trial, for --config_files
trials.csv           one row for each trial
report.html          figures and tables
"""

import json
import math
import os
import shlex
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from recbole_ext.errors import InputError
from recbole_ext.utils.atomic_write import named_errors, write_whole
from recbole_ext.utils.literals import read_yaml, to_builtin
from recbole_ext.utils.paths import absolute, writable_dir

PLAN, TRIALS, CHECKPOINTS = "search.yaml", "trials.jsonl", "checkpoints"
OUT_OF_TIME = "the time budget was used up."  # reason of a trial that only the time budget has stopped
BEHIND = "it was behind the others."  # reason of a trial that the scheduler has stopped
Record = dict[str, Any]
PLAN_FIELDS: dict[str, Any] = {  # of search.yaml, with their types
    "model": str, "dataset": str, "keys": dict, "space": dict, "options": dict, "data_digest": str,
    "first": dict | None, "points": list | None,
}  # fmt: skip
RECORD_FIELDS: dict[str, Any] = {  # of a line of trials.jsonl; lines without them are skipped
    "trial": int, "status": str, "reason": str, "keys": dict, "best_score": float | int | None,
    "best_epoch": int | None, "best_metrics": dict, "epochs": int, "seconds": float | int, "machine": str, "node": str,
    "curve": list,
}  # fmt: skip


def checkpoint_name(number: int) -> str:
    """Path of a trial's checkpoint, relative to the folder of the search."""
    return os.path.join(CHECKPOINTS, f"trial-{number:04d}.pth")


class Journal:
    """Reads and writes the folder of a search.

    The record of a trial has `trial` (its number, from 1), `status` (`finished`, `stopped` early, or `failed`),
    `reason`, `keys`, `best_score`, `best_epoch`, `best_metrics`, `epochs`, `seconds`, `machine`, `node` (its id in
    Ray), `curve` ([epoch, score, loss] of each validation), and `repeats` (number of the trial that ran out of time
    and that this trial runs again, or None).
    """

    def __init__(self, folder: str):
        self.folder = folder

    def path(self, *names: str) -> str:
        return os.path.join(self.folder, *names)

    # ------------------------------------------------------------------ the plan

    def start(self, plan: dict[str, Any]) -> None:
        """Create the folder and write the plan; `InputError` if the folder already contains a search."""
        if self.is_started():
            folder = shlex.quote(self.folder)
            raise InputError(f"{self.folder} already contains a search; continue it with --resume={folder}.")
        writable_dir(self.path(CHECKPOINTS), "the search")
        self.write_yaml(PLAN, plan)

    def is_started(self) -> bool:
        """Whether the folder contains a search."""
        return os.path.isfile(self.path(PLAN))

    def read_plan(self) -> dict[str, Any]:
        """The stored plan; `InputError` if there is none or it is damaged."""
        if not self.is_started():
            raise InputError(f"there is no search to resume in {self.folder}: it has no {PLAN}.")
        plan = read_yaml(self.path(PLAN))
        for name, types in PLAN_FIELDS.items():
            if name not in plan:
                raise InputError(f"{self.path(PLAN)} has no '{name}'; start a new search.")
            if not isinstance(plan[name], types):
                raise InputError(f"{self.path(PLAN)} has an invalid {name}: {plan[name]!r}; start a new search.")
        return plan

    # ------------------------------------------------------------------ trials

    def add(self, record: Record) -> None:
        """Append a record; it is on the disk when this returns."""
        text = json.dumps(to_builtin(record), allow_nan=True) + "\n"
        with named_errors(self.path(TRIALS)), open(self.path(TRIALS), "a+b") as file:
            if file.tell() and not _ends_with_newline(file):  # a crash has cut the last line short
                text = "\n" + text
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())

    def records(self) -> list[Record]:
        """All complete records, in the order in which the trials ended."""
        records = {}
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
            if isinstance(record, dict) and all(isinstance(record.get(k), types) for k, types in RECORD_FIELDS.items()):
                records[record["trial"]] = record
        return list(records.values())

    # ------------------------------------------------------------------ files

    def checkpoint(self, number: int) -> str:
        return self.path(checkpoint_name(number))

    def drop_checkpoints(self, best: set[int], running: set[int] | None = None) -> None:
        """Remove the checkpoints of other trials, and incomplete files if no trial runs."""
        keep = {os.path.basename(self.checkpoint(number)) for number in best | (running or set())}
        for name in os.listdir(self.path(CHECKPOINTS)):
            is_incomplete = name.startswith(".trial-") and not running
            if is_incomplete or (name.startswith("trial-") and name not in keep):
                os.unlink(self.path(CHECKPOINTS, name))

    def write(self, name: str, text: str) -> str:
        """Write a file atomically; returns its path."""
        with write_whole(self.path(name)) as file:
            file.write(text.encode())
        return self.path(name)

    def write_yaml(self, name: str, values: dict[str, Any], comment: str = "") -> str:
        return self.write(name, comment + "".join(_yaml_lines(key, value) for key, value in to_builtin(values).items()))


def _yaml_lines(key: str, value: Any) -> str:
    """One key of a YAML file; only the innermost lists and dictionaries are written on one line."""
    style = None if isinstance(value, (list, dict)) else False
    return yaml.safe_dump({key: value}, sort_keys=False, allow_unicode=True, default_flow_style=style, width=1000)


def _ends_with_newline(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def ranked(records: list[Record], bigger: bool) -> list[Record]:
    """The trials with a score, best first; of equal scores the earlier trial comes first.

    Args:
        records: of trials.
        bigger: whether a bigger score is better.
    """
    scored = [record for record in records if record["status"] != "failed" and record["best_score"] is not None]
    valid = [record for record in scored if not math.isnan(record["best_score"])]
    sign = -1 if bigger else 1
    return sorted(valid, key=lambda record: (sign * record["best_score"], record["trial"]))


# ---------------------------------------------------------------------- folders below storage_path


def new_folder(storage_path: str, model: str, dataset: str) -> str:
    """The path of a folder for a new search; it does not exist yet."""
    if not isinstance(storage_path, (str, os.PathLike)) or not os.fspath(storage_path):
        raise InputError(f"storage_path is {storage_path!r}; it should be the name of a folder.")
    parent = writable_dir(os.fspath(storage_path), "the search")
    stem = folder = os.path.join(parent, f"{model}-{dataset}-{datetime.now():%Y%m%d-%H%M%S}")
    number = 1
    while os.path.exists(folder):
        number += 1
        folder = f"{stem}-{number}"
    return folder


def newest_folder(storage_path: str, model: str | None, dataset: str | None) -> str:
    """The folder of the newest search with this model and data set (None: any); `InputError` if there is none."""
    parent = Path(absolute(storage_path, "storage_path"))
    folders = []
    for file in parent.glob(f"*/{PLAN}"):
        try:
            plan = Journal(str(file.parent)).read_plan()
        except InputError:  # damaged
            continue
        if model in (None, plan["model"]) and dataset in (None, plan["dataset"]):
            folders.append(file.parent)
    if not folders:
        what = " on ".join(name for name in (model, dataset) if name is not None)
        raise InputError(f"there is no search{f' of {what}' if what else ''} to resume in {parent}; pass its folder.")
    return str(max(folders, key=lambda folder: (folder / PLAN).stat().st_mtime))
