"""The command line: `recbole-ext [run] --model=... [--key=value ...]`. Arguments only."""

import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from recbole_ext.cli.usage import USAGE
from recbole_ext.errors import InputError, SearchError, is_lack_of_memory
from recbole_ext.utils.atomic_write import WriteError
from recbole_ext.utils.signals import SigtermReceived, graceful_signals, pending_signal
from recbole_ext.utils.versions import __version__

RUN_OPTIONS = {  # of `run` and `tune`, which take every key beside them
    "model": "the name of a model", "dataset": "the name of a data set", "resume": "the name of a checkpoint",
    "config_files": "file names, separated by blanks", "json": "the name of a file, or -",
    "per_user": "the name of a file that ends in .csv or .parquet",
}  # fmt: skip


def program() -> int:
    """Run the command line as a program of its own; returns its exit status.

    A search runs in a process of its own, which this one watches: see `recbole_ext.tuning.supervisor`.
    """
    if sys.argv[1:2] == ["tune"] and os.name == "posix":
        from recbole_ext.tuning.supervisor import supervised

        return supervised(main, sys.argv[1:])
    return main()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line in this process; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        # deprecations inside RecBole are nothing a user can act on
        warnings.filterwarnings("ignore", category=FutureWarning)
        with graceful_signals():
            status = _command(argv)
            sys.stdout.flush()
            return status
    except InputError as error:
        print(f"recbole-ext: {error}", file=sys.stderr)
        return 2
    except (SigtermReceived, KeyboardInterrupt) as end:
        return _ended(type(end), f"; go on with --resume={shlex.quote(str(end))}" if str(end) else "")
    except Exception as error:
        if (request := pending_signal()) is not None:  # torch's writer of files makes an error of its own of it
            return _ended(request)
        # a full disk, a diverged model, too little memory: a traceback would tell nothing
        known = isinstance(error, (OSError, FloatingPointError, SearchError))
        if not known and not is_lack_of_memory(error):
            traceback.print_exc()
        if not _output_works() and isinstance(error, OSError) and error.filename is None:
            error = WriteError(error.errno, error.strerror, "standard output")
        print(f"recbole-ext: failed while running: {error}", file=sys.stderr)
        return 1


def _command(argv: list[str]) -> int:
    if "--help" in argv or "-h" in argv:
        print(USAGE.get(argv[0], USAGE["run"]), end="")
        return 0
    if "--version" in argv:
        print(f"recbole_ext {__version__}")
        return 0
    if not argv or str(argv[0]).startswith("-"):
        return _run(argv)
    if argv[0] not in COMMANDS:
        raise InputError(f"there is no command '{argv[0]}'; commands: {', '.join(COMMANDS)}.")
    return COMMANDS[argv[0]](argv[1:])


