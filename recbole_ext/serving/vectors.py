"""User and item vectors whose inner products are a model's scores, for an index of nearest neighbours.

V items, n users, H the model's hidden size, D = H, or H + 1 for a model with item biases.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from recbole_ext.errors import InputError
from recbole_ext.model import MODELS, contract
from recbole_ext.model.registry import name_of
from recbole_ext.serving.histories import Requests


class Vectors(NamedTuple):
    """Tokens and their vectors, row by row; unpacks as `tokens, vectors = ...`.

    Attributes:
        tokens: of items or users, text as in the training's files, object [n].
        vectors: float32 [n, D].
    """

    tokens: np.ndarray
    vectors: np.ndarray


def item_vectors(recommender: Any, items: np.ndarray) -> Vectors:
    """See `Recommender.item_vectors`.

    Args:
        recommender: of the model.
        items: ids of the items, [n].
    """
    table, bias = _item_table(recommender.model)
    ids = torch.from_numpy(items).to(table.device)
    with torch.inference_mode():
        parts = [table[ids]] if bias is None else [table[ids], bias[ids].unsqueeze(1)]
        vectors = _as_array(torch.cat(parts, dim=1))
    return Vectors(recommender.items.tokens[items], vectors)


def user_vectors(recommender: Any, requests: Requests) -> Vectors:
    """See `Recommender.user_vectors`.

    Args:
        recommender: of the model.
        requests: one for each user.
    """
    table, bias = _item_table(recommender.model)
    vectors = np.empty((len(requests), table.shape[1] + (bias is not None)), dtype=np.float32)
    for begin in range(0, len(requests), recommender.scorer.rows):
        rows = slice(begin, min(begin + recommender.scorer.rows, len(requests)))
        with torch.inference_mode():
            users = recommender.prepare(requests, rows)
            if bias is not None:  # the last number of an item's vector is its bias
                users = torch.cat([users, users.new_ones(len(users), 1)], dim=1)
            vectors[rows] = _as_array(users)
    if np.isnan(vectors).any():
        raise FloatingPointError("the model's user vectors are not numbers: its training has diverged; train it anew.")
    return Vectors(requests.users, vectors)


def check_vectors(model: Any) -> None:
    """`InputError` if a model's score is not known to be an inner product of a user's and an item's vector."""
    if not contract.has_item_table(model):
        able = ", ".join(name for name, known in MODELS.items() if contract.has_item_table(known))
        raise InputError(
            f"{name_of(type(model))} has no user and item vectors whose inner product is its score; models that have "
            f"them are {able}. Use recommend instead."
        )


def _item_table(model: Any) -> tuple[Tensor, Tensor | None]:
    check_vectors(model)
    return model.item_table()


def _as_array(values: Tensor) -> np.ndarray:
    return values.to("cpu", torch.float32).numpy()
