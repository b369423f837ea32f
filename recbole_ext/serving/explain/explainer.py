"""Explain one score: the item's rank, the effect of each past event, and the attention weights.

T events that the model reads, W slots of a list, V items.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from recbole.data.interaction import Interaction
from torch import Tensor

from recbole_ext.data.files.item_files import ITEM_NAME
from recbole_ext.data.files.table import Table, values_table
from recbole_ext.data.files.time_units import seconds_per_unit
from recbole_ext.errors import InputError
from recbole_ext.model import contract
from recbole_ext.model.contract import AttentionWeights
from recbole_ext.serving.columns import as_text
from recbole_ext.serving.explain.explanation import Explanation
from recbole_ext.serving.explain.tables import attention_table, interest_table, interest_use_table
from recbole_ext.serving.requests import Requests
from recbole_ext.serving.scoring import refuse_nan
from recbole_ext.serving.served_model import ServedModel
from recbole_ext.utils.wording import quoted


@torch.no_grad()
def explain(
    served: ServedModel,
    histories: pd.DataFrame | Table,
    user: Any,
    item: Any,
    at: Any,
    exclude_seen: bool,
    trained_items_only: bool,
) -> Explanation:
    """See `Recommender.explain`."""
    request = _read_request(served, histories, user, at)
    ranking = _rank(served, request, item, exclude_seen, trained_items_only)
    attention = contract.attention_weights(
        served.model, served.model_input(request.batch()), ranking.item_on(served), request.user_features
    )
    length = request.length
    if attention is not None:  # the model may read fewer events than the list holds
        length = len(attention.heads[0].weights) - bool(attention.query_slot)
    events = _event_table(served, request, length)
    events["effect"] = _effects(served, request, length, ranking.item_on(served))
    return _explanation(served, request, ranking, events, attention)


# -------------------------------------------------------------------- 1. the request


@dataclass(frozen=True)
class _Request:
    """One request.

    Attributes:
        user: token.
        requests: the request alone, as the reader returns it.
        user_features: on the device of the model, [1, ...] each.
        length: number of events in the list of the request.
        time: seconds since the first training event; NaN for histories without times.
    """

    user: str
    requests: Requests
    user_features: dict[str, Tensor]
    length: int
    time: float

    def batch(self) -> Interaction:
        """The gathered request, always a new object: `ServedModel.model_input` adds columns to it."""
        return self.requests.examples[0:1].gather()

    @property
    def list_columns(self) -> list[str]:
        """Columns of the batch that hold lists, [1, W] each."""
        examples = self.requests.examples
        return [f"{name}{examples.suffix}" for name in examples.history.lists]


def _read_request(served: ServedModel, histories: pd.DataFrame | Table, user: Any, at: Any) -> _Request:
    if user is None or np.ndim(user) != 0:
        raise InputError(f"user is {user!r}; it should be one {served.user_field}.")
    token = str(as_text(values_table([user], "user", ""), "user")[0])
    events = served.reader.convert(histories)
    if token not in events.users:
        raise InputError(
            f"user '{token}' is not in the histories, which have {len(events.users):,} others; give events of that "
            f"user."
        )
    requests = served.reader.make_requests(events, [token], at)
    examples = requests.examples
    length = int(examples[examples.length_field][0])
    if len(requests.seen_items) == 0 or length == 0:
        raise InputError(f"user '{token}' has no event before the request that the model reads; nothing can be told.")
    user_features = {name: values.to(served.config["device"]) for name, values in requests.user_features.items()}
    time = float(examples[served.time_field][0]) if served.time_field in examples else np.nan
    return _Request(token, requests, user_features, length, time)


# -------------------------------------------------------------------- 2. the item and its rank


@dataclass(frozen=True)
class _Ranking:
    """The explained item among the candidates; for `rank`, `candidates` and `not_ranked` see `Explanation`."""

    item: int
    score: float
    rank: int | None
    candidates: int
    average_score: float
    not_ranked: str

    def item_on(self, served: ServedModel) -> Tensor:
        """The item id on the device of the model, [1]."""
        return torch.tensor([self.item], device=served.config["device"])


def _rank(served: ServedModel, request: _Request, item: Any, exclude_seen: bool, trained_items_only: bool) -> _Ranking:
    item_id = None if item is None else _item_id(served, item)
    scores = _all_scores(served, request)
    seen, untrained = torch.zeros(2, len(scores), dtype=torch.bool)
    if exclude_seen:
        seen[torch.from_numpy(request.requests.seen_items) - 1] = True
    if trained_items_only:
        untrained = ~torch.from_numpy(served.trained_items()[1:])
    excluded = seen | untrained
    if item_id is None:
        if excluded.all():
            raise InputError(
                f"user '{request.user}' has had every item to choose from; name an item, or set exclude_seen to False."
            )
        item_id = int(scores.masked_fill(excluded, -torch.inf).argmax()) + 1
    index, candidates = item_id - 1, scores[~excluded]
    return _Ranking(
        item_id, float(scores[index]), None if excluded[index] else 1 + int((candidates > scores[index]).sum()),
        len(candidates), float(candidates.double().mean()),
        "seen" if seen[index] else "untrained" if untrained[index] else "",
    )  # fmt: skip


def _item_id(served: ServedModel, item: Any) -> int:
    if np.ndim(item) != 0:
        raise InputError(f"item is {item!r}; it should be one {served.item_field}.")
    token = as_text(values_table([item], "item", ""), "item")
    item_id = int(served.items.ids(token)[0])
    if item_id == 0:
        ids = [] if served.item_names is None else (served.item_names == token[0]).nonzero()[0]
        tokens = quoted(served.items.tokens[named_id] for named_id in ids if named_id)
        raise InputError(
            f"item '{token[0]}' is not among the {len(served.items.tokens) - 1:,} items that the model knows; "
            + (f"it is the name of {tokens}, which to give instead." if tokens else "give one that it knows.")
        )
    return item_id


def _all_scores(served: ServedModel, request: _Request) -> Tensor:
    """Scores [V] of all items, computed in the same chunks of items as by `recommend`."""
    scorer, end = served.scorer, len(served.items.tokens)
    prepared = scorer.prepare(served.model_input(request.batch()), request.user_features)
    chunks = (slice(begin, min(begin + scorer.chunk, end)) for begin in range(1, end, scorer.chunk))
    scores = torch.cat([scorer.score(prepared, items)[0].float().cpu() for items in chunks])
    refuse_nan(scores.numpy(), "scores")
    return scores


# -------------------------------------------------------------------- 3. effects of the events


def _effects(served: ServedModel, request: _Request, length: int, item: Tensor) -> np.ndarray:
    """The item's score minus the score without each of the newest events, [T]; NaN if nothing can be left out."""
    if length <= served.reader.min_history:
        return np.full(length, np.nan)
    slot = torch.arange(request.batch()[request.list_columns[0]].shape[1])
    first = request.length - length  # older events are not read
    removed = torch.arange(-1, length).unsqueeze(1)  # the first row keeps all events
    source = slot + first + ((slot >= removed) & (removed >= 0))
    requests = _select_slots(request, source, length - (removed >= 0).long().squeeze(1))
    scorer, scores = served.scorer, []
    for begin in range(0, length + 1, scorer.rows):
        batch = requests[begin : begin + scorer.rows]
        features = {name: values.repeat_interleave(len(batch), 0) for name, values in request.user_features.items()}
        prepared = scorer.prepare(served.model_input(batch), features)
        scores.append(scorer.score(prepared, item)[:, 0].double().cpu())
    all_events, *without_event = torch.cat(scores).numpy()
    return all_events - np.array(without_event)


