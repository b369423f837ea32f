"""`recbole-ext compare`: finished runs in one table, with paired intervals and p-values."""

import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from recbole_ext.cli.options import OptionParser
from recbole_ext.cli.run import json_file
from recbole_ext.errors import InputError
from recbole_ext.utils.atomic_write import write_whole
from recbole_ext.utils.paths import check_outputs, check_suffix, writable_file
from recbole_ext.utils.validators import Int, ListOf, Number, Str

if TYPE_CHECKING:
    from recbole_ext.comparison.compare import Comparison

parser = OptionParser(
    "compare",
    "compare RUN RUN [...] [--option=value ...]",
    "Compare the test metrics of finished runs on the same users: mean and spread over seeds, and for each difference\n"
    "from the baseline its interval and p-value, from a paired bootstrap over the users.",
    "A RUN is a file of --json, a file of --per_user, or a checkpoint, which is evaluated again. It may be a pattern\n"
    "such as 'runs/*.json'. Runs that differ in the seed only are one row. NAME=RUN puts runs in a row of that name.\n",
)
parser.add_option("baseline", "NAME", Str(expected="the name of a row"), "the row to compare with (default: the first)")
parser.add_option(
    "metrics", "NAMES", ListOf(Str(expected="the name of a metric")),
    "such as NDCG@10 or [NDCG@10,Recall@10] (default: the valid_metric of the first run)",
)  # fmt: skip
parser.add_option("confidence", "SHARE", Number("(0, 1)"), "of the intervals (default: 0.95)", 0.95)
parser.add_option("resamples", "N", Int("[100, 1000000]"), "of the bootstrap (default: 10000)", 10_000)
parser.add_option("seed", "N", Int("[0, inf)"), "of the bootstrap (default: 2020)", 2020)
parser.add_option(
    "html", "FILE.html", Str(expected="the name of a file that ends in .html"), "a page with the table and figures"
)
parser.add_option("json", "FILE", Str(expected="the name of a file, or -"), "everything, for scripts; - prints it")


def main(argv: Sequence[str]) -> None:
    words: list[str] = []
    options = parser.parse(argv, words)
    if not words:
        raise InputError("compare needs runs; name two or more files, e.g. recbole-ext compare first.json second.json.")
    inputs = {f"run {word}": word.partition("=")[2] or word for word in words}
    check_outputs({"--html": options.html, "--json": options.json}, inputs)
    json_path = json_file(options.json)
    if options.html is not None:
        check_suffix(options.html, (".html",), "--html")
    html_path = None if options.html is None else writable_file(options.html, "--html")

    from recbole_ext.comparison.compare import compare, files_read

    runs = rows(words)
    check_outputs({"--html": options.html, "--json": options.json}, files_read(runs))
    comparison = compare(runs, options.baseline, options.metrics, options.confidence, options.resamples, options.seed)
    text = json.dumps(comparison.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
    print(text if json_path == "-" else summary(comparison))
    for sentence in comparison.warnings:
        print(f"recbole-ext: {sentence}", file=sys.stderr)
    if json_path not in (None, "-"):
        with write_whole(str(json_path)) as file:
            file.write(text.encode() + b"\n")
    if html_path is not None:
        comparison.write_html(html_path)


def rows(words: Sequence[str]) -> list[str] | dict[str, list[str]]:
    """The argument `runs` of `compare`: files, or files by the name of their row."""
    named = [not os.path.exists(word) and "=" in word for word in words]
    if not any(named):
        return list(words)
    if not all(named):
        word = words[named.index(False)]
        raise InputError(f"run {word} has no name, but others have one; write all runs as NAME={word}, or none.")
    files: dict[str, list[str]] = {}
    for word in words:
        name, _, file = word.partition("=")
        if not name or not file:
            raise InputError(f"'{word}' is not understood; write NAME=RUN.")
        files.setdefault(name, []).append(file)
    return files


def summary(comparison: "Comparison") -> str:
    """The table of each metric as text, and how to read it."""
    from texttable import Texttable

    parts: list[Any] = []
    for metric in dict.fromkeys(comparison.table["metric"]):
        header, cells = comparison.cells(metric)
        table = Texttable(0)
        table.set_deco(Texttable.HEADER)
        table.set_cols_align(["l", *"r" * (len(header) - 1)])
        table.set_header_align(["l", *"r" * (len(header) - 1)])
        table.set_cols_dtype(["t"] * len(header))
        table.add_rows([header, *cells])
        parts.append(table.draw())
    parts.append(
        f"{comparison.users:,} test users; p and intervals from a paired bootstrap over them "
        f"({comparison.resamples:,} resamples). ± is the standard deviation over seeds."
    )
    return "\n\n".join(parts)
