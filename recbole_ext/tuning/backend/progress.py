"""What the user sees while trials run, and the records and checkpoints that are written when they end."""

import shutil
import sys
import textwrap
import time
from typing import Any, TextIO

from ray.tune import Callback

from recbole_ext.tuning.journal import BEHIND, OUT_OF_TIME, Journal, Record, ranked
from recbole_ext.tuning.space import Space, format_value
from recbole_ext.tuning.trial import failure_reason

CLEAR_TO_END = "\x1b[J"
MAX_KEYS_WIDTH = 60  # if the columns of the keys need more, their names are wrapped


class TrialTable:
    """Formats trials as rows of text. Holds plain values only, because Ray pickles it with the callback.

    Args:
        total: number of trials of the search.
        metric: name of the score.
        bigger: whether a bigger score is better.
        epochs: maximum number of epochs of a trial.
        space: distributions of the keys.
    """

    def __init__(self, total: int, metric: str, bigger: bool, epochs: int, space: Space):
        self.total, self.metric, self.bigger, self.epochs = total, metric, bigger, epochs
        self.widths, names = _key_columns(space)
        fields = f"trial  {'status':<8}  {'epoch':>7}  {metric[:8]:>8}  {'time':>6}  "
        self.header = [" " * len(fields) + line for line in names[:-1]] + [fields + names[-1]]

    def row(self, record: Record) -> str:
        """A trial in one line."""
        score = "" if record["best_score"] is None else f"{record['best_score']:.4f}"
        epochs = f"{record['epochs']}/{self.epochs}"
        minutes, seconds = divmod(int(record["seconds"]), 60)
        fields = f"{record['trial']:>5}  {record['status']:<8}  {epochs:>7}  {score:>8}  {f'{minutes}:{seconds:02}':>6}"
        if record["status"] == "failed":
            return f"{fields}  {record['reason']}"
        values = (format_value(record["keys"].get(key, "")).rjust(width) for key, width in self.widths.items())
        return f"{fields}  {' '.join(values)}"

    def lines(self, running: list[Record], ended: list[Record], width: int, height: int) -> list[str]:
        """Running trials, then the best ended trials, then failed ones, and a summary, in the size of a terminal."""
        best = ranked(ended, self.bigger)
        records = [*running, *best, *(record for record in ended if record["status"] == "failed")]
        shown = max(3, height - 3 - len(self.header))
        lines = [*self.header, *map(self.row, records[:shown])]
        if len(records) > shown:
            lines.append(f"  ... and {len(records) - shown} more")
        score = f"; best {self.metric} {best[0]['best_score']:.4f} (trial {best[0]['trial']})" if best else ""
        lines.append(f"{len(ended)} of {self.total} trials ended, {len(running)} running{score}")
        return [line if len(line) < width else line[: width - 2] + "…" for line in map(str.rstrip, lines)]


def _key_columns(space: Space) -> tuple[dict[str, int], list[str]]:
    """Widths of the columns of the keys, and the lines of their header."""
    widths, names = {}, {}
    for key, distribution in space.items():
        widths[key] = max(map(len, map(format_value, distribution.choices or ["1.234e-05"])))
        names[key] = [key]
    if sum(max(widths[key], len(key)) + 1 for key in space) > MAX_KEYS_WIDTH:
        for key in space:  # `hidden_dropout_prob` becomes the lines `hidden_`, `dropout_` and `prob`
            words = key.replace("_", "_ ").split()
            lines = textwrap.wrap(" ".join(words), max(widths[key], *map(len, words)))
            names[key] = [line.replace(" ", "") for line in lines]
    widths = {key: max(width, *map(len, names[key])) for key, width in widths.items()}
    height = max(map(len, names.values()))
    columns = [
        [line.rjust(widths[key]) for line in [""] * (height - len(lines)) + lines] for key, lines in names.items()
    ]
    return widths, [" ".join(line).rstrip() for line in zip(*columns, strict=True)]


