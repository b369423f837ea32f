"""The figures of a comparison as dictionaries for plotly (see `recbole_ext.utils.html`)."""

from typing import TYPE_CHECKING

from recbole_ext.utils.html import Figure, label, layout

if TYPE_CHECKING:
    from recbole_ext.comparison.compare import Comparison

LONGEST_NAME = 50


def all_figures(comparison: "Comparison") -> dict[str, Figure]:
    """Two figures for each metric, by the id of their element: `differences-N` and `runs-N`, where N counts from 0."""
    drawn = {}
    for number, metric in enumerate(dict.fromkeys(comparison.table["metric"])):
        drawn[f"differences-{number}"] = differences(comparison, metric)
        drawn[f"runs-{number}"] = runs(comparison, metric)
    return drawn


def differences(comparison: "Comparison", metric: str) -> Figure:
    """The difference of each row from the baseline with its interval; the first row is on top."""
    table = comparison.table[(comparison.table["metric"] == metric) & (comparison.table["name"] != comparison.baseline)]
    significant = table["p_corrected"] < 1 - comparison.confidence
    texts = [f"p {p:.4f}, corrected {corrected:.4f}" for p, corrected in zip(table["p_value"], table["p_corrected"],
                                                                             strict=True)]  # fmt: skip
    trace = {
        "type": "scatter", "mode": "markers", "x": table["difference"], "y": _labels(table["name"]), "text": texts,
        "error_x": {
            "type": "data", "symmetric": False, "array": table["high"] - table["difference"],
            "arrayminus": table["difference"] - table["low"], "color": "$muted$",
        },
        "marker": {"size": 10, "color": ["$best$" if is_clear else "$accent$" for is_clear in significant]},
        "hovertemplate": "%{y}: %{x:+.4f}<br>%{text}<extra></extra>",
    }  # fmt: skip
    figure = _horizontal(f"difference in {metric} from {label(comparison.baseline, LONGEST_NAME)}", len(table))
    figure["shapes"] = [{
        "type": "line", "x0": 0, "x1": 0, "y0": 0, "y1": 1, "yref": "paper", "line": {"color": "$ink$", "dash": "dot"},
    }]  # fmt: skip
    return {"data": [trace], "layout": figure}


def runs(comparison: "Comparison", metric: str) -> Figure:
    """The metric of each run, and the mean of each row as a line."""
    table = comparison.table[comparison.table["metric"] == metric]
    each_run = {
        "type": "scatter", "mode": "markers", "x": comparison.runs[metric], "y": _labels(comparison.runs["name"]),
        "text": [f"seed {seed}" for seed in comparison.runs["seed"]],
        "marker": {"size": 8, "color": "$accent$", "opacity": 0.7},
        "hovertemplate": "%{y}, %{text}: %{x:.4f}<extra></extra>",
    }  # fmt: skip
    mean = {
        "type": "scatter", "mode": "markers", "x": table["mean"], "y": _labels(table["name"]),
        "marker": {"size": 22, "symbol": "line-ns-open", "color": "$best$", "line": {"width": 2}},
        "hovertemplate": "%{y}: mean %{x:.4f}<extra></extra>",
    }  # fmt: skip
    return {"data": [each_run, mean], "layout": _horizontal(metric, len(table))}


def _labels(names: "list[str]") -> list[str]:
    return [label(name, LONGEST_NAME) for name in names]


def _horizontal(x: str, count: int) -> Figure:
    figure = layout(x, "")
    figure["yaxis"].update(autorange="reversed", type="category")
    figure["height"] = 110 + 40 * count
    return figure
