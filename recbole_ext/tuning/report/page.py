"""report.html: the search as one page that needs no network, in light and dark."""

from typing import Any

from recbole_ext.tuning.journal import Record, ranked
from recbole_ext.tuning.report import figures
from recbole_ext.tuning.space import Space
from recbole_ext.utils.html import document, number, section, text


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
    best = ranked(records, bigger)
    drawn: dict[str, Any] = {}
    parts = [f"<h1>{text(title)}</h1>", f"<p>{text(_what_happened(records))}</p>"]
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
        parts.append(section(name, *about[name]))
    parts.append("<h2>Trials</h2>" + _trials(records, space, metric, best[0]["trial"] if best else 0))
    return document(title, parts, drawn)


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
        f"<tr><th>{text(key)}</th><td>{text(figures.text_of(value))}</td></tr>" for key, value in record["keys"].items()
    )
    rows = "".join(
        f'<tr><th>{text(name)}</th><td class="number">{value:.4f}</td><td class="number">'
        f"{number(test.get(name))}</td></tr>"
        for name, value in record["best_metrics"].items()
    )
    return (
        f"<h2>Best trial: {record['trial']}</h2><p>{text(metric)} {record['best_score']:.4f} on the validation data, "
        f"after epoch {record['best_epoch']}. No other trial was tested when the search ended.</p>"
        f'<div class="side"><table>{keys}</table>'
        f"<table><tr><th>metric</th><th>valid</th><th>test</th></tr>{rows}</table></div>"
    )


def _trials(records: list[Record], space: Space, metric: str, best: int) -> str:
    names = ["trial", "status", metric, "best epoch", "epochs", "seconds", *space, "reason"]
    rows = []
    for record in sorted(records, key=lambda one: one["trial"]):
        cells = [record["trial"], record["status"], number(record["best_score"]), record["best_epoch"] or ""]
        cells += [record["epochs"], f"{record['seconds']:.0f}"]
        cells += [figures.text_of(record["keys"].get(key, "")) for key in space] + [record["reason"]]
        mark = ' class="best"' if record["trial"] == best else ""
        rows.append(f"<tr{mark}>" + "".join(f"<td>{text(cell)}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{text(name)}</th>" for name in names)
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(rows)}</table></div>'
