"""`recbole-ext recommend`: a checkpoint and a file of histories to a file of recommendations."""

from typing import Any

from recbole_ext.config.command_line import check_options, item_names_option, truth
from recbole_ext.config.values import parse_literal
from recbole_ext.errors import InputError
from recbole_ext.serving.everyone import everyone
from recbole_ext.serving.files import SOURCES, read_events, read_tokens, suffix_of, target_file, writer
from recbole_ext.serving.recommender import Recommender
from recbole_ext.wording import counted

OPTIONS = (
    "checkpoint", "histories", "all_users", "data_path", "out", "k", "at", "exclude_seen", "trained_items_only",
    "items", "users", "item_names", "device", "show_progress",
)  # fmt: skip


def recommend(given: dict[str, Any]) -> str:
    """Carry out the command.

    Args:
        given: its options and the texts of their values.

    Returns:
        a line that says what was written.

    Raises:
        InputError: an option is unknown, missing or wrong.
    """
    check_options("recommend", given, OPTIONS, {"checkpoint": "the name of a file", "out": "the name of a file"})
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
    options = {
        "k": values.get("k", 10),
        "exclude_seen": truth(given, "exclude_seen", True),
        "trained_items_only": truth(given, "trained_items_only", False),
        "items": read_tokens(given["items"], "items") if "items" in given else None,
        "show_progress": None if "show_progress" not in given else truth(given, "show_progress", True),
    }
    if all_users:
        moved = {"data_path": given["data_path"]} if "data_path" in given else {}
        asked = everyone(given["checkpoint"], moved, recommender.reader.context)
        blocks = recommender.blocks_of(asked, **options)
    else:
        events = read_events(
            given["histories"], recommender.reader.columns(), recommender.reader.needed(), recommender.config
        )
        users = read_tokens(given["users"], "users") if "users" in given else None
        at = values.get("at")
        blocks = recommender.blocks(events, at=at, users=users, **options)
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