def _output_works() -> bool:
    """Whether standard output takes what was printed; if not, it is dropped: Python would print an error at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def _ended(request: type[BaseException], more: str = "") -> int:
    word, status = ("terminated", 143) if issubclass(request, SigtermReceived) else ("interrupted", 130)
    print(f"recbole-ext: {word}{more}", file=sys.stderr)
    return status


def _run(argv: Sequence[str]) -> int:
    from recbole_ext.cli.options import check_values, truth
    from recbole_ext.config.arguments import parse_arguments
    from recbole_ext.evaluation.per_user import per_user_file
    from recbole_ext.utils.paths import check_outputs

    keys = parse_arguments(argv)
    check_values(keys, RUN_OPTIONS)
    target, per_user = keys.pop("json", None), keys.pop("per_user", None)
    files = _config_files(keys.pop("config_files", ""))
    inputs = {"--resume": keys.get("resume"), **_inputs(files)}
    check_outputs({"--json": target, "--per_user": per_user}, inputs)
    target, per_user = _json_file(target), per_user_file(per_user)
    saved = truth(keys, "saved", True)
    keys.pop("saved", None)
    resume = keys.pop("resume", None)
    dataset = keys.pop("dataset", None) or (None if resume else _dataset_of(files, keys))

    from recbole_ext.cli.output import publish, table
    from recbole_ext.quick_start import run_recbole

    argv = [f"--{key}" if value is True else f"--{key}={value}" for key, value in keys.items() if key != "model"]
    result = run_recbole(keys.get("model"), dataset, files, None, saved, argv=argv, resume=resume, per_user=per_user)
    publish(result, table(result), target)
    return 0


def _tune(argv: Sequence[str]) -> int:
    from recbole_ext.cli.options import check_values
    from recbole_ext.config.arguments import parse_arguments
    from recbole_ext.tuning.options import OPTION_NAMES
    from recbole_ext.utils.paths import check_outputs

    keys = parse_arguments(argv)
    values = {**RUN_OPTIONS, **dict.fromkeys(OPTION_NAMES, "a value, see recbole-ext tune --help")}
    values |= {"space": "the name of a file", "storage_path": "the name of a folder"}
    if keys.get("resume") is True:  # the newest search
        del values["resume"]
    check_values(keys, values)
    target = keys.pop("json", None)
    files = _config_files(keys.pop("config_files", ""))
    check_outputs(
        {"--json": target}, {"--space": keys.get("space"), **_inputs(files), **_of_search(keys.get("resume"))}
    )
    target = _json_file(target)
    options = {name: keys.pop(name) for name in (*OPTION_NAMES, "space", "storage_path", "resume") if name in keys}
    resume = options.pop("resume", False)
    model, dataset = keys.pop("model", None), keys.pop("dataset", None)
    if dataset is None and not resume:
        dataset = _dataset_of(files, keys)

    from recbole_ext.cli.output import publish, search_table
    from recbole_ext.tuning.run_search import search

    argv = [f"--{key}" if value is True else f"--{key}={value}" for key, value in keys.items()]
    result = search(model, dataset, files, None, resume=resume, argv=argv, **options)
    publish(result, search_table(result), target)
    return 0


def _recommend(argv: Sequence[str]) -> int:
    from recbole_ext.cli.recommend import recommend
    from recbole_ext.config.arguments import parse_arguments

    print(recommend(parse_arguments(argv)))
    return 0


def _explain(argv: Sequence[str]) -> int:
    from recbole_ext.cli.explain import explain
    from recbole_ext.config.arguments import parse_arguments

    print(explain(parse_arguments(argv)))
    return 0


def _export(argv: Sequence[str]) -> int:
    from recbole_ext.cli.export import export_model
    from recbole_ext.config.arguments import parse_arguments

    print(export_model(parse_arguments(argv)))
    return 0


COMMANDS = {"run": _run, "tune": _tune, "recommend": _recommend, "explain": _explain, "export": _export}


def _json_file(path: Any) -> str | None:
    from recbole_ext.utils.paths import writable_file

    if path in (None, "-"):
        return path
    if path is True or os.path.isdir(path) or not os.path.basename(path):
        raise InputError(f"--json is {path!r}; it should be the name of a file to write.")
    return writable_file(path, "--json")


def _inputs(files: Sequence[str]) -> dict[str, str]:
    """The configuration files of a command, for `check_outputs`."""
    return {f"--config_files ({file})": file for file in files}


def _of_search(folder: Any) -> dict[str, str]:
    """The files of a search to resume, for `check_outputs`."""
    from recbole_ext.tuning.journal import REQUEST, TRIALS
    from recbole_ext.tuning.results import BEST, REPORT, TABLE

    names = (REQUEST, TRIALS, BEST, TABLE, REPORT) if isinstance(folder, str) else ()
    return {f"the search ({name})": os.path.join(folder, name) for name in names}


def _config_files(text: str) -> list[str]:
    """The files and settings that `--config_files` names.

    One file that exists, whatever characters its name has; or several words with blanks between them, in which quotes
    hold a name with blanks together and a backslash is a character like any other; or a list, `['a.yaml', 'b.yaml']`.
    """
    from recbole_ext.config.paths import setting_or_file
    from recbole_ext.utils.literals import parse_literal

    if not text or os.path.exists(text):
        return [text] if text else []
    names = parse_literal(text) if text.lstrip().startswith("[") else None
    if isinstance(names, (list, tuple)) and names and all(isinstance(name, str) for name in names):
        return list(names)
    words = shlex.shlex(text, posix=True, punctuation_chars=False)
    words.whitespace_split, words.commenters, words.escape = True, "", ""
    try:
        names = list(words)
    except ValueError as error:  # a quote without its partner
        raise InputError(f"--config_files is {text!r}; it should be file names, separated by blanks.") from error
    for name in names if len(names) > 1 else []:
        if not os.path.exists(setting_or_file(name)):
            raise InputError(
                f"--config_files names '{name}', which does not exist; a name with blanks needs quotes of its own, "
                f"--config_files=\"'my file.yaml' other.yaml\"."
            )
    return names


def _dataset_of(files: Sequence[str], keys: dict[str, Any]) -> str:
    """The data set that the last file to do so names; ml-100k, which comes with RecBole, if nothing is asked for."""
    from recbole_ext.config.paths import setting_or_file
    from recbole_ext.utils.literals import read_yaml

    given: dict[str, Any] = {}
    for file in files:
        given |= read_yaml(setting_or_file(file))
    if given.get("dataset") is not None:
        return str(given["dataset"])
    if "data_path" in {**given, **keys}:
        raise InputError("data_path is given without a data set; name it with --dataset, the stem of the .inter file.")
    return "ml-100k"


if __name__ == "__main__":
    sys.exit(program())
