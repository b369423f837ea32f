"""From a request to the best trial: `search` in Python, `recbole-ext tune` on the command line."""

import os
from collections.abc import Sequence
from datetime import datetime
from logging import getLogger
from pathlib import Path
from typing import Any

from recbole_ext.config import Config
from recbole_ext.config.metrics import registered
from recbole_ext.errors import InputError
from recbole_ext.model.registry import name_of
from recbole_ext.tuning import results
from recbole_ext.tuning.backend import cluster as resources
from recbole_ext.tuning.backend.callback import progress
from recbole_ext.tuning.backend.checkpoint_store import start_keeper
from recbole_ext.tuning.backend.schedulers import scheduler
from recbole_ext.tuning.backend.searchers import adaptive, listed
from recbole_ext.tuning.journal import REQUEST, Journal
from recbole_ext.tuning.options import NAMES, read_options
from recbole_ext.tuning.plan import Plan, compare, new_plan, remaining, stored_plan
from recbole_ext.tuning.report.table import Rows
from recbole_ext.tuning.supervisor import scratch_folder
from recbole_ext.tuning.trial import Request, run_trial
from recbole_ext.utils.paths import absolute, writable_dir
from recbole_ext.utils.signals import SigtermReceived
from recbole_ext.utils.wording import counted, nearest

FOLDER = "tune_results"
LOST_MACHINES = 3  # times that a trial is begun again because its process or its machine went away


