"""HTML reports: Jinja templates and plotly figures in one file that works offline, in light and dark mode.

A figure is a dictionary with plotly's `data` and `layout`. Colours in it are written as `$name$`; the page's script
replaces them with the colours of the browser's mode. Jinja escapes text in HTML. Text in figures must pass `label`,
because plotly interprets some HTML tags.
"""

import html
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from recbole_ext.utils.literals import to_builtin

Figure = dict[str, Any]
HEIGHT = 420

COLOURS = {
    "light": {
        "ink": "#1f2733", "grid": "#dfe4ea", "accent": "#2a62b0", "muted": "#8a97a8", "best": "#b3470b",
        "low": "#ccd7e8", "high": "#123f86", "page": "#ffffff",
    },
    "dark": {
        "ink": "#e4e9f0", "grid": "#323a46", "accent": "#7db3ff", "muted": "#8593a6", "best": "#ffb07a",
        "low": "#4a5b76", "high": "#9cc7ff", "page": "#14181f",
    },
}  # fmt: skip


def number(value: float | None) -> str:
    """A metric with four decimals; empty if there is no value."""
    return "" if value is None else f"{value:.4f}"


# templates are named by their path in the package: `utils/templates/base.html`, `serving/explain/page.html`
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parents[1]), autoescape=True, undefined=StrictUndefined,
    trim_blocks=True, lstrip_blocks=True,
)  # fmt: skip
TEMPLATES.policies["json.dumps_kwargs"] = {}  # keep the order of figures
TEMPLATES.filters["metric"] = number


def render(template: str, title: str, figures: dict[str, Figure], **values: Any) -> str:
    """A complete HTML page from a template that extends `utils/templates/base.html`.

    Args:
        template: path of the template in the package.
        title: of the browser window; the template can show it too.
        figures: by the id of the HTML element that each is drawn in (see `figure` in `macros.html`).
        values: further variables and functions of the template. Text is escaped automatically.
    """
    from plotly.offline import get_plotlyjs

    figures = to_builtin(figures)
    return TEMPLATES.get_template(template).render(
        title=title, figures=figures, colours=COLOURS, plotly=get_plotlyjs(), **values
    )


def label(value: Any, longest: int | None = None) -> str:
    """Escaped text for a figure, shortened to at most `longest` characters."""
    shown = str(value)
    if longest is not None and len(shown) > longest:
        shown = shown[: longest - 1] + "\u2026"
    shown = html.escape(shown, quote=False)  # plotly does not decode &quot;
    return shown.replace("$", "&#36;")  # or the page would replace `$name$` with a colour


def layout(x: str, y: str, **more: Any) -> Figure:
    """Layout of a figure with axis titles `x` and `y`."""
    axis = {"gridcolor": "$grid$", "linecolor": "$grid$", "zerolinecolor": "$grid$", "automargin": True}
    return {
        "height": HEIGHT, "margin": {"l": 60, "r": 20, "t": 20, "b": 50}, "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)", "font": {"color": "$ink$", "family": "system-ui, sans-serif"},
        "xaxis": {**axis, "title": {"text": x}}, "yaxis": {**axis, "title": {"text": y}},
        "hoverlabel": {"align": "left"}, "showlegend": False, **more,
    }  # fmt: skip
