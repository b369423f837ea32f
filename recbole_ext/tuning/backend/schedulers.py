"""What stops trials early: those that are behind others of the same number of epochs."""

from functools import cache
from typing import Any

from recbole_ext.tuning.backend.searchers import SCORE
from recbole_ext.tuning.journal import Record
from recbole_ext.tuning.options import Options

EPOCH = "epoch"


class OnlyResults:
    """Mixin of a scheduler that compares trials by what they reached, not by the report that they failed."""

    def on_trial_complete(self, controller, trial, result) -> None:
        if SCORE in result:
            super().on_trial_complete(controller, trial, result)  # type: ignore[misc]


class EndedTrial:
    """A trial of an earlier run of the search, as far as schedulers look at one."""

    def __init__(self, number: int):
        self.trial_id = f"ended-{number}"


def grace_period(options: Options, epochs: int) -> int:
    """Epochs that no trial is stopped before: 10, or a fifth where there are few."""
    return min(options.grace_period or min(10, epochs // 5), epochs) or 1


def scheduler(options: Options, epochs: int, mode: str, ended: list[Record]) -> Any:
    """A scheduler of Ray that knows what ended trials reached; None if none is asked for.

    Args:
        options: of the search.
        epochs: of a trial, at most.
        mode: `"max"` or `"min"`, of the score.
        ended: records of an earlier run of the search.
    """
    if options.scheduler == "none":
        return None
    from ray.tune.schedulers import ASHAScheduler, MedianStoppingRule

    grace, shared = grace_period(options, epochs), {"time_attr": EPOCH, "metric": SCORE, "mode": mode}
    if options.scheduler == "asha":  # a trial ends at its last epoch by itself, so none is compared there
        chosen = _tolerant(ASHAScheduler)(
            max_t=max(epochs - 1, grace), grace_period=grace, reduction_factor=3, stop_last_trials=False, **shared
        )
    else:
        # a trial that is paused, to let others catch up, would begin anew
        chosen = _tolerant(MedianStoppingRule)(grace_period=grace, min_time_slice=epochs + 1, **shared)
    for record in ended:
        if record["status"] != "failed" and record["curve"]:
            _replay(chosen, options.scheduler == "median", record, mode)
    return chosen


def _replay(chosen: Any, median: bool, record: Record, mode: str) -> None:
    """Tell a scheduler of an ended trial, epoch by epoch; the median rule is told without being asked."""
    trial, best = EndedTrial(record["trial"]), None
    tell = chosen.on_trial_complete if median else chosen.on_trial_result
    chosen.on_trial_add(None, trial)
    for epoch, score, _ in record["curve"]:
        best = score if best is None else max(best, score) if mode == "max" else min(best, score)
        tell(None, trial, {EPOCH: epoch, SCORE: best})
    if not median:
        chosen.on_trial_complete(None, trial, {EPOCH: epoch, SCORE: best})


@cache
def _tolerant(base: type) -> type:
    return type(base.__name__, (OnlyResults, base), {"__doc__": base.__doc__})
