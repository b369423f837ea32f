"""Run a search: `search` in Python, `recbole-ext tune` on the command line."""

import importlib
import importlib.util
import os
from collections.abc import Sequence
from logging import getLogger
from typing import Any

from recbole_ext.config import Config
from recbole_ext.config.metrics import registered
from recbole_ext.errors import InputError
from recbole_ext.model.registry import name_of
from recbole_ext.tuning import results
from recbole_ext.tuning.journal import Journal, new_folder, newest_folder
from recbole_ext.tuning.options import OPTION_NAMES, read_options
from recbole_ext.tuning.plan import Plan, RemainingTrials, check_unchanged, new_plan, remaining_trials, stored_plan
from recbole_ext.tuning.supervisor import scratch_folder
from recbole_ext.tuning.trial import TrialSetup, run_trial
from recbole_ext.utils.paths import absolute
from recbole_ext.utils.signals import SigtermReceived
from recbole_ext.utils.wording import counted, nearest

FOLDER = "tune_results"
OLDEST_RAY = "2.45"
MAX_FAILURES = 3  # how often a trial starts again after its process or its machine was lost


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
    """Search for the hyper-parameters with the best validation score, then test the best trial once.

    Args:
        model, dataset, config_file_list, config_dict, argv: as in `run_recbole`. Keys in `config_dict` and `argv` are
            fixed; the space varies the others.
        space: a YAML file, a file in the format of RecBole's `hyper.test`, or `{key: {distribution: values}}`. The
            distributions are choice, uniform, loguniform, quniform, randint and grid. Default: the space that comes
            with the model.
        storage_path: the search creates its folder in this folder.
        resume: continue an interrupted search: its folder, or True for the newest search of this model and data set.
        options: `num_samples`, `scheduler` and others, see `recbole_ext.tuning.options.SearchOptions`.

    Returns:
        the result of `run_recbole` for the best trial: `best_valid_score`, `valid_score_bigger`, `best_valid_result`,
        `valid_sample`, `test_result`, `checkpoint` and `config`; and `trial` (its number), `keys` (its values),
        `trials` (the records of all trials) and `folder`, which contains best.yaml, trials.csv and report.html.

    Raises:
        InputError: an argument is invalid, and no trial has started; or the checkpoint of the best trial is missing.
        SearchError: no trial has a result.
        KeyboardInterrupt, SigtermReceived: SIGINT or SIGTERM was received; the argument is the folder to resume.
    """
    for name in options:
        if name not in OPTION_NAMES:
            near = nearest(name, OPTION_NAMES)
            hint = f"did you mean '{near}'?" if near else f"its options are {', '.join(OPTION_NAMES)}."
            raise InputError(f"search has no option '{name}'; {hint}")
    checked = read_options(options)
    if resume:
        journal = _stored_search(resume, storage_path, model, dataset)
        stored = journal.read_plan()
        check_installed(stored["options"].get("search_alg"))
        if config_file_list or config_dict or space or argv:
            # the data of the search, unless config_dict names others
            keys = {key: value for key, value in stored["keys"].items() if key == "data_path"} | (config_dict or {})
            config = Config(model or stored["model"], dataset or stored["dataset"], config_file_list, keys, argv)
            check_unchanged(journal, config, space)
        plan = stored_plan(journal, model, dataset, checked)
    else:
        config = Config(model, dataset, config_file_list, config_dict, argv)
        check_installed(checked.get("search_alg"))  # before the data is read
        plan = new_plan(model, config, space, checked)
        journal = Journal(new_folder(storage_path, plan.name, plan.config.dataset))
    try:
        run_trials(plan, journal, bool(resume))
        return results.finish(plan, journal)
    except (KeyboardInterrupt, SigtermReceived) as error:
        raise type(error)(*[journal.folder] if journal.is_started() else []) from error


def _stored_search(resume: bool | str, storage_path: str, model: str | type | None, dataset: str | None) -> Journal:
    """The folder of the search to resume; for the arguments see `search`."""
    if not isinstance(resume, bool):
        return Journal(absolute(os.fspath(resume), "resume"))
    return Journal(newest_folder(storage_path, None if model is None else name_of(model), dataset))


