"""The figures of report.html as dictionaries for plotly (see `recbole_ext.utils.html`)."""

import math
from itertools import accumulate
from typing import Any

import numpy as np
import pandas as pd

from recbole_ext.tuning.journal import Record, ranked
from recbole_ext.tuning.space import Space, format_value
from recbole_ext.utils.html import Figure, layout

MIN_TRIALS = 4  # for the importance of keys


def all_figures(records: list[Record], space: Space, metric: str, bigger: bool) -> dict[str, Figure]:
    """The figures of a search by the id of their element in the page.

    Args:
        records: of all trials, in the order in which they ended; at least one has a score.
        space: distributions of the keys.
        metric: name of the score.
        bigger: whether a bigger score is better.
    """
    shares = importance(records, space)
    return {
        "history": history(records, metric, bigger),
        "parallel": parallel(records, space, metric, bigger),
        **({"importance": importance_bars(shares)} if shares else {}),
        "curves": curves(records, metric, bigger),
    }


def _hover_text(record: Record) -> str:
    return "<br>".join(f"{key}: {format_value(value)}" for key, value in record["keys"].items())


def history(records: list[Record], metric: str, bigger: bool) -> Figure:
    """The score of each trial in the order in which they ended, and the best score so far."""
    scored = [(position, record) for position, record in enumerate(records, 1) if record["status"] != "failed"]
    best = list(accumulate((record["best_score"] for _, record in scored), max if bigger else min))
    traces = []
    for status, colour, symbol in (("finished", "$accent$", "circle"), ("stopped", "$muted$", "circle-open")):
        selected = [(position, record) for position, record in scored if record["status"] == status]
        traces.append({
            "type": "scatter", "mode": "markers", "name": {"stopped": "stopped early"}.get(status, status),
            "x": [position for position, _ in selected], "y": [record["best_score"] for _, record in selected],
            "text": [f"trial {record['trial']}<br>{_hover_text(record)}" for _, record in selected],
            "hovertemplate": f"%{{text}}<br>{metric} %{{y:.4f}}<extra></extra>",
            "marker": {"size": 9, "color": colour, "symbol": symbol},
        })  # fmt: skip
    traces.append({
        "type": "scatter", "mode": "lines", "name": "best so far", "x": [position for position, _ in scored], "y": best,
        "line": {"shape": "hv", "color": "$best$", "width": 2}, "hoverinfo": "skip",
    })  # fmt: skip
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom"}
    figure = layout("trials in the order in which they ended", metric, showlegend=True, legend=legend)
    figure["xaxis"].update(tick0=1, dtick=max(1, math.ceil(len(records) / 20)))
    return {"data": traces, "layout": figure}


def parallel(records: list[Record], space: Space, metric: str, bigger: bool) -> Figure:
    """Each trial as a line through its values to its score."""
    best_last = ranked(records, bigger)[::-1]  # plotly draws the last line on top
    scores = [record["best_score"] for record in best_last]
    axes = [_axis(key, [record["keys"][key] for record in best_last], space) for key in space]
    axes.append({"label": metric, "values": scores})
    colours = [[0, "$low$"], [1, "$high$"]] if bigger else [[0, "$high$"], [1, "$low$"]]
    line = {
        "color": scores, "colorscale": colours, "showscale": True,
        "colorbar": {"title": {"text": metric}, "outlinewidth": 0, "tickformat": ".4f"},
    }  # fmt: skip
    trace = {
        "type": "parcoords", "dimensions": axes, "line": line, "labelangle": -15, "labelside": "top",
        "labelfont": {"color": "$ink$", "size": 12}, "tickfont": {"color": "$ink$", "size": 11},
        "rangefont": {"color": "rgba(0,0,0,0)"},
    }  # fmt: skip
    return {"data": [trace], "layout": {**layout("", ""), "margin": {"l": 110, "r": 40, "t": 100, "b": 30}}}


