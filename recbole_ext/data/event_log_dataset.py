"""The data set of sequential models: one sorted event log, exact time, examples as ranges."""

import os
from typing import Any

import numpy as np
import pandas as pd
import torch
from recbole.data.dataset import Dataset
from recbole.data.interaction import Interaction

from recbole_ext.config.negative_sampling import evaluation_modes, learns_labels
from recbole_ext.data.examples import EventLog, Examples
from recbole_ext.data.files.exact_time import ExactTimeDataset
from recbole_ext.data.files.item_files import holds_vectors, read_item_vectors, vector_columns
from recbole_ext.data.filter_log import warn_of_copies
from recbole_ext.data.order import Groups, grouped, is_sorted, row_type, stable_order
from recbole_ext.data.ranges import Ranges, filtered_prefixes, prefixes, token_ranks, windows
from recbole_ext.data.splits import check_split, report_empty_parts, rows_of_periods, splits_by_period
from recbole_ext.errors import InputError
from recbole_ext.model import contract
from recbole_ext.utils.wording import counted


class EventLogDataset(ExactTimeDataset):
    """RecBole's sequential data set without copies of histories and without rounded times.

    Events are sorted by user and time; `tie_break` orders a user's events at the same time. `TIME_FIELD` and its list
    are float64 seconds since `time_origin`. `dataset[index]` is a batch: the columns of the target events [n],
    `item_length` [n], a list for each column except the user's, [n, MAX_ITEM_LIST_LENGTH], and the features of user
    and item.

    `example_kind` and `min_history` of the model class (`model/contract.py`) decide which examples it learns from. If
    these are windows, the training set yields `windows`; RecBole still counts and samples from its `inter_feat`.

    For `benchmark_filename`, `create_dataset` makes a `PreSplitDataset`.

    Attributes:
        time_origin (float): seconds since 1970 (UTC) of the first event after filtering.
        inter_feat (Examples): every target with its history.
        windows (Examples | None): the examples to yield instead of `inter_feat`, if any.

    Raises:
        InputError: the files are wrong, or filters leave no events; the message names the file and line, or the key.
    """

    def __init__(self, config):
        self.windows: Examples | None = None
        self.sorted_rows: np.ndarray | None = None  # until `sort_events`
        super().__init__(config)

    # ---------------------------------------------------------------- pretrained vectors

    def _load_additional_feat(self, token, dataset_path):
        """Load additional files except the one with vectors, whose items would become items of the data set."""
        for suffix in self.config["additional_feat_suffix"] or ():
            path = os.path.join(dataset_path, f"{token}.{suffix}")
            if not holds_vectors(self.config, path):
                setattr(self, f"{suffix}_feat", self._load_feat(path, suffix))

    def _set_alias(self, alias_name, default_value):
        super()._set_alias(alias_name, default_value)
        names = self.alias[alias_name]
        others = vector_columns(self.config).keys() - set(default_value)
        self.alias[alias_name] = names[~np.isin(names, list(others))]

    def _preload_weight_matrix(self):
        if columns := vector_columns(self.config):
            vectors = read_item_vectors(self.config, self.field2id_token[self.iid_field])
            self._preloaded_weight = dict.fromkeys(columns, vectors)

    # ---------------------------------------------------------------- examples as batches

    def __getitem__(self, index, join=True):
        table = self.inter_feat if self.windows is None else self.windows
        batch = table[index].gather()
        return self.join(batch) if join else batch

    def __len__(self):
        return len(self.inter_feat if self.windows is None else self.windows)

    def copy(self, new_inter_feat):
        """RecBole's copy, with other examples and without windows, which belong to all examples together."""
        other = super().copy(new_inter_feat)
        other.windows = None
        if isinstance(new_inter_feat, Examples):
            other.inter_feat = new_inter_feat.replaced(in_batches=True)
        return other

    # ---------------------------------------------------------------- examples

    def _remap_ID_all(self):
        super()._remap_ID_all()
        if self._sorts_events():
            self._find_order()

    def _sorts_events(self) -> bool:
        """Whether the events are sorted when the data set is made; copies are then neighbours, and found there."""
        return True

    def _find_order(self) -> None:
        """Note the order of the log, and warn of copies, before values that are filled in or scaled become equal."""
        events: Any = self.inter_feat
        order: np.ndarray = self.event_order(events).astype(row_type(len(events)), copy=False)
        self.sorted_rows = order
        users, times = (events[name].to_numpy()[order] for name in (self.uid_field, self.time_field))
        same = (users[1:] == users[:-1]) & (times[1:] == times[:-1])  # as the event before it
        possible = events.take(order[np.append(same, False) | np.append(False, same)])
        warn_of_copies(possible, self.time_field, self.field2type, self.config, len(events))

    def sort_events(self) -> None:
        """Put the events into the order of the log, so that starts from a prepared copy and splits need not sort.

        Where files are split already, they keep their order.
        """
        if self.sorted_rows is None:
            return
        events: Any = self.inter_feat  # type: ignore[has-type]
        events = events.take(self.sorted_rows)
        events.index = pd.RangeIndex(len(events))
        self.inter_feat, self.sorted_rows = events, None

    def _warn_of_copies(self) -> None:
        if not self._sorts_events():
            super()._warn_of_copies()

    def data_augmentation(self):
        """Replace the events by examples; RecBole calls it after frames have become tensors."""
        self._aug_presets()
        users, items = (self.inter_feat[name].numpy() for name in (self.uid_field, self.iid_field))
        self.inter_feat, order = self.examples(self.inter_feat)
        if len(order) < len(users):
            self.filter_log.step(f"history: {self.config['history']}", users[order], items[order])
        shortest_history = int((self.inter_feat.ranges.end - self.inter_feat.ranges.start).min())
        self.filter_log.targets(self.inter_feat[self.uid_field].numpy(), shortest_history)

    def examples(self, events: Interaction) -> tuple[Examples, np.ndarray]:
        """Sort events, [N], and make an example of each event with a sufficient history.

        Returns:
            the examples, and for each event in their log of targets its row in `events`.
        """
        users, times = events[self.uid_field].numpy(), events[self.time_field].numpy()
        order = self.event_order(events)
        max_length, min_history = self.max_item_list_len, self.config["min_history"]
        is_window = self._is_window()
        positive_only = self.config["history"] == "positive"
        if positive_only:
            positive = self._positive(events)[order]
            if is_window or not any(self._labels_count()):  # then negative events are not examples
                order, positive = order[positive], positive[positive]
        if is_window or not positive_only:
            log = self._log(events, slice(None) if len(order) == len(users) and is_sorted(order) else order)
            min_history = 1 if min_history is None else min_history
            log_users = log.columns[self.uid_field].numpy()
            return self.table(log, log, prefixes(log_users, max_length, min_history)), order
        history_rows = np.flatnonzero(positive)
        min_history = contract.min_history(self.config.model_class) if min_history is None else min_history
        ranges = filtered_prefixes(users[order], times[order], history_rows, max_length, min_history)
        return self.table(self._log(events, order), self._log(events, order[history_rows]), ranges), order

    def event_order(self, events: Any) -> np.ndarray:
        """The rows of the events, in the file's order or sorted, by user, time and `tie_break`. [N]"""
        users, items, times = (np.asarray(events[name]) for name in (self.uid_field, self.iid_field, self.time_field))
        return stable_order(*self._tie_keys(items), times, users)

    def _tie_keys(self, items: np.ndarray) -> tuple[np.ndarray, ...]:
        """What orders events at the same time, [N] each, the most significant last; the order of rows comes last."""
        if self.config["tie_break"] != "item":
            return ()
        return (token_ranks(self.field2id_token[self.iid_field])[items],)

    def _is_window(self) -> bool:
        return contract.example_kind(self.config.model_class) == "window"

    def _positive(self, events: Interaction) -> np.ndarray:
        if self.label_field not in events:
            raise InputError(
                f"history: positive needs labels, but there is no column '{self.label_field}' (LABEL_FIELD); "
                f"load it with load_col or make it with threshold, e.g. threshold: {{'rating': 4}}."
            )
        return events[self.label_field].numpy() > 0

    def _labels_count(self) -> tuple[bool, bool, bool]:
        """Whether training, validation and test use labels; where they do, negative events are examples, too."""
        measured = "labeled" in evaluation_modes(self.config["eval_args"])
        return learns_labels(self.config, self.config.model_class), measured, measured

    def _log(self, events: Interaction, order: np.ndarray | slice) -> EventLog:
        """The log of some events; a slice copies none of them."""
        index = order if isinstance(order, slice) else torch.from_numpy(order)
        columns = {name: events[name][index] for name in events}
        return EventLog(columns, tuple(name for name in columns if name != self.uid_field))

    def table(self, targets: EventLog, history: EventLog, ranges: Ranges) -> Examples:
        """The examples of `ranges`; `InputError` if there are none."""
        if len(ranges) == 0:
            kind = "positive event" if self.config["history"] == "positive" else "event"
            raise InputError(
                f"no event of data set '{self.dataset_name}' has {counted(self.config['min_history'] or 1, kind)} of "
                f"its user before it, so there is nothing to train on; loosen the filters, or add users with "
                f"more events."
            )
        suffix, length_field = self.config["LIST_SUFFIX"], self.item_list_length_field
        return Examples(targets, history, ranges, suffix, length_field, self.max_item_list_len)

    # ---------------------------------------------------------------- splits

    def build(self):
        """Split into training, validation and test data by `eval_args`, or by file.

        Returns:
            list of three data sets that share one event log.
        """
        parts = self._split()
        if self.config["history"] == "positive":
            for part, labels in zip(parts, self._labels_count(), strict=True):
                label = part.inter_feat.targets.columns.get(self.label_field)
                if label is not None and not labels:
                    part.inter_feat = part.inter_feat[np.flatnonzero(label.numpy()[part.inter_feat.ranges.target] > 0)]
        report_empty_parts([part.inter_feat for part in parts], self.config)
        train = parts[0].inter_feat
        if self._is_window() and train.history is train.targets:
            users = train.targets.columns[self.uid_field].numpy()
            ranges = windows(users, train.ranges.target, self.max_item_list_len, self.config["train_window"])
            parts[0].windows = train.replaced(ranges=ranges)
            parts[0].inter_feat = train.replaced(in_batches=False)
        for name, part in zip(("train", "valid", "test"), parts, strict=True):
            different = [len(pd.unique(part.inter_feat[field].numpy())) for field in (self.uid_field, self.iid_field)]
            self.filter_log.split(name, (len(part.inter_feat), *different), part.windows)
        return parts

    def _split(self) -> list:
        eval_args = self.config["eval_args"]
        check_split(eval_args["split"])
        if not splits_by_period(eval_args):
            ((kind, value),) = eval_args["split"].items()
            if not self._is_window() or kind != "LS" or eval_args["order"] != "TO":
                return super().build()
            self._change_feat_format()
            # RecBole sorts all events by time before. It does not matter here: the events of each user are in that
            # order already, and windows have an order of their own.
            return self.leave_one_out(group_by=self.uid_field, leave_one_mode=value)
        self._change_feat_format()
        times = self.inter_feat[self.time_field].numpy()
        limits = self.first_time, self.last_time
        rows = rows_of_periods(times, self.config, limits, self._calcu_split_ids, self.from_file)
        self._drop_unused_col()
        return [self.copy(self.inter_feat[part]) for part in rows]

    def _grouped_index(self, group_by_list):
        return grouped(np.asarray(group_by_list))

    def _split_index_by_leave_one_out(self, grouped_index: Groups, leave_one_num):
        return grouped_index.last(leave_one_num)

    def inter_matrix(self, form="coo", value_field=None):
        """RecBole's sparse matrix of users and items.

        RecBole takes users' first events from histories of length 1. Where histories are filtered or longer, the
        matrix has the targets only.
        """
        if self.inter_feat.history is self.inter_feat.targets and self.config["min_history"] in (None, 1):
            return super().inter_matrix(form, value_field)
        return Dataset.inter_matrix(self, form, value_field)
