"""RecBole's own data sets, for models that do not read the event log: split by exact times, like the event log."""

import importlib
from functools import cache
from typing import Any

import numpy as np
import torch
from recbole.data.dataset import SequentialDataset
from recbole.utils import ModelType

from recbole_ext.data.files.atomic_file import PADDING
from recbole_ext.data.files.exact_time import warn_of_copies
from recbole_ext.data.splits import add_validation, cuts_time, report_empty_parts, rows_of_periods
from recbole_ext.errors import InputError


class ExactSplits:
    """What this package adds to a data set of RecBole: see `dataset_class`.

    RecBole rounds times to float32 and scales them to [0, 1] before it splits; here splits see the times of the file.
    """

    config: Any
    inter_feat: Any
    time_field: str
    field2type: dict[str, Any]
    exact_times: np.ndarray | None = None  # of each row of `inter_feat`, in the unit of the file
    makes_loaders = False  # whether samplers, which need a negative for every user, are going to be made of the parts

    def _load_inter_feat(self, token, dataset_path):
        super()._load_inter_feat(token, dataset_path)
        add_validation(self)
        for key in ("USER_ID_FIELD", "ITEM_ID_FIELD"):
            if self.config[key] and self.config[key] not in self.inter_feat:
                raise InputError(
                    f"the columns {', '.join(self.inter_feat)} are read of the .inter file, without "
                    f"'{self.config[key]}', which {key} names; add it to the file or to load_col, or set USER_ID_FIELD "
                    f"and ITEM_ID_FIELD to None where labels depend on other columns alone."
                )
        if self.time_field in self.inter_feat:
            warn_of_copies(self.inter_feat, self.time_field, self.field2type, self.config)

    def _fill_nan(self):
        if self.time_field in self.inter_feat and self._splits_in_order_of_time():
            missing = self.inter_feat[self.time_field].isna().sum()
            if missing:
                raise InputError(
                    f"{missing:,} events of data set '{self.config['dataset']}' have no {self.time_field}, by which "
                    f"eval_args splits; give every event one or drop the line."
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
                    f"data set '{self.dataset_name}': column '{name}' holds '{PADDING}'; that token stands for the "
                    f"padding; give another name."
                )

    def build(self):
        """RecBole's split, or one at points of time; see `report_empty_parts` for what is refused."""
        if self.config["benchmark_filename"] or not cuts_time(self.config["eval_args"]):
            parts = super().build()
        else:
            parts = self._periods()
        report_empty_parts(parts, self.config)
        if self.makes_loaders:
            self._check_negatives(parts)
        return parts

    def _check_negatives(self, parts: list[Any]) -> None:
        """Refuse users who have had every item: RecBole draws their negatives from the others."""
        keys = ("train_neg_sample_args", "valid_neg_sample_args", "test_neg_sample_args")
        draws = any(self.config[key]["distribution"] != "none" for key in keys)
        if self.config["repeatable"] or not draws:
            return
        this: Any = self
        pairs = np.concatenate(
            [np.stack([part.inter_feat[name].numpy() for name in (this.uid_field, this.iid_field)]) for part in parts],
            1,
        )
        count = np.bincount(np.unique(pairs, axis=1)[0])
        full = np.flatnonzero(count == this.item_num - 1)
        if len(full):
            more = f" (and {len(full) - 1:,} more)" if len(full) > 1 else ""
            raise InputError(
                f"user '{this.id2token(this.uid_field, full[0])}'{more} has had all {this.item_num - 1:,} items, so "
                f"there is no negative to draw; leave such users out, e.g. with user_inter_num_interval."
            )

    def sort(self, by, ascending=True):
        """RecBole's sorting, by exact times where it is in order of time; events of one time keep their order."""
        exact = self.exact_times is not None and len(self.exact_times) == len(self.inter_feat)
        if by != self.time_field or ascending is not True or not exact:
            super().sort(by, ascending)
            return
        order = np.argsort(self.exact_times, kind="stable")
        self.exact_times = self.exact_times[order]
        self.inter_feat._reindex(torch.from_numpy(order))

    def __reduce__(self):  # for worker processes that are spawned, and for copies
        return _empty_copy, (type(self).__mro__[2],), self.__dict__

    def _periods(self) -> list[Any]:
        split = self.config["eval_args"]["split"]
        if isinstance(self, SequentialDataset):
            raise InputError(
                f"eval_args split is {split}, but {self.config['model']} reads a data set of its own in RecBole, which "
                f"is not split at points of time; choose LS or RS."
            )
        times = self.exact_times
        if times is None:
            raise InputError(f"eval_args split is {split}, but no column of times is loaded; set TIME_FIELD.")
        this: Any = self
        this._change_feat_format()
        ends = float(times.min()), float(times.max())
        rows = rows_of_periods(times, self.config, ends, this._calcu_split_ids)
        this._drop_unused_col()
        return [this.copy(self.inter_feat[torch.from_numpy(part)]) for part in rows]

    def _splits_in_order_of_time(self) -> bool:
        eval_args = self.config["eval_args"]
        return not self.config["benchmark_filename"] and (eval_args["order"] == "TO" or cuts_time(eval_args))


def dataset_class(config: Any) -> type:
    """RecBole's data set class for the model of `config`, with splits by exact times."""
    own: Any = importlib.import_module("recbole.data.dataset")
    usual = own.KnowledgeBasedDataset if config["MODEL_TYPE"] == ModelType.KNOWLEDGE else own.Dataset
    return _with_exact_splits(getattr(own, f"{config['model']}Dataset", usual))


def _empty_copy(base: type) -> Any:
    return object.__new__(_with_exact_splits(base))


@cache
def _with_exact_splits(base: type) -> type:
    return type(base.__name__, (ExactSplits, base), {"__doc__": base.__doc__})
