"""What a search is going to do, checked before anything starts; it can be written down and read again."""

from pathlib import Path
from typing import Any

import recbole

from recbole_ext.config import Config
from recbole_ext.config.values import plain
from recbole_ext.data.shared import SharedData
from recbole_ext.errors import InputError
from recbole_ext.tuning import points as drawing
from recbole_ext.tuning.journal import REQUEST, Journal
from recbole_ext.tuning.options import OF_THE_MACHINE, Options, read_options
from recbole_ext.tuning.space import Space, check_space, read_space


class Plan:
    """A search that has been checked.

    Attributes:
        model: name or class.
        config: the configuration without a point.
        keys: what the user gave, without the keys of the space and with absolute paths.
        data: read and split.
        points: of random search, in order; None where an algorithm proposes them.
    """

    def __init__(self, model: Any, config: Config, keys: dict, space: Space, options: Options, points: list | None):
        self.model, self.config, self.keys = model, config, keys
        self.space, self.options, self.points = space, options, points
        self.data = SharedData(config)
        self.digest: str = ""
        self._check_validation()

    def _check_validation(self) -> None:
        if not self.config["eval_step"]:
            raise InputError("eval_step is 0, so nothing would be validated; a search needs validation: set it to 1.")
        if not self.config["epochs"]:
            raise InputError("epochs is 0, so nothing would be trained; set it to 1 or more.")
        if len(self.data.parts[1]) == 0:
            split = self.config["eval_args"]["split"]
            raise InputError(f"eval_args split is {split}, which leaves no validation data; a search needs some.")

    @property
    def name(self) -> str:
        return self.model if isinstance(self.model, str) else self.model.__name__

    @property
    def total(self) -> int:
        return len(self.points) if self.points is not None else self.options.num_samples or 20

    @property
    def mode(self) -> str:
        return "max" if self.config["valid_metric_bigger"] else "min"

    def why_not(self) -> "WhyNot":
        return WhyNot(self.model, self.config.dataset, self.keys)

    def compare_data(self) -> None:
        if self.digest != self.data.dataset.digest:
            raise InputError(
                f"the events of {self.config['data_path']} have changed since the search was started; trials on other "
                f"data cannot be compared, so start a new search."
            )

    def as_plain(self) -> dict[str, Any]:
        return {
            "model": self.name, "dataset": self.config.dataset, "keys": plain(self.keys),
            "space": {key: plain(domain.as_plain()) for key, domain in self.space.items()},
            "options": self.options.as_plain(), "data_digest": self.data.dataset.digest, "points": plain(self.points),
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
                Config(self.model, self.dataset, None, {**self.keys, **point}, argv=[])
                self.known[name] = ""
            except InputError as error:
                self.known[name] = str(error)
        return self.known[name]


def new_plan(model: Any, config: Config, space: Any, given: dict[str, Any]) -> Plan:
    entries, source = read_space(space, config["model"])
    domains = check_space(entries, source, config)
    keys = {key: value for key, value in config.external_config_dict.items() if key not in domains}
    for key in ("model", "dataset", "checkpoint_dir", "config_files", "data_path"):
        keys.pop(key, None)
    if not Path(config["data_path"]).is_relative_to(Path(recbole.__file__).parent):  # what comes with it is found
        keys["data_path"] = config["data_path"]
    keys["seed"] = config["seed"]
    if "seed" in domains:
        del keys["seed"]
    model = model if model is not None else config.external_config_dict.get("model")
    given.setdefault("num_samples", drawing.default_samples(domains))
    options, seed, why_not = Options(**given), config["seed"], WhyNot(model, config.dataset, keys)
    drawing.check_values(domains, source, why_not, seed)
    found = None
    if options.search_alg == "random":
        found = drawing.points(domains, given["num_samples"], why_not, seed)
    return Plan(model, config, keys, domains, options, found)


def stored_plan(journal: Journal, model: Any, dataset: str | None, given: dict[str, Any]) -> Plan:
    """The plan of a search that was begun, with the machine's part of the options as given now."""
    request = journal.request()
    for name, now in {"model": getattr(model, "__name__", model), "dataset": dataset}.items():
        if now is not None and now != request[name]:
            raise InputError(
                f"{name} is {now}, but the search in {journal.folder} is of {request[name]}; leave it out."
            )
    for name, value in given.items():
        if name not in OF_THE_MACHINE and value != request["options"].get(name):
            raise InputError(
                f"{name} is {value}, but the search in {journal.folder} was started with "
                f"{request['options'].get(name)}; leave it out."
            )
    options = Options(**{**read_options(request["options"]), **given})
    config = Config(model or request["model"], request["dataset"], None, request["keys"], argv=[])
    unsettled = Config(model or request["model"], request["dataset"], None, None, argv=[])
    space = check_space(request["space"], f"the space of {journal.path(REQUEST)}", unsettled)
    plan = Plan(model or request["model"], config, request["keys"], space, options, request.get("points"))
    plan.digest = request["data_digest"]
    return plan
