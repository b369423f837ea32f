"""The pictures of a search as plotly's plain figures (see `recbole_ext.utils.html`)."""

import math
from typing import Any

import numpy as np

from recbole_ext.tuning.journal import Record, ranked
from recbole_ext.tuning.space import Space
from recbole_ext.utils.html import Figure, layout

FEWEST = 4  # trials from which importance is computed


def text_of(value: Any) -> str:
    """A value as a label."""
    if isinstance(value, (list, tuple)):
        return " + ".join(map(text_of, value)) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def keys_of(record: Record) -> str:
    return "<br>".join(f"{key}: {text_of(value)}" for key, value in record["keys"].items())


def history(records: list[Record], metric: str, bigger: bool) -> Figure:
    """The score of each trial in the order in which they ended, and the best so far."""
    good = [(place, one) for place, one in enumerate(records, 1) if one["status"] != "failed"]
    best: list[float] = []
    for _, record in good:
        score = record["best_score"]
        best.append(score if not best else max(best[-1], score) if bigger else min(best[-1], score))
    traces = []
    for status, colour, symbol in (("finished", "$accent$", "circle"), ("stopped", "$muted$", "circle-open")):
        some = [(place, record) for place, record in good if record["status"] == status]
        traces.append({
            "type": "scatter", "mode": "markers", "name": {"stopped": "stopped early"}.get(status, status),
            "x": [place for place, _ in some], "y": [record["best_score"] for _, record in some],
            "text": [f"trial {record['trial']}<br>{keys_of(record)}" for _, record in some],
            "hovertemplate": f"%{{text}}<br>{metric} %{{y:.4f}}<extra></extra>",
            "marker": {"size": 9, "color": colour, "symbol": symbol},
        })  # fmt: skip
    traces.append({
        "type": "scatter", "mode": "lines", "name": "best so far", "x": [place for place, _ in good], "y": best,
        "line": {"shape": "hv", "color": "$best$", "width": 2}, "hoverinfo": "skip",
    })  # fmt: skip
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom"}
    figure = layout("trials in the order in which they ended", metric, showlegend=True, legend=legend)
    figure["xaxis"].update(tick0=1, dtick=max(1, math.ceil(len(records) / 20)))
    return {"data": traces, "layout": figure}


def parallel(records: list[Record], space: Space, metric: str, bigger: bool) -> Figure:
    """Every trial as a line through its values to its score."""
    good = ranked(records, bigger)[::-1]  # the best one is drawn last, on top
    scores = [record["best_score"] for record in good]
    axes = [_axis(key, [record["keys"][key] for record in good], space) for key in space]
    axes.append({"label": metric, "values": scores})
    ramp = [[0, "$low$"], [1, "$high$"]] if bigger else [[0, "$high$"], [1, "$low$"]]
    line = {
        "color": scores, "colorscale": ramp, "showscale": True,
        "colorbar": {"title": {"text": metric}, "outlinewidth": 0, "tickformat": ".4f"},
    }  # fmt: skip
    trace = {
        "type": "parcoords", "dimensions": axes, "line": line, "labelangle": -15, "labelside": "top",
        "labelfont": {"color": "$ink$", "size": 12}, "tickfont": {"color": "$ink$", "size": 11},
        "rangefont": {"color": "rgba(0,0,0,0)"},
    }  # fmt: skip
    return {"data": [trace], "layout": {**layout("", ""), "margin": {"l": 110, "r": 40, "t": 100, "b": 30}}}


def _axis(key: str, values: list, space: Space) -> Figure:
    domain = space[key]
    if domain.way == "loguniform":
        places = [math.log10(value) for value in values]
        low, high = (math.log10(end) for end in domain.values)
        ticks = [low, (low + high) / 2, high]
        return {
            "label": key, "values": places, "range": [low, high], "tickvals": ticks,
            "ticktext": [f"{10**tick:.2g}" for tick in ticks],
        }  # fmt: skip
    if domain.members is None or (domain.way in ("randint", "quniform") and len(domain.members) > 10):
        return {"label": key, "values": values, "range": [domain.values[0], domain.values[1]]}
    names = [text_of(member) for member in domain.members]
    places = [names.index(text_of(value)) for value in values]
    return {
        "label": key, "values": places, "range": [-0.3, len(names) - 0.7], "tickvals": list(range(len(names))),
        "ticktext": names,
    }  # fmt: skip


def importance(records: list[Record], space: Space) -> dict[str, float]:
    """How much each key matters: its share of what the splits of a random forest tell of the scores; {} if unknown."""
    good = [record for record in records if record["status"] != "failed"]
    scores = np.array([record["best_score"] for record in good], dtype=float)
    columns, owners = _features(good, space)
    if len(good) < FEWEST or not columns or np.ptp(scores) == 0:
        return {}
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(200, random_state=0).fit(np.array(columns, dtype=float).T, scores)
    shares = dict.fromkeys(space, 0.0)
    for owner, share in zip(owners, forest.feature_importances_, strict=True):
        shares[owner] += float(share)
    return dict(sorted(shares.items(), key=lambda pair: pair[1]))


def _features(records: list[Record], space: Space) -> tuple[list[list[float]], list[str]]:
    """Columns of numbers, and whose they are: numbers as they are or their logarithm, one column for each name."""
    columns, owners = [], []
    for key, domain in space.items():
        values = [record["keys"][key] for record in records]
        if domain.way == "loguniform":
            found = [[math.log(value) for value in values]]
        elif all(isinstance(value, (int, float)) for value in values):
            found = [[float(value) for value in values]]
        else:
            names = sorted({text_of(value) for value in values})
            found = [[float(text_of(value) == name) for value in values] for name in names]
        columns += found
        owners += [key] * len(found)
    return columns, owners


def bars(shares: dict[str, float]) -> Figure:
    """Importance as bars, the largest on top."""
    trace = {
        "type": "bar", "orientation": "h", "x": list(shares.values()), "y": list(shares),
        "marker": {"color": "$accent$"}, "hovertemplate": "%{y}: %{x:.0%}<extra></extra>",
    }  # fmt: skip
    figure = layout("share of what is explained", "", bargap=0.4)
    figure["xaxis"].update(tickformat=".0%", rangemode="tozero")
    figure["height"] = 120 + 34 * len(shares)
    return {"data": [trace], "layout": figure}


def curves(records: list[Record], metric: str, bigger: bool) -> Figure:
    """The score of each trial after each epoch, the best one on top."""
    order = [record for record in records if record["curve"]]
    best = next(iter(ranked(records, bigger)), None)
    traces = []
    for record in sorted(order, key=lambda one: one is best):
        first = record is best
        traces.append({
            "type": "scatter", "mode": "lines+markers" if len(record["curve"]) == 1 or first else "lines",
            "x": [epoch for epoch, _, _ in record["curve"]], "y": [score for _, score, _ in record["curve"]],
            "line": {"color": "$best$" if first else "$muted$", "width": 3 if first else 1.2},
            "marker": {"size": 5}, "opacity": 1 if first else 0.7, "name": f"trial {record['trial']}",
            "hovertemplate": f"trial {record['trial']}, epoch %{{x}}: %{{y:.4f}}<br>{keys_of(record)}<extra></extra>",
        })  # fmt: skip
    return {"data": traces, "layout": layout("epoch", f"{metric} on the validation data")}
