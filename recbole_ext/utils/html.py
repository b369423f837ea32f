"""What the pages share: one HTML file that needs no network, in light and dark, with plotly's figures.

A figure is a plain dictionary of plotly's `data` and `layout`. A colour stands in it as `$name$`; the page fills it in
by its mode. Texts from users' data pass `text` in HTML and `label` in figures, where plotly reads some tags.
"""

import html
import json
from typing import Any

from recbole_ext.utils.literals import plain

Figure = dict[str, Any]
HEIGHT = 420

STYLE = """
:root { color-scheme: light dark; --ink: #1f2733; --soft: #5c6878; --page: #ffffff; --line: #dfe4ea; --best: #b3470b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9f0; --soft: #9aa7b8; --page: #14181f; --line: #323a46; --best: #ffb07a; }
}
body { margin: 2rem auto; max-width: 70rem; padding: 0 1.5rem; color: var(--ink); background: var(--page);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin-bottom: 0.2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 0.2rem; }
p { color: var(--soft); margin: 0.2rem 0 0.6rem; max-width: 50rem; }
.side { display: flex; flex-wrap: wrap; align-items: start; gap: 1rem 4rem; } .wide { overflow-x: auto; }
.wide > div { min-width: 40rem; } html { overflow-y: scroll; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
th, td { text-align: left; padding: 0.25rem 0.9rem 0.25rem 0; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; } td.number { text-align: right; } .wide td { white-space: nowrap; }
/* its lines are black by themselves */
#parallel .axis path, #parallel .axis line { stroke: var(--soft) !important; }
summary { cursor: pointer; margin: 1rem 0; } p b { color: var(--ink); } p { overflow-wrap: anywhere; }
tr.best td { color: var(--best); font-weight: 600; }
"""
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
SCRIPT = """
const dark = matchMedia("(prefers-color-scheme: dark)");
function draw() {
  const colours = palettes[dark.matches ? "dark" : "light"];
  const named = (all, name) => name in colours ? `"${colours[name]}"` : all;
  for (const [id, figure] of Object.entries(figures)) {
    const { data, layout } = JSON.parse(JSON.stringify(figure).replace(/"[$](\\w+)[$]"/g, named));
    Plotly.react(id, data, layout, { displayModeBar: false, responsive: true });
  }
}
dark.addEventListener("change", draw);
draw();
"""


def document(title: str, parts: list[str], figures: dict[str, Figure]) -> str:
    """The page.

    Args:
        title: of the window.
        parts: HTML, one below the other; `<div id=...>` (see `section`) is where a figure goes.
        figures: by id.
    """
    from plotly.offline import get_plotlyjs

    values = f"const palettes = {_json(COLOURS)};\nconst figures = {_json(figures)};"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{text(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>\n<body>\n'
        + "\n".join(parts)
        + f"\n<script>{get_plotlyjs()}</script>\n<script>{values}\n{SCRIPT}</script>\n</body></html>\n"
    )


def section(name: str, heading: str, explained: str) -> str:
    """A heading, what it shows in words, and the place of the figure of that name."""
    return f'<h2>{text(heading)}</h2><p>{text(explained)}</p><div class="wide"><div id="{name}"></div></div>'


def text(value: Any) -> str:
    """A value as text in HTML."""
    return html.escape(str(value))


def number(value: float | None) -> str:
    """A metric; nothing where there is none."""
    return "" if value is None else f"{value:.4f}"


def label(value: Any, longest: int | None = None) -> str:
    """A value as text in a figure, cut to `longest` characters."""
    shown = str(value)
    if longest is not None and len(shown) > longest:
        shown = shown[: longest - 1] + "\u2026"
    shown = html.escape(shown, quote=False)  # plotly does not know the names of quotes
    return shown.replace("$", "&#36;")  # the page replaces `$name$` by a colour


def layout(x: str, y: str, **more: Any) -> Figure:
    """The layout of a figure with titles at its axes."""
    axis = {"gridcolor": "$grid$", "linecolor": "$grid$", "zerolinecolor": "$grid$", "automargin": True}
    return {
        "height": HEIGHT, "margin": {"l": 60, "r": 20, "t": 20, "b": 50}, "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)", "font": {"color": "$ink$", "family": "system-ui, sans-serif"},
        "xaxis": {**axis, "title": {"text": x}}, "yaxis": {**axis, "title": {"text": y}},
        "hoverlabel": {"align": "left"}, "showlegend": False, **more,
    }  # fmt: skip


def _json(value: Any) -> str:
    return json.dumps(plain(value)).replace("<", "\\u003c")  # nothing in it ends the script
