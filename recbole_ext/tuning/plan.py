"""What a search is going to do, checked before anything starts; it can be written down and read again."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import recbole

from recbole_ext.config import Config
from recbole_ext.config.checks import check_catalogue
from recbole_ext.config.evaluation import check_run
from recbole_ext.errors import InputError
from recbole_ext.model.registry import name_of
from recbole_ext.tuning import points as drawing
from recbole_ext.tuning.backend.shared_data import SharedData
from recbole_ext.tuning.journal import CUT_SHORT, REQUEST, Journal, Record
from recbole_ext.tuning.options import NAMES, OF_THE_MACHINE, Options, read_options
from recbole_ext.tuning.space import Space, check_space, read_space
from recbole_ext.utils.literals import to_builtin


class Plan:
    """A search that has been checked.

    Attributes:
        model: name or class.
        config: the configuration without a point.
        keys: what the user gave, without the keys of the space and with absolute paths.
        data: read and split.
        first: the point to begin with, what the keys of the space are without a search; None if it does not have it.
        points: of random search, in order; None where an algorithm proposes them.
    """

    def __init__(
        self, model: Any, config: Config, keys: dict, space: Space, options: Options, first: dict | None,
        points: list | None,
    ):  # fmt: skip
        self.model, self.config, self.keys = model, config, keys
        self.space, self.options, self.first, self.points = space, options, first, points
        self.data = SharedData(config)
        check_catalogue(config, self.data.dataset.item_num)
        self._check_validation()

    def _check_validation(self) -> None:
        if not self.config["eval_step"]:
            raise InputError("eval_step is 0, so nothing would be validated; a search needs validation: set it to 1.")
        if not self.config["epochs"]:
            raise InputError("epochs is 0, so nothing would be trained; set it to 1 or more.")
        if len(self.data.parts[1]) == 0:
            files, split = self.config["benchmark_filename"], self.config["eval_args"]["split"]
            key = f"benchmark_filename is {files}" if files else f"eval_args split is {split}"
            raise InputError(f"{key}, which leaves no validation data; a search needs some.")

    @property
    def name(self) -> str:
        return name_of(self.model)

    @property
    def total(self) -> int:
        return len(self.points) if self.points is not None else self.options.num_samples or 20

    @property
    def mode(self) -> str:
        return "max" if self.config["valid_metric_bigger"] else "min"

    def why_not(self) -> "WhyNot":
        return WhyNot(self.model, self.config.dataset, self.keys)

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.name, "dataset": self.config.dataset, "keys": to_builtin(self.keys),
            "space": {key: to_builtin(domain.to_dict()) for key, domain in self.space.items()},
            "options": self.options.to_dict(), "data_digest": self.data.dataset.digest, "first": to_builtin(self.first),
            "points": to_builtin(self.points),
        }  # fmt: skip


class WhyNot:
    """Says why a point is not possible with the keys of a search, or "" if it is."""

    def __init__(self, model: Any, dataset: str, keys: dict[str, Any]):
        self.model, self.dataset, self.keys = model, dataset, keys
        self.known: dict[str, str] = {}

    def __call__(self, point: dict[str, Any]) -> str:
        name = drawing.identity(point)
        if name not in self.known:
            try:
                config = Config(self.model, self.dataset, None, {**self.keys, **point}, argv=[])
                check_run(config)
                self.known[name] = ""
            except InputError as error:
                self.known[name] = str(error)
        return self.known[name]


def new_plan(model: Any, config: Config, space: Any, given: dict[str, Any]) -> Plan:
    """The plan of a request.

    Args:
        model: name or class, or None if the keys name it.
        config: made of the request.
        space: as `read_space` takes it.
        given: options, checked.

    Raises:
        InputError: something in it is wrong.
    """
    check_run(config)
    domains, source, keys = _settle(config, space)
    model = model if model is not None else config.external_config_dict.get("model")
    options = Options(**{"num_samples": drawing.default_samples(domains), **given})
    seed, why_not = config["seed"], WhyNot(model, config.dataset, keys)
    for key, domain in domains.items():
        if domain.way == "grid" and options.search_alg != "random":
            raise InputError(
                f"{source} has a grid of '{key}', but search_alg is {options.search_alg}, which chooses values by "
                f"itself; make it a choice, or leave search_alg out."
            )
    drawing.check_values(domains, source, why_not, seed)
    first, found = drawing.defaults(domains, config), None
    if options.search_alg == "random":
        found = drawing.points(domains, options.num_samples or 1, why_not, seed, first)
    return Plan(model, config, keys, domains, options, first, found)


def _settle(config: Config, space: Any) -> tuple[Space, str, dict[str, Any]]:
    """The space, the name of its source, and the keys that all trials share."""
    entries, source = read_space(space, config["model"])
    domains = check_space(entries, source, config)
    keys = {key: value for key, value in config.external_config_dict.items() if key not in domains}
    for key in ("model", "dataset", "checkpoint_dir", "config_files", "data_path"):
        keys.pop(key, None)
    if not Path(config["data_path"]).is_relative_to(Path(recbole.__file__).parent):  # what comes with it is found
        keys["data_path"] = config["data_path"]
    if "log_dir" in keys:  # trials have working directories of their own
        keys["log_dir"] = config["log_dir"]
    if "seed" not in domains:
        keys["seed"] = config["seed"]
    return domains, source, keys


def stored_plan(journal: Journal, model: Any, dataset: str | None, given: dict[str, Any]) -> Plan:
    """The plan of a search that was begun, with the machine's part of the options as given now.

    Raises:
        InputError: it was begun for another model or data set, or with other options; or the data have changed.
    """
    request = journal.request()
    began = f"but the search in {journal.folder} was begun with"
    for name in request["options"]:
        if name not in NAMES:
            raise InputError(
                f"{journal.path(REQUEST)} has the option '{name}', which is unknown; start the search anew."
            )
    for name, now in {"model": model and name_of(model), "dataset": dataset}.items():
        if now is not None and now != request[name]:
            raise InputError(f"{name} is {now}, {began} {request[name]}; leave it out.")
    for name, value in given.items():
        if name not in OF_THE_MACHINE and value != request["options"].get(name):
            raise InputError(f"{name} is {value}, {began} {request['options'].get(name)}; leave it out.")
    options = Options(**{**read_options(request["options"]), **given})
    model = model if model is not None else request["model"]
    config = Config(model, request["dataset"], None, request["keys"], argv=[])
    space = check_space(request["space"], f"the space of {journal.path(REQUEST)}", config)
    plan = Plan(model, config, request["keys"], space, options, request["first"], request["points"])
    if request["data_digest"] != plan.data.dataset.digest:
        raise InputError(
            f"the events of {config['data_path']} have changed since the search was begun; trials on other data "
            f"cannot be compared, so start a new search."
        )
    return plan


def compare(journal: Journal, config: Config, space: Any) -> None:
    """Hold what is given along with a search to resume against what it was begun with; `InputError` if it differs."""
    request = journal.request()
    domains, _, keys = _settle(config, space)
    begun = f"but the search in {journal.folder} was begun with"
    for key, now in to_builtin(keys).items():
        if now != request["keys"].get(key):
            was = repr(request["keys"][key]) if key in request["keys"] else "none"
            raise InputError(f"{key} is {now!r}, {begun} {was}; leave it out.")
    if space is not None and {key: to_builtin(domain.to_dict()) for key, domain in domains.items()} != request["space"]:
        raise InputError(f"the search space is another, {begun} the one in its {REQUEST}; leave it out.")


@dataclass(frozen=True)
class Remaining:
    """The trials to come.

    Attributes:
        setups: those that are known: `number`, `keys`, and `repeats` if an earlier one is done again.
        count: of all of them; what is not known an algorithm proposes.
        next: number of the first that is not known.
        ended: records of the others.
    """

    setups: list[dict[str, Any]]
    count: int
    next: int
    ended: list[Record]


def remaining(plan: Plan, records: list[Record]) -> Remaining:
    """Hold what was planned against what has ended.

    A trial that only the time budget has ended is done again, under a new number: its result stays, whatever becomes of
    the repetition, and nothing is overwritten.
    """
    repeated = {record.get("repeats") for record in records}
    again = [record for record in records if record["reason"] == CUT_SHORT and record["trial"] not in repeated]
    last = max([record["trial"] for record in records] + ([] if plan.points is None else [plan.total]), default=0)
    setups = [
        {"number": number, "keys": record["keys"], "repeats": record["trial"]}
        for number, record in enumerate(again, last + 1)
    ]
    begun = {record["trial"] for record in records if record.get("repeats") is None}
    new = max(plan.total - len(begun), 0)
    if plan.points is not None:
        setups += [{"number": n, "keys": point} for n, point in enumerate(plan.points, 1) if n not in begun]
    ended = [record for record in records if record not in again]
    return Remaining(setups, len(again) + new, last + len(again) + 1, ended)
