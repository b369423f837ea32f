"""`recbole-ext recommend`: from a checkpoint and a file of histories to a file of recommendations."""

from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Any

from recbole_ext.cli.options import FILE, FOLDER, OptionParser, add_request_options
from recbole_ext.errors import InputError
from recbole_ext.utils.paths import check_outputs
from recbole_ext.utils.validators import Int
from recbole_ext.utils.wording import counted

parser = OptionParser(
    "recommend",
    "recommend --checkpoint=FILE --histories=FILE --out=FILE [--option=value ...]",
    "Rank items for users by their past events, with a checkpoint and without the data that it was trained on.",
)
add_request_options(parser, histories_required=False)
parser.add_flag("all_users", "in place of --histories: rank for all users of the training data")
parser.add_option(
    "data_path", "FOLDER", FOLDER, "with --all_users: the training data, if it is not where it was during training"
)
parser.add_option("out", "FILE", FILE, "a row for each item (.csv, .parquet) or each user (.jsonl)", required=True)
parser.add_option("k", "N", Int("[1, inf)"), "items for each user (default: 10)", 10)
parser.add_option("items", "FILE", FILE, "recommend only these items, one a line")
parser.add_option("users", "FILE", FILE, "recommend only for these users, in this order, one a line")
parser.add_flag("show_progress", "whether to show a progress bar (default: on a terminal)", None)


def main(argv: Sequence[str]) -> None:
    options = parser.parse(argv)
    inputs = ("checkpoint", "histories", "items", "users", "item_names")
    check_outputs({"--out": options.out}, {f"--{name}": getattr(options, name) for name in inputs})
    _check_source(options)

    from recbole_ext.cli.files import check_histories_file, read_events, read_tokens, recommendations_file
    from recbole_ext.serving.recommender import Recommender
    from recbole_ext.serving.training_users import training_user_requests

    out = recommendations_file(options.out)
    if not options.all_users:
        check_histories_file(options.histories)
    recommender = Recommender.load(options.checkpoint, options.device, item_names=options.item_names)
    config = recommender.config
    items = read_tokens(options.items, "items", recommender.item_field, config) if options.items else None
    arguments: dict[str, Any] = {  # of both ways to recommend
        "k": options.k, "exclude_seen": options.exclude_seen, "trained_items_only": options.trained_items_only,
        "items": items, "show_progress": options.show_progress,
    }  # fmt: skip
    if options.all_users:
        changed_keys = {"data_path": options.data_path} if options.data_path else {}
        blocks = recommender.blocks_of(training_user_requests(recommender, changed_keys), **arguments)
    else:
        events = read_events(options.histories, recommender.reader.columns(), config)
        users = read_tokens(options.users, "users", recommender.user_field, config) if options.users else None
        blocks = recommender.blocks(events, at=options.at, users=users, **arguments)
    print(_write(recommender, blocks, out))


def _check_source(options: Namespace) -> None:
    """Refuse options that do not fit the source of the events: a file of histories, or the training data."""
    if options.all_users == (options.histories is not None):
        raise InputError("give either --histories=FILE or --all_users.")
    if not options.all_users and options.data_path is not None:
        raise InputError("--data_path goes with --all_users; --histories is the path of a file.")
    for name in ("at", "users"):
        if options.all_users and getattr(options, name) is not None:
            raise InputError(f"--{name} does not go with --all_users; give --histories.")


def _write(recommender: Any, blocks: Iterable[Any], out: str) -> str:
    """Write blocks of recommendations to a file; returns a line that counts them."""
    from recbole_ext.cli.files import writer

    n_users = n_rows = 0
    has_names = recommender.item_names is not None
    with writer(out, recommender.user_field, recommender.item_field, has_names) as write:
        for block in blocks:
            write(block)
            n_rows += len(block)
            n_users += block[recommender.user_field].nunique()
    return f"{counted(n_rows, 'recommendation')} for {counted(n_users, 'user')}: {out}"
