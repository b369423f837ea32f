"""Points of a search space that are possible: some values exclude each other."""

import itertools
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tqdm import tqdm

from recbole_ext.errors import InputError
from recbole_ext.tuning.space import Space
from recbole_ext.utils.literals import to_builtin

TRIES = 200  # for one draw, or for one value: if none is possible, there is hardly any
COUNTABLE = 100_000  # combinations that are listed rather than drawn
LARGE_GRID = 1000  # configurations whose check takes long enough to be announced

Point = dict[str, Any]
Check = Callable[[Point], str]  # says why a point is not possible, "" if it is


def check_values(space: Space, source: str, why_not: Check, seed: int) -> None:
    """See to it that every value that is listed is possible together with some values of the other keys.

    Raises:
        InputError: one is not; the message gives the reason of the last combination.
    """
    generator = np.random.default_rng(seed)
    for key, domain in space.items():
        for value in (domain.members or ())[:TRIES]:
            reason = ""
            for _ in range(TRIES):
                reason = why_not({**draw(space, generator), key: value})
                if not reason:
                    break
            if reason:
                raise InputError(f"{source}: '{key}' is never possible as {value!r}: {reason}")


def draw(space: Space, generator: np.random.Generator) -> Point:
    """One value for each key, possible or not."""
    return {key: domain.sample(generator) for key, domain in space.items()}


def default_samples(space: Space) -> int:
    return 1 if all(domain.way == "grid" for domain in space.values()) else 20


def defaults(space: Space, config: Any) -> Point | None:
    """What the keys of a space are without a search, the point to beat; None if the space does not have it."""
    point = {key: config[key] for key in space}
    return point if all(domain.has(point[key]) for key, domain in space.items()) else None


def points(space: Space, samples: int, why_not: Check, seed: int, first: Point | None = None) -> list[Point]:
    """Random points, for each combination on the grid; no point twice, and none that is not possible.

    Args:
        space: the keys and their domains.
        samples: points for each combination of the keys with `grid`; fewer, if there are no more.
        why_not: says why a point is not possible.
        seed: the same seed gives the same points.
        first: the point to begin with, where its combination on the grid comes up.

    Raises:
        InputError: no point is possible.
    """
    generator = np.random.default_rng(seed)
    grid = {key: domain.members or () for key, domain in space.items() if domain.way == "grid"}
    rest = {key: domain for key, domain in space.items() if key not in grid}
    found, reason = [], ""
    size = math.prod(map(len, grid.values()))
    if size > LARGE_GRID:
        print(f"checking the {size:,} configurations of the grid", flush=True)
    combinations = tqdm(itertools.product(*grid.values()), total=size, delay=2, leave=False, disable=None)
    for combination in combinations:
        fixed, wanted, misses, seen = dict(zip(grid, combination, strict=True)), samples, 0, set()
        begin = []
        if first is not None and all(first[key] == value for key, value in fixed.items()):
            begin = [{key: first[key] for key in rest}]
        for candidate in itertools.chain(begin, _candidates(rest, generator)):
            if not wanted or misses == TRIES:
                break
            misses += 1
            point = {key: {**fixed, **candidate}[key] for key in space}
            if (name := identity(point)) in seen:
                continue
            seen.add(name)
            failure = why_not(point)
            reason = failure or reason
            if not failure:
                found.append(point)
                wanted, misses = wanted - 1, 0
    if not found:
        raise InputError(f"no combination of the search space is possible; the last one: {reason}")
    return found


def identity(point: Point) -> str:
    return json.dumps(to_builtin(point), sort_keys=True)


def _candidates(space: Space, generator: np.random.Generator) -> Iterator[Point]:
    """All points in random order where they can be counted; else draws."""
    members = [domain.members for domain in space.values()]
    size = math.prod(len(one) for one in members if one is not None)
    if not any(one is None for one in members) and size <= COUNTABLE:
        sizes = [len(one or ()) for one in members]
        for index in generator.permutation(size):
            place = np.unravel_index(index, sizes) if sizes else ()
            yield {key: (one or ())[at] for key, one, at in zip(space, members, place, strict=True)}
        return
    while True:
        yield draw(space, generator)
