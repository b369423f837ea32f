"""`recbole-ext run`: train and test a model; its result as a table and as JSON."""

import json
import math
import os
import shlex
from collections.abc import Sequence
from typing import Any

from recbole_ext.cli.options import OptionParser
from recbole_ext.errors import InputError
from recbole_ext.utils.atomic_write import write_whole
from recbole_ext.utils.literals import parse_literal, read_yaml, to_builtin
from recbole_ext.utils.paths import check_outputs, writable_file
from recbole_ext.utils.validators import Int, Str

parser = OptionParser(
    "run",
    "[run] --model=MODEL [--dataset=NAME] [--key=value | --key value ...]\n"
    "       recbole-ext tune --model=MODEL [...]            search for hyper-parameters\n"
    "       recbole-ext recommend --checkpoint=FILE [...]   rank items for users\n"
    "       recbole-ext explain --checkpoint=FILE [...]     why a user gets an item\n"
    "       recbole-ext export --checkpoint=FILE [...]      a program that torch alone serves\n"
    "       recbole-ext compare RUN RUN [...]               differences between runs, with intervals\n"
    "       recbole-ext COMMAND --help                      the options of a command\n"
    "       recbole-ext --version",
    "Train a model, choose its best epoch on the validation data, and evaluate it on the test data.",
    "Every key of RecBole and of the model is an option, too, e.g. --epochs=5 --topk=[5,10], --data_path=FOLDER\n"
    "(where the data sets are) or --log_dir=FOLDER (where the folders log and log_tensorboard are made).\n",
)


def add_training_options(parser: OptionParser) -> None:
    """Declare the options that `run` and `tune` share."""
    parser.add_option(
        "model", "NAME", Str(expected="the name of a model"),
        "MEANTIME, LightSANs, BST, TiSASRec, or a model of RecBole (SASRec, BERT4Rec, DIN, Pop, ...); "
        "recbole.LightSANs is RecBole's",
    )  # fmt: skip
    parser.add_option(
        "dataset", "NAME", Str(expected="the name of a data set"),
        "stem of the atomic files (default: ml-100k, which RecBole contains)",
    )  # fmt: skip
    parser.add_option(
        "config_files", '"A B"', Str(expected="file names, separated by blanks"),
        "YAML files with keys, or presets by name, e.g. BST-clicks. Among several, a name with blanks needs its own "
        "quotes: \"A 'my file.yaml'\"",
    )  # fmt: skip
    parser.add_option(
        "json", "FILE", Str(expected="the name of a file, or -"),
        "write the result to this file, for scripts; - prints it in place of the table",
    )  # fmt: skip


add_training_options(parser)
parser.add_option(
    "per_user", "FILE", Str(expected="the name of a file that ends in .csv or .parquet"),
    "write the test metrics of each user to this file: .csv or .parquet",
)  # fmt: skip
parser.add_flag("saved", "whether to keep a checkpoint; False tests the last epoch (default: True)", True)
parser.add_option(
    "resume", "FILE", Str(expected="the name of a checkpoint"),
    "resume training from this checkpoint, with its stored keys; --epochs=N trains longer. Neither --model nor "
    "--dataset is needed",
)  # fmt: skip
parser.add_option(
    "nproc", "N", Int("[1, 1024]"),
    "train in N processes on this machine, on a GPU each or on the CPUs (default: 1)",
)  # fmt: skip


def number_of_processes(argv: Sequence[str]) -> tuple[int, list[str]]:
    """The number that `--nproc` of this command asks for, and the arguments without it; 1 for other commands."""
    rest = list(argv)
    options = rest[1:] if rest[:1] == ["run"] else rest
    if not options or options[0][:1] != "-" or {"--help", "-h", "--version"} & set(options):
        return 1, rest
    try:
        count = parser.parse_with_keys(options)[0].nproc or 1
    except InputError:  # the command itself will say so
        return 1, rest
    for place, word in enumerate(rest):
        if word == "--nproc" or word.startswith("--nproc="):
            del rest[place : place + (2 if word == "--nproc" else 1)]
            break
    return count, rest


def main(argv: Sequence[str]) -> None:
    from recbole_ext.evaluation.per_user import per_user_file

    options, keys = parser.parse_with_keys(argv)
    if (options.nproc or 1) > 1:
        keys = [*keys, f"--nproc={options.nproc}"]  # which is refused: `launch` has not started this process
    files = config_files(options.config_files)
    check_outputs(
        {"--json": options.json, "--per_user": options.per_user}, {"--resume": options.resume, **as_inputs(files)}
    )
    json_path, per_user = json_file(options.json), per_user_file(options.per_user)
    dataset = options.dataset or (None if options.resume else default_dataset(files, keys))

    from recbole_ext.quick_start import run_recbole

    result = run_recbole(
        options.model, dataset, files, None, options.saved, argv=keys, resume=options.resume, per_user=per_user
    )
    publish(result, table(result), json_path)


