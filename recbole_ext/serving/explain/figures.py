"""Plotly figures of an explanation (see `recbole_ext.utils.html`).

T events, T' = T, or T + 1 with the query slot.
"""

from typing import Any

import pandas as pd

from recbole_ext.checkpoint.training_run import TrainingRun
from recbole_ext.serving.explain.explanation import Explanation
from recbole_ext.utils.html import Figure, label, layout

FEW = 24  # events whose names fit at an axis
STRONGEST = 15
TICKS = 6  # dates at the axis of many events
QUERY_SLOTS = {"request": "the request", "target": "the item itself"}


def day(date: pd.Timestamp) -> str:
    """A date in words, e.g. `3 Feb 2020`."""
    return "" if pd.isna(date) else f"{date.day} {date:%b %Y}"


def moment(date: pd.Timestamp) -> str:
    """A date and time in words."""
    return "no date" if pd.isna(date) else f"{day(date)}, {date:%H:%M} UTC"


def ago(seconds: float) -> str:
    """A time span in words, in its largest unit."""
    if pd.isna(seconds):
        return "an unknown time"
    for size, name in ((31557600, "year"), (2629800, "month"), (604800, "week"), (86400, "day"), (3600, "hour"),
                       (60, "minute")):  # fmt: skip
        if seconds >= size:
            count = round(seconds / size)
            return f"{count} {name}{'s' if count > 1 else ''}"
    return "less than a minute"


def signed(value: float) -> str:
    """An effect with its sign and three digits."""
    return "\N{EN DASH}" if pd.isna(value) else f"{value:+.3g}".replace("-", "\N{MINUS SIGN}")


def described(explanation: Explanation) -> list[str]:
    """The text shown when the mouse is over an event, [T]."""
    columns = (explanation.events[name] for name in (explanation.item_field, "date", "seconds_before"))
    return [
        f"<b>{label(title, 80)}</b>{'' if title == token else f' [{label(token, 40)}]'}<br>{moment(date)}<br>"
        f"{ago(seconds)} before the request"
        for title, token, date, seconds in zip(explanation.event_titles, *columns, strict=True)
    ]


def effects(explanation: Explanation, positions: list[int]) -> Figure:
    """Bars with the effects of some events, by position in `events`; the first is on top."""
    rows = explanation.events.iloc[positions]
    titles = explanation.event_titles
    names = [
        f"{label(titles[position], 28)}  <i>{day(date)}</i>"
        for position, date in zip(positions, rows["date"], strict=True)
    ]
    texts = described(explanation)
    trace = {
        "type": "bar", "orientation": "h", "x": rows["effect"].tolist(), "y": list(range(len(positions))),
        "marker": {"color": _signs(rows["effect"])}, "text": [signed(value) for value in rows["effect"]],
        "textposition": "outside", "cliponaxis": False, "customdata": [texts[position] for position in positions],
        "hovertemplate": "%{customdata}<br>effect %{text}<extra></extra>",
    }  # fmt: skip
    figure = layout("effect on the score", "", bargap=0.35)
    figure["yaxis"].update(
        autorange="reversed", tickvals=list(range(len(positions))), ticktext=names, showgrid=False, zeroline=False
    )
    figure["xaxis"].update(_room(rows["effect"]))
    figure["height"] = 90 + 27 * max(len(positions), 2)
    return {"data": [trace], "layout": figure}


def _room(values: pd.Series) -> Figure:
    """The range of an axis with room for text beside the bars."""
    low, high = min(values.min(), 0.0), max(values.max(), 0.0)
    wide = (high - low) or 1.0
    left = min(low - 0.2 * wide, -0.33 * wide) if low < 0 else 0.0  # names of events stand to the left
    return {"range": [left, high + 0.2 * wide]}


def _signs(values: pd.Series) -> list[str]:
    return ["$accent$" if value >= 0 else "$best$" for value in values]


