"""What happens on the driver while trials run: records are written, checkpoints dropped, a table shown."""

import shutil
import sys
import time
from functools import cache
from typing import Any, TextIO

from recbole_ext.tuning.journal import BEHIND, CUT_SHORT, Journal, Record, ranked
from recbole_ext.tuning.report.table import Rows

CURSOR_UP, CLEAR = "\x1b[{}A", "\x1b[J"


class Progress:
    """Ray's callback. Holds plain values only, since Ray pickles it.

    Args:
        folder: of the search.
        rows: lays out the table.
        keep: checkpoints to keep.
        time_budget: seconds after which Ray ends the search, if any.
    """

    def __init__(self, folder: str, rows: Rows, keep: int, time_budget: float | None):
        super().__init__()
        self.journal, self.rows, self.keep = Journal(folder), rows, keep
        self.ended, self.headed = self.journal.records(), False
        self.running: dict[int, Record] = {}
        self.shown, self.drawn, self.ends = 0, 0.0, time.time() + (time_budget or float("inf"))

    # ------------------------------------------------------------------ what Ray tells

    def on_trial_start(self, iteration, trials, trial, **info) -> None:
        self.running[trial.config["number"]] = _fresh(trial.config)
        self.draw()

    def on_trial_recover(self, iteration, trials, trial, **info) -> None:
        """Its machine was lost; it begins again elsewhere."""
        self.running.pop(trial.config["number"], None)

    def on_trial_result(self, iteration, trials, trial, result, **info) -> None:
        record = self.running.setdefault(trial.config["number"], _fresh(trial.config))
        record["seconds"] = round(result.get("time_total_s", 0.0), 2)
        record["machine"], record["node"] = result.get("hostname", ""), result["node"]
        if "failed" in result:
            record.update(status="failed", reason=result["failed"])
        elif "ended" in result:
            record["status"] = "finished"
        else:
            self._add(record, result)
        self.draw()

    def on_trial_complete(self, iteration, trials, trial, **info) -> None:
        number = trial.config["number"]
        record = self.running.pop(number, None) or _fresh(trial.config)
        if record["status"] == "running":
            early = record["epochs"] < self.rows.epochs
            record.update({"status": "stopped", "reason": BEHIND} if early else {"status": "finished"})
        if record["best_score"] is None and record["status"] == "stopped":
            return  # it had no time for a single validation, and has no result
        self._end(record)

    def on_trial_error(self, iteration, trials, trial, **info) -> None:
        from recbole_ext.tuning.trial import reason

        record = self.running.pop(trial.config["number"], None) or _fresh(trial.config)
        error = trial.get_error()
        cause = getattr(error, "cause", None) or error
        record.update(status="failed", reason=reason(cause) if cause is not None else "its process ended.")
        self._end(record)

    def on_experiment_end(self, trials, **info) -> None:
        """Ray does not tell of trials that it ends because the time is up; an interrupt leaves them to a resumption."""
        if time.time() < self.ends:
            return
        for record in list(self.running.values()):
            if record["best_score"] is not None:
                record.update(status="stopped", reason=CUT_SHORT)
                self._end(record)

    # ------------------------------------------------------------------ records

    def _add(self, record: Record, result: dict[str, Any]) -> None:
        epoch, score = result["epoch"], result["score"]
        record["curve"] = [point for point in record["curve"] if point[0] < epoch]  # it may have begun anew
        record["curve"].append([epoch, score, result["loss"]])
        record["epochs"] = epoch
        if score == result["best_score"]:  # of equals the last, whose checkpoint is kept
            record.update(best_score=result["best_score"], best_epoch=epoch, best_metrics=dict(result["metrics"]))

    def _end(self, record: Record) -> None:
        self.journal.add(record)
        self.ended.append(record)
        best = {one["trial"] for one in ranked(self.ended, self.rows.bigger)[: self.keep]}
        self.journal.drop_checkpoints(best, set(self.running))
        if not sys.stdout.isatty():
            if not self.headed:
                print(self.rows.head(), flush=True)
            self.headed = True
            print(self.rows.row(record), flush=True)
        self.draw(now=True)

    # ------------------------------------------------------------------ the table

    def draw(self, now: bool = False, out: TextIO | None = None) -> None:
        """Show the table in place of the one before, in a terminal, at most twice a second."""
        out = out or sys.stdout
        if not out.isatty() or (not now and time.time() - self.drawn < 0.5):
            return
        size = shutil.get_terminal_size()
        lines = self.rows.table(list(self.running.values()), self.ended, size.columns, size.lines)
        up = CURSOR_UP.format(self.shown) if self.shown else ""
        out.write(up + CLEAR + "\n".join(lines) + "\n")
        out.flush()
        self.shown, self.drawn = len(lines), time.time()


def _fresh(setup: dict[str, Any]) -> Record:
    return {
        "trial": setup["number"], "status": "running", "reason": "", "keys": setup["keys"], "best_score": None,
        "best_epoch": None, "best_metrics": {}, "epochs": 0, "seconds": 0.0, "machine": "", "node": "", "curve": [],
        "repeats": setup.get("repeats"),
    }  # fmt: skip


def progress(*arguments: Any) -> Any:
    """The callback for Ray."""
    return _for_ray(Progress)(*arguments)


@cache
def _for_ray(mixin: type) -> type:
    from ray.tune import Callback

    return type(mixin.__name__, (mixin, Callback), {"__doc__": mixin.__doc__})
