"""why.html: why an item was recommended, as one page that needs no network, for people who do not train models."""

from typing import Any

import pandas as pd

from recbole_ext.checkpoint.training_run import TrainingRun
from recbole_ext.data.files.item_names import ITEM_NAME
from recbole_ext.serving.explain import figures
from recbole_ext.serving.explain.explanation import Explanation
from recbole_ext.utils.html import Figure, document, number, section, text
from recbole_ext.utils.wording import counted

RECOMMENDED = 10  # ranks up to which an item counts as recommended
TOLD = 3  # events told in words
KERNELS = {
    "position": "place in the history", "day": "calendar day", "constant": "the item alone",
    "sin": "rhythm of the time between", "exp": "short times between", "log": "order of magnitude of the time between",
}  # fmt: skip


def page(found: Explanation, run: TrainingRun | None) -> str:
    """The page.

    Args:
        found: what to show.
        run: of the training, if it is known.
    """
    title = headline(found)
    drawn: dict[str, Figure] = {}
    parts = [f"<h1>{text(title)}</h1>", f"<p>{text(_where_it_stands(found))}</p>", _in_words(found)]
    for part in (_effects, _heads, _interests):
        parts += part(found, drawn)
    parts += [_events(found)]
    parts += [] if run is None else _run(run, drawn)
    return document(title, parts, drawn)


def headline(found: Explanation) -> str:
    """What the page answers."""
    item = _cut(f"item {found.item}" if found.title == found.item else found.title, 120)
    if found.rank is not None and found.rank <= RECOMMENDED:
        return f"Why {item} was recommended to user {found.user}"
    return f"Why {item} scores as it does for user {found.user}"


def _where_it_stands(found: Explanation) -> str:
    if found.rank is None:
        why = "this item has no training event" if found.not_ranked == "untrained" else "the user has had this item"
        place = f"Not ranked: {why}, and {found.candidates:,} others are ranked"
    else:
        place = f"Rank {found.rank:,} of {found.candidates:,} items"
    if found.title != found.item:
        place = f"Item {found.item}. {place}"
    kind = "Probability" if found.model == "BST" else "Score"
    dates = found.events["date"]
    return (
        f"{place}. {kind} {found.score:.4g}; the average of the items is {found.average_score:.4g}. Asked for "
        f"{figures.moment(found.date)}. {found.model} read {counted(len(found.events), 'past event')} of this user"
        f"{'' if dates.isna().any() or len(dates) < 2 else f', the oldest of {figures.day(dates.iloc[0])}'}."
    )


def _in_words(found: Explanation) -> str:
    effect = found.events["effect"]
    if effect.isna().all():
        title, date = text(_cut(found.event_titles[0])), text(figures.moment(found.events["date"].iloc[0]))
        return f"<p>The only past event is <b>{title}</b> ({date}): everything rests on it.</p>"
    order = effect.sort_values(kind="stable")
    lines = []
    for words, sign, places in (("for", 1, order.index[::-1]), ("against", -1, order.index)):
        events = [_event(found, place) for place in places[:TOLD] if sign * effect[place] > 0]
        if events:
            lines.append(f"<p>What speaks most {words} it: {'; '.join(events)}.</p>")
    return "\n".join(lines)


def _event(found: Explanation, place: int) -> str:
    row = found.events.loc[place]
    when = f"{figures.ago(row['seconds_before'])} before, {figures.signed(row['effect'])}"
    return f"<b>{text(_cut(found.event_titles[place]))}</b> ({text(when)})"


