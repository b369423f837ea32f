"""`recbole-ext tune`: search for the best hyper-parameters."""

import os
from collections.abc import Sequence
from typing import Any

from recbole_ext.cli.options import FILE, FOLDER, OptionParser
from recbole_ext.cli.run import (
    add_training_options,
    as_inputs,
    config_files,
    default_dataset,
    json_file,
    publish,
    table,
)
from recbole_ext.tuning.options import VALIDATORS
from recbole_ext.utils.paths import check_outputs

SEARCH_OPTIONS = {  # name: metavar and help
    "num_samples": ("N", "trials (default: 20); with grids, for each point of the grid (default: 1)"),
    "scheduler": ("NAME", "what stops bad trials early: asha (default), median or none"),
    "search_alg": ("NAME", "what proposes values: random (default), optuna or hyperopt"),
    "grace_period": ("EPOCHS", "epochs before a trial may be stopped (default: 10, or a fifth of the epochs)"),
    "time_budget": ("SECONDS", "time after which the search ends with the best trial so far"),
    "cpus_per_trial": ("N", "CPUs of a trial, fractions allowed (default: 1)"),
    "gpus_per_trial": ("N", "GPUs of a trial, fractions allowed (default: 1 where there is a GPU)"),
    "max_concurrent": ("N", "maximum number of trials at the same time"),
    "address": ("ADDRESS", "a running Ray cluster; auto is the cluster that this machine belongs to"),
    "keep_checkpoints": ("K", "keep the checkpoints of the K best trials (default: 1)"),
}

parser = OptionParser(
    "tune",
    "tune --model=MODEL [--dataset=NAME] [--option=value ...] [--key=value ...]",
    "Search with Ray Tune for the keys that are best on the validation data, then test the best trial once. Keys on\n"
    "the command line and in files stay fixed; the search space changes others.",
    "Every key of RecBole and of the model is an option, too, e.g. --epochs=5 or --data_path=FOLDER. The folder of\n"
    "the search gets best.yaml (for --config_files), trials.csv, report.html and checkpoints/.\n"
    "If no trial has a result, the exit status is 1.\n",
)
add_training_options(parser)
parser.add_option(
    "space", "FILE", FILE, "the search space, in YAML or as RecBole's hyper.test (default: the space of the model)"
)
for _name, (_metavar, _help) in SEARCH_OPTIONS.items():
    parser.add_option(_name, _metavar, VALIDATORS[_name], _help)
parser.add_option("storage_path", "FOLDER", FOLDER, "where the folder of the search is made (default: tune_results)")
parser.add_flag(
    "resume", "resume this search, or the newest one (of --model and --dataset, if given)", None, "FOLDER", FOLDER
)


def main(argv: Sequence[str]) -> None:
    options, keys = parser.parse_with_keys(argv)
    files = config_files(options.config_files)
    inputs = {"--space": options.space, **as_inputs(files), **_files_of_search(options.resume)}
    check_outputs({"--json": options.json}, inputs)
    json_path = json_file(options.json)
    dataset = options.dataset
    if dataset is None and not options.resume:
        dataset = default_dataset(files, keys)
    names = (*SEARCH_OPTIONS, "space", "storage_path")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}

    from recbole_ext.tuning.run_search import search

    result = search(options.model, dataset, files, None, resume=options.resume or False, argv=keys, **given)
    publish(result, search_table(result), json_path)


def _files_of_search(folder: str | bool | None) -> dict[str, str]:
    """The files of a search to resume, as inputs for `check_outputs`."""
    from recbole_ext.tuning.journal import PLAN, TRIALS
    from recbole_ext.tuning.results import BEST, REPORT, TABLE

    if not isinstance(folder, str):
        return {}
    return {f"the search ({name})": os.path.join(folder, name) for name in (PLAN, TRIALS, BEST, TABLE, REPORT)}


def search_table(result: dict[str, Any]) -> str:
    """The best trial for people: its keys, its metrics, and the folder of the search."""
    keys = "\n".join(f"  {key}: {value}" for key, value in result["keys"].items())
    best = f"best of {len(result['trials'])} trials: {result['trial']}"
    return f"{best}\n{keys}\n{table(result)}\nfolder: {result['folder']}"
