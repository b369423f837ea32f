"""Explaining one score: each event left out once, the item's rank, and the attention behind it.

T events that the model reads, V items.
"""

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
from recbole_ext.serving.histories import Events, Requests
from recbole_ext.utils.wording import quoted


@torch.no_grad()
def explain(
    recommender: Any,
    histories: pd.DataFrame | Table,
    user: Any,
    item: Any,
    at: Any,
    exclude_seen: bool,
    trained_items_only: bool,
) -> Explanation:
    """See `Recommender.explain`."""
    reader = recommender.reader
    converted = reader.convert(histories)
    name = _user(recommender, converted, user)
    wanted = None if item is None else _item(recommender, item)
    asked = reader.requests(converted, [name], at)
    if len(asked.seen) == 0 or int(asked.examples[asked.examples.length_field][0]) == 0:
        raise InputError(f"user '{name}' has no event before the request that the model reads; nothing can be told.")

    given = {field: values.to(recommender.config["device"]) for field, values in asked.given.items()}
    batch = asked.examples[0:1].gather()
    scores = _all_scores(recommender, batch, given)
    seen, untrained = torch.zeros(2, len(scores), dtype=torch.bool)
    if exclude_seen:
        seen[torch.from_numpy(asked.seen) - 1] = True
    if trained_items_only:
        untrained = ~torch.from_numpy(recommender.trained_items()[1:])
    barred = seen | untrained
    if wanted is None:
        if barred.all():
            raise InputError(
                f"user '{name}' has had every item to choose from; name an item, or set exclude_seen to False."
            )
        wanted = int(scores.masked_fill(barred, -torch.inf).argmax()) + 1
    score = scores[wanted - 1]
    chosen = torch.tensor([wanted], device=recommender.config["device"])
    attention = contract.attention_weights(recommender.model, recommender.request(_copied(batch)), chosen, given)
    kept = int(batch[asked.examples.length_field][0])
    if attention is not None:
        kept = len(attention.heads[0].weights) - bool(attention.query_slot)
    events = _events(recommender, asked, kept)
    events["effect"] = _effects(recommender, asked, _newest(asked, batch, kept), given, chosen)
    token, field = str(recommender.items.tokens[wanted]), recommender.item_field
    time = _request_time(recommender, asked)
    catalogue = recommender.catalogue
    tokens = events[field].tolist()
    layer = 0 if attention is None else attention.heads[-1].layer
    for head in () if attention is None else attention.heads:
        if head.layer == layer:
            events[f"attention_{head.name}"] = head.weights[:kept].double().cpu().numpy()
    return Explanation(
        user=name, item=token, item_field=field, time_field=recommender.time_field,
        model=type(recommender.model).__name__, time=float(_in_unit(time, catalogue)),
        date=_dates(np.array([time]), catalogue)[0], score=float(score),
        rank=None if barred[wanted - 1] else 1 + int((scores[~barred] > score).sum()),
        candidates=int((~barred).sum()), average_score=float(scores[~barred].double().mean()), events=events,
        attention=_weights(attention, tokens, token, field), layer=layer,
        interests=_interests(attention, tokens, field), interest_use=_use(attention),
        item_name=None if recommender.item_names is None else str(recommender.item_names[wanted]),
        not_ranked="seen" if seen[wanted - 1] else "untrained" if untrained[wanted - 1] else "",
    )  # fmt: skip


# -------------------------------------------------------------------- what is asked


def _user(recommender: Any, events: Events, user: Any) -> str:
    if user is None or np.ndim(user) != 0:
        raise InputError(f"user is {user!r}; it should be one {recommender.user_field}.")
    name = str(as_text(values_table([user], "user", ""), "user")[0])
    if name not in events.users:
        raise InputError(
            f"user '{name}' is not in the histories, which have {len(events.users):,} others; give events of that user."
        )
    return name


def _item(recommender: Any, item: Any) -> int:
    if np.ndim(item) != 0:
        raise InputError(f"item is {item!r}; it should be one {recommender.item_field}.")
    name = as_text(values_table([item], "item", ""), "item")
    number = int(recommender.items.ids(name)[0])
    if number == 0:
        named = [] if recommender.item_names is None else (recommender.item_names == name[0]).nonzero()[0]
        tokens = quoted(recommender.items.tokens[place] for place in named if place)
        raise InputError(
            f"item '{name[0]}' is not among the {len(recommender.items.tokens) - 1:,} items that the model knows; "
            + (f"it is the name of {tokens}, which to give instead." if tokens else "give one that it knows.")
        )
    return number


# -------------------------------------------------------------------- scores


def _copied(batch: Interaction) -> Interaction:
    return Interaction(dict(batch.interaction))  # a request adds columns to it


def _all_scores(recommender: Any, batch: Interaction, given: dict[str, Tensor]) -> Tensor:
    """Scores [V] of all items for one request, by chunks of items as `recommend` takes them."""
    scorer, end = recommender.scorer, len(recommender.items.tokens)
    prepared = scorer.prepare(recommender.request(_copied(batch)), given)
    starts = range(1, end, scorer.chunk)
    parts = [scorer.score(prepared, slice(one, min(one + scorer.chunk, end)))[0].float().cpu() for one in starts]
    scores = torch.cat(parts)
    if scores.isnan().any():
        raise FloatingPointError("the model's scores are not numbers: its training has diverged; train it anew.")
    return scores