# ---------------------------------------------------------------------- options


def config_files(text: str | None) -> list[str]:
    """The files and presets that `--config_files` names.

    The text is the name of an existing file, whatever characters it has; or several words, in which quotes hold a name
    with blanks together and a backslash has no special meaning; or a list, `['a.yaml', 'b.yaml']`.
    """
    from recbole_ext.config.paths import preset_or_file

    if not text or os.path.exists(text):
        return [text] if text else []
    names = parse_literal(text) if text.lstrip().startswith("[") else None
    if isinstance(names, (list, tuple)) and names and all(isinstance(name, str) for name in names):
        return list(names)
    words = shlex.shlex(text, posix=True, punctuation_chars=False)
    words.whitespace_split, words.commenters, words.escape = True, "", ""
    try:
        names = list(words)
    except ValueError as error:  # a quote that is not closed
        raise InputError(f"--config_files is {text!r}; it should be file names, separated by blanks.") from error
    for name in names if len(names) > 1 else []:
        if not os.path.exists(preset_or_file(name)):
            raise InputError(
                f"--config_files names '{name}', which does not exist; a name with blanks needs its own quotes, "
                f"--config_files=\"'my file.yaml' other.yaml\"."
            )
    return names


def as_inputs(files: Sequence[str]) -> dict[str, str]:
    """Configuration files as inputs for `check_outputs`."""
    return {f"--config_files ({file})": file for file in files}


def default_dataset(files: Sequence[str], keys: Sequence[str]) -> str:
    """The data set that the files name; ml-100k, which RecBole contains, if they name none.

    Args:
        files: configuration files; the last one that names a data set counts.
        keys: the configuration keys of the command line, as `--key=value`.
    """
    from recbole_ext.config.paths import preset_or_file

    values: dict[str, Any] = {}
    for file in files:
        values |= read_yaml(preset_or_file(file))
    if values.get("dataset") is not None:
        return str(values["dataset"])
    if "data_path" in values or any(key.partition("=")[0] == "--data_path" for key in keys):
        raise InputError("data_path is given without a data set; name it with --dataset, the stem of the .inter file.")
    return "ml-100k"


def json_file(path: str | None) -> str | None:
    """The absolute path of the JSON file, after a check that it can be written; None and `-` stay as they are."""
    if path in (None, "-"):
        return path
    if os.path.isdir(path) or not os.path.basename(path):
        raise InputError(f"--json is {path!r}; it should be the name of a file to write.")
    return writable_file(path, "--json")


# ---------------------------------------------------------------------- result


def publish(result: dict[str, Any], summary: str, json_path: str | None) -> None:
    """Print a summary of the result and write the JSON file, if there is to be one; `-` prints the JSON instead."""
    from recbole_ext.distributed.processes import is_first

    if not is_first():
        return
    if json_path == "-":
        print(as_json(result))
        return
    print(summary)
    if json_path is not None:
        write_json(result, json_path)


def table(result: dict[str, Any]) -> str:
    """The metrics of the validation and the test data side by side, those of `eval_users`, and the checkpoint."""
    from texttable import Texttable

    valid, test = result["best_valid_result"] or {}, result["test_result"] or {}
    metrics = Texttable()
    metrics.set_deco(Texttable.HEADER)
    metrics.set_cols_align(["l", "r", "r"])
    metrics.set_cols_dtype(["t", "t", "t"])
    names = dict.fromkeys([*valid, *test])
    rows = [[name, *(f"{part[name]:.4f}" if name in part else "" for part in (valid, test))] for name in names]
    metrics.add_rows([["metric", "valid", "test"], *rows])
    sample, lines = result.get("valid_sample"), [metrics.draw()]
    if sample is not None:
        figures = ", ".join(f"{name} {value:.4f}" for name, value in sample["result"].items())
        users = f"{sample['users']:,} of {sample['all_users']:,} users"
        lines.append(f"validation during training, on {users} (eval_users): {figures}")
    if result["checkpoint"]:
        lines.append(f"checkpoint: {result['checkpoint']}")
    return "\n".join(lines)


def write_json(result: dict[str, Any], path: str) -> None:
    """Write the JSON of a result; the file is complete, or it stays as it was."""
    with write_whole(path) as file:
        file.write(as_json(result).encode() + b"\n")


def as_json(result: dict[str, Any]) -> str:
    """The result and the versions that it depends on; infinite numbers and NaN become null."""
    from recbole_ext.utils.versions import versions

    return json.dumps(_finite(to_builtin({**result, "versions": versions()})), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
