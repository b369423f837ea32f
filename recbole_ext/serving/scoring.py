"""Scores of many items for many users in bounded memory, and the best of them.

B users of a batch, C candidates, k wanted, V items.
"""

from typing import Any

import torch
from recbole.data.interaction import Interaction
from torch import Tensor

from recbole_ext.model import contract

MOST_ROWS = 256
MOST_ITEMS = 2**16
BYTES = 16  # of a score, with its copies on the way to the best


class FactoredScorer:
    """For models that score any items from what they prepare of a request (`prepare`, `score_items`).

    Args:
        model: in evaluation.
        budget: bytes that the scores of a batch may take.
    """

    def __init__(self, model: Any, budget: float):
        self.model, self.rows = model, MOST_ROWS
        self.chunk = max(1, min(MOST_ITEMS, int(budget / BYTES / self.rows)))

    def prepare(self, batch: Interaction, given: dict[str, Tensor]) -> Any:
        """What scores of any items start from."""
        return self.model.prepare(batch, given) if given else self.model.prepare(batch)

    def score(self, prepared: Any, items: Tensor | slice) -> Tensor:
        """Scores of the items for each row, [B, C]."""
        return self.model.score_items(prepared, items)


class FullScorer:
    """For models that score all items or none (`full_sort_predict`): a few rows at a time."""

    def __init__(self, model: Any, budget: float):
        self.model, self.chunk = model, MOST_ITEMS
        self.rows = max(1, min(MOST_ROWS, int(budget / BYTES / model.n_items)))

    def prepare(self, batch: Interaction, given: dict[str, Tensor]) -> Tensor:
        """All scores, [B, V + 1]."""
        return self.model.full_sort_predict(batch).view(len(batch), -1)

    def score(self, prepared: Tensor, items: Tensor | slice) -> Tensor:
        """Scores of the items for each row, [B, C]."""
        return prepared[:, items]


class PairScorer:
    """For models that score one item per history (`predict`): each row repeated for some items at a time."""

    def __init__(self, model: Any, budget: float, items: Interaction):
        self.model, self.items, self.rows = model, items, 1
        self.chunk = max(1, min(2**12, int(budget / (BYTES + 4 * 8 * model.max_seq_length))))

    def prepare(self, batch: Interaction, given: dict[str, Tensor]) -> Interaction:
        """The batch itself."""
        return batch

    def score(self, prepared: Interaction, items: Tensor | slice) -> Tensor:
        """Scores of the items for each row, [B, C]."""
        rows, candidates = len(prepared), self.items[items.cpu() if isinstance(items, Tensor) else items]
        pairs = prepared.repeat_interleave(len(candidates))
        pairs.update(candidates.repeat(rows).to(pairs[self.model.ITEM_SEQ].device))
        return self.model.predict(pairs).view(rows, -1)


Scorer = FactoredScorer | FullScorer | PairScorer


def scorer_of(model: Any, budget: float, items: Interaction) -> Scorer:
    """The best way that a model offers.

    Args:
        model: in evaluation.
        budget: bytes that the scores of a batch may take.
        items: the features of all items, for models that score pairs.
    """
    if contract.item_scorer(model) is not None:
        return FactoredScorer(model, budget)
    if contract.scores_all_items(model):
        return FullScorer(model, budget)
    return PairScorer(model, budget, items)


def best(
    scorer: Scorer, prepared: Any, candidates: Tensor | slice, k: int, barred: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """The k best candidates of each row, best first, looked for in chunks.

    Args:
        scorer: how to score.
        prepared: what it prepared of B rows.
        candidates: ids, ascending [C], or a slice of ids.
        k: how many; fewer if there are not as many candidates.
        barred: pairs of row and place among the candidates that must not be chosen, [P] each.

    Returns:
        scores and ids, [B, min(k, C)] each; the score of a place that nothing may fill is -inf.
    """
    ids = range(candidates.start, candidates.stop) if isinstance(candidates, slice) else candidates
    found: list[Tensor] = []
    for begin in range(0, len(ids), scorer.chunk):
        end = min(begin + scorer.chunk, len(ids))
        items = slice(ids[begin], ids[end - 1] + 1) if isinstance(ids, range) else ids[begin:end]
        scores = scorer.score(prepared, items).float()
        inside = (barred[1] >= begin) & (barred[1] < end)
        scores[barred[0][inside], barred[1][inside] - begin] = -torch.inf
        values, places = scores.topk(min(k, end - begin), dim=1)
        found = _merged(found, values, places + begin, k)
    values, places = found
    return values, places + ids.start if isinstance(ids, range) else ids[places]


def _merged(found: list[Tensor], values: Tensor, places: Tensor, k: int) -> list[Tensor]:
    if not found:
        return [values, places]
    values, places = torch.cat([found[0], values], dim=1), torch.cat([found[1], places], dim=1)
    values, order = values.topk(min(k, values.shape[1]), dim=1)
    return [values, places.gather(1, order)]
