"""The plan of a search: checked before anything starts, stored in the folder of the search, read again to resume it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import recbole

from recbole_ext.config import Config
from recbole_ext.config.checks import check_item_count, check_run
from recbole_ext.data.user_sample import UserSample, size_of_sample
from recbole_ext.errors import InputError
from recbole_ext.model.registry import name_of
from recbole_ext.tuning.journal import OUT_OF_TIME, PLAN, Journal, Record
from recbole_ext.tuning.options import OPTION_NAMES, RESOURCE_OPTIONS, SearchOptions, read_options
from recbole_ext.tuning.points import InvalidReason, Point, check_values, default_point, default_samples, random_points
from recbole_ext.tuning.space import Space, check_space, read_space
from recbole_ext.tuning.trial import SharedData
from recbole_ext.utils.literals import to_builtin


class Plan:
    """A checked search.

    Attributes:
        model: name or class.
        config: the configuration without the keys of the space.
        keys: the user's keys without those of the space; paths are absolute.
        space: distributions of the keys to search.
        options: how the search is run.
        first: the default configuration, which is tried first; None if the space does not contain it.
        points: all configurations of a random search, in order; None if an algorithm proposes them.
        data: the data set, read and split.
    """

    def __init__(
        self,
        model: Any,
        config: Config,
        keys: dict[str, Any],
        space: Space,
        options: SearchOptions,
        first: Point | None,
        points: list[Point] | None,
    ):
        self.model, self.config, self.keys = model, config, keys
        self.space, self.options, self.first, self.points = space, options, first, points
        self.data = SharedData(config)
        check_item_count(config, self.data.dataset.item_num)
        self._check_validation()

    def _check_validation(self) -> None:
        if not self.config["eval_step"]:
            raise InputError(
                "eval_step is 0, so no epoch would be validated, but a search needs validation: set it to 1."
            )
        if not self.config["epochs"]:
            raise InputError("epochs is 0, so no model would be trained; set it to 1 or more.")
        if len(self.data.parts[1]) == 0:
            files, split = self.config["benchmark_filename"], self.config["eval_args"]["split"]
            key = f"benchmark_filename is {files}" if files else f"eval_args split is {split}"
            raise InputError(f"{key}, which leaves no validation data, but a search needs validation data.")

    @property
    def name(self) -> str:
        """Name of the model."""
        return name_of(self.model)

    @property
    def total(self) -> int:
        """Number of planned trials."""
        return len(self.points) if self.points is not None else self.options.num_samples or 20

    @property
    def mode(self) -> str:
        """Whether the score is maximised or minimised: `"max"` or `"min"`."""
        return "max" if self.config["valid_metric_bigger"] else "min"

    @property
    def user_sample(self) -> UserSample | None:
        """The users on whom trials are validated; None for all."""
        return size_of_sample(self.data.parts[1], self.config)

    @property
    def measured(self) -> str:
        """What the scores of trials are measured on, for sentences."""
        return "the validation data" + (f" of {self.user_sample}" if self.user_sample else "")

    def invalid_reason(self) -> InvalidReason:
        return InvalidReason(self.model, self.config.dataset, self.keys)

    def to_dict(self) -> dict[str, Any]:
        """The content of search.yaml."""
        return {
            "model": self.name, "dataset": self.config.dataset, "keys": to_builtin(self.keys),
            "space": {key: to_builtin(distribution.to_dict()) for key, distribution in self.space.items()},
            "options": self.options.to_dict(), "data_digest": self.data.dataset.digest, "first": to_builtin(self.first),
            "points": to_builtin(self.points),
        }  # fmt: skip


def new_plan(model: Any, config: Config, space: Any, options: dict[str, Any]) -> Plan:
    """Plan a new search.

    Args:
        model: name or class, or None if a key has the name.
        config: configuration of the user's keys.
        space: see `read_space`.
        options: the checked options that the user set.

    Raises:
        InputError: the keys, the space, the options or the data are invalid.
    """
    check_run(config)
    domains, source, keys = _space_and_fixed_keys(config, space)
    model = model if model is not None else config.external_config_dict.get("model")
    search_options = SearchOptions(**{"num_samples": default_samples(domains), **options})
    for key, distribution in domains.items():
        if distribution.kind == "grid" and search_options.search_alg != "random":
            raise InputError(
                f"{source} has a grid of '{key}', but search_alg is {search_options.search_alg}, which chooses values "
                f"itself; make it a choice, or leave search_alg out."
            )
    invalid_reason, seed = InvalidReason(model, config.dataset, keys), config["seed"]
    check_values(domains, source, invalid_reason, seed)
    first, points = default_point(domains, config), None
    if search_options.search_alg == "random":
        points = random_points(domains, search_options.num_samples or 1, invalid_reason, seed, first)
    return Plan(model, config, keys, domains, search_options, first, points)


def _space_and_fixed_keys(config: Config, space: Any) -> tuple[Space, str, dict[str, Any]]:
    """The checked space, the name of its source, and the keys that are equal in all trials."""
    entries, source = read_space(space, config["model"])
    domains = check_space(entries, source, config)
    keys = {key: value for key, value in config.external_config_dict.items() if key not in domains}
    for key in ("model", "dataset", "checkpoint_dir", "config_files", "data_path"):
        keys.pop(key, None)
    if not Path(config["data_path"]).is_relative_to(Path(recbole.__file__).parent):  # RecBole's data is on every node
        keys["data_path"] = config["data_path"]
    if "log_dir" in keys:  # absolute, because every trial has its own working directory
        keys["log_dir"] = config["log_dir"]
    if "seed" not in domains:
        keys["seed"] = config["seed"]
    return domains, source, keys


def stored_plan(journal: Journal, model: Any, dataset: str | None, options: dict[str, Any]) -> Plan:
    """The plan of a stored search; `options` may change its `RESOURCE_OPTIONS`.

    Raises:
        InputError: the model, data set or other options differ from those of the search, or the data has changed.
    """
    stored = journal.read_plan()
    for name in stored["options"]:
        if name not in OPTION_NAMES:
            raise InputError(f"{journal.path(PLAN)} has the unknown option '{name}'; start a new search.")
    model_name = None if model is None else name_of(model)
    changed = [("model", model_name, stored["model"]), ("dataset", dataset, stored["dataset"])]
    changed += [
        (key, value, stored["options"].get(key)) for key, value in options.items() if key not in RESOURCE_OPTIONS
    ]
    for name, new, old in changed:
        if new is not None and new != old:
            raise InputError(f"{name} is {new}, but the search in {journal.folder} has {old}; leave it out.")
    search_options = SearchOptions(**{**read_options(stored["options"]), **options})
    model = model if model is not None else stored["model"]
    config = Config(model, stored["dataset"], None, stored["keys"], argv=[])
    space = check_space(stored["space"], f"the space of {journal.path(PLAN)}", config)
    plan = Plan(model, config, stored["keys"], space, search_options, stored["first"], stored["points"])
    if stored["data_digest"] != plan.data.dataset.digest:
        raise InputError(
            f"the events of {config['data_path']} have changed since the search was started; trials on different data "
            f"cannot be compared, so start a new search."
        )
    return plan


def check_unchanged(journal: Journal, config: Config, space: Any) -> None:
    """Check that keys and space are those of the stored search; `InputError` if they differ."""
    stored = journal.read_plan()
    domains, _, keys = _space_and_fixed_keys(config, space)
    for key, value in to_builtin(keys).items():
        if value != stored["keys"].get(key):
            old = repr(stored["keys"][key]) if key in stored["keys"] else "no such key"
            raise InputError(f"{key} is {value!r}, but the search in {journal.folder} has {old}; leave it out.")
    plain_space = {key: to_builtin(distribution.to_dict()) for key, distribution in domains.items()}
    if space is not None and plain_space != stored["space"]:
        raise InputError(f"the search space differs from that in {journal.path(PLAN)}; leave it out.")


@dataclass(frozen=True)
class RemainingTrials:
    """The trials that a search still has to run.

    Attributes:
        pending: trials whose keys are fixed: `number`, `keys`, and `repeats` with the number of a trial to run again.
        count: number of all remaining trials; an algorithm proposes the keys of those that are not in `pending`.
        next_number: number of the first trial whose keys an algorithm proposes.
        ended: records of trials that are complete.
    """

    pending: list[dict[str, Any]]
    count: int
    next_number: int
    ended: list[Record]


def remaining_trials(plan: Plan, records: list[Record]) -> RemainingTrials:
    """Compare the plan with the trials that have ended.

    A trial that was stopped by the time budget runs again under a new number. Its first record and checkpoint stay.
    """
    repeated = {record.get("repeats") for record in records}
    unfinished = [record for record in records if record["reason"] == OUT_OF_TIME and record["trial"] not in repeated]
    last = max([record["trial"] for record in records] + ([] if plan.points is None else [plan.total]), default=0)
    pending = [
        {"number": number, "keys": record["keys"], "repeats": record["trial"]}
        for number, record in enumerate(unfinished, last + 1)
    ]
    started = {record["trial"] for record in records if record.get("repeats") is None}
    if plan.points is not None:
        pending += [{"number": n, "keys": point} for n, point in enumerate(plan.points, 1) if n not in started]
    count = len(unfinished) + max(plan.total - len(started), 0)
    ended = [record for record in records if record not in unfinished]
    return RemainingTrials(pending, count, last + len(unfinished) + 1, ended)
