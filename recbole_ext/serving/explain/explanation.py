"""Why an item was recommended: the result of `Recommender.explain`."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from recbole_ext.data.files.item_files import ITEM_NAME
from recbole_ext.utils.literals import to_builtin


@dataclass(frozen=True)
class Explanation:
    """Which past events a score depends on, and what attended to them.

    Columns of users, items and times have the names of the training file, here `item_id` and `timestamp`.

    Attributes:
        user, item: tokens.
        item_field, time_field: names of the columns of `events`.
        model: name of the model's class.
        time: of the request, in the unit of the training file; NaN for histories without times.
        date: the same in UTC; NaT for histories without times.
        score: of the item, the same as from `recommend`.
        rank: of the item among the candidates, from 1; None if the item is not ranked, see `not_ranked`.
        candidates: number of ranked items.
        average_score: mean score of the candidates, to compare the score with.
        events: a row for each event that the model read, oldest first:
            `item_id`: token;
            `item_name`: its name, if the recommender has names; the token for an item without a name;
            `timestamp`, `date`: its time in the unit of the training file, and in UTC;
            `seconds_before`: seconds between the event and the request;
            `effect`: the score minus the score of the same request without this event. It is exact: every shortened
                history is scored. Older events that did not fit into the list do not move up, and the time of the
                request does not change. Effects need not add up to the score, because events can replace each other.
                NaN for an only event, if the model needs a history;
            `attention_...`: a column for each head of layer `layer`, for models with attention weights: the softmax
                weight of the event for the query that the score is computed from. MEANTIME: one column for each kernel
                (`attention_day`); the query is [MASK] at the request. LightSANs: the query is the last event;
                `attention_items_1` goes through the interests, `attention_positions_1` compares positions. BST:
                `attention_head_1`; the query is the target item. A column and the weight of the query slot sum to 1.
        attention: the weights of all layers, a row for each weight: `layer` (from 1), `head` (`day`, `items_1`, ...),
            `place` (row of `events`; for the query slot behind the events, their number), `slot` (`event`, `request`
            or `target`), `item_id`, `weight`. Empty for models without attention weights.
        layer: the layer of the weights in `events`: the last one, from which the score is computed. Above the first
            layer, the states attended to contain information from other events.
        interests: for LightSANs, else empty: what forms each interest: `layer`, `interest` (from 1), `place`,
            `item_id`, `key_weight` (weight of the event in the key) and `value_weight` (weight in the value); each
            sums to 1 over the events.
        interest_use: for LightSANs, else empty: `layer`, `head`, `interest`, and the `weight` that the last event
            gives the interest; sums to 1 over the interests.
        item_name: name of the item; None if the recommender has no names.
        not_ranked: why the item has no rank: `seen` (an item of the user's events, which are left out), `untrained`
            (an item without training events, which are left out), or empty.
    """

    user: str
    item: str
    item_field: str
    time_field: str
    model: str
    time: float
    date: pd.Timestamp
    score: float
    rank: int | None
    candidates: int
    average_score: float
    events: pd.DataFrame
    attention: pd.DataFrame
    layer: int
    interests: pd.DataFrame
    interest_use: pd.DataFrame
    item_name: str | None = None
    not_ranked: str = ""

    @property
    def title(self) -> str:
        """Display name of the item, or its token if it has no name."""
        return self.item if self.item_name is None else self.item_name

    @property
    def event_titles(self) -> list[str]:
        """Display names of the items of the events, [T]."""
        return self.events[ITEM_NAME if ITEM_NAME in self.events else self.item_field].tolist()

    @property
    def heads(self) -> list[str]:
        """Columns of `events` that hold attention weights."""
        return [name for name in self.events if str(name).startswith("attention_")]

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values for JSON: frames as lists of rows, dates in ISO 8601, NaN and infinity as None."""
        return {name: _plain(value) for name, value in vars(self).items()}


def with_token(title: str, token: str) -> str:
    """`Star Wars (1977) [50]`; only the token for an item without a name."""
    return token if title == token else f"{title} [{token}]"


def _plain(value: Any) -> Any:
    if isinstance(value, pd.DataFrame):
        columns = {str(name): [_plain(value) for value in column.tolist()] for name, column in value.items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if value is pd.NaT or (isinstance(value, float) and not np.isfinite(value)):
        return None
    return value.isoformat() if isinstance(value, pd.Timestamp) else to_builtin(value)
