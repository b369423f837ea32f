"""How a search is run: everything about it that is no key of the model."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from recbole_ext.errors import InputError
from recbole_ext.utils.literals import parse_literal
from recbole_ext.utils.validators import Int, Number, OneOf, Optional_, Str, Validator, validate

VALIDATORS: dict[str, Validator] = {
    "num_samples": Optional_(Int("[1, inf)")),
    "scheduler": OneOf("asha", "median", "none"),
    "search_alg": OneOf("random", "optuna", "hyperopt"),
    "grace_period": Optional_(Int("[1, inf)")),
    "time_budget": Optional_(Number("(0, inf)")),
    "keep_checkpoints": Int("[1, inf)"),
    "cpus_per_trial": Number("(0, inf)"),
    "gpus_per_trial": Optional_(Number("[0, inf)")),
    "max_concurrent": Optional_(Int("[1, inf)")),
    "address": Optional_(Str()),
}
# what may differ when a search is resumed: it changes where and how long trials run, not what they find
OF_THE_MACHINE = ("cpus_per_trial", "gpus_per_trial", "max_concurrent", "address", "time_budget", "keep_checkpoints")


@dataclass(frozen=True)
class Options:
    """How a search is run.

    Attributes:
        num_samples: points, the defaults included, for each point of the grid if there is one; 1 if everything is on a
            grid, else 20.
        scheduler: what stops trials early, `asha`, `median` or `none`.
        search_alg: what proposes values, `random`, `optuna` or `hyperopt`.
        grace_period: epochs that no trial is stopped before.
        time_budget: seconds after which the search ends with what it has.
        keep_checkpoints: checkpoints that are kept, of the best trials.
        cpus_per_trial, gpus_per_trial: what a trial takes, fractions included. Without a number of GPUs a trial takes
            one where there are any.
        max_concurrent: trials that run at one time, at most.
        address: of a running Ray cluster, `auto` for that of this machine; None starts Ray for this search alone.
    """

    num_samples: int | None = None
    scheduler: str = "asha"
    search_alg: str = "random"
    grace_period: int | None = None
    time_budget: float | None = None
    keep_checkpoints: int = 1
    cpus_per_trial: float = 1
    gpus_per_trial: float | None = None
    max_concurrent: int | None = None
    address: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


NAMES = tuple(field.name for field in fields(Options))


def read_options(given: dict[str, Any]) -> dict[str, Any]:
    """Check options, texts of the command line included; those that are None are left out.

    Raises:
        InputError: a value is not what the option takes.
    """
    checked = {}
    for name, value in given.items():
        validator = VALIDATORS[name]
        if isinstance(value, str) and not validator.raw_text:
            try:
                value = parse_literal(value)
            except InputError as error:
                raise InputError(f"{name}: {error}") from error
        value = "none" if name == "scheduler" and value is None else value
        if value is not None:
            checked[name] = validate(name, value, validator)
    return checked
