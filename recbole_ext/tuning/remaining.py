"""What of a search is still to be done: the trials that were not begun, and those whose time was up, once more."""

from dataclasses import dataclass
from typing import Any

from recbole_ext.tuning.journal import CUT_SHORT, Record
from recbole_ext.tuning.plan import Plan


@dataclass(frozen=True)
class Remaining:
    """The trials to come.

    Attributes:
        setups: those that are known: `number`, `keys`, and `repeats` if an earlier one is done again.
        count: of all of them; what is not known an algorithm proposes.
        next: number of the first that is not known.
        ended: records of the others.
    """

    setups: list[dict[str, Any]]
    count: int
    next: int
    ended: list[Record]


def remaining(plan: Plan, records: list[Record]) -> Remaining:
    """Hold what was planned against what has ended.

    A trial that only the time budget has ended is done again, under a new number: its result stays, whatever becomes of
    the repetition, and nothing is overwritten.
    """
    repeated = {record.get("repeats") for record in records}
    again = [record for record in records if record["reason"] == CUT_SHORT and record["trial"] not in repeated]
    last = max([record["trial"] for record in records] + ([] if plan.points is None else [plan.total]), default=0)
    setups = [
        {"number": number, "keys": record["keys"], "repeats": record["trial"]}
        for number, record in enumerate(again, last + 1)
    ]
    begun = {record["trial"] for record in records if record.get("repeats") is None}
    new = max(plan.total - len(begun), 0)
    if plan.points is not None:
        setups += [{"number": n, "keys": point} for n, point in enumerate(plan.points, 1) if n not in begun]
    ended = [record for record in records if record not in again]
    return Remaining(setups, len(again) + new, last + len(again) + 1, ended)