def _newest(asked: Requests, batch: Interaction, kept: int) -> Interaction:
    """The request with its newest events only."""
    length = int(batch[asked.examples.length_field][0])
    keep = torch.arange(batch[f"{asked.examples.history.lists[0]}{asked.examples.suffix}"].shape[1]) + length - kept
    return _taken(asked, batch, keep.unsqueeze(0), torch.tensor([kept]))


def _effects(
    recommender: Any, asked: Requests, batch: Interaction, given: dict[str, Tensor], item: Tensor
) -> np.ndarray:
    """The item's score minus that without each event, [T]."""
    count = int(batch[asked.examples.length_field][0])
    if count <= recommender.reader.least:
        return np.full(count, np.nan)
    place = torch.arange(batch[f"{asked.examples.history.lists[0]}{asked.examples.suffix}"].shape[1])
    without = torch.arange(-1, count).unsqueeze(1)  # the first row is whole
    source = place + ((place >= without) & (without >= 0))
    every = _taken(asked, batch, source, count - (without >= 0).long().squeeze(1))
    scorer, found = recommender.scorer, []
    for begin in range(0, count + 1, scorer.rows):
        part = every[begin : begin + scorer.rows]
        prepared = scorer.prepare(
            recommender.request(part), {name: values.repeat_interleave(len(part), 0) for name, values in given.items()}
        )
        found.append(scorer.score(prepared, item)[:, 0].double().cpu())
    scores = torch.cat(found).numpy()
    return scores[0] - scores[1:]


def _taken(asked: Requests, batch: Interaction, source: Tensor, length: Tensor) -> Interaction:
    """Copies of a request with other histories: slot j of row r is the batch's slot `source[r, j]`, up to `length`."""
    columns = {name: values.repeat_interleave(len(source), 0) for name, values in batch.interaction.items()}
    inside = torch.arange(source.shape[1]) < length.unsqueeze(1)
    source = source.clamp(max=source.shape[1] - 1)
    for name in asked.examples.history.lists:
        name += asked.examples.suffix
        columns[name] = columns[name].gather(1, source).masked_fill(~inside, 0)
    return Interaction({**columns, asked.examples.length_field: length})


# -------------------------------------------------------------------- frames


def _events(recommender: Any, asked: Requests, kept: int) -> pd.DataFrame:
    catalogue, ranges, history = recommender.catalogue, asked.examples.ranges, asked.examples.history
    rows = slice(int(ranges.end[0]) - kept, int(ranges.end[0]))
    ids = history.columns[recommender.item_field][rows].numpy()
    times = history.columns.get(recommender.time_field)
    time = np.full(len(ids), np.nan) if times is None else times[rows].numpy()
    named = recommender.item_names is not None
    names = {ITEM_NAME: pd.Series(recommender.item_names[ids], dtype=object)} if named else {}
    return pd.DataFrame({
        recommender.item_field: pd.Series(recommender.items.tokens[ids], dtype=object), **names,
        recommender.time_field: _in_unit(time, catalogue), "date": _dates(time, catalogue),
        "seconds_before": _request_time(recommender, asked) - time,
    })  # fmt: skip


def _request_time(recommender: Any, asked: Requests) -> float:
    """Seconds of the one request; NaN where the histories have no times."""
    if recommender.time_field not in asked.examples:
        return np.nan
    return float(asked.examples[recommender.time_field][0])


def _in_unit(time: Any, catalogue: Any) -> Any:
    """Times in the unit of the training's file; numbers or arrays of them."""
    return time / seconds_per_unit(catalogue.config["time_unit"]) + catalogue.first_time


def _dates(time: np.ndarray, catalogue: Any) -> pd.DatetimeIndex:
    """Dates in UTC, to the millisecond; none (NaT) where pandas has none, before 1678 and after 2261."""
    milliseconds = np.round((time + (catalogue.time_origin or 0.0)) * 1000)
    return pd.DatetimeIndex(pd.to_datetime(milliseconds, unit="ms", utc=True, errors="coerce"))


def _weights(attention: AttentionWeights | None, tokens: list[str], item: str, field: str) -> pd.DataFrame:
    names = ["layer", "head", "place", "slot", field, "weight"]
    behind = attention.query_slot if attention else ""
    last = {"request": "[MASK]", "target": item}.get(behind)
    slots = [("event", token) for token in tokens] + ([(behind, last)] if behind else [])
    rows = [
        (head.layer, head.name, place, slot, token, weight)
        for head in (attention.heads if attention else ())
        for place, ((slot, token), weight) in enumerate(zip(slots, head.weights.double().tolist(), strict=True))
    ]
    return pd.DataFrame(rows, columns=names)


def _interests(attention: AttentionWeights | None, tokens: list[str], field: str) -> pd.DataFrame:
    rows = [
        (found.layer, interest, place, token, key, value)
        for found in (attention.interests if attention else ())
        for interest, weights in enumerate(torch.stack([found.keys, found.values], -1).double().tolist(), 1)
        for place, (token, (key, value)) in enumerate(zip(tokens, weights, strict=True))
    ]
    return pd.DataFrame(rows, columns=["layer", "interest", "place", field, "key_weight", "value_weight"])


def _use(attention: AttentionWeights | None) -> pd.DataFrame:
    rows = [
        (found.layer, head, interest, weight)
        for found in (attention.interests if attention else ())
        for head, weights in enumerate(found.use.double().tolist(), 1)
        for interest, weight in enumerate(weights, 1)
    ]
    return pd.DataFrame(rows, columns=["layer", "head", "interest", "weight"])