def check_installed(search_alg: str | None) -> None:
    """Check that Ray and the package of `search_alg` are installed; `InputError` names the command to install them."""
    command = f'run: pip install "ray[tune]>={OLDEST_RAY}"'
    if importlib.util.find_spec("ray") is None:
        raise InputError(f"the search needs Ray, which is not installed; {command}")
    import ray

    if [int(part) for part in ray.__version__.split(".")[:2]] < [int(part) for part in OLDEST_RAY.split(".")]:
        raise InputError(f"the search needs Ray {OLDEST_RAY} or later, not {ray.__version__}; {command}")
    if search_alg in ("optuna", "hyperopt") and importlib.util.find_spec(search_alg) is None:
        raise InputError(f"search_alg is {search_alg}, a package that is not installed; run: pip install {search_alg}")
    try:
        importlib.import_module("ray.tune")
    except ImportError as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"Ray Tune cannot be imported ({reason}); {command}") from error


# ---------------------------------------------------------------------- running


def run_trials(plan: Plan, journal: Journal, resume: bool) -> None:
    """Run the trials that have not ended yet; `resume` says whether some may have."""
    import ray

    from recbole_ext.tuning.backend.cluster import running_ray, start_checkpoint_store

    records = journal.records()
    remaining = remaining_trials(plan, records)
    if resume and not remaining.count:
        print(f"all {len(records)} trials of the search in {journal.folder} have ended", flush=True)
        return
    data_bytes = len(ray.cloudpickle.dumps(plan.data))
    with running_ray(plan.options, plan.config, data_bytes) as resources, scratch_folder() as scratch:
        if resume:
            so_far = f"{counted(len(records), 'trial')} ended, {remaining.count} left"
            print(f"resuming the search in {journal.folder}; {so_far}", flush=True)
        else:
            journal.start(plan.to_dict())
            print(f"starting the search in {journal.folder}", flush=True)
        checkpoint_store = start_checkpoint_store(journal.folder)
        log_level = getLogger("ray").level
        getLogger("ray").setLevel("CRITICAL")  # the journal has the failures and their reasons
        try:
            make_tuner(plan, journal, remaining, resources, checkpoint_store, scratch).fit()
        finally:
            getLogger("ray").setLevel(log_level)
            ray.kill(checkpoint_store)  # which outlives the search on a cluster that was running before it


def make_tuner(
    plan: Plan,
    journal: Journal,
    remaining: RemainingTrials,
    resources: dict[str, float],
    checkpoint_store: Any,
    scratch: str,
) -> Any:
    """Ray's `Tuner` of a search.

    Args:
        plan: of the search.
        journal: its folder.
        remaining: the trials to run.
        resources: CPUs and GPUs of a trial.
        checkpoint_store: handle of the `CheckpointStore`.
        scratch: folder for Ray's files, which are not needed after the search.
    """
    from ray import tune

    from recbole_ext.tuning.backend.algorithms import make_scheduler, make_searcher
    from recbole_ext.tuning.backend.progress import SearchCallback, TrialTable

    options, config = plan.options, plan.config
    keys = {key: value for key, value in plan.keys.items() if key != "gpu_id"} | {"use_gpu": "GPU" in resources}
    threads = max(1, int(resources["CPU"]))
    setup = TrialSetup(plan.model, config.dataset, keys, threads, registered(config["metrics"]))
    trainable = tune.with_parameters(run_trial, setup=setup, data=plan.data, checkpoint_store=checkpoint_store)
    total = len(journal.records()) + remaining.count
    table = TrialTable(total, config["valid_metric"], plan.mode == "max", config["epochs"], plan.space)
    progress = SearchCallback(journal.folder, table, options.keep_checkpoints, options.time_budget)
    if plan.points is not None:  # the keys of all trials are known: Ray's grid search runs them in order
        searcher, num_samples, param_space = None, 1, {"trial": tune.grid_search(remaining.pending)}
    else:
        searcher = make_searcher(plan, remaining, journal.path(f"{options.search_alg}.state"))
        num_samples, param_space = remaining.count, {}
    return tune.Tuner(
        tune.with_resources(trainable, resources),
        param_space=param_space,
        tune_config=tune.TuneConfig(
            num_samples=num_samples,
            search_alg=searcher,
            scheduler=make_scheduler(options, config["epochs"], plan.mode, remaining.ended),
            max_concurrent_trials=options.max_concurrent,
            time_budget_s=options.time_budget,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name="ray",
            storage_path=scratch,
            verbose=0,
            callbacks=[progress],
            failure_config=tune.FailureConfig(max_failures=MAX_FAILURES),
        ),
    )
