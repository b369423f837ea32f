"""Scores of many items for many requests in bounded memory, and vectors whose inner products are scores.

B requests of a batch, C candidates, V items, H hidden size of the model, D = H, or H + 1 for models with item biases.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from recbole.data.interaction import Interaction
from torch import Tensor

from recbole_ext.errors import InputError
from recbole_ext.evaluation.best_items import UserBounds, product_scores, upper_bounds
from recbole_ext.model import MODELS, contract
from recbole_ext.model.registry import name_of

if TYPE_CHECKING:
    from recbole_ext.serving.requests import Requests
    from recbole_ext.serving.served_model import ServedModel

MAX_ROWS = 256  # requests of a batch
MAX_ITEMS = 2**16  # items scored at once
MAX_PAIRED_ITEMS = 2**12
BYTES = 16  # memory for one score, including the copies that `topk` needs


class FactoredScorer:
    """For models with an item-independent part (`prepare`), from which any items are scored (`score_items`).

    Args:
        model: in evaluation mode.
        budget: bytes that the scores of a batch may take.
    """

    def __init__(self, model: Any, budget: float):
        self.model, self.rows = model, MAX_ROWS
        self.chunk = max(1, min(MAX_ITEMS, int(budget / BYTES / self.rows)))
        self._bounds = upper_bounds(*model.item_table()) if contract.has_item_table(model) else None

    def prepare(self, batch: Interaction, user_features: dict[str, Tensor]) -> Any:
        """The item-independent part of scoring a batch."""
        return self.model.prepare(batch, user_features) if user_features else self.model.prepare(batch)

    def score(self, prepared: Any, items: Tensor | slice) -> Tensor:
        """Scores of the items for each request, [B, C]."""
        if contract.has_item_table(self.model):
            return product_scores(prepared, *self.model.item_table())(items)
        return self.model.score_items(prepared, items)

    def bounds(self, prepared: Any) -> UserBounds | None:
        """Upper bounds of the scores, if they are faster than the scores."""
        return None if self._bounds is None else self._bounds.of_users(prepared)


class FullScorer:
    """For models that can only score all items at once (`full_sort_predict`): a few requests at a time."""

    def __init__(self, model: Any, budget: float):
        self.model, self.chunk = model, MAX_ITEMS
        self.rows = max(1, min(MAX_ROWS, int(budget / BYTES / model.n_items)))

    def prepare(self, batch: Interaction, user_features: dict[str, Tensor]) -> Tensor:
        """All scores, [B, V + 1]."""
        return self.model.full_sort_predict(batch).view(len(batch), -1)

    def score(self, prepared: Tensor, items: Tensor | slice) -> Tensor:
        """Scores of the items for each request, [B, C]."""
        return prepared[:, items]

    def bounds(self, prepared: Any) -> None:
        """None: the scores are known."""


class PairScorer:
    """For models that score pairs of history and item (`predict`): one request at a time, repeated for its items."""

    def __init__(self, model: Any, budget: float, items: Interaction):
        self.model, self.items, self.rows = model, items, 1
        self.chunk = max(1, min(MAX_PAIRED_ITEMS, int(budget / (BYTES + 4 * 8 * model.max_seq_length))))

    def prepare(self, batch: Interaction, user_features: dict[str, Tensor]) -> Interaction:
        """The batch itself."""
        return batch

    def score(self, prepared: Interaction, items: Tensor | slice) -> Tensor:
        """Scores of the items for each request, [B, C]."""
        rows, candidates = len(prepared), self.items[items.cpu() if isinstance(items, Tensor) else items]
        pairs = prepared.repeat_interleave(len(candidates))
        pairs.update(candidates.repeat(rows).to(pairs[self.model.ITEM_SEQ].device))
        return self.model.predict(pairs).view(rows, -1)

    def bounds(self, prepared: Any) -> None:
        """None: the model has no item vectors."""


Scorer = FactoredScorer | FullScorer | PairScorer


def make_scorer(model: Any, budget: float, items: Interaction) -> Scorer:
    """The fastest scorer that a model supports.

    Args:
        model: in evaluation mode.
        budget: bytes that the scores of a batch may take.
        items: the features of all items, for models that score pairs.
    """
    if contract.item_scorer(model) is not None:
        return FactoredScorer(model, budget)
    if contract.scores_all_items(model):
        return FullScorer(model, budget)
    return PairScorer(model, budget, items)


def refuse_nan(values: np.ndarray, name: str) -> np.ndarray:
    """The values; `FloatingPointError` if some are not numbers."""
    if np.isnan(values).any():
        raise FloatingPointError(f"the model's {name} are not numbers: its training has diverged; train it anew.")
    return values


# -------------------------------------------------------------------- vectors


class Vectors(NamedTuple):
    """Tokens and their vectors, row by row; unpacks as `tokens, vectors = ...`.

    Attributes:
        tokens: of n items or users, text as in the training files, object [n].
        vectors: float32 [n, D].
    """

    tokens: np.ndarray
    vectors: np.ndarray


def item_table(model: Any) -> tuple[Tensor, Tensor | None]:
    """Item embeddings [V + 1, H] and, if the model has them, item biases [V + 1].

    Raises:
        InputError: the model's score is not an inner product of a user vector and an item vector.
    """
    if not contract.has_item_table(model):
        names = ", ".join(name for name, model_class in MODELS.items() if contract.has_item_table(model_class))
        raise InputError(
            f"{name_of(type(model))} has no user and item vectors whose inner product is its score; models that have "
            f"them are {names}. Use recommend instead."
        )
    return model.item_table()


@torch.inference_mode()
def item_vectors(served: "ServedModel", items: np.ndarray) -> Vectors:
    """Vectors of the items with these ids, [n]; the last value is the item's bias, if the model has biases."""
    table, bias = item_table(served.model)
    ids = torch.from_numpy(items).to(table.device)
    vectors = table[ids] if bias is None else torch.cat([table[ids], bias[ids].unsqueeze(1)], dim=1)
    return Vectors(served.items.tokens[items], _to_numpy(vectors))


@torch.inference_mode()
def user_vectors(served: "ServedModel", requests: "Requests") -> Vectors:
    """Vectors of the users of the requests; the last value is 1 if the model has item biases."""
    table, bias = item_table(served.model)
    vectors = np.empty((len(requests), table.shape[1] + (bias is not None)), dtype=np.float32)
    for begin in range(0, len(requests), served.scorer.rows):
        rows = slice(begin, min(begin + served.scorer.rows, len(requests)))
        users = served.prepare(requests, rows)
        vectors[rows] = _to_numpy(users if bias is None else torch.cat([users, users.new_ones(len(users), 1)], dim=1))
    return Vectors(requests.users, refuse_nan(vectors, "user vectors"))


def _to_numpy(values: Tensor) -> np.ndarray:
    return values.to("cpu", torch.float32).numpy()
