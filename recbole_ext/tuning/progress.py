"""What happens on the driver while trials run: records are written, checkpoints dropped, a table shown."""

import shutil
import sys
import time
from functools import cache
from typing import Any, TextIO

from recbole_ext.tuning.journal import Journal, Record, ranked

CURSOR_UP, CLEAR = "\x1b[{}A", "\x1b[J"


class Progress:
    """Ray's callback. Holds plain values only, since Ray pickles it.

    Args:
        folder: of the search.
        total: trials of the whole search.
        metric: name of the score, for the table.
        bigger: whether more of it is better.
        epochs: of a trial, at most.
        keep: checkpoints to keep.
        time_budget: seconds after which Ray ends the search, if any.
    """

    def __init__(
        self, folder: str, total: int, metric: str, bigger: bool, epochs: int, keep: int, time_budget: float | None
    ):
        super().__init__()
        self.journal, self.total, self.metric, self.bigger, self.epochs = Journal(folder), total, metric, bigger, epochs
        self.keep, self.ended = keep, self.journal.records()
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
            record["status"] = "stopped" if record["epochs"] < self.epochs else "finished"
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
                record.update(status="stopped", reason="the time budget was used up.")
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
        best = {one["trial"] for one in ranked(self.ended, self.bigger)[: self.keep]}
        self.journal.drop_checkpoints(best, set(self.running))
        if not sys.stdout.isatty():
            print(self.line(record), flush=True)
        self.draw(now=True)

    # ------------------------------------------------------------------ the table

    def line(self, record: Record) -> str:
        """A trial in one line."""
        score = "" if record["best_score"] is None else f"{record['best_score']:.4f}"
        text = record["reason"] or "  ".join(f"{key}={_short(value)}" for key, value in record["keys"].items())
        return (
            f"{record['trial']:>5}/{self.total}  {record['status']:<8}  {record['epochs']:>4}/{self.epochs}  "
            f"{score:>8}  {record['seconds']:>7.0f} s  {text}"
        )

    def table(self, width: int, height: int) -> list[str]:
        """Trials that run, then the best that have ended, then those that failed, as lines for a terminal."""
        failed = [record for record in self.ended if record["status"] == "failed"]
        best = ranked(self.ended, self.bigger)
        rows = [*self.running.values(), *best, *failed]
        cut = max(3, height - 4)
        lines = [f"{'trial':>7}  {'status':<8}  {'epoch':>9}  {self.metric[:8]:>8}  {'time':>9}  keys"]
        lines += [self.line(record) for record in rows[:cut]]
        if len(rows) > cut:
            lines.append(f"  ... and {len(rows) - cut} more")
        best_score = f"; best {self.metric} {best[0]['best_score']:.4f} (trial {best[0]['trial']})" if best else ""
        lines.append(f"{len(self.ended)} of {self.total} trials ended, {len(self.running)} running{best_score}")
        return [line[: width - 1] for line in lines]

    def draw(self, now: bool = False, out: TextIO | None = None) -> None:
        """Show the table in place of the one before, in a terminal, at most twice a second."""
        out = out or sys.stdout
        if not out.isatty() or (not now and time.time() - self.drawn < 0.5):
            return
        size = shutil.get_terminal_size()
        lines = self.table(size.columns, size.lines)
        up = CURSOR_UP.format(self.shown) if self.shown else ""
        out.write(up + CLEAR + "\n".join(lines) + "\n")
        out.flush()
        self.shown, self.drawn = len(lines), time.time()


def _short(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_short, value)) + "]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _fresh(setup: dict[str, Any]) -> Record:
    return {
        "trial": setup["number"], "status": "running", "reason": "", "keys": setup["keys"], "best_score": None,
        "best_epoch": None, "best_metrics": {}, "epochs": 0, "seconds": 0.0, "machine": "", "node": "", "curve": [],
    }  # fmt: skip


def progress(*arguments: Any) -> Any:
    """The callback for Ray."""
    return _for_ray(Progress)(*arguments)


@cache
def _for_ray(mixin: type) -> type:
    from ray.tune import Callback

    return type(mixin.__name__, (mixin, Callback), {"__doc__": mixin.__doc__})
