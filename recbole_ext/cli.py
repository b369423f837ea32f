"""The command line: `recbole-ext [run] --model=... [--key=value ...]`. Arguments only, no logic."""

import json
import os
import shlex
import sys
import tempfile
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from recbole_ext import __version__
from recbole_ext.errors import InputError

USAGE = """usage: recbole-ext [run] --model=MODEL [--dataset=NAME] [--key=value | --key value ...]

Train a model, choose its best epoch on validation data and evaluate that on test data.

  --model=NAME             MEANTIME, or a model of RecBole (SASRec, BERT4Rec, GRU4Rec, DIN, Pop, ...)
  --dataset=NAME           stem of the atomic files; ml-100k if left out, which comes with RecBole
  --data_path=FOLDER       where the data sets lie
  --config_files="A B"     YAML files with keys
  --json=FILE              write the result there, for scripts
  --saved=False            keep no checkpoint; the last epoch is tested
  --any_key=value          every key of RecBole and of the model, e.g. --epochs=5 --topk=[5,10]
  --help, --version

Exit status: 0 done, 1 failed while running, 2 the request was wrong.
"""
COMMANDS = ("run",)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if "--help" in argv or "-h" in argv:
        print(USAGE, end="")
        return 0
    if "--version" in argv:
        print(f"recbole_ext {__version__}")
        return 0
    try:
        if argv and not argv[0].startswith("-"):
            if argv[0] not in COMMANDS:
                raise InputError(f"there is no command '{argv[0]}'; commands: {', '.join(COMMANDS)}.")
            argv = argv[1:]
        # deprecations inside RecBole are nothing a user can act on
        warnings.filterwarnings("ignore", category=FutureWarning)
        return _run(argv)
    except InputError as error:
        print(f"recbole-ext: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("recbole-ext: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        traceback.print_exc()
        print(f"recbole-ext: failed while running: {error}", file=sys.stderr)
        return 1


def _run(argv: Sequence[str]) -> int:
    from recbole_ext.config.command_line import parse_arguments
    from recbole_ext.config.values import parse_literal

    keys = parse_arguments(argv)
    target = keys.pop("json", None)
    files = shlex.split(keys.pop("config_files", ""))
    saved = parse_literal(keys.pop("saved", "True"))
    if not isinstance(saved, bool):
        raise InputError(f"--saved is {saved!r}; it should be True or False.")
    if target is not None and not os.path.isdir(os.path.dirname(os.path.abspath(target))):
        raise InputError(f"--json={target}: there is no folder {os.path.dirname(os.path.abspath(target))}.")

    from recbole_ext.quick_start import run_recbole

    dataset = keys.pop("dataset", None) or _named_in(files, "dataset") or "ml-100k"
    result = run_recbole(
        keys.pop("model", None), dataset, files, None, saved, argv=[f"--{key}={value}" for key, value in keys.items()]
    )
    print(table(result))
    if target is not None:
        _write_json(result, target)
    return 0


def _named_in(files: Sequence[str], key: str) -> Any:
    from recbole_ext.config.values import read_yaml

    named = [read_yaml(file).get(key) for file in files]
    return next((str(value) for value in reversed(named) if value is not None), None)


def table(result: dict[str, Any]) -> str:
    """The metrics of validation and test data side by side, and where the checkpoint lies."""
    from texttable import Texttable

    valid, test = result["best_valid_result"] or {}, result["test_result"] or {}
    sheet = Texttable()
    sheet.set_deco(Texttable.HEADER)
    sheet.set_cols_align(["l", "r", "r"])
    sheet.set_cols_dtype(["t", "t", "t"])
    names = [*valid, *(name for name in test if name not in valid)]
    rows = [[name, _number(valid.get(name)), _number(test.get(name))] for name in names]
    sheet.add_rows([["metric", "valid", "test"], *rows])
    lines = [sheet.draw()]
    if result["checkpoint"]:
        lines.append(f"checkpoint: {result['checkpoint']}")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _write_json(result: dict[str, Any], target: str) -> None:
    from recbole_ext.checkpoint import versions
    from recbole_ext.config.values import plain

    text = json.dumps(plain({**result, "versions": versions()}), indent=2)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(target)))
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    os.replace(temporary, target)


if __name__ == "__main__":
    sys.exit(main())
