"""Why an item was recommended: the result of `Recommender.explain`."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from recbole_ext.data.files.item_files import ITEM_NAME
from recbole_ext.utils.literals import to_builtin


@dataclass(frozen=True)
class Explanation:
    """Which past events carried a score, and what attended to them.

    Columns of users, items and times are called as in the training's file, here `item_id` and `timestamp`.

    Attributes:
        user, item: tokens.
        item_field, time_field: names of the columns of `events`.
        model: name of the model's class.
        time: of the request, in the unit of the training's file; NaN where the histories have no times.
        date: the same in UTC; NaT there.
        score: of the item, as `recommend` gives it.
        rank: of the item among the candidates, from 1; None where `not_ranked` says why.
        candidates: how many items are ranked.
        average_score: mean score of the candidates: what the score can be compared with.
        events: a row for each event that the model read, oldest first:
            `item_id`: token;
            `item_name`: its name, where the recommender has names; the token of an item without one;
            `timestamp`, `date`: its time in the unit of the training's file, and in UTC;
            `seconds_before`: the request;
            `effect`: the score minus the score of the same request without this one event. Exact, by scoring each
                shortened history; an event too old for the model's list does not move up, and the time of the request
                stays. Effects need not add up to the score: events can stand in for each other. NaN where the model
                cannot score what is left, because it was the only event;
            `attention_...`: one column for each head of the layer `layer`, for models of this package: the softmax
                weight of the event in the slot that the score is read from. MEANTIME: a column for each kernel
                (`attention_day`), of the [MASK] at the request. LightSANs: of the last event, `attention_items_1`
                through the interests and `attention_positions_1` among positions. BST: `attention_head_1`, of the
                target. A column sums to 1 together with the weight of that slot itself (see `attention`).
        attention: the weights of all layers, a row for each weight: `layer` (from 1), `head` (`day`, `items_1`, ..),
            `place` (the row of `events`, or their number for the slot behind them), `slot` (`event`, `request` or
            `target`), `item_id`, `weight`. Empty for other models.
        layer: the layer whose weights stand in `events`: the last one, which the score is read from. From the second
            layer on, what is attended to are states that have seen the other events already.
        interests: LightSANs only, else empty: what forms each interest: `layer`, `interest` (from 1), `place`,
            `item_id`, `key_weight` (by which a query finds it) and `value_weight` (what it hands on); each sums to 1
            over the events.
        interest_use: LightSANs only, else empty: `layer`, `head`, `interest`, `weight` of the last event's query; sums
            to 1 over the interests.
        item_name: name of the item; None where the recommender has no names.
        not_ranked: why the item has no rank: `seen` (the user has had it, and such items are left out), `untrained`
            (likewise without training events), or empty.
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
        """The item for people: its name, or its token if it has none."""
        return self.item if self.item_name is None else self.item_name

    @property
    def event_titles(self) -> list[str]:
        """The same of the events' items, [T]."""
        return self.events[ITEM_NAME if ITEM_NAME in self.events else self.item_field].tolist()

    @property
    def heads(self) -> list[str]:
        """Columns of `events` that hold attention weights."""
        return [name for name in self.events if str(name).startswith("attention_")]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values for JSON: frames as lists of rows, dates as ISO 8601, what is no number as None."""
        return {name: _plain(value) for name, value in vars(self).items()}


def with_token(title: str, token: str) -> str:
    """`Star Wars (1977) [50]`; the token alone of an item without a name."""
    return token if title == token else f"{title} [{token}]"


def _plain(value: Any) -> Any:
    if isinstance(value, pd.DataFrame):
        columns = {str(name): [_plain(one) for one in column.tolist()] for name, column in value.items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if value is pd.NaT or (isinstance(value, float) and not np.isfinite(value)):
        return None
    return value.isoformat() if isinstance(value, pd.Timestamp) else to_builtin(value)