class SearchCallback(Callback):
    """Ray's callback: writes records, drops checkpoints and shows the table. Ray pickles it.

    Args:
        folder: of the search.
        table: formats the trials.
        keep_checkpoints: number of best trials whose checkpoints are kept.
        time_budget: seconds after which Ray ends the search, or None.
    """

    def __init__(self, folder: str, table: TrialTable, keep_checkpoints: int, time_budget: float | None):
        super().__init__()
        self.journal, self.table, self.keep_checkpoints = Journal(folder), table, keep_checkpoints
        self.deadline = time.time() + (time_budget or float("inf"))
        self.ended = self.journal.records()
        self.running: dict[int, Record] = {}
        self.header_printed = False
        self.drawn_lines, self.drawn_at = 0, 0.0

    # ------------------------------------------------------------------ called by Ray

    def on_trial_start(self, iteration, trials, trial, **info) -> None:
        self.running[_number(trial)] = _new_record(trial)
        self.draw()

    def on_trial_recover(self, iteration, trials, trial, **info) -> None:
        """The node of the trial was lost; the trial starts again on another."""
        self.running.pop(_number(trial), None)

    def on_trial_result(self, iteration, trials, trial, result, **info) -> None:
        record = self.running.setdefault(_number(trial), _new_record(trial))
        record["seconds"] = round(result.get("time_total_s", 0.0), 2)
        record["machine"], record["node"] = result.get("hostname", ""), result["node"]
        if "failed" in result:
            record.update(status="failed", reason=result["failed"])
        elif "ended" in result:
            record["status"] = "finished"
        else:
            _add_validation(record, result)
        self.draw()

    def on_trial_complete(self, iteration, trials, trial, **info) -> None:
        record = self.running.pop(_number(trial), None) or _new_record(trial)
        if record["status"] == "running":
            is_early = record["epochs"] < self.table.epochs
            record.update({"status": "stopped", "reason": BEHIND} if is_early else {"status": "finished"})
        if record["best_score"] is None and record["status"] == "stopped":
            return  # stopped before its first validation, so it has no result
        self._end(record)

    def on_trial_error(self, iteration, trials, trial, **info) -> None:
        record = self.running.pop(_number(trial), None) or _new_record(trial)
        error = trial.get_error()
        record.update(status="failed", reason=failure_reason(error) if error is not None else "its process ended.")
        self._end(record)

    def on_experiment_end(self, trials, **info) -> None:
        """Record the trials that the time budget has stopped, for which Ray calls nothing else.

        After an interrupt, nothing is recorded: a resumed search runs these trials again.
        """
        if time.time() < self.deadline:
            return
        for record in list(self.running.values()):
            if record["best_score"] is not None:
                record.update(status="stopped", reason=OUT_OF_TIME)
                self._end(record)

    # ------------------------------------------------------------------ records and output

    def _end(self, record: Record) -> None:
        """Write the record of a trial that has ended, drop checkpoints, and show the trial."""
        self.journal.add(record)
        self.ended.append(record)
        best = ranked(self.ended, self.table.bigger)[: self.keep_checkpoints]
        self.journal.drop_checkpoints({record["trial"] for record in best}, set(self.running))
        if not sys.stdout.isatty():
            lines = [self.table.row(record)] if self.header_printed else [*self.table.header, self.table.row(record)]
            self.header_printed = True
            print("\n".join(lines), flush=True)
        self.draw(at_once=True)

    def draw(self, at_once: bool = False, out: TextIO | None = None) -> None:
        """Replace the table in a terminal, at most twice a second unless `at_once`."""
        out = out or sys.stdout
        if not out.isatty() or (not at_once and time.time() - self.drawn_at < 0.5):
            return
        size = shutil.get_terminal_size()
        lines = self.table.lines(list(self.running.values()), self.ended, size.columns, size.lines)
        cursor_up = f"\x1b[{self.drawn_lines}A" if self.drawn_lines else ""
        out.write(cursor_up + CLEAR_TO_END + "\n".join(lines) + "\n")
        out.flush()
        self.drawn_lines, self.drawn_at = len(lines), time.time()


def _number(trial: Any) -> int:
    return trial.config["trial"]["number"]


def _new_record(trial: Any) -> Record:
    """The record of a trial without results."""
    settings = trial.config["trial"]
    return {
        "trial": settings["number"], "status": "running", "reason": "", "keys": settings["keys"], "best_score": None,
        "best_epoch": None, "best_metrics": {}, "epochs": 0, "seconds": 0.0, "machine": "", "node": "", "curve": [],
        "repeats": settings.get("repeats"),
    }  # fmt: skip


def _add_validation(record: Record, result: dict[str, Any]) -> None:
    epoch, score = result["epoch"], result["score"]
    record["curve"] = [point for point in record["curve"] if point[0] < epoch]  # it may have started again
    record["curve"].append([epoch, score, result["loss"]])
    record["epochs"] = epoch
    if score == result["best_score"]:  # of equal scores the last one, whose checkpoint is kept
        record.update(best_score=score, best_epoch=epoch, best_metrics=dict(result["metrics"]))
