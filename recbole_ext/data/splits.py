"""Splits by exact times: the same periods for all users, also for RecBole's own data sets."""

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from logging import getLogger
from typing import Any

import numpy as np
import torch
from recbole.data.dataset import SequentialDataset
from recbole.utils import ModelType

from recbole_ext.data.files.atomic_file import PADDING
from recbole_ext.data.files.time_units import in_unit, text_of_time
from recbole_ext.data.filter_log import warn_of_copies
from recbole_ext.data.ranges import token_ranks
from recbole_ext.errors import InputError

PARTS = ("training", "validation", "test")


def check_split(split: Any) -> None:
    """`InputError` for an invalid split; the message shows valid ones."""
    ((kind, shares),) = split.items() if isinstance(split, dict) and len(split) == 1 else ((None, None),)
    if kind == "LS" and shares in ("valid_and_test", "valid_only", "test_only"):
        return
    if kind == "date":
        return
    if kind in ("RS", "TS") and isinstance(shares, (list, tuple)) and len(shares) == 3:
        numbers = [share for share in shares if isinstance(share, (int, float)) and share >= 0]
        if len(numbers) == 3 and sum(numbers) > 0:
            return
    raise InputError(
        f"eval_args split is {split}; it should be {{'LS': 'valid_and_test'}} (or valid_only, test_only), "
        f"{{'RS': [0.8, 0.1, 0.1]}}, {{'TS': [0.8, 0.1, 0.1]}} or {{'date': ['1998-03-01', '1998-04-01']}}."
    )


def splits_by_period(eval_args: dict[str, Any]) -> bool:
    """Whether validation and test begin at the same two times for all users."""
    (kind,) = eval_args["split"]
    return kind == "date" or (kind == "TS" and eval_args["group_by"] in (None, "none"))


def rows_of_periods(
    times: np.ndarray,
    config: Any,
    limits: tuple[float, float],
    shares_to_rows: Callable[[int, list[float]], list[int]],
    from_file: Callable[[float], float] = float,
) -> list[np.ndarray]:
    """The rows of the training, validation and test period, ascending.

    A period includes the time at which it begins. Events at the same time are in the same period, so that with shares
    the later parts may be larger than their shares.

    Args:
        times: of the examples, [n].
        config: of the run; `splits_by_period` holds for its `eval_args`.
        limits: times of the first and the last event, in the unit of the file.
        shares_to_rows: returns the first rows of the second and third part of examples in order of time, given the
            number of examples and the three shares.
        from_file: converts a time from the unit of the file to the unit of `times`.

    Raises:
        InputError: a date lies outside of the data.
    """
    ((kind, value),) = config["eval_args"]["split"].items()
    if kind == "date":
        dates = [in_unit(date, config["time_unit"]) for date in value]
        if not limits[0] < dates[0] or dates[1] > limits[1]:
            numbers = isinstance(value[0], (int, float))
            first, last = (f"{time:.15g}" if numbers else text_of_time(time, config["time_unit"]) for time in limits)
            raise InputError(
                f"eval_args split date is {value}, but the events of data set '{config['dataset']}' are from "
                f"{first} to {last}{'' if numbers else ' (UTC)'}; choose two dates after the first event and not after "
                f"the last."
            )
        starts = [from_file(date) for date in dates]
    else:
        ordered = np.sort(times)
        rows = shares_to_rows(len(times), [share / sum(value) for share in value])
        starts = [ordered[row] if row < len(ordered) else np.inf for row in rows]
    part = np.searchsorted(starts, times, side="right")
    return [np.flatnonzero(part == number) for number in range(3)]


def add_empty_validation(dataset: Any) -> None:
    """Add an empty validation part to a data set that was read from a training and a test file."""
    sizes = dataset.file_size_list if dataset.benchmark_filename_list else []
    if len(sizes) == 2:
        sizes.insert(1, 0)


