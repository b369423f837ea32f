"""Ray's search algorithms and schedulers, adapted to spaces with invalid configurations and to resumed searches."""

import contextlib
import logging
import os
import pickle
import warnings
from dataclasses import dataclass
from typing import Any

from ray import tune
from ray.tune.schedulers import ASHAScheduler, MedianStoppingRule
from ray.tune.search import Searcher

from recbole_ext.tuning.journal import Record
from recbole_ext.tuning.options import SearchOptions
from recbole_ext.tuning.plan import Plan, RemainingTrials
from recbole_ext.tuning.points import InvalidReasonFunction, Point, identity
from recbole_ext.tuning.space import Space, round_value

SCORE, EPOCH = "best_score", "epoch"  # fields of a report: the best score so far, the number of the epoch
TRIES = 200  # proposals without a new valid configuration before the search ends
RANDOM_TRIALS = 5  # trials before an algorithm uses their results; few, because these searches are short


# ---------------------------------------------------------------------- search algorithms


class ModelBasedSearcher(Searcher):
    """Lets an algorithm propose configurations; rejects those that are invalid or not new.

    Args:
        algorithm: one of Ray's searchers, for the space in the form of `encode_space`.
        space: distributions of the keys.
        first: the default configuration, if the space contains it. It is used as it is; other numbers are rounded.
        invalid_reason: says why a configuration is invalid.
        remaining: the trials to run. Those that are pending come first.
        path: file for the state of the algorithm, which a resumed search reads.
        mode: `"max"` or `"min"`.
    """

    def __init__(
        self,
        algorithm: Searcher,
        space: Space,
        first: Point | None,
        invalid_reason: InvalidReasonFunction,
        remaining: RemainingTrials,
        path: str,
        mode: str,
    ):
        super().__init__(metric=SCORE, mode=mode)
        self.algorithm, self.space, self.first, self.invalid_reason = algorithm, space, first, invalid_reason
        self.pending, self.next_number, self.path = list(remaining.pending), remaining.next_number, path
        self.seen = {identity(trial["keys"]) for trial in [*remaining.ended, *remaining.pending]}
        self.names: dict[str, str] = {}  # Ray's id of a running trial -> the id that the algorithm uses
        if os.path.exists(path):
            try:
                algorithm.restore(path)
            except Exception as error:  # a damaged pickle can raise anything
                print(
                    f"{path} cannot be read ({error}); {type(algorithm).__name__} starts without its state", flush=True
                )

    def set_search_properties(self, metric, mode, config, **spec) -> bool:
        return True  # they are set by the constructor

    def suggest(self, trial_id: str) -> Any:
        if self.pending:
            return {"trial": self.pending.pop(0)}
        for attempt in range(TRIES):
            name = f"{trial_id}-{attempt}" if attempt else trial_id
            proposal = self.algorithm.suggest(name)
            if proposal is None:  # the algorithm waits for results
                return None
            is_first = self.first is not None and proposal == encode(self.space, self.first)
            keys = dict(self.first or {}) if is_first else decode(self.space, proposal)
            if identity(keys) not in self.seen and not self.invalid_reason(keys):
                self.names[trial_id] = name
                self.seen.add(identity(keys))
                self.next_number += 1
                return {"trial": {"number": self.next_number - 1, "keys": keys}}
            self.algorithm.on_trial_complete(name, error=True)
        return self.FINISHED

    def on_trial_complete(self, trial_id, result=None, error=False) -> None:
        name = self.names.pop(trial_id, None)
        if name is None:  # a pending trial, which the algorithm did not propose
            return
        failed = error or not result or SCORE not in result
        self.algorithm.on_trial_complete(name, None if failed else {SCORE: result[SCORE]}, error=failed)
        with contextlib.suppress(pickle.PicklingError, AttributeError, TypeError):
            self.algorithm.save(f"{self.path}.part")
            os.replace(f"{self.path}.part", self.path)

    def save(self, path: str) -> None:
        """Ray's own checkpoints are not used; the journal and `path` hold the state."""

    def restore(self, path: str) -> None:
        pass


def encode_space(space: Space) -> dict[str, Any]:
    """The space with Ray's distributions. A discrete key is searched by the index of its value."""
    encoded: dict[str, Any] = {}
    for key, distribution in space.items():
        if distribution.choices is None:
            encoded[key] = getattr(tune, distribution.kind)(*map(float, distribution.args))
        elif distribution.kind == "choice":
            encoded[key] = tune.choice(list(range(len(distribution.choices))))
        else:  # ordered
            encoded[key] = tune.randint(0, len(distribution.choices))
    return encoded