def _select_slots(request: _Request, source: Tensor, length: Tensor) -> Interaction:
    """Copies of the request with other lists.

    Args:
        source: slot of the request that each slot of the copies is taken from, [copies, W].
        length: number of events of each copy, [copies].
    """
    columns = {name: values.repeat_interleave(len(source), 0) for name, values in request.batch().interaction.items()}
    is_event = torch.arange(source.shape[1]) < length.unsqueeze(1)
    source = source.clamp(max=source.shape[1] - 1)
    for name in request.list_columns:
        columns[name] = columns[name].gather(1, source).masked_fill(~is_event, 0)
    return Interaction({**columns, request.requests.examples.length_field: length})


# -------------------------------------------------------------------- 4. the events


def _event_table(served: ServedModel, request: _Request, length: int) -> pd.DataFrame:
    """The newest events of the request, oldest first; see `Explanation.events`."""
    examples = request.requests.examples
    end = int(examples.ranges.end[0])
    rows = slice(end - length, end)
    ids = examples.history.columns[served.item_field][rows].numpy()
    times = examples.history.columns.get(served.time_field)
    time = np.full(len(ids), np.nan) if times is None else times[rows].numpy()
    names = {}
    if served.item_names is not None:
        names = {ITEM_NAME: pd.Series(served.item_names[ids], dtype=object)}
    return pd.DataFrame({
        served.item_field: pd.Series(served.items.tokens[ids], dtype=object), **names,
        served.time_field: _in_file_unit(time, served.description), "date": _dates(time, served.description),
        "seconds_before": request.time - time,
    })  # fmt: skip


def _in_file_unit(time: Any, description: Any) -> Any:
    """Times in the unit of the training file; a number or an array."""
    return time / seconds_per_unit(description.config["time_unit"]) + description.first_time


def _dates(time: np.ndarray, description: Any) -> pd.DatetimeIndex:
    """Dates in UTC, to the millisecond; NaT before 1678 and after 2261, which pandas cannot represent."""
    milliseconds = np.round((time + (description.time_origin or 0.0)) * 1000)
    return pd.DatetimeIndex(pd.to_datetime(milliseconds, unit="ms", utc=True, errors="coerce"))


# -------------------------------------------------------------------- 5. the result


def _explanation(
    served: ServedModel,
    request: _Request,
    ranking: _Ranking,
    events: pd.DataFrame,
    attention: AttentionWeights | None,
) -> Explanation:
    item, item_field, description = str(served.items.tokens[ranking.item]), served.item_field, served.description
    tokens, layer = events[item_field].tolist(), 0
    if attention is not None:
        layer = attention.heads[-1].layer
        for head in attention.heads:
            if head.layer == layer:
                events[f"attention_{head.name}"] = head.weights[: len(events)].double().cpu().numpy()
    return Explanation(
        user=request.user, item=item, item_field=item_field, time_field=served.time_field,
        model=type(served.model).__name__, time=float(_in_file_unit(request.time, description)),
        date=_dates(np.array([request.time]), description)[0], score=ranking.score, rank=ranking.rank,
        candidates=ranking.candidates, average_score=ranking.average_score, events=events,
        attention=attention_table(attention, tokens, item, item_field), layer=layer,
        interests=interest_table(attention, tokens, item_field), interest_use=interest_use_table(attention),
        item_name=None if served.item_names is None else str(served.item_names[ranking.item]),
        not_ranked=ranking.not_ranked,
    )  # fmt: skip