def _cut(token: Any, longest: int = 60) -> str:
    token = str(token)
    return token if len(token) <= longest else token[: longest - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _effects(found: Explanation, drawn: dict[str, Figure]) -> list[str]:
    effect = found.events["effect"]
    if effect.isna().all():
        return []
    what = (
        "The effect of an event is the score minus the score without that event. To the right, blue: the event speaks "
        "for the item; to the left, orange: against it. Effects need not add up, since events can stand in for each "
        "other."
    )
    newest_first = list(range(len(effect)))[::-1]
    if len(effect) <= figures.FEW:
        drawn["effects"] = figures.effects(found, newest_first)
        return [section("effects", "What each past event does to the score", f"{what} The newest event is on top.")]
    strongest = effect.abs().sort_values(ascending=False, kind="stable").index[: figures.STRONGEST]
    drawn["effects"] = figures.effects(found, list(strongest))
    drawn["time"] = figures.over_time(found)
    return [
        section("effects", f"The {len(strongest)} past events that do most to the score", what),
        section("time", "All past events over time", "The same for all events, in their order; point at a bar."),
    ]


def _heads(found: Explanation, drawn: dict[str, Figure]) -> list[str]:
    if found.attention.empty or found.attention["place"].max() == 0:  # or there is nothing but one event to look at
        return []
    drawn["heads"] = figures.heads(found)
    if found.model == "MEANTIME":
        names = [name.removeprefix("attention_") for name in found.heads]
        kinds = "; ".join(f"{name}: {KERNELS[name]}" for name in names if name in KERNELS)
        what = f"Each row is one kernel, a way of looking at time ({kinds}), and what it looks at from the request."
    elif found.model == "BST":
        what = "Each row is one head, and what it looks at from the recommended item."
    else:
        what = (
            "Each row is one head, and what it looks at from the newest event: items by what they are, positions by "
            "their place alone."
        )
    if found.layer > 1:
        what += (
            f" The score is read from layer {found.layer}; what that layer looks at has seen the other events already."
        )
    what += " The weights of a row add up to 100 %. Weights say where the model looks, effects what it changes."
    return [section("heads", "Where the model looks", what)]


def _interests(found: Explanation, drawn: dict[str, Figure]) -> list[str]:
    if found.interests.empty or len(found.events) < 2:
        return []
    drawn["interests"] = figures.interests(found)
    what = (
        "The model sums the history up in a few interests. Left, how much of each the newest event asks for, the most "
        "used on top; right, which events form it."
    )
    titles = found.event_titles
    rows: list[list[Any]] = []
    for interest, row in figures.interest_shares(found).iterrows():
        order = pd.Series(row["values"]).sort_values(ascending=False, kind="stable").index[:TOLD]
        told = ", ".join(f"{_cut(titles[place], 30)} ({row['values'][place]:.0%})" for place in order)
        rows.append([interest, f"{row['use']:.1%}", told])
    return [
        section("interests", "Interests", what),
        _folded("The interests as a table", ["interest", "use", "most of it"], rows),
    ]


def _events(found: Explanation) -> str:
    heads = found.heads
    items = [name for name in (found.item_field, ITEM_NAME) if name in found.events]
    names = ["date (UTC)", *items, "before the request", "effect"]
    names += [figures.head_name(1, name.removeprefix("attention_"), 1) for name in heads]
    rows = [
        [figures.moment(row["date"]).removesuffix(" UTC"), *(_cut(row[name]) for name in items),
         figures.ago(row["seconds_before"]), figures.signed(row["effect"]), *(f"{row[name]:.1%}" for name in heads)]
        for _, row in found.events.iloc[::-1].iterrows()
    ]  # fmt: skip
    return _folded(f"{counted(len(rows), 'past event')} as a table", names, rows)


def _run(run: TrainingRun, drawn: dict[str, Figure]) -> list[str]:
    parts = []
    trained = f"{run.model} on {run.dataset}; this is the model of epoch {run.best_epoch} (the log counts from 0)"
    if run.best_score is not None:
        trained += f", with {run.metric} {run.best_score:.4f} on the validation data"
    if run.train_loss:
        drawn["curves"] = figures.curves(run)
        parts.append(section("curves", "How the model was trained", f"{trained}."))
    else:
        parts.append(f"<h2>How the model was trained</h2><p>{text(trained)}. The checkpoint holds no curves.</p>")
    if run.valid_result:
        rows = [[name, number(value)] for name, value in run.valid_result.items()]
        parts.append(
            "<p>Metrics on the validation data, by which the epoch was chosen. Metrics on the test data are measured "
            "after the checkpoint has been written, and are not in it.</p>" + _table(["metric", "validation"], rows)
        )
    return parts


def _folded(what: str, names: list[str], rows: list[list[Any]]) -> str:
    return f"<details><summary>{text(what)}</summary>{_table(names, rows)}</details>"


def _table(names: list[str], rows: list[list[Any]]) -> str:
    head = "".join(f"<th>{text(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'
