"""`recbole-ext explain`: why a user gets an item, in a few lines, as a page, a table or JSON."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from recbole_ext.cli.options import OptionParser, add_request_options
from recbole_ext.utils.atomic_write import write_whole
from recbole_ext.utils.paths import check_outputs, check_suffix, writable_file
from recbole_ext.utils.validators import Str

if TYPE_CHECKING:
    from recbole_ext.serving.explain.explanation import Explanation

OUTPUTS = {"report": ".html", "out": ".csv", "json": ".json"}
SHOWN_EVENTS = 5  # on the screen
MAX_NAME_LENGTH = 80

parser = OptionParser(
    "explain",
    "explain --checkpoint=FILE --histories=FILE --user=USER [--option=value ...]",
    "Tell which past events of a user carried the score of an item, and which heads or kernels looked at them.",
)
add_request_options(parser, histories_required=True)
parser.add_option("user", "USER", Str(expected="a user"), "a user of the histories", required=True)
parser.add_option("item", "ITEM", Str(expected="an item"), "the item to explain (default: the best one for the user)")
for _option, _suffix, _help in (
    ("report", ".html", "a page with figures and the learning curves of the training, which needs no network"),
    ("out", ".csv", "a row for each event: time, effect on the score, attention of each head"),
    ("json", ".json", "the complete explanation, for scripts"),
):
    parser.add_option(_option, f"FILE{_suffix}", Str(expected=f"the name of a file that ends in {_suffix}"), _help)


def main(argv: Sequence[str]) -> None:
    options = parser.parse(argv)
    inputs = ("checkpoint", "histories", "item_names")
    check_outputs(
        {f"--{name}": getattr(options, name) for name in OUTPUTS},
        {f"--{name}": getattr(options, name) for name in inputs},
    )
    given = {name: getattr(options, name) for name in OUTPUTS if getattr(options, name) is not None}
    outputs = {name: _output_file(name, path) for name, path in given.items()}

    from recbole_ext.cli.files import check_histories_file, read_events
    from recbole_ext.serving.recommender import Recommender

    check_histories_file(options.histories)
    recommender = Recommender.load(options.checkpoint, options.device, item_names=options.item_names)
    events = read_events(options.histories, recommender.reader.columns(), recommender.config)
    explanation = recommender.explain(
        events, options.user, options.item, options.at, options.exclude_seen, options.trained_items_only
    )
    for name, path in outputs.items():
        _write(recommender, explanation, name, path)
    print("\n".join([summary(explanation), *(f"{name}: {path}" for name, path in outputs.items())]))


def _output_file(name: str, path: str) -> str:
    check_suffix(path, (OUTPUTS[name],), f"--{name}")
    return writable_file(path, f"--{name}")


def _write(recommender: Any, explanation: "Explanation", name: str, path: str) -> None:
    if name == "report":
        recommender.write_report(explanation, path)
        return
    if name == "out":
        text = explanation.events.to_csv(index=False, lineterminator="\n")
    else:
        text = json.dumps(explanation.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with write_whole(path) as file:
        file.write(text.encode())


def summary(explanation: "Explanation") -> str:
    """Score and rank of the item, and the events with the largest effect on the score, for people."""
    import pandas as pd

    reason = "it has no training event" if explanation.not_ranked == "untrained" else "the user has had it"
    ranked = explanation.rank is not None
    rank = f"rank {explanation.rank} of {explanation.candidates}" if ranked else f"not ranked, since {reason}"
    item = _name(explanation.title, explanation.item)
    score = f"score {explanation.score:.4g} ({explanation.average_score:.4g} on average)"
    lines = [f"{item} for {explanation.user}: {rank}, {score}"]
    by_effect = explanation.events["effect"].abs().sort_values(ascending=False, kind="stable")
    for index, event in explanation.events.loc[by_effect.index[:SHOWN_EVENTS]].iterrows():
        effect = "the only event" if pd.isna(event["effect"]) else f"{event['effect']:+.4g}"
        date = "no date" if pd.isna(event["date"]) else f"{event['date']:%Y-%m-%d %H:%M}"
        name = _name(explanation.event_titles[index], event[explanation.item_field])
        lines.append(f"  {effect:>12}  {date}  {name}")
    return "\n".join(lines)


def _name(title: str, token: str) -> str:
    """The name of an item with its token, shortened, and without characters that a terminal takes for commands."""
    from recbole_ext.serving.explain.explanation import with_token

    printable = "".join(character if character.isprintable() else " " for character in title)
    if len(printable) > MAX_NAME_LENGTH:
        printable = printable[: MAX_NAME_LENGTH - 3] + "..."
    return with_token(printable, token)
