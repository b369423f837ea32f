"""The command line: `recbole-ext [run] --model=... [--key=value ...]`. Arguments only."""

import contextlib
import os
import shlex
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from recbole_ext import __version__
from recbole_ext.errors import InputError, SearchError

USAGE = """usage: recbole-ext [run] --model=MODEL [--dataset=NAME] [--key=value | --key value ...]
       recbole-ext tune --model=MODEL [...]      search for hyper-parameters; see recbole-ext tune --help

Train a model, choose its best epoch on validation data and evaluate that on test data.

  --model=NAME             MEANTIME, LightSANs, BST, or a model of RecBole (SASRec, BERT4Rec, DIN, Pop, ...);
                           recbole.LightSANs is RecBole's
  --dataset=NAME           stem of the atomic files; ml-100k if left out, which comes with RecBole
  --data_path=FOLDER       where the data sets lie
  --config_files="A B"     YAML files with keys
  --json=FILE              write the result there, for scripts
  --saved=False            keep no checkpoint; the last epoch is tested
  --any_key=value          every key of RecBole and of the model, e.g. --epochs=5 --topk=[5,10]
  --help, --version

Exit status: 0 done, 1 failed while running, 2 the request was wrong, 130 interrupted, 143 terminated.
"""
TUNE_USAGE = """usage: recbole-ext tune --model=MODEL [--dataset=NAME] [--option=value ...] [--key=value ...]

Search for the keys that are best on the validation data, with Ray Tune, then test the best trial once. Keys that are
given are settled; the search space changes the others.

  --space=FILE             keys and what to try, in YAML or as RecBole's hyper.test; ours for our models
  --num_samples=N          trials (20); with grids, for each point of the grid (1)
  --scheduler=NAME         what stops trials early: asha (default), median, none
  --search_alg=NAME        what proposes values: random (default), optuna, hyperopt
  --grace_period=EPOCHS    no trial is stopped before (10, or a fifth of the epochs)
  --time_budget=SECONDS    end with what there is by then
  --cpus_per_trial=N --gpus_per_trial=N   fractions too; a GPU where there is one, and 1 CPU
  --max_concurrent=N       trials at one time, at most
  --address=auto           use the Ray cluster that this machine belongs to
  --storage_path=FOLDER    where the search gets its folder (tune_results)
  --keep_checkpoints=K     of the K best trials (1)
  --resume[=FOLDER]        continue the newest search of this model and data set, or that one
  --json=FILE --config_files="A B" --data_path=FOLDER --any_key=value   as without tune

Its folder gets best.yaml (for --config_files), trials.csv, report.html and checkpoints/.
Exit status: as without tune; 1 when no trial came to a result.
"""
COMMANDS = ("run", "tune")
# how torch says it, as a RuntimeError
LACK_OF_MEMORY = ("out of memory", "allocate memory", "Storage size calculation overflowed")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if "--help" in argv or "-h" in argv:
        print(TUNE_USAGE if argv[:1] == ["tune"] else USAGE, end="")
        return 0
    if "--version" in argv:
        print(f"recbole_ext {__version__}")
        return 0
    command = _run
    try:
        if argv and not str(argv[0]).startswith("-"):
            if argv[0] not in COMMANDS:
                raise InputError(f"there is no command '{argv[0]}'; commands: {', '.join(COMMANDS)}.")
            command = {"run": _run, "tune": _tune}[argv[0]]
            argv = argv[1:]
        # deprecations inside RecBole are nothing a user can act on
        warnings.filterwarnings("ignore", category=FutureWarning)
        with _orderly_end():
            return command(argv)
    except InputError as error:
        print(f"recbole-ext: {error}", file=sys.stderr)
        return 2
    except Terminated:
        print("recbole-ext: terminated", file=sys.stderr)
        return 143
    except KeyboardInterrupt:
        print("recbole-ext: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        # a full disk, a diverged model, too little memory: a traceback would tell nothing
        memory = isinstance(error, MemoryError) or any(word in str(error) for word in LACK_OF_MEMORY)
        if not memory and not isinstance(error, (OSError, FloatingPointError, SearchError)):
            traceback.print_exc()
        print(f"recbole-ext: failed while running: {error}", file=sys.stderr)
        return 1


class Terminated(BaseException):
    """The process was asked to end (SIGTERM)."""


@contextlib.contextmanager
def _orderly_end() -> Iterator[None]:
    """Make an exception of SIGTERM, as Python does of SIGINT, so that no half-written file is left behind."""
    if threading.current_thread() is not threading.main_thread():  # only that one may choose
        yield
        return

    def end(*_):
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(argv: Sequence[str]) -> int:
    from recbole_ext.config.command_line import parse_arguments

    keys = parse_arguments(argv)
    target = _json_file(keys.pop("json", None))
    files = _words(keys.pop("config_files", ""))
    saved = _truth("saved", keys.pop("saved", True))
    dataset = keys.pop("dataset", None) or _dataset_of(files, keys)

    from recbole_ext.quick_start import run_recbole
    from recbole_ext.report import table, write_json

    argv = [f"--{key}" if value is True else f"--{key}={value}" for key, value in keys.items() if key != "model"]
    result = run_recbole(keys.get("model"), dataset, files, None, saved, argv=argv)
    print(table(result))
    if target is not None:
        write_json(result, target)
    return 0


def _tune(argv: Sequence[str]) -> int:
    from recbole_ext.config.command_line import parse_arguments
    from recbole_ext.tuning.options import NAMES

    keys = parse_arguments(argv)
    target = _json_file(keys.pop("json", None))
    files = _words(keys.pop("config_files", ""))
    options = {name: keys.pop(name) for name in (*NAMES, "space", "storage_path", "resume") if name in keys}
    resume = options.pop("resume", False)
    model, dataset = keys.pop("model", None), keys.pop("dataset", None)
    if dataset is None and (keys or files or not resume):
        dataset = _dataset_of(files, keys)

    from recbole_ext.report import write_json
    from recbole_ext.tuning import search
    from recbole_ext.tuning.results import summary

    argv = [f"--{key}" if value is True else f"--{key}={value}" for key, value in keys.items()]
    result = search(model, dataset, files, None, resume=resume, argv=argv, **options)
    print(summary(result))
    if target is not None:
        write_json(result, target)
    return 0


def _json_file(path: Any) -> str | None:
    from recbole_ext.config.paths import writable_dir

    if path is None:
        return None
    if path is True or os.path.isdir(path) or not os.path.basename(path):
        raise InputError(f"--json is {path!r}; it should be the name of a file to write.")
    return os.path.join(writable_dir(os.path.dirname(path) or ".", "--json"), os.path.basename(path))


def _words(text: Any) -> list[str]:
    try:
        return shlex.split(text)
    except (ValueError, AttributeError) as error:
        raise InputError(f"--config_files is {text!r}; it should be file names, separated by blanks.") from error


def _truth(key: str, text: Any) -> bool:
    from recbole_ext.config.values import parse_literal

    value = parse_literal(text) if isinstance(text, str) else text
    if not isinstance(value, bool):
        raise InputError(f"--{key} is {text!r}; it should be True or False.")
    return value


def _dataset_of(files: Sequence[str], keys: dict[str, Any]) -> str:
    """The data set that the last file to do so names; ml-100k, which comes with RecBole, if nothing is asked for."""
    from recbole_ext.config.values import read_yaml

    given: dict[str, Any] = {}
    for file in files:
        given |= read_yaml(file)
    if given.get("dataset") is not None:
        return str(given["dataset"])
    if "data_path" in {**given, **keys}:
        raise InputError("data_path is given without a data set; name it with --dataset, the stem of the .inter file.")
    return "ml-100k"


if __name__ == "__main__":
    sys.exit(main())
