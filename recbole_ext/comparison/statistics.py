"""The paired bootstrap over users, and the correction for several comparisons."""

from dataclasses import dataclass

import numpy as np

DECIMALS = 12  # of the values that are resampled: smaller differences are rounding errors
BATCH = 2**22  # users that are drawn at a time, to limit memory
SHARED = 8  # users to a value from which counts are faster to draw than users


@dataclass(frozen=True)
class Difference:
    """A difference of two means with its confidence interval and its two-sided p-value."""

    estimate: float
    low: float
    high: float
    p_value: float


def bootstrap_difference(
    difference: np.ndarray, weight: np.ndarray, confidence: float, resamples: int, seed: int
) -> Difference:
    """The paired bootstrap of a weighted mean difference over users.

    The percentile interval of B. Efron, R. Tibshirani, *An Introduction to the Bootstrap* (1993), chapter 13. The
    p-value is twice the smaller share of resamples on either side of zero, so that it agrees with the interval.

    Args:
        difference: each user's weighted sum of differences, [U].
        weight: each user's sum of weights, [U]; a user with two rankings has the weight 2. Users with the weight 0, for
            whom the metric has no value, are left out.
        confidence: of the interval, in (0, 1).
        resamples: number of resamples, R. The smallest possible p-value is 2 / (R + 1).
        seed: of the random numbers.
    """
    pairs = np.round(np.column_stack([difference, weight])[weight > 0], DECIMALS)
    values, counts = np.unique(pairs, axis=0, return_counts=True)
    generator, means = np.random.default_rng(seed), []
    for size in _sizes(resamples, max(1, BATCH // len(pairs))):
        sums = _resampled_sums(values, counts, size, generator)
        means.append(sums[:, 0] / sums[:, 1])
    resampled = np.concatenate(means)
    low, high = np.quantile(resampled, [(1 - confidence) / 2, (1 + confidence) / 2])
    smaller_side = min((resampled <= 0).sum(), (resampled >= 0).sum())
    p_value = min(1.0, 2 * (smaller_side + 1) / (resamples + 1))
    total = counts @ values
    return Difference(float(total[0] / total[1]), float(low), float(high), float(p_value))


def _resampled_sums(values: np.ndarray, counts: np.ndarray, size: int, generator: np.random.Generator) -> np.ndarray:
    """The sums of `size` resamples, [size, 2], of users whose different values [V, 2] have `counts` [V]."""
    users = int(counts.sum())
    if len(values) * SHARED <= users:  # ranks give metrics few values; then how often each is drawn is multinomial
        return generator.multinomial(users, counts / users, size) @ values
    drawn = generator.integers(users, size=(size, users), dtype=np.int32)
    return np.stack([column[drawn].sum(axis=1) for column in values.repeat(counts, axis=0).T], axis=1)


def _sizes(total: int, largest: int) -> list[int]:
    """`total` as a sum of numbers of at most `largest`."""
    return [min(largest, total - begin) for begin in range(0, total, largest)]


def holm(p_values: np.ndarray) -> np.ndarray:
    """p-values that are corrected for their number, so that the chance of any false discovery stays below the level.

    S. Holm, *A Simple Sequentially Rejective Multiple Test Procedure*, Scandinavian Journal of Statistics 6, 1979.

    Args:
        p_values: of all comparisons, [n].
    """
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(1, np.maximum.accumulate(p_values[order] * factors))
    return corrected
