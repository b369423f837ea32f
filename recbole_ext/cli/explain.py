"""`recbole-ext explain`: why a user gets an item, in a few lines, as a page, a table or JSON."""

import json
import os
from typing import Any

import pandas as pd

from recbole_ext.cli.files import SOURCES, read_events, suffix_of
from recbole_ext.cli.options import FLAG, check_options, item_names_option, truth
from recbole_ext.errors import InputError
from recbole_ext.serving.explain.explanation import Explanation, with_token
from recbole_ext.serving.recommender import Recommender
from recbole_ext.utils.atomic_write import write_whole
from recbole_ext.utils.literals import parse_literal
from recbole_ext.utils.paths import check_outputs, writable_file

OPTIONS = {
    "checkpoint": "the name of a file", "histories": "the name of a file", "user": "a user",
    "item": "an item, or leave it out for the best one", "at": "a time", "exclude_seen": FLAG,
    "trained_items_only": FLAG, "item_names": "a file with two columns, items and names, or False",
    "report": "the name of a file that ends in .html", "out": "the name of a file that ends in .csv",
    "json": "the name of a file that ends in .json", "device": "the name of a device, e.g. cpu",
}  # fmt: skip
FILES = {"report": ".html", "out": ".csv", "json": ".json"}
INPUTS = ("checkpoint", "histories", "item_names")  # files to read
SHOWN = 5  # events told on the screen
LONGEST = 80  # characters of a name


def explain(given: dict[str, Any]) -> str:
    """Carry out the command.

    Args:
        given: its options and the texts of their values.

    Returns:
        the explanation in a few lines, and what was written.

    Raises:
        InputError: an option is unknown, missing or wrong.
    """
    check_options("explain", given, OPTIONS, ("checkpoint", "histories", "user"))
    check_outputs(
        {f"--{option}": given.get(option) for option in FILES}, {f"--{option}": given.get(option) for option in INPUTS}
    )
    seen, trained = truth(given, "exclude_seen", True), truth(given, "trained_items_only", False)
    targets = {option: _target(option, given[option]) for option in FILES if option in given}
    suffix_of(given["histories"], SOURCES, "histories")
    recommender = Recommender.load(given["checkpoint"], given.get("device"), item_names=item_names_option(given))
    events = read_events(given["histories"], recommender.reader.columns(), recommender.config)
    at = parse_literal(given["at"]) if isinstance(given.get("at"), str) else given.get("at")
    found = recommender.explain(events, given["user"], given.get("item"), at, seen, trained)
    for option, path in targets.items():
        _write(recommender, found, option, path)
    return "\n".join([summary(found), *(f"{option}: {path}" for option, path in targets.items())])


def _target(option: str, path: Any) -> str:
    suffix = FILES[option]
    if not isinstance(path, str) or os.path.isdir(path) or os.path.splitext(path)[1].lower() != suffix:
        raise InputError(f"--{option} is {path!r}; it should be the name of a file that ends in {suffix}.")
    return writable_file(path, f"--{option}")


def _write(recommender: Recommender, found: Explanation, option: str, path: str) -> None:
    if option == "report":
        recommender.write_report(found, path)
        return
    if option == "out":
        written = found.events.to_csv(index=False, lineterminator="\n")
    else:
        written = json.dumps(found.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with write_whole(path) as file:
        file.write(written.encode())


def summary(found: Explanation) -> str:
    """Score and rank, and the events that do most to the score."""
    why = "it has no training event" if found.not_ranked == "untrained" else "the user has had it"
    rank = f"not ranked, since {why}" if found.rank is None else f"rank {found.rank} of {found.candidates}"
    item = _on_a_line(found.title, found.item)
    lines = [f"{item} for {found.user}: {rank}, score {found.score:.4g} ({found.average_score:.4g} on average)"]
    titles = found.event_titles
    strongest = found.events["effect"].abs().sort_values(ascending=False, kind="stable").index[:SHOWN]
    for place, row in found.events.loc[strongest].iterrows():
        effect = "the only event" if pd.isna(row["effect"]) else f"{row['effect']:+.4g}"
        date = "no date" if pd.isna(row["date"]) else f"{row['date']:%Y-%m-%d %H:%M}"
        lines.append(f"  {effect:>12}  {date}  {_on_a_line(titles[place], row[found.item_field])}")
    return "\n".join(lines)


def _on_a_line(title: str, token: str) -> str:
    """A name beside its token, cut to `LONGEST` and without what a terminal would take for commands."""
    shown = "".join(sign if sign.isprintable() else " " for sign in title)
    return with_token(shown if len(shown) <= LONGEST else shown[: LONGEST - 3] + "...", token)