def _axis(key: str, values: list, space: Space) -> Figure:
    """The axis of a key: logarithmic, continuous, or with one tick for each choice."""
    distribution = space[key]
    if distribution.kind == "loguniform":
        low, high = (math.log10(end) for end in distribution.args)
        ticks = [low, (low + high) / 2, high]
        return {
            "label": key, "values": [math.log10(value) for value in values], "range": [low, high], "tickvals": ticks,
            "ticktext": [f"{10**tick:.2g}" for tick in ticks],
        }  # fmt: skip
    choices = distribution.choices
    if choices is None or (distribution.kind in ("randint", "quniform") and len(choices) > 10):
        return {"label": key, "values": values, "range": list(distribution.args[:2])}
    names = [format_value(choice) for choice in choices]
    return {
        "label": key, "values": [names.index(format_value(value)) for value in values],
        "range": [-0.3, len(names) - 0.7], "tickvals": list(range(len(names))), "ticktext": names,
    }  # fmt: skip


def importance(records: list[Record], space: Space) -> dict[str, float]:
    """The importance of each key, in ascending order: its feature importance in a random forest that predicts scores.

    The shares add up to 1. The result is empty if there are fewer than `MIN_TRIALS` trials or all scores are equal.
    """
    scored = [record for record in records if record["status"] != "failed"]
    scores = np.array([record["best_score"] for record in scored], dtype=float)
    if len(scored) < MIN_TRIALS or np.ptp(scores) == 0:
        return {}
    from sklearn.ensemble import RandomForestRegressor

    features = pd.concat({key: _features(key, scored, space) for key in space}, axis=1)
    forest = RandomForestRegressor(200, random_state=0).fit(features.to_numpy(dtype=float), scores)
    shares = pd.Series(forest.feature_importances_, features.columns.get_level_values(0)).groupby(level=0).sum()
    return shares.sort_values().to_dict()


def _features(key: str, records: list[Record], space: Space) -> pd.DataFrame:
    """The values of a key as columns of numbers: a number, its logarithm, or one column for each category."""
    values = pd.Series([record["keys"][key] for record in records])
    if space[key].kind == "loguniform":
        return np.log(values.astype(float)).to_frame()
    if all(isinstance(value, (int, float)) for value in values):
        return values.astype(float).to_frame()
    return pd.get_dummies(values.map(format_value))


def importance_bars(shares: dict[str, float]) -> Figure:
    """Importance as horizontal bars; the last share is on top."""
    trace = {
        "type": "bar", "orientation": "h", "x": list(shares.values()), "y": list(shares),
        "marker": {"color": "$accent$"}, "hovertemplate": "%{y}: %{x:.0%}<extra></extra>",
    }  # fmt: skip
    figure = layout("importance", "", bargap=0.4)
    figure["xaxis"].update(tickformat=".0%", rangemode="tozero")
    figure["height"] = 120 + 34 * len(shares)
    return {"data": [trace], "layout": figure}


def curves(records: list[Record], metric: str, bigger: bool) -> Figure:
    """The score of each trial after each epoch; the best trial is on top."""
    best = next(iter(ranked(records, bigger)), None)
    traces: list[dict[str, Any]] = []
    for record in sorted((record for record in records if record["curve"]), key=lambda record: record is best):
        is_best, hover = record is best, _hover_text(record)
        traces.append({
            "type": "scatter", "mode": "lines+markers" if len(record["curve"]) == 1 or is_best else "lines",
            "x": [epoch for epoch, _, _ in record["curve"]], "y": [score for _, score, _ in record["curve"]],
            "line": {"color": "$best$" if is_best else "$muted$", "width": 3 if is_best else 1.2},
            "marker": {"size": 5}, "opacity": 1 if is_best else 0.7, "name": f"trial {record['trial']}",
            "hovertemplate": f"trial {record['trial']}, epoch %{{x}}: %{{y:.4f}}<br>{hover}<extra></extra>",
        })  # fmt: skip
    return {"data": traces, "layout": layout("epoch", f"{metric} on the validation data")}