def over_time(explanation: Explanation) -> Figure:
    """Bars with the effects of all events, oldest first, with dates at the axis."""
    effect = explanation.events["effect"]
    trace = {
        "type": "bar", "x": list(range(len(effect))), "y": effect.tolist(), "marker": {"color": _signs(effect)},
        "text": [signed(value) for value in effect], "textposition": "none", "customdata": described(explanation),
        "hovertemplate": "%{customdata}<br>effect %{text}<extra></extra>",
    }  # fmt: skip
    figure = layout("events, oldest to newest", "effect on the score", bargap=0.15)
    figure["xaxis"].update(_dates_at(explanation), showgrid=False, zeroline=False, ticklabeloverflow="allow")
    figure["height"], figure["margin"] = 320, {**figure["margin"], "r": 60}  # room for the newest date
    return {"data": [trace], "layout": figure}


def _dates_at(explanation: Explanation) -> Figure:
    """Ticks for many events: the dates of some of them."""
    count = len(explanation.events)
    positions = sorted({round(tick * (count - 1) / (TICKS - 1)) for tick in range(TICKS)})
    return {"tickvals": positions, "ticktext": [day(date) for date in explanation.events["date"].iloc[positions]]}


def _events_at(explanation: Explanation, query_slot: str) -> Figure:
    """Ticks for events and, if there is one, the query slot."""
    if len(explanation.events) > FEW:
        ticks = _dates_at(explanation)
        if query_slot:  # the newest date would overlap with the name of the query slot
            ticks = {name: values[:-1] for name, values in ticks.items()}
    else:
        names = [label(title, 16) for title in explanation.event_titles]
        ticks = {"tickvals": list(range(len(names))), "ticktext": names}
    if query_slot:
        last = ([len(explanation.events)], [QUERY_SLOTS[query_slot]])
        ticks = {"tickvals": ticks["tickvals"] + last[0], "ticktext": ticks["ticktext"] + last[1]}
    return {**ticks, "tickangle": -40, "showgrid": False, "zeroline": False}


RAMP = [[0, "$page$"], [1, "$high$"]]


def _heat(rows: list[list[float]], texts: list[str], names: list[str], what: str, **more: Any) -> Figure:
    maximum = max(map(max, rows))
    return {
        "type": "heatmap", "z": rows, "y": list(range(len(rows))), "x": list(range(len(texts))), "colorscale": RAMP,
        "zmin": 0, "zmax": maximum,
        "customdata": [texts] * len(rows), "text": [[name] * len(texts) for name in names], "xgap": 1,
        "ygap": 2, "hovertemplate": f"{what}<br>%{{customdata}}<br>weight %{{z:.1%}}<extra></extra>",
        "colorbar": {"title": {"text": "weight"}, "outlinewidth": 0, "thickness": 12,
                     "tickformat": ".0%" if maximum > 0.1 else ".1%"}, **more,
    }  # fmt: skip


def heads(explanation: Explanation) -> Figure:
    """Heat map of the attention weights of all heads, [heads, T']."""
    groups = list(explanation.attention.groupby(["layer", "head"], sort=False))
    names = [head_name(layer, name, explanation.layer) for (layer, name), _ in groups]
    query_slot = next((slot for slot in explanation.attention["slot"] if slot != "event"), "")
    texts = described(explanation) + ([f"<b>{QUERY_SLOTS[query_slot]}</b>"] if query_slot else [])
    figure = layout("events, oldest to newest", "")
    figure["xaxis"].update(_events_at(explanation, query_slot))
    figure["yaxis"].update(
        autorange="reversed", tickvals=list(range(len(names))), ticktext=names, showgrid=False, zeroline=False
    )
    figure["height"] = 170 + 26 * len(names)
    rows = [rows["weight"].tolist() for _, rows in groups]
    return {"data": [_heat(rows, texts, names, "%{text}")], "layout": figure}