def report_empty_parts(parts: Sequence[Any], config: Any) -> None:
    """Warn of an empty validation or test part, with the reason and the consequence.

    Args:
        parts: training, validation and test data.
        config: of the run.

    Raises:
        InputError: the training part is empty.
    """
    consequences = (
        "",
        f"training runs all {config['epochs']} epochs, and the last one is tested",
        "there is no test result",
    )
    for number, part in enumerate(parts):
        if len(part) == 0:
            reason = _reason(config, number)
            if number == 0:
                raise InputError(f"there is no training data: {reason}.")
            getLogger().warning(f"There is no {PARTS[number]} data: {reason}; {consequences[number]}.")


def _reason(config: Any, number: int) -> str:
    files, eval_args = config["benchmark_filename"], config["eval_args"]
    if files:
        if len(files) == 2 and number == 1:
            return f"benchmark_filename {files} names one file for training and one for the test"
        name = files[-1 if number == 2 else number]
        return f"the file {config['dataset']}.{name}.inter has no event that can be an example"
    ((kind, value),) = eval_args["split"].items()
    if kind == "LS" and number > 0 and value == ("test_only", "valid_only")[number - 1]:
        return f"eval_args split is LS: {value}"
    if kind == "LS" and number > 0:
        return f"no user has enough events for eval_args split LS: {value}"
    if kind == "date":
        period = (f"before {value[0]}", f"from {value[0]} to before {value[1]}", f"from {value[1]} on")[number]
        return f"no event {period} (eval_args split date) can be an example"
    return f"eval_args split {kind}: {value} assigns no event to it"


# -------------------------------------------------------------------- data sets that RecBole reads


def recbole_dataset_class(config: Any) -> type:
    """RecBole's data set class for a model that does not read the event log, with splits by exact times."""
    datasets: Any = importlib.import_module("recbole.data.dataset")
    default = datasets.KnowledgeBasedDataset if config["MODEL_TYPE"] == ModelType.KNOWLEDGE else datasets.Dataset
    return _with_exact_splits(getattr(datasets, f"{config['model']}Dataset", default))


@cache
def _with_exact_splits(base: type) -> type:
    return type(base.__name__, (ExactSplits, base), {"__doc__": base.__doc__})


def _empty_copy(base: type) -> Any:
    return object.__new__(_with_exact_splits(base))


