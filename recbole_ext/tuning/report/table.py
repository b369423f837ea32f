"""Trials as rows of a table: drawn again and again in a terminal, and one by one, as they end, in a log."""

from typing import Any

from recbole_ext.tuning.journal import Record, ranked
from recbole_ext.tuning.space import Domain, Space

NUMBER = len("1.234e-05")
ROOM = 60  # columns of keys, beside those of the trial; names of keys are shortened where they need more
NARROWEST = 8  # of a column then


class Rows:
    """Lays out trials. Holds plain values only, since Ray pickles it.

    Args:
        total: trials of the whole search.
        metric: name of the score.
        bigger: whether more of it is better.
        epochs: of a trial, at most.
        space: keys and domains.
    """

    def __init__(self, total: int, metric: str, bigger: bool, epochs: int, space: Space):
        self.total, self.metric, self.bigger, self.epochs = total, metric, bigger, epochs
        self.widths = {key: _width(key, domain, len(key)) for key, domain in space.items()}
        if sum(self.widths.values()) + len(space) > ROOM:
            self.widths = {key: _width(key, domain, NARROWEST) for key, domain in space.items()}

    def head(self) -> str:
        """Names of the columns."""
        keys = " ".join(shortened(key, width).rjust(width) for key, width in self.widths.items())
        return f"trial  {'status':<8}  {'epoch':>7}  {self.metric[:8]:>8}  {'time':>6}  {keys}"

    def row(self, record: Record) -> str:
        """A trial in one line."""
        score = "" if record["best_score"] is None else f"{record['best_score']:.4f}"
        epochs = f"{record['epochs']}/{self.epochs}"
        keys = " ".join(short(record["keys"].get(key, "")).rjust(width) for key, width in self.widths.items())
        return (
            f"{record['trial']:>5}  {record['status']:<8}  {epochs:>7}  {score:>8}  "
            f"{_time(record['seconds']):>6}  {record['reason'] if record['status'] == 'failed' else keys}"
        )

    def table(self, running: list[Record], ended: list[Record], width: int, height: int) -> list[str]:
        """Trials that run, then the best that have ended, then those that failed, in lines that fit a terminal."""
        best = ranked(ended, self.bigger)
        rows = [*running, *best, *(record for record in ended if record["status"] == "failed")]
        fit = max(3, height - 4)
        lines = [self.head(), *map(self.row, rows[:fit])]
        if len(rows) > fit:
            lines.append(f"  ... and {len(rows) - fit} more")
        score = f"; best {self.metric} {best[0]['best_score']:.4f} (trial {best[0]['trial']})" if best else ""
        lines.append(f"{len(ended)} of {self.total} trials ended, {len(running)} running{score}")
        return [line if len(line) < width else line[: width - 2] + "…" for line in map(str.rstrip, lines)]


def short(value: Any) -> str:
    """A value of a key, in as few letters as tell it."""
    if isinstance(value, (list, tuple)):
        return "+".join(map(short, value)) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def shortened(name: str, width: int) -> str:
    """A name of several words, each of them cut, so that they fit: `learning_rate` as `lear_rate`."""
    if len(name) <= width:
        return name
    words = name.split("_")
    letters = max(1, (width - len(words) + 1) // len(words))
    return "_".join(word[:letters] for word in words)[:width]


def _width(key: str, domain: Domain, most: int) -> int:
    values = max(map(len, map(short, domain.members))) if domain.members else NUMBER
    return max(values, min(len(key), most))


def _time(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"