def head_name(layer: int, name: str, layers: int) -> str:
    """`items_1` of layer 2 as "layer 2: items, head 1"."""
    part, _, number = name.rpartition("_")
    shown = name if not number.isdigit() else f"head {number}" if part == "head" else f"{part}, head {number}"
    return shown if layers == 1 else f"layer {layer}: {shown}"


def interest_shares(explanation: Explanation) -> pd.DataFrame:
    """Interests of the last layer by descending use: `use`, the mean over heads, and `values`, [T] each."""
    use, interests = (
        table[table["layer"] == explanation.layer].groupby("interest")
        for table in (explanation.interest_use, explanation.interests)
    )
    use, values = use["weight"].mean(), interests["value_weight"].agg(list)
    return pd.DataFrame({"use": use, "values": values}).sort_values("use", ascending=False, kind="stable")


def interests(explanation: Explanation) -> Figure:
    """Use of each interest, and the weight of each event in its value."""
    shares = interest_shares(explanation)
    names = [f"interest {number}" for number in shares.index]
    bars = {
        "type": "bar", "orientation": "h", "x": shares["use"].tolist(), "y": list(range(len(names))),
        "marker": {"color": "$accent$"}, "text": names, "textposition": "none",
        "hovertemplate": "%{text}: %{x:.1%} of the query<extra></extra>",
    }  # fmt: skip
    heat = _heat(shares["values"].tolist(), described(explanation), names, "%{text}", xaxis="x2")
    figure = layout("use", "")
    figure["yaxis"].update(
        autorange="reversed", tickvals=list(range(len(names))), ticktext=names, showgrid=False, zeroline=False
    )
    figure["xaxis2"] = {
        **figure["xaxis"], "title": {"text": "events, oldest to newest"}, "domain": [0.24, 1],
        **_events_at(explanation, ""),
    }  # fmt: skip
    figure["xaxis"].update(domain=[0, 0.2], tickformat=".0%", rangemode="tozero", nticks=3)
    figure["height"] = 170 + 26 * len(names)
    return {"data": [bars, heat], "layout": figure}


def curves(run: TrainingRun) -> Figure:
    """Training loss and validation score of each epoch, the latter with the best epoch."""
    figure = layout("epoch", "training loss")
    has_scores = any(score is not None for score in run.valid_score)
    traces = [_curve(run.train_loss, "training loss", "$accent$", "y")]
    figure["yaxis"].update(domain=[0.56 if has_scores else 0, 1])
    figure["height"] = 460 if has_scores else 300
    figure["xaxis"].update(anchor="y2" if has_scores else "y")
    if len(run.train_loss) < 8:
        figure["xaxis"].update(tick0=1, dtick=1)
    if has_scores:
        title = {"text": f"{label(run.metric)}<br>validation"}
        figure["yaxis2"] = {**figure["yaxis"], "title": title, "domain": [0, 0.44]}
        traces.append(_curve(run.valid_score, label(run.metric), "$accent$", "y2"))
        best = run.valid_score[run.best_epoch - 1 : run.best_epoch]
        traces.append({
            "type": "scatter", "mode": "markers", "x": [run.best_epoch], "y": best, "yaxis": "y2",
            "marker": {"size": 12, "color": "$best$"},
            "hovertemplate": "this model: epoch %{x}, %{y:.4f}<extra></extra>",
        })  # fmt: skip
    return {"data": traces, "layout": figure}


def _curve(values: list[float | None], name: str, colour: str, axis: str) -> Figure:
    return {
        "type": "scatter", "mode": "lines+markers" if len(values) < 30 else "lines", "connectgaps": True,
        "x": list(range(1, len(values) + 1)), "y": values, "yaxis": axis, "line": {"color": colour, "width": 2},
        "marker": {"size": 6}, "hovertemplate": f"epoch %{{x}}: {name} %{{y:.4f}}<extra></extra>",
    }  # fmt: skip
