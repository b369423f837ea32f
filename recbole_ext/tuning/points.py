"""Points of a search space, that is, configurations to try. Some values exclude each other, so not all are valid."""

import itertools
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tqdm import tqdm

from recbole_ext.config import Config
from recbole_ext.config.checks import check_run
from recbole_ext.errors import InputError
from recbole_ext.tuning.space import Space
from recbole_ext.utils.literals import to_builtin

TRIES = 200  # draws without a new valid configuration before giving up
MAX_ENUMERATED = 100_000  # a space with more combinations is sampled and not enumerated
LARGE_GRID = 1000  # from this many configurations on, the check takes long enough to show its progress

Point = dict[str, Any]
InvalidReasonFunction = Callable[[Point], str]  # why a configuration is invalid; "" if it is valid


class InvalidReason:
    """Says why a configuration is invalid together with the fixed keys of a search; "" if it is valid."""

    def __init__(self, model: Any, dataset: str, keys: dict[str, Any]):
        self.model, self.dataset, self.keys = model, dataset, keys
        self.cache: dict[str, str] = {}

    def __call__(self, point: Point) -> str:
        name = identity(point)
        if name not in self.cache:
            try:
                check_run(Config(self.model, self.dataset, None, {**self.keys, **point}, argv=[]))
                self.cache[name] = ""
            except InputError as error:
                self.cache[name] = str(error)
        return self.cache[name]


def identity(point: Point) -> str:
    """A text that is equal for equal configurations."""
    return json.dumps(to_builtin(point), sort_keys=True)


def check_values(space: Space, source: str, invalid_reason: InvalidReasonFunction, seed: int) -> None:
    """Check that every listed value is valid together with some values of the other keys.

    Raises:
        InputError: a value is not; the message has the reason of the last combination.
    """
    generator = np.random.default_rng(seed)
    for key, distribution in space.items():
        for value in (distribution.choices or ())[:TRIES]:
            reason = ""
            for _ in range(TRIES):
                reason = invalid_reason({**draw(space, generator), key: value})
                if not reason:
                    break
            if reason:
                raise InputError(f"{source}: '{key}' is never valid as {value!r}: {reason}")


def draw(space: Space, generator: np.random.Generator) -> Point:
    """One value for each key; the configuration may be invalid."""
    return {key: distribution.sample(generator) for key, distribution in space.items()}


def default_samples(space: Space) -> int:
    """The default of `num_samples`."""
    return 1 if all(distribution.kind == "grid" for distribution in space.values()) else 20


def default_point(space: Space, config: Any) -> Point | None:
    """The values of `config` for the keys of a space; None if the space does not contain them."""
    point = {key: config[key] for key in space}
    return point if all(distribution.contains(point[key]) for key, distribution in space.items()) else None


def random_points(
    space: Space, samples: int, invalid_reason: InvalidReasonFunction, seed: int, first: Point | None = None
) -> list[Point]:
    """Draw distinct valid configurations for each combination of the grid.

    Args:
        space: distributions of the keys.
        samples: number of configurations for each combination of the grid; fewer if there are not so many.
        invalid_reason: says why a configuration is invalid.
        seed: the same seed gives the same configurations.
        first: comes first in its combination of the grid.

    Raises:
        InputError: no configuration is valid.
    """
    generator = np.random.default_rng(seed)
    grid = {key: distribution.choices or () for key, distribution in space.items() if distribution.kind == "grid"}
    sampled = {key: distribution for key, distribution in space.items() if key not in grid}
    reason = ""

    def distinct_points(grid_point: Point) -> Iterator[Point]:
        """Valid configurations with the values of `grid_point`, until `TRIES` candidates in a row bring no new one."""
        nonlocal reason
        candidates = _candidates(sampled, generator)
        if first is not None and all(first[key] == value for key, value in grid_point.items()):
            candidates = itertools.chain([first], candidates)
        seen, misses = set(), 0
        for candidate in candidates:
            point = {key: {**candidate, **grid_point}[key] for key in space}
            is_new = identity(point) not in seen
            seen.add(identity(point))
            failure = invalid_reason(point) if is_new else ""
            reason = failure or reason
            if is_new and not failure:
                misses = 0
                yield point
            elif (misses := misses + 1) == TRIES:
                return

    size = math.prod(map(len, grid.values()))
    if size > LARGE_GRID:
        print(f"checking the {size:,} configurations of the grid", flush=True)
    points: list[Point] = []
    for values in tqdm(itertools.product(*grid.values()), total=size, delay=2, leave=False, disable=None):
        points += itertools.islice(distinct_points(dict(zip(grid, values, strict=True))), samples)
    if not points:
        raise InputError(f"no combination of the search space is valid; the last one: {reason}")
    return points


def _candidates(space: Space, generator: np.random.Generator) -> Iterator[Point]:
    """All combinations in random order if they can be enumerated, else endless random draws."""
    choices = [distribution.choices for distribution in space.values() if distribution.choices is not None]
    size = math.prod(map(len, choices))
    if len(choices) < len(space) or size > MAX_ENUMERATED:
        while True:
            yield draw(space, generator)
    for index in generator.permutation(size):
        positions = np.unravel_index(index, [*map(len, choices)]) if choices else ()
        yield {key: values[at] for key, values, at in zip(space, choices, positions, strict=True)}