def search(
    model: str | type | None = None,
    dataset: str | None = None,
    config_file_list: Sequence[str] | None = None,
    config_dict: dict[str, Any] | None = None,
    space: str | dict[str, Any] | None = None,
    storage_path: str = FOLDER,
    resume: bool | str = False,
    argv: Sequence[str] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Search for the hyper-parameters that are best on the validation data, then test the best trial once.

    Args:
        model, dataset, config_file_list, config_dict, argv: as in `run_recbole`. Keys in `config_dict` and `argv` are
            settled; the space changes the others.
        space: a YAML file, a file in the form of RecBole's `hyper.test`, or `{key: {way: values}}`; ours for the model
            if left out. The ways are choice, uniform, loguniform, quniform, randint and grid.
        storage_path: the folder in which the search gets a folder of its own.
        resume: continue a search that was interrupted: its folder, or True for the newest of this model and data set.
        options: `num_samples`, `scheduler` and others, see `recbole_ext.tuning.options.Options`.

    Returns:
        as `run_recbole`, of the best trial: `best_valid_score`, `valid_score_bigger`, `best_valid_result`,
        `test_result`, `checkpoint`, `config`; and `trial` (its number), `keys` (its values), `trials` (a record of each
        trial) and `folder`, which holds best.yaml, trials.csv and report.html.

    Raises:
        InputError: the request cannot be carried out as it stands, and nothing has been started; or, at the end, the
            best trial's checkpoint is gone.
        SearchError: no trial came to a result.
        KeyboardInterrupt, SigtermReceived: the process was asked to end; carries the folder to resume.
    """
    for name in options:
        if name not in NAMES:
            near = nearest(name, NAMES)
            raise InputError(f"search has no option '{name}'; {f'did you mean {near}' if near else NAMES}.")
    given = read_options(options)
    more = bool(config_file_list or config_dict or argv or space)
    if not resume:
        plan = new_plan(model, Config(model, dataset, config_file_list, config_dict, argv), space, given)
    else:
        journal = Journal(_find(resume, storage_path, model, dataset))
        if more:  # the same request again is welcome
            begun = journal.request()
            known = model or begun["model"], dataset or begun["dataset"]
            where = {key: begun["keys"][key] for key in ("data_path",) if key in begun["keys"]}
            compare(journal, Config(*known, config_file_list, {**where, **(config_dict or {})}, argv), space)
        plan = stored_plan(journal, model, dataset, given)
    resources.check_installed(plan.options)
    if not resume:
        journal = Journal(_new_folder(storage_path, plan))
    try:
        _run(plan, journal, bool(resume))
        return results.finish(plan, journal)
    except (KeyboardInterrupt, SigtermReceived) as end:
        raise type(end)(*[journal.folder] if journal.begun() else []) from end


def _new_folder(storage_path: str, plan: Plan) -> str:
    """The path of a folder that is not there yet."""
    if not isinstance(storage_path, (str, os.PathLike)) or not os.fspath(storage_path):
        raise InputError(f"storage_path is {storage_path!r}; it should be the name of a folder.")
    above = writable_dir(os.fspath(storage_path), "the search")
    stem = os.path.join(above, f"{plan.name}-{plan.config.dataset}-{datetime.now():%Y%m%d-%H%M%S}")
    number, folder = 1, stem
    while os.path.exists(folder):
        number += 1
        folder = f"{stem}-{number}"
    return folder


def _find(resume: bool | str, storage_path: str, model: Any, dataset: str | None) -> str:
    """The folder of the search to resume; `InputError` if there is none."""
    if not isinstance(resume, bool):
        return absolute(os.fspath(resume), "resume")
    above = Path(absolute(storage_path, "storage_path"))
    found = []
    for file in above.glob(f"*/{REQUEST}"):
        try:
            request = Journal(str(file.parent)).request()
        except InputError:  # whoever wants that one names it
            continue
        wanted = {"model": model and name_of(model), "dataset": dataset}
        if all(value is None or request[key] == value for key, value in wanted.items()):
            found.append(file.parent)
    if not found:
        what = " on ".join(str(getattr(one, "__name__", one)) for one in (model, dataset) if one is not None)
        raise InputError(f"there is no search{f' of {what}' if what else ''} to resume in {above}; name its folder.")
    return str(max(found, key=lambda folder: (folder / REQUEST).stat().st_mtime))


# ---------------------------------------------------------------------- running


def _run(plan: Plan, journal: Journal, resume: bool) -> None:
    """Run the trials that have not ended yet."""
    import ray
    from ray import cloudpickle, tune

    ended = journal.records()
    left = remaining(plan, ended)
    if resume and not left.count:
        print(f"all {len(ended)} trials of the search in {journal.folder} have ended", flush=True)
        return
    size = len(cloudpickle.dumps(plan.data))
    with (
        resources.running(plan.options, plan.config, size) as each,
        scratch_folder() as scratch,
    ):
        if not resume:
            journal.begin(plan.to_dict())
        so_far = f"; {counted(len(ended), 'trial')} ended, {left.count} left" if resume else ""
        print(f"{'resuming' if resume else 'starting'} the search in {journal.folder}{so_far}", flush=True)
        keys = {key: value for key, value in plan.keys.items() if key not in ("gpu_id", "use_gpu")}
        keys["use_gpu"] = "GPU" in each
        request = Request(
            plan.model, plan.config.dataset, keys, max(1, int(each["CPU"])), registered(plan.config["metrics"])
        )
        epochs, budget = plan.config["epochs"], plan.options.time_budget
        total = len(ended) + left.count
        rows = Rows(total, plan.config["valid_metric"], plan.mode == "max", epochs, plan.space)
        watch = progress(journal.folder, rows, plan.options.keep_checkpoints, budget)
        if plan.points is not None:
            searcher = listed(left.setups, plan.mode)
        else:
            searcher = adaptive(plan, left, journal.path(f"{plan.options.search_alg}.state"))
        keeper = start_keeper(journal.folder)
        trainable = tune.with_parameters(run_trial, request=request, data=plan.data, keeper=keeper)
        tuner = tune.Tuner(
            tune.with_resources(trainable, each),
            tune_config=tune.TuneConfig(
                num_samples=left.count, search_alg=searcher,
                scheduler=scheduler(plan.options, epochs, plan.mode, left.ended),
                max_concurrent_trials=plan.options.max_concurrent, time_budget_s=budget, reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name="ray", storage_path=scratch, verbose=0, callbacks=[watch],
                failure_config=tune.FailureConfig(max_failures=LOST_MACHINES),
            ),
        )  # fmt: skip
        level = getLogger("ray").level
        getLogger("ray").setLevel("CRITICAL")  # the journal has what fails, and why
        try:
            tuner.fit()
        finally:
            getLogger("ray").setLevel(level)
            ray.kill(keeper)  # where Ray was there before the search, it would stay
