"""The k best items of each request, exactly: recommendations and rankings of an evaluation.

On a CPU, a block of items is scored at a time, so that the scores stay in the cache. The k-th best score so far is a
threshold: of most groups of items, only the largest score is looked at. Where a score is an inner product, upper bounds
of the scores are computed first, in bfloat16; only items whose bound reaches the threshold are scored exactly.

B requests, C candidates, P pairs of a request and a candidate, H size of a vector, V items.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK_SCORES = 2**21  # scores of a block, which fit in the cache of a CPU
GROUP = 64  # items of which only the largest score is compared with the threshold
MANY = 1 / 2  # share of a block in groups with scores above the threshold, from which sorting the block is faster
LEAST_FOR_BOUNDS = 2**16  # items, below which bounds do not pay
LEAST_THRESHOLD = 1e-30  # of scores that bounds are for: products in bfloat16 lose the smallest numbers
ERROR = 1.01 * 2**-7  # of a product of two numbers that are rounded to bfloat16, relative

ItemScores = Callable[[Tensor | slice], Tensor]  # ids -> scores [B, C]


class RankedItems(NamedTuple):
    """The best items of each of B requests, best first.

    Attributes:
        scores: [B, k]; -inf where no item is left.
        items: ids, [B, k]; 0, the padding, where no item is left.
    """

    scores: Tensor
    items: Tensor


class UpperBounds:
    """Upper bounds of the scores of all items, for scores that are inner products plus a bias.

    Rounding a user vector u and an item vector v to bfloat16 changes their product by at most `ERROR` |u| |v|. A
    further feature, with the values `ERROR` |u| and |v|, adds this error to the product, and another one adds the bias.
    The further features are rounded up.

    Args:
        table: item vectors, float32 [V + 1, H].
        bias: of the items, [V + 1], or None.
    """

    def __init__(self, table: Tensor, bias: Tensor | None):
        self.table, self.bias = table, bias if bias is not None and bias.any() else None
        further = [_rounded_up(torch.linalg.vector_norm(table, dim=1))]
        if self.bias is not None:
            further.append(_rounded_up(self.bias))
        self.rounded = torch.cat([table.to(torch.bfloat16), torch.stack(further, dim=1)], dim=1)  # [V + 1, H + 1 or 2]

    def of_users(self, users: Tensor) -> "UserBounds":
        """The bounds for user vectors, float32 [B, H]."""
        further = [_rounded_up(ERROR * torch.linalg.vector_norm(users, dim=1))]
        if self.bias is not None:
            further.append(torch.ones_like(further[0]))
        rounded = torch.cat([users.to(torch.bfloat16), torch.stack(further, dim=1)], dim=1)
        return UserBounds(self, users, rounded.T.contiguous())


@dataclass(frozen=True)
class UserBounds:
    """Upper bounds of the scores of all items for some users; see `UpperBounds`.

    Attributes:
        of_all: the bounds for any users.
        users: vectors, float32 [B, H].
        rounded: with the further features, bfloat16 [H + 1 or 2, B].
    """

    of_all: UpperBounds
    users: Tensor
    rounded: Tensor

    def bounds(self, items: slice) -> Tensor:
        """Upper bounds of the scores of items, bfloat16 [C, B]."""
        return self.of_all.rounded[items] @ self.rounded

    def scores(self, request: Tensor, item: Tensor) -> Tensor:
        """Scores of pairs, [P]."""
        products = (self.users[request] * self.of_all.table[item]).sum(1)
        return products if self.of_all.bias is None else products + self.of_all.bias[item]


def bounds_pay(table: Tensor) -> bool:
    """Whether bounds are faster than scores: for many items in float32, on a CPU that multiplies bfloat16."""
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return table.dtype == torch.float32 and table.device.type == "cpu" and len(table) > LEAST_FOR_BOUNDS and supported()


def upper_bounds(table: Tensor, bias: Tensor | None) -> UpperBounds | None:
    """`UpperBounds` where they are faster than the scores, else None."""
    return UpperBounds(table.detach(), bias) if bounds_pay(table) else None


def _rounded_up(values: Tensor) -> Tensor:
    """The smallest bfloat16 that is not below each value."""
    rounded = values.to(torch.bfloat16)
    return torch.where(rounded < values, rounded.nextafter(torch.full_like(rounded, torch.inf)), rounded)


def product_scores(users: Tensor, table: Tensor, bias: Tensor | None) -> ItemScores:
    """Scores that are inner products plus a bias; CPUs compute them faster with a row for each item.

    Args:
        users: vectors, [B, H].
        table: item vectors, [V + 1, H].
        bias: of the items, [V + 1], or None.
    """

    def score(items: Tensor | slice) -> Tensor:
        products = table[items] @ users.T  # [C, B]
        return (products if bias is None else products.add_(bias[items].unsqueeze(1))).T

    return score


class BestItems:
    """The k best of the candidates that have been added so far.

    Args:
        requests: B.
        k: number of items.
        device: of the scores.

    Attributes:
        scores: best first, [B, k]; -inf where there are fewer candidates. NaN counts as the largest number.
        positions: of these candidates, [B, k].
    """

    def __init__(self, requests: int, k: int, device: torch.device):
        self.k, self.pending_size = k, 0
        self.scores = torch.full((requests, k), -torch.inf, device=device)
        self.positions = torch.zeros((requests, k), dtype=torch.int64, device=device)
        self.pending: list[tuple[Tensor, Tensor, Tensor]] = []

    @property
    def threshold(self) -> Tensor:
        """The score that a candidate must exceed, [B]; candidates that are still pending do not raise it."""
        return self.scores[:, -1]

    def add_block(self, scores: Tensor, begin: int) -> None:
        """Add the scores [B, C] of the candidates from position `begin`."""
        pairs = None
        if scores.device.type == "cpu":  # elsewhere, a search for pairs waits for the device
            pairs = pairs_above(_groups(scores.T), self.threshold, limit=MANY * scores.numel())
        if pairs is None:
            values, positions = scores.topk(min(self.k, scores.shape[1]), dim=1)
            self._merge(values, positions + begin)
        else:
            request, position = pairs
            self.add_pairs(request, position + begin, scores[request, position])

    def add_bounded(self, users: UserBounds, items: slice, begin: int, excluded: tuple[Tensor, Tensor]) -> bool:
        """Add the items of a block whose bounds reach the threshold; False if sorting the whole block is faster.

        Args:
            users: the bounds.
            items: ids of the block.
            begin: position of the block's first candidate.
            excluded: pairs of request and place within the block that must not be chosen.
        """
        if (self.threshold.abs() < LEAST_THRESHOLD).any():
            return False
        bounds = users.bounds(items)
        bounds[excluded[1], excluded[0]] = -torch.inf
        # rounding keeps the order: a bound that reaches the threshold does so when both are rounded
        threshold = self.threshold.to(torch.bfloat16)
        pairs = pairs_above(_groups(bounds), threshold, limit=MANY * bounds.numel(), or_equal=True)
        if pairs is None:
            return False
        request, place = pairs
        scores = users.scores(request, items.start + place)
        above = (scores <= self.threshold[request]).logical_not_()
        self.add_pairs(request[above], place[above] + begin, scores[above])
        return True

    def add_pairs(self, request: Tensor, position: Tensor, scores: Tensor) -> None:
        """Add the scores [P] of pairs of a request and the position of a candidate, each pair once."""
        self.pending.append((request, position, scores))
        self.pending_size += len(request)
        if self.pending_size > self.scores.numel() // 2:
            self.settle()

    def settle(self) -> None:
        """Move the pending candidates into `scores` and `positions`."""
        if not self.pending_size:
            return
        request, position, scores = (torch.cat(parts) for parts in zip(*self.pending, strict=True))
        self.pending, self.pending_size = [], 0
        request, order = request.sort(stable=True)
        count = request.bincount(minlength=len(self.scores))
        column = torch.arange(len(request), device=request.device) - (count.cumsum(0) - count)[request]
        shape = len(self.scores), int(count.max())
        values = torch.full(shape, -torch.inf, device=scores.device)
        positions = torch.zeros(shape, dtype=torch.int64, device=scores.device)
        values[request, column], positions[request, column] = scores[order], position[order]
        self._merge(values, positions)

    def _merge(self, scores: Tensor, positions: Tensor) -> None:
        """Merge [B, n] further candidates."""
        self.scores, order = torch.cat([self.scores, scores], dim=1).topk(self.k, dim=1)
        self.positions = torch.cat([self.positions, positions], dim=1).gather(1, order)


def _groups(scores: Tensor) -> Tensor:
    """Scores [C, B] -> [groups, GROUP, B]; missing ones are -inf."""
    missing = -len(scores) % GROUP
    if missing:
        scores = torch.cat([scores, scores.new_full((missing, scores.shape[1]), -torch.inf)])
    return scores.unflatten(0, (-1, GROUP))


def pairs_above(
    groups: Tensor, threshold: Tensor, limit: float, or_equal: bool = False
) -> tuple[Tensor, Tensor] | None:
    """Pairs of a request and the position of a score above its threshold. NaN counts as above, -inf never does.

    Args:
        groups: scores, [groups, GROUP, B].
        threshold: of each request, [B].
        limit: number of scores; if the groups that have such a pair hold more, the result is None.
        or_equal: whether scores that equal the threshold belong to them.

    Returns:
        requests and positions, [P] each.
    """
    misses = torch.lt if or_equal else torch.le  # false for NaN
    group, request = misses(groups.amax(1), threshold).logical_not_().nonzero(as_tuple=True)
    if len(group) * GROUP > limit:
        return None
    scores = groups[group, :, request]
    is_above = misses(scores, threshold[request].unsqueeze(1)).logical_not_() & (scores != -torch.inf)
    pair, place = is_above.nonzero(as_tuple=True)
    return request[pair], group[pair] * GROUP + place


def best_items(
    score: ItemScores,
    candidates: Tensor | slice,
    k: int,
    excluded: tuple[Tensor, Tensor],
    requests: int,
    chunk: int,
    users: UserBounds | None = None,
) -> RankedItems:
    """The k best candidates of each request; all C candidates if there are fewer.

    Args:
        score: scores of items for all requests.
        candidates: ids, ascending [C], or a slice of ids; at least one.
        k: number of items.
        excluded: pairs of request and position among the candidates that must not be chosen, [P] each.
        requests: B.
        chunk: largest number of items to score at once.
        users: bounds of the same scores, used for slices only.
    """
    ids = range(candidates.start, candidates.stop) if isinstance(candidates, slice) else candidates
    position, order = excluded[1].sort()
    request, device = excluded[0][order], position.device
    if device.type == "cpu":
        chunk = min(chunk, max(BLOCK_SCORES // max(requests, 1), GROUP))
    best = BestItems(requests, min(k, len(ids)), device)
    begins = range(0, len(ids), chunk)
    ends = torch.searchsorted(position, torch.tensor([*begins, len(ids)], device=device)).tolist()  # of excluded pairs
    for block, begin in enumerate(begins):
        end = min(begin + chunk, len(ids))
        items = slice(ids[begin], ids[end - 1] + 1) if isinstance(ids, range) else ids[begin:end]
        pairs = slice(ends[block], ends[block + 1])
        barred = request[pairs], position[pairs] - begin
        if users is None or not isinstance(items, slice) or not best.add_bounded(users, items, begin, barred):
            scores = score(items).float()
            scores[barred] = -torch.inf
            best.add_block(scores, begin)
    best.settle()
    items = best.positions + ids.start if isinstance(ids, range) else ids[best.positions]
    return RankedItems(best.scores, items.masked_fill(best.scores == -torch.inf, 0))
