"""report.html: the search as one page that needs no network, in light and dark."""

import html
import json
from typing import Any

from recbole_ext.config.values import plain
from recbole_ext.tuning import figures
from recbole_ext.tuning.journal import Record, ranked
from recbole_ext.tuning.space import Space

STYLE = """
:root { color-scheme: light dark; --ink: #1f2733; --soft: #5c6878; --page: #ffffff; --line: #dfe4ea; --best: #b3470b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9f0; --soft: #9aa7b8; --page: #14181f; --line: #323a46; --best: #ffb07a; }
}
body { margin: 2rem auto; max-width: 70rem; padding: 0 1.5rem; color: var(--ink); background: var(--page);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin-bottom: 0.2rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 0.2rem; }
p { color: var(--soft); margin: 0.2rem 0 0.6rem; max-width: 50rem; }
.side { display: flex; flex-wrap: wrap; align-items: start; gap: 1rem 4rem; } .wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
th, td { text-align: left; padding: 0.25rem 0.9rem 0.25rem 0; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; } td.number { text-align: right; } .wide td { white-space: nowrap; }
/* its axes need room, and their lines are black by themselves */
#parallel { min-width: 44rem; } #parallel .axis path, #parallel .axis line { stroke: var(--soft) !important; }
tr.best td { color: var(--best); font-weight: 600; }
"""
COLOURS = {
    "light": {
        "ink": "#1f2733", "grid": "#dfe4ea", "accent": "#2a62b0", "muted": "#8a97a8", "best": "#b3470b",
        "low": "#ccd7e8", "high": "#123f86",
    },
    "dark": {
        "ink": "#e4e9f0", "grid": "#323a46", "accent": "#7db3ff", "muted": "#8593a6", "best": "#ffb07a",
        "low": "#4a5b76", "high": "#9cc7ff",
    },
}  # fmt: skip
SCRIPT = """
const dark = matchMedia("(prefers-color-scheme: dark)");
function draw() {
  const colours = palettes[dark.matches ? "dark" : "light"];
  for (const [id, figure] of Object.entries(figures)) {
    const text = JSON.stringify(figure).replace(/[$](\\w+)[$]/g, (_, name) => colours[name]);
    const { data, layout } = JSON.parse(text);
    Plotly.react(id, data, layout, { displayModeBar: false, responsive: true });
  }
}
dark.addEventListener("change", draw);
draw();
"""


def page(
    title: str, records: list[Record], space: Space, metric: str, bigger: bool, test_result: dict[str, float] | None
) -> str:
    """The page.

    Args:
        title: of the search.
        records: of all trials, in the order in which they ended.
        space: keys and domains.
        metric: name of the score.
        bigger: whether more of it is better.
        test_result: metrics of the best trial on the test data, if there is one.
    """
    from plotly.offline import get_plotlyjs

    best = ranked(records, bigger)
    drawn: dict[str, Any] = {}
    parts = [f"<h1>{_text(title)}</h1>", f"<p>{_text(_what_happened(records))}</p>"]
    if best:
        parts.append(_best(best[0], metric, test_result or {}))
        drawn["history"] = figures.history(records, metric, bigger)
        drawn["parallel"] = figures.parallel(records, space, metric, bigger)
        shares = figures.importance(records, space)
        if shares:
            drawn["importance"] = figures.bars(shares)
        drawn["curves"] = figures.curves(records, metric, bigger)
    about = {
        "history": ("Optimisation history", "Each point is a trial; the line is the best score so far."),
        "parallel": (
            "Parallel coordinates", "Each line is a trial, from its values to its score. Drag along an axis to select."
        ),
        "importance": (
            "Importance of the keys",
            "Share of each key in what a random forest learns about the scores. A hint at most with few trials, and "
            "scores of trials that were stopped early count as they were.",
        ),
        "curves": ("Learning curves", "Validation after each epoch; the best trial is highlighted."),
    }  # fmt: skip
    for name in drawn:
        heading, text = about[name]
        parts.append(f'<h2>{heading}</h2><p>{text}</p><div class="wide"><div id="{name}"></div></div>')
    parts.append("<h2>Trials</h2>" + _trials(records, space, metric, best[0]["trial"] if best else 0))
    values = f"const palettes = {json.dumps(COLOURS)};\nconst figures = {_json(drawn)};"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>\n<body>\n'
        + "\n".join(parts)
        + f"\n<script>{get_plotlyjs()}</script>\n<script>{values}\n{SCRIPT}</script>\n</body></html>\n"
    )


def _text(value: Any) -> str:
    return html.escape(str(value))


def _json(value: Any) -> str:
    return json.dumps(plain(value)).replace("</", "<\\/")


def _what_happened(records: list[Record]) -> str:
    count = {status: sum(one["status"] == status for one in records) for status in ("finished", "stopped", "failed")}
    seconds = sum(record["seconds"] for record in records)
    return (
        f"{len(records)} trials: {count['finished']} finished, {count['stopped']} stopped early, "
        f"{count['failed']} failed; {sum(record['epochs'] for record in records)} epochs in {seconds / 60:.0f} minutes "
        f"of trials."
    )


def _best(record: Record, metric: str, test: dict[str, float]) -> str:
    keys = "".join(
        f"<tr><th>{_text(key)}</th><td>{_text(figures.text_of(value))}</td></tr>"
        for key, value in record["keys"].items()
    )
    rows = "".join(
        f'<tr><th>{_text(name)}</th><td class="number">{value:.4f}</td><td class="number">'
        f"{_number(test.get(name))}</td></tr>"
        for name, value in record["best_metrics"].items()
    )
    return (
        f"<h2>Best trial: {record['trial']}</h2><p>{_text(metric)} {record['best_score']:.4f} on the validation data, "
        f"after epoch {record['best_epoch']}. The test data was opened once, for this trial.</p>"
        f'<div class="side"><table>{keys}</table>'
        f"<table><tr><th>metric</th><th>valid</th><th>test</th></tr>{rows}</table></div>"
    )


def _trials(records: list[Record], space: Space, metric: str, best: int) -> str:
    names = ["trial", "status", metric, "best epoch", "epochs", "seconds", *space, "reason"]
    rows = []
    for record in sorted(records, key=lambda one: one["trial"]):
        cells = [record["trial"], record["status"], _number(record["best_score"]), record["best_epoch"] or ""]
        cells += [record["epochs"], f"{record['seconds']:.0f}"]
        cells += [figures.text_of(record["keys"].get(key, "")) for key in space] + [record["reason"]]
        mark = ' class="best"' if record["trial"] == best else ""
        rows.append(f"<tr{mark}>" + "".join(f"<td>{_text(cell)}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{_text(name)}</th>" for name in names)
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
