"""The options of a search: everything that is not a key of the model."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from recbole_ext.errors import InputError
from recbole_ext.utils.literals import parse_literal
from recbole_ext.utils.validators import Int, Number, OneOf, OrNone, Str, Validator, validate


def option(default: Any, validator: Validator) -> Any:
    """A field of `SearchOptions` with the values that it accepts."""
    return field(default=default, metadata={"validator": validator})


@dataclass(frozen=True)
class SearchOptions:
    """How a search is run.

    Attributes:
        num_samples: number of configurations, the default one included; with a grid, for each combination of the grid.
            Default: 1 if all keys have a grid, else 20.
        scheduler: stops trials early: `asha`, `median` or `none`.
        search_alg: proposes configurations: `random`, `optuna` or `hyperopt`.
        grace_period: epochs before which no trial is stopped. Default: 10, or a fifth of the epochs if that is less.
        time_budget: seconds after which the search ends with the results so far.
        keep_checkpoints: number of best trials whose checkpoints are kept.
        cpus_per_trial: CPUs of a trial, fractions allowed.
        gpus_per_trial: GPUs of a trial, fractions allowed. Default: one if the machine has any.
        max_concurrent: maximum number of trials that run at the same time.
        address: address of a running Ray cluster, `auto` for the cluster of this machine. Default: start a local Ray.
    """

    num_samples: int | None = option(None, OrNone(Int("[1, inf)")))
    scheduler: str = option("asha", OneOf("asha", "median", "none"))
    search_alg: str = option("random", OneOf("random", "optuna", "hyperopt"))
    grace_period: int | None = option(None, OrNone(Int("[1, inf)")))
    time_budget: float | None = option(None, OrNone(Number("(0, inf)")))
    keep_checkpoints: int = option(1, Int("[1, inf)"))
    cpus_per_trial: float = option(1, Number("(0, inf)"))
    gpus_per_trial: float | None = option(None, OrNone(Number("[0, inf)")))
    max_concurrent: int | None = option(None, OrNone(Int("[1, inf)")))
    address: str | None = option(None, OrNone(Str()))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


VALIDATORS: dict[str, Validator] = {option.name: option.metadata["validator"] for option in fields(SearchOptions)}
OPTION_NAMES = tuple(VALIDATORS)
# These may change when a search is resumed: they determine where and how long trials run, but not their results.
RESOURCE_OPTIONS = (
    "cpus_per_trial", "gpus_per_trial", "max_concurrent", "address", "time_budget", "keep_checkpoints",
)  # fmt: skip


def read_options(options: dict[str, Any]) -> dict[str, Any]:
    """Check options; texts of the command line are parsed, and options that are None are left out.

    Raises:
        InputError: an option does not accept its value.
    """
    checked = {}
    for name, value in options.items():
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
