"""What MEANTIME asks of its keys and of its data, before it is built."""

import math
from typing import Any

from recbole_ext.errors import InputError
from recbole_ext.model.meantime.kernels import TABULATED

ABSOLUTE = ("position", "day", "constant")
RELATIVE = ("sin", *TABULATED)
DAY = 86400.0
MOST_DAYS = 73050  # two centuries
LAST_DAY = 2**18  # since 1970, in the year 2687: no event is as late, milliseconds read as seconds are
TAU = (1e-6, 2.0**32)  # seconds
LEAST = {"hidden_size": 1, "inner_size": 1, "n_layers": 1, "train_window": 1, "MAX_ITEM_LIST_LENGTH": 2}


class Options:
    """MEANTIME's keys, checked. Raises `InputError` with the value and the choices."""

    def __init__(self, config: Any):
        self.absolute = _kernels(config["absolute_kernels"], "absolute_kernels", ABSOLUTE)
        self.relative = _kernels(config["relative_kernels"], "relative_kernels", RELATIVE)
        for key, least in LEAST.items():
            if not isinstance(config[key], int) or config[key] < least:
                raise InputError(f"{key} is {config[key]}; it should be a whole number, at least {least}.")
        heads, hidden = len(self.absolute) + len(self.relative), config["hidden_size"]
        if heads == 0:
            raise InputError("absolute_kernels and relative_kernels are both empty; name at least one kernel.")
        if hidden % heads:
            raise InputError(f"hidden_size is {hidden}, which {heads} kernels (one head each) do not divide.")
        if "sin" in self.relative and hidden % 2:
            raise InputError(f"hidden_size is {hidden}; the sin kernel needs an even number.")
        if config["loss_type"] != "CE":
            raise InputError(f"loss_type is '{config['loss_type']}'; MEANTIME is trained with CE.")
        self.query_time = config["query_time"]
        if self.query_time not in ("target", "last"):
            raise InputError(f"query_time is '{self.query_time}'; it should be target or last.")
        self.mask_ratio = _above_zero(config, "mask_ratio", 1.0)
        self.freq = _above_zero(config, "kernel_freq", math.inf)
        self.tau = _above_zero(config, "kernel_time_unit", TAU[1])
        if self.tau < TAU[0]:
            raise InputError(f"kernel_time_unit is {self.tau:g}; it should be at least {TAU[0]:g} seconds.")
        for key in ("layer_norm_eps", "initializer_range"):
            _above_zero(config, key, math.inf)


def _kernels(names: Any, key: str, choices: tuple[str, ...]) -> list[str]:
    names = [names] if isinstance(names, str) else names or []
    if not isinstance(names, (list, tuple)):
        raise InputError(f"{key} is {names!r}; it should be a list of {', '.join(choices)}.")
    for name in names:
        if name not in choices:
            raise InputError(f"{key} names '{name}'; it should be a list of {', '.join(choices)}.")
    if len(set(names)) < len(names):
        raise InputError(f"{key} is {names}; each kernel may stand there once.")
    return list(names)


def _above_zero(config: Any, key: str, most: float) -> float:
    value = config[key]
    if not isinstance(value, (int, float)) or not 0 < value <= most:
        raise InputError(
            f"{key} is {value!r}; it should be a number above 0{f' and at most {most:g}' if most < math.inf else ''}."
        )
    return float(value)


def known_days(dataset, time_field: str) -> tuple[float, int]:
    """Seconds from the start of the first day (UTC) to the data's time 0, and the days up to the last training event.

    Works on the event log (seconds since `time_origin`) and on RecBole's own data sets (seconds since 1970).

    Raises:
        InputError: there are no times; or they span more than two centuries or lie far in the future, which a wrong
            `time_unit` gives.
    """
    if time_field not in dataset.inter_feat:
        raise InputError(f"the day kernel needs the column '{time_field}' (TIME_FIELD); take it out of unused_col.")
    times = dataset.inter_feat[time_field]
    origin = getattr(dataset, "time_origin", None)
    first = math.floor((float(times.min()) if origin is None else origin) / DAY) * DAY
    offset = (0.0 if origin is None else origin) - first
    days = math.floor((float(times.max()) + offset) / DAY) + 1 if len(times) else 1
    if days > MOST_DAYS or first / DAY + days > LAST_DAY:
        raise InputError(
            f"column '{time_field}' spans {days} days up to the year {1970 + (first / DAY + days) / 365.25:.0f}; "
            f"set time_unit to the unit of the file (ms for milliseconds)."
        )
    return offset, max(days, 1)
