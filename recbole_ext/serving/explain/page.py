"""The HTML report of an explanation, for people who do not train models. Its text is in `page.html`."""

from typing import Any

import pandas as pd

from recbole_ext.checkpoint.training_run import TrainingRun
from recbole_ext.data.files.item_files import ITEM_NAME
from recbole_ext.serving.explain import figures
from recbole_ext.serving.explain.explanation import Explanation
from recbole_ext.utils.html import Figure, number, render
from recbole_ext.utils.wording import counted

RECOMMENDED = 10  # items up to this rank are called recommended
IN_WORDS = 3  # events named in a sentence
KERNELS = {
    "position": "position in the history", "day": "calendar day", "constant": "the item alone",
    "sin": "periods in the time gap", "exp": "short time gaps", "log": "order of magnitude of the time gap",
}  # fmt: skip


def page(explanation: Explanation, run: TrainingRun | None) -> str:
    """The report as one HTML file that works offline.

    Args:
        explanation: what to show.
        run: the training of the model, if known.
    """
    drawn = {**_effect_figures(explanation), **_attention_figures(explanation)}
    if run is not None and run.train_loss:
        drawn["curves"] = figures.curves(run)
    header, rows = _event_table(explanation)
    return render(
        "serving/explain/page.html", _headline(explanation), drawn,
        shorten=shorten, moment=figures.moment, ago=figures.ago, signed=figures.signed,
        explanation=explanation, summary=_summary(explanation), strongest=_strongest(explanation),
        shown_effects=figures.STRONGEST, kernels=_kernels(explanation),
        interest_rows=_interest_rows(explanation) if "interests" in drawn else [],
        events_summary=f"{counted(len(rows), 'past event')} as a table", event_header=header, event_rows=rows,
        run=run, metric_rows=[] if run is None else [[name, number(value)] for name, value in run.valid_result.items()],
    )  # fmt: skip


def shorten(text: Any, longest: int = 60) -> str:
    """The text, cut to at most `longest` characters."""
    text = str(text)
    return text if len(text) <= longest else text[: longest - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _headline(explanation: Explanation) -> str:
    item = f"item {explanation.item}" if explanation.title == explanation.item else explanation.title
    if explanation.rank is not None and explanation.rank <= RECOMMENDED:
        return f"Why {shorten(item, 120)} was recommended to user {explanation.user}"
    return f"Why {shorten(item, 120)} scores as it does for user {explanation.user}"


def _summary(explanation: Explanation) -> str:
    if explanation.rank is None:
        untrained = explanation.not_ranked == "untrained"
        reason = "this item has no training event" if untrained else "the user has had this item"
        rank = f"Not ranked: {reason}; {explanation.candidates:,} other items are ranked"
    else:
        rank = f"Rank {explanation.rank:,} of {explanation.candidates:,} items"
    if explanation.title != explanation.item:
        rank = f"Item {explanation.item}. {rank}"
    score = "Probability" if explanation.model == "BST" else "Score"
    dates = explanation.events["date"]
    oldest = "" if dates.isna().any() or len(dates) < 2 else f", the oldest of {figures.day(dates.iloc[0])}"
    return (
        f"{rank}. {score} {explanation.score:.4g}; the average of the items is {explanation.average_score:.4g}. "
        f"Time of the request: {figures.moment(explanation.date)}. {explanation.model} read "
        f"{counted(len(explanation.events), 'past event')} of this user{oldest}."
    )


def _strongest(explanation: Explanation) -> dict[str, list[int]]:
    """Positions of the events with the largest effects in each direction; empty if effects are unknown."""
    effect = explanation.events["effect"]
    if effect.isna().all():
        return {}
    ascending = effect.sort_values(kind="stable")
    descending = ascending[::-1]
    return {
        "for": descending[descending > 0].index[:IN_WORDS].tolist(),
        "against": ascending[ascending < 0].index[:IN_WORDS].tolist(),
    }


def _effect_figures(explanation: Explanation) -> dict[str, Figure]:
    effect = explanation.events["effect"]
    if effect.isna().all():
        return {}
    if len(effect) <= figures.FEW:
        newest_first = list(range(len(effect)))[::-1]
        return {"effects": figures.effects(explanation, newest_first)}
    strongest = effect.abs().sort_values(ascending=False, kind="stable").index[: figures.STRONGEST]
    return {"effects": figures.effects(explanation, list(strongest)), "time": figures.over_time(explanation)}


def _attention_figures(explanation: Explanation) -> dict[str, Figure]:
    drawn = {}
    if not explanation.attention.empty and explanation.attention["place"].max() > 0:  # more than one event
        drawn["heads"] = figures.heads(explanation)
    if not explanation.interests.empty and len(explanation.events) > 1:
        drawn["interests"] = figures.interests(explanation)
    return drawn


def _kernels(explanation: Explanation) -> str:
    """The meaning of MEANTIME's heads."""
    names = [name.removeprefix("attention_") for name in explanation.heads]
    return "; ".join(f"{name}: {KERNELS[name]}" for name in names if name in KERNELS)


def _interest_rows(explanation: Explanation) -> list[list[Any]]:
    titles, rows = explanation.event_titles, []
    for interest, share in figures.interest_shares(explanation).iterrows():
        largest = pd.Series(share["values"]).sort_values(ascending=False, kind="stable")[:IN_WORDS]
        events = (f"{shorten(titles[position], 30)} ({value:.0%})" for position, value in largest.items())
        rows.append([interest, f"{share['use']:.1%}", ", ".join(events)])
    return rows


def _event_table(explanation: Explanation) -> tuple[list[str], list[list[str]]]:
    """Header and rows, the newest event first."""
    items = [name for name in (explanation.item_field, ITEM_NAME) if name in explanation.events]
    heads = explanation.heads
    header = ["date (UTC)", *items, "before the request", "effect"]
    header += [figures.head_name(1, name.removeprefix("attention_"), 1) for name in heads]
    rows = [
        [figures.moment(event["date"]).removesuffix(" UTC"), *(shorten(event[name]) for name in items),
         figures.ago(event["seconds_before"]), figures.signed(event["effect"]),
         *(f"{event[name]:.1%}" for name in heads)]
        for _, event in explanation.events.iloc[::-1].iterrows()
    ]  # fmt: skip
    return header, rows
