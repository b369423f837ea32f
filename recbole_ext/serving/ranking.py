"""Rank items for requests, a batch of users at a time.

B requests of a batch, C candidates, V items.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from logging import getLogger
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm import tqdm

from recbole_ext.data.files.item_files import ITEM_NAME
from recbole_ext.data.files.table import Table, values_table
from recbole_ext.errors import InputError
from recbole_ext.evaluation.best_items import best_items
from recbole_ext.serving.columns import as_text
from recbole_ext.serving.requests import Requests
from recbole_ext.serving.scoring import refuse_nan
from recbole_ext.serving.served_model import ServedModel
from recbole_ext.utils.wording import counted, quoted


def candidate_ids(served: ServedModel, items: Iterable[Any] | Table | None, trained_items_only: bool) -> Tensor | slice:
    """Ids of the candidates, ascending.

    Args:
        served: the model.
        items: tokens of the candidates; `None` means all items. Unknown items are skipped with a warning.
        trained_items_only: leave out items without a training event.

    Raises:
        InputError: no candidate is left.
    """
    all_items = slice(1, len(served.items.tokens))
    if items is None and (not trained_items_only or served.trained_items()[all_items].all()):
        return all_items  # scored without a copy of the item table
    ids = np.arange(1, len(served.items.tokens)) if items is None else _known_ids(served, items)
    if trained_items_only:
        ids = ids[served.trained_items()[ids]]
        if not len(ids):
            raise InputError("trained_items_only leaves no item: none of them has a training event.")
    return torch.from_numpy(ids)


def _known_ids(served: ServedModel, items: Iterable[Any] | Table) -> np.ndarray:
    """Ids of the items that the model knows, ascending."""
    tokens = as_text(values_table(items, served.item_field, "items"), served.item_field)
    ids = served.items.ids(tokens)
    if (ids == 0).any():
        example = tokens[np.argmax(ids == 0)]
        getLogger().warning(f"items: {(ids == 0).sum():,} that the model does not know are skipped, '{example}' ..")
    known_ids = np.unique(ids[ids > 0])
    if not len(known_ids):
        raise InputError("items holds no item that the model knows; there is nothing to choose from.")
    return known_ids


def ranked_blocks(
    served: ServedModel,
    requests: Requests,
    k: int,
    candidates: Tensor | slice,
    exclude_seen: bool,
    show_progress: bool | None,
) -> Iterator[pd.DataFrame]:
    """The k best candidates of each request, a block of users at a time; for the columns see `Recommender.recommend`.

    Args:
        served: the model.
        requests: n requests.
        k: number of items.
        candidates: the result of `candidate_ids`.
        exclude_seen: leave out items of the user's events.
        show_progress: whether to show a progress bar; `None` shows it on a terminal.
    """
    ids = np.arange(candidates.start, candidates.stop) if isinstance(candidates, slice) else candidates.numpy()
    candidate_position = np.full(len(served.items.tokens), -1)  # of each item, [V + 1]
    candidate_position[ids] = np.arange(len(ids))
    if isinstance(candidates, Tensor):
        candidates = candidates.to(served.config["device"])
    counts: list[np.ndarray] = []  # items that each user gets
    disable = None if show_progress is None else not show_progress
    with tqdm(total=len(requests), desc="Recommend", unit="user", disable=disable) as bar:
        for begin in range(0, len(requests), served.scorer.rows):
            rows = slice(begin, min(begin + served.scorer.rows, len(requests)))
            excluded = _seen_candidates(requests, rows, candidate_position if exclude_seen else None)
            scores, best = _best(served, requests, rows, k, candidates, excluded)
            refuse_nan(scores, "scores")
            counts.append((scores > -np.inf).sum(axis=1))
            row, column = np.nonzero(scores > -np.inf)
            yield result_frame(served, requests.users[rows][row], column + 1, best[row, column], scores[row, column])
            bar.update(rows.stop - begin)
    if counts:
        _report_short_lists(requests.users, np.concatenate(counts), min(k, len(ids)))


def _seen_candidates(requests: Requests, rows: slice, candidate_position: np.ndarray | None) -> np.ndarray:
    """Pairs of a request within `rows` and the position of a candidate that its user has seen, [2, P].

    Args:
        requests, rows: a batch of requests.
        candidate_position: by item id, -1 for items that are no candidates; `None` gives no pairs.
    """
    if candidate_position is None:
        return np.zeros((2, 0), dtype=np.int64)
    request, item = requests.seen_pairs(rows)
    pairs = np.stack([request, candidate_position[item]])
    return pairs[:, pairs[1] >= 0]


@torch.inference_mode()
def _best(
    served: ServedModel, requests: Requests, rows: slice, k: int, candidates: Tensor | slice, excluded: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Scores and ids of the best candidates of a batch of requests, [B, min(k, C)] each."""
    request, position = torch.from_numpy(excluded).to(served.config["device"])
    prepared = served.prepare(requests, rows)
    scores, ids = best_items(
        partial(served.scorer.score, prepared), candidates, k, (request, position), requests=rows.stop - rows.start,
        chunk=served.scorer.chunk, users=served.scorer.bounds(prepared),
    )  # fmt: skip
    return scores.cpu().numpy(), ids.cpu().numpy()


# -------------------------------------------------------------------- the result


def result_frame(served: ServedModel, users: Any, ranks: Any, ids: np.ndarray, scores: Any) -> pd.DataFrame:
    """Recommendations as a table, a row for each item."""
    names = {} if served.item_names is None else {ITEM_NAME: pd.Series(served.item_names[ids], dtype=object)}
    return pd.DataFrame({
        served.user_field: pd.Series(users, dtype=object), "rank": pd.Series(ranks, dtype=np.int64),
        served.item_field: pd.Series(served.items.tokens[ids], dtype=object), **names,
        "score": pd.Series(scores, dtype=np.float64),
    })  # fmt: skip


def _report_short_lists(users: np.ndarray, counts: np.ndarray, expected: int) -> None:
    """Warn about users who get fewer items than expected because they have seen the others."""
    for title, short, items in (
        ("No recommendation", counts == 0, "every item to choose from is"),
        (f"Fewer than {expected} recommendations", (counts > 0) & (counts < expected), "the other items are"),
    ):
        if short.any():
            names = quoted(users[short])
            getLogger().warning(f"{title} for {counted(short.sum(), 'user')}: {items} among their events ({names}).")