class ExactSplits:
    """A mixin for RecBole's data set classes: splits by the times in the file; see `recbole_dataset_class`.

    RecBole itself rounds times to float32 and scales them to [0, 1] before it splits.
    """

    config: Any
    inter_feat: Any
    time_field: str
    field2type: dict[str, Any]
    exact_times: np.ndarray | None = None  # of the rows of `inter_feat`, in the unit of the file
    makes_loaders = False  # whether loaders follow, whose samplers need a negative for every user

    def _load_inter_feat(self, token, dataset_path):
        super()._load_inter_feat(token, dataset_path)
        add_empty_validation(self)
        for key in ("USER_ID_FIELD", "ITEM_ID_FIELD"):
            if self.config[key] and self.config[key] not in self.inter_feat:
                raise InputError(
                    f"the columns {', '.join(self.inter_feat)} are read from the .inter file, but not "
                    f"'{self.config[key]}', which {key} names; add it to the file or to load_col, or set USER_ID_FIELD "
                    f"and ITEM_ID_FIELD to None if labels depend on other columns only."
                )
        if self.time_field in self.inter_feat:
            warn_of_copies(self.inter_feat, self.time_field, self.field2type, self.config)

    def _fill_nan(self):
        if self.time_field in self.inter_feat and self._split_needs_times():
            missing = self.inter_feat[self.time_field].isna().sum()
            if missing:
                raise InputError(
                    f"{missing:,} events of data set '{self.config['dataset']}' have no {self.time_field}, which the "
                    f"split of eval_args needs; give every event one or drop the line."
                )
        super()._fill_nan()

    def _normalize(self):
        if self.time_field in self.inter_feat:
            self.exact_times = self.inter_feat[self.time_field].to_numpy(dtype=np.float64, copy=True)
        super()._normalize()

    def _remap_ID_all(self):
        super()._remap_ID_all()
        for name, tokens in self.field2id_token.items():
            if PADDING in [str(token) for token in tokens[1:]]:
                raise InputError(
                    f"data set '{self.dataset_name}': column '{name}' has the token '{PADDING}', which is reserved for "
                    f"padding; rename it."
                )

    def build(self):
        """RecBole's split, or a split into periods; `InputError` for a part that cannot be used."""
        if self.config["benchmark_filename"] or not splits_by_period(self.config["eval_args"]):
            parts = super().build()
        else:
            parts = self._periods()
        report_empty_parts(parts, self.config)
        if self.makes_loaders:
            self._check_negatives(parts)
        return parts

    def _check_negatives(self, parts: list[Any]) -> None:
        """Refuse users who have had every item, because RecBole draws their negatives from the other items."""
        keys = ("train_neg_sample_args", "valid_neg_sample_args", "test_neg_sample_args")
        draws = any(self.config[key]["distribution"] != "none" for key in keys)
        if self.config["repeatable"] or not draws:
            return
        this: Any = self
        fields = (this.uid_field, this.iid_field)
        pairs = np.concatenate([np.stack([part.inter_feat[name].numpy() for name in fields]) for part in parts], 1)
        items_of_user = np.bincount(np.unique(pairs, axis=1)[0])
        users = np.flatnonzero(items_of_user == this.item_num - 1)
        if len(users):
            more = f" (and {len(users) - 1:,} more)" if len(users) > 1 else ""
            raise InputError(
                f"user '{this.id2token(this.uid_field, users[0])}'{more} has had all {this.item_num - 1:,} items, so "
                f"there is no negative to draw; remove such users, e.g. with user_inter_num_interval."
            )

    def sort(self, by, ascending=True):
        """Sort as RecBole does, but by exact times; `tie_break` orders events at the same time."""
        has_exact_times = self.exact_times is not None and len(self.exact_times) == len(self.inter_feat)
        if by != self.time_field or ascending is not True or not has_exact_times:
            super().sort(by, ascending)
            return
        order = np.lexsort((*self._tie_keys(), self.exact_times))  # stable
        self.exact_times = self.exact_times[order]
        self.inter_feat._reindex(torch.from_numpy(order))

    def _tie_keys(self) -> tuple[np.ndarray, ...]:
        """What orders events at the same time before the order of rows, [N] each."""
        this: Any = self
        if self.config["tie_break"] != "item" or not this.iid_field:
            return ()
        return (token_ranks(this.field2id_token[this.iid_field])[self.inter_feat[this.iid_field].numpy()],)

    def __reduce__(self):  # for copies, and for spawned worker processes
        return _empty_copy, (type(self).__mro__[2],), self.__dict__

    def _periods(self) -> list[Any]:
        split = self.config["eval_args"]["split"]
        if isinstance(self, SequentialDataset):
            raise InputError(
                f"eval_args split is {split}, but {self.config['model']} has its own data set class in RecBole, which "
                f"cannot split by time; choose LS or RS."
            )
        times = self.exact_times
        if times is None:
            raise InputError(f"eval_args split is {split}, but no time column is loaded; set TIME_FIELD.")
        this: Any = self
        this._change_feat_format()
        limits = float(times.min()), float(times.max())
        rows = rows_of_periods(times, self.config, limits, this._calcu_split_ids)
        this._drop_unused_col()
        return [this.copy(self.inter_feat[torch.from_numpy(part)]) for part in rows]

    def _split_needs_times(self) -> bool:
        eval_args = self.config["eval_args"]
        return not self.config["benchmark_filename"] and (eval_args["order"] == "TO" or splits_by_period(eval_args))
