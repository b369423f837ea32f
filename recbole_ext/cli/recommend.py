"""`recbole-ext recommend`: a checkpoint and a file of histories to a file of recommendations."""

from typing import Any

from recbole_ext.cli.files import SOURCES, read_events, read_tokens, suffix_of, target_file, writer
from recbole_ext.cli.options import FLAG, check_options, item_names_option, truth
from recbole_ext.data.files.table import Table
from recbole_ext.errors import InputError
from recbole_ext.serving.recommender import Recommender
from recbole_ext.serving.training_users import training_user_requests
from recbole_ext.utils.literals import parse_literal
from recbole_ext.utils.paths import check_outputs
from recbole_ext.utils.wording import counted

OPTIONS = {
    "checkpoint": "the name of a file", "histories": "the name of a file", "all_users": FLAG,
    "data_path": "the folder of the data set", "out": "the name of a file", "k": "a number of items", "at": "a time",
    "exclude_seen": FLAG, "trained_items_only": FLAG, "items": "the name of a file", "users": "the name of a file",
    "item_names": "a file with two columns, items and names, or False",
    "device": "the name of a device, e.g. cpu", "show_progress": FLAG,
}  # fmt: skip

INPUTS = ("checkpoint", "histories", "items", "users", "item_names")  # files to read


def recommend(given: dict[str, Any]) -> str:
    """Carry out the command.

    Args:
        given: its options and the texts of their values.

    Returns:
        a line that says what was written.

    Raises:
        InputError: an option is unknown, missing or wrong.
    """
    check_options("recommend", given, OPTIONS, ("checkpoint", "out"))
    check_outputs({"--out": given["out"]}, {f"--{option}": given.get(option) for option in INPUTS})
    values = {key: parse_literal(text) if isinstance(text, str) else text for key, text in given.items()}
    all_users = truth(given, "all_users", False)
    if all_users == ("histories" in given):
        raise InputError("give either --histories=FILE or --all_users.")
    if not all_users and "data_path" in given:
        raise InputError("--data_path goes with --all_users; --histories is the path of a file.")
    for option in ("at", "users"):
        if all_users and option in given:
            raise InputError(f"--{option} does not go with --all_users; give --histories.")
    out = target_file(given["out"])
    if not all_users:
        suffix_of(str(given["histories"]), SOURCES, "histories")
    recommender = Recommender.load(given["checkpoint"], given.get("device"), item_names=item_names_option(given))

    def tokens(option: str, field: str) -> Table | None:
        return read_tokens(given[option], option, field, recommender.config) if option in given else None

    options = {
        "k": values.get("k", 10),
        "exclude_seen": truth(given, "exclude_seen", True),
        "trained_items_only": truth(given, "trained_items_only", False),
        "items": tokens("items", recommender.item_field),
        "show_progress": None if "show_progress" not in given else truth(given, "show_progress", True),
    }
    if all_users:
        moved = {"data_path": given["data_path"]} if "data_path" in given else {}
        asked = training_user_requests(given["checkpoint"], moved, recommender.reader.context)
        blocks = recommender.blocks_of(asked, **options)
    else:
        events = read_events(given["histories"], recommender.reader.columns(), recommender.config)
        users = tokens("users", recommender.user_field)
        blocks = recommender.blocks(events, at=values.get("at"), users=users, **options)
    return _written(recommender, blocks, out)


def _written(recommender: Recommender, blocks: Any, out: str) -> str:
    users = rows = 0
    named = recommender.item_names is not None
    with writer(out, recommender.user_field, recommender.item_field, named) as write:
        for block in blocks:
            write(block)
            rows += len(block)
            users += block[recommender.user_field].nunique()
    return f"{counted(rows, 'recommendation')} for {counted(users, 'user')}: {out}"
