"""What proposes the next point: a list that was drawn before, or Optuna or HyperOpt through Ray's interfaces."""

import contextlib
import logging
import os
import pickle
import warnings
from functools import cache
from typing import Any

from recbole_ext.tuning.plan import Plan, Remaining
from recbole_ext.tuning.points import Check, Point, identity
from recbole_ext.tuning.space import Space

SCORE = "best_score"  # of a trial, up to the epoch it has come to
TRIES = 200
RANDOM = 5  # results from which an algorithm begins to propose: searches of these models are short


class Listed:
    """Proposes the points of a list, one after the other.

    Args:
        setups: what the trials are to get: `number`, `keys`, and `repeats` if it does an earlier one again.
    """

    def __init__(self, setups: list[dict[str, Any]], mode: str):
        super().__init__(metric=SCORE, mode=mode)  # type: ignore[call-arg]
        self.setups = list(setups)

    def set_search_properties(self, metric, mode, config, **spec) -> bool:
        return True  # they are known

    def suggest(self, trial_id: str) -> Any:
        return self.setups.pop(0) if self.setups else type(self).FINISHED  # type: ignore[attr-defined]

    def on_trial_complete(self, trial_id, result=None, error=False) -> None:
        pass

    def save(self, path: str) -> None:
        """Ray saves searchers now and then; the journal knows what has ended."""

    def restore(self, path: str) -> None:
        pass


class Adaptive:
    """Proposes what another algorithm does, values that are not possible together left out.

    Args:
        inner: Ray's interface to the algorithm; it deals with places in the list of values where there is one.
        space: keys and domains.
        first: the point to begin with, if there is one; it is used as it is, while proposed numbers are rounded.
        why_not: says why a point is not possible; then the algorithm hears of a failure and is asked again.
        left: what of the search is still to be done. Trials that are done again come first; no point comes twice.
        path: where the algorithm's state is kept, for a search that is resumed.
    """

    def __init__(
        self, inner: Any, space: Space, first: Point | None, why_not: Check, left: Remaining, path: str, mode: str
    ):
        super().__init__(metric=SCORE, mode=mode)  # type: ignore[call-arg]
        self.first = first
        self.inner, self.space, self.why_not, self.number, self.path = inner, space, why_not, left.next, path
        self.again = list(left.setups)
        self.tried = {identity(one["keys"]) for one in [*left.ended, *left.setups]}
        if os.path.exists(path):
            try:
                inner.restore(path)
            except Exception as error:  # it is a pickle: anything can be wrong with it
                print(f"{path} cannot be read ({error}); proposals begin without what was learnt so far", flush=True)

    def set_search_properties(self, metric, mode, config, **spec) -> bool:
        return True

    def suggest(self, trial_id: str) -> Any:
        if self.again:
            return self.again.pop(0)
        for attempt in range(TRIES):
            name = f"{trial_id}-{attempt}" if attempt else trial_id
            proposal = self.inner.suggest(name)
            if proposal is None:  # it waits for results
                return None
            is_first = self.first is not None and proposal == place(self.space, self.first)
            keys = dict(self.first or {}) if is_first else decode(self.space, proposal)
            if identity(keys) not in self.tried and not self.why_not(keys):
                self.names[trial_id] = name
                self.tried.add(identity(keys))
                self.number += 1
                return {"number": self.number - 1, "keys": keys}
            self.inner.on_trial_complete(name, error=True)
        return type(self).FINISHED  # type: ignore[attr-defined]

    @property
    def names(self) -> dict[str, str]:
        """What the algorithm knows trials by."""
        return self.__dict__.setdefault("_names", {})

    def on_trial_complete(self, trial_id, result=None, error=False) -> None:
        failed = error or not result or SCORE not in result
        name = self.names.pop(trial_id, None)
        if name is None:  # one that was done again
            return
        self.inner.on_trial_complete(name, None if failed else {SCORE: result[SCORE]}, error=failed)
        with contextlib.suppress(pickle.PicklingError, AttributeError, TypeError):
            self.inner.save(f"{self.path}.part")
            os.replace(f"{self.path}.part", self.path)

    def save(self, path: str) -> None:
        pass

    def restore(self, path: str) -> None:
        pass


def encode(space: Space) -> dict[str, Any]:
    """The space in Ray's terms; where values can be counted, the place of the value in their list."""
    from ray import tune

    found: dict[str, Any] = {}
    for key, domain in space.items():
        if domain.members is None:
            found[key] = getattr(tune, domain.way)(*map(float, domain.values))
        elif domain.way == "choice":
            found[key] = tune.choice(list(range(len(domain.members))))
        else:
            found[key] = tune.randint(0, len(domain.members))
    return found


def place(space: Space, point: Point) -> dict[str, Any]:
    """A point in the terms of `encode`."""
    return {
        key: value if space[key].members is None else (space[key].members or ()).index(value)
        for key, value in point.items()
    }


def decode(space: Space, proposal: dict[str, Any]) -> Point:
    """The values that a proposal in Ray's terms means."""
    from recbole_ext.tuning.space import rounded

    return {
        key: rounded(proposal[key], *domain.values) if domain.members is None else domain.members[int(proposal[key])]
        for key, domain in space.items()
    }


def listed(setups: list[dict[str, Any]], mode: str) -> Any:
    """A searcher of Ray for points that are known."""
    return _for_ray(Listed)(setups, mode)


def adaptive(plan: Plan, left: Remaining, path: str) -> Any:
    """A searcher of Ray that lets Optuna (TPE) or HyperOpt (TPE) propose, after the point to begin with.

    Args:
        plan: of the search.
        left: what of it is still to be done.
        path: where the algorithm's state is kept.
    """
    space, mode, seed = plan.space, plan.mode, plan.config["seed"]
    known = None if plan.first is None else [place(space, plan.first)]
    inner: Any
    if plan.options.search_alg == "optuna":
        import optuna
        from ray.tune.search.optuna import OptunaSearch

        logging.getLogger("optuna").setLevel(logging.ERROR)
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ways = OptunaSearch.convert_search_space(encode(space))
            inner = OptunaSearch(ways, SCORE, mode, points_to_evaluate=known, sampler=sampler)
    else:
        from ray.tune.search.hyperopt import HyperOptSearch

        ways = HyperOptSearch.convert_search_space(encode(space))
        inner = HyperOptSearch(
            ways, SCORE, mode, points_to_evaluate=known, random_state_seed=seed % 2**31, n_initial_points=RANDOM
        )
    return _for_ray(Adaptive)(inner, space, plan.first, plan.why_not(), left, path, mode)


@cache
def _for_ray(mixin: type) -> type:
    from ray.tune.search import Searcher

    return type(mixin.__name__, (mixin, Searcher), {"__doc__": mixin.__doc__})