def encode(space: Space, point: Point) -> dict[str, Any]:
    """A configuration in the form of `encode_space`."""
    encoded = {}
    for key, value in point.items():
        choices = space[key].choices
        encoded[key] = value if choices is None else choices.index(value)
    return encoded


def decode(space: Space, proposal: dict[str, Any]) -> Point:
    """The configuration of a proposal in the form of `encode_space`."""
    return {
        key: round_value(proposal[key], *distribution.args)
        if distribution.choices is None
        else distribution.choices[int(proposal[key])]
        for key, distribution in space.items()
    }


def make_searcher(plan: Plan, remaining: RemainingTrials, path: str) -> ModelBasedSearcher:
    """A searcher with the TPE algorithm of Optuna or HyperOpt.

    Args:
        plan: of the search.
        remaining: the trials to run.
        path: file for the state of the algorithm.
    """
    seed = plan.config["seed"]
    first = None if plan.first is None else [encode(plan.space, plan.first)]
    algorithm: Searcher
    if plan.options.search_alg == "optuna":
        import optuna
        from ray.tune.search.optuna import OptunaSearch

        logging.getLogger("optuna").setLevel(logging.ERROR)
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM_TRIALS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            space = OptunaSearch.convert_search_space(encode_space(plan.space))
            algorithm = OptunaSearch(space, SCORE, plan.mode, points_to_evaluate=first, sampler=sampler)
    else:
        from ray.tune.search.hyperopt import HyperOptSearch

        space = HyperOptSearch.convert_search_space(encode_space(plan.space))
        algorithm = HyperOptSearch(
            space, SCORE, plan.mode, points_to_evaluate=first, random_state_seed=seed % 2**31,
            n_initial_points=RANDOM_TRIALS,
        )  # fmt: skip
    return ModelBasedSearcher(algorithm, plan.space, plan.first, plan.invalid_reason(), remaining, path, plan.mode)


# ---------------------------------------------------------------------- schedulers


@dataclass(frozen=True)
class EndedTrial:
    """A trial of an earlier run of the search, with the only attribute that schedulers read."""

    trial_id: str


class IgnoreFailures:
    """Mixin for a scheduler: the last report of a failed trial has no score, so the scheduler must not read it."""

    def on_trial_complete(self, controller, trial, result) -> None:
        if SCORE in result:
            super().on_trial_complete(controller, trial, result)  # type: ignore[misc]


class ASHA(IgnoreFailures, ASHAScheduler):
    """Stops trials that are worse than two thirds of the trials with as many epochs."""


class MedianStopping(IgnoreFailures, MedianStoppingRule):
    """Stops trials that are worse than the median of the others after as many epochs."""


def grace_period(options: SearchOptions, epochs: int) -> int:
    """Epochs before which no trial is stopped: at most `epochs`, at least 1."""
    return min(options.grace_period or min(10, epochs // 5), epochs) or 1


def make_scheduler(options: SearchOptions, epochs: int, mode: str, ended: list[Record]) -> ASHA | MedianStopping | None:
    """A scheduler that takes the trials before a resumption into account; None if trials are not to be stopped.

    Args:
        options: of the search.
        epochs: maximum number of epochs of a trial.
        mode: `"max"` or `"min"`.
        ended: records of trials that have ended.
    """
    if options.scheduler == "none":
        return None
    grace = grace_period(options, epochs)
    fields: dict[str, Any] = {"time_attr": EPOCH, "metric": SCORE, "mode": mode}
    scheduler: ASHA | MedianStopping
    if options.scheduler == "asha":  # not at the last epoch, after which a trial ends anyway
        scheduler = ASHA(
            max_t=max(epochs - 1, grace), grace_period=grace, reduction_factor=3, stop_last_trials=False, **fields
        )
    else:  # with this min_time_slice no trial is paused, since a paused trial would start from the beginning
        scheduler = MedianStopping(grace_period=grace, min_time_slice=epochs + 1, **fields)
    for record in ended:
        if record["status"] != "failed" and record["curve"]:
            _replay(scheduler, record, max if mode == "max" else min)
    return scheduler


def _replay(scheduler: Any, record: Record, better: Any) -> None:
    """Report an ended trial to a scheduler, epoch by epoch. The median rule must not decide, so it gets the results
    through `on_trial_complete`."""
    trial = EndedTrial(f"ended-{record['trial']}")
    is_asha = isinstance(scheduler, ASHA)
    report = scheduler.on_trial_result if is_asha else scheduler.on_trial_complete
    scheduler.on_trial_add(None, trial)
    best = record["curve"][0][1]
    for epoch, score, _ in record["curve"]:
        best = better(best, score)
        report(None, trial, {EPOCH: epoch, SCORE: best})
    if is_asha:
        scheduler.on_trial_complete(None, trial, {EPOCH: epoch, SCORE: best})
