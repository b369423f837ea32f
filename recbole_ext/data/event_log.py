"""The data set of this package: one sorted event log, exact time, examples as ranges."""

import os

import numpy as np
import torch
from recbole.data.dataset import Dataset
from recbole.data.interaction import Interaction

from recbole_ext.config.negative_sampling import evaluation_modes, learns_labels
from recbole_ext.data.examples import EventLog, Examples, Ranges, filtered_prefixes, prefixes, windows
from recbole_ext.data.files.exact_time import ExactTimeDataset
from recbole_ext.data.files.item_files import holds_vectors, read_item_vectors, vector_columns
from recbole_ext.data.splits import check_split, report_empty_parts, rows_of_periods, splits_by_period
from recbole_ext.errors import InputError
from recbole_ext.model import contract


class EventLogDataset(ExactTimeDataset):
    """RecBole's sequential data set without copies of histories and without rounded times.

    Events are sorted by user and time, and events of one time keep their order in the file. `TIME_FIELD` and its list
    are float64 seconds since `time_origin`. An item of the data set is a batch: `dataset[index]` has the columns of
    the target events [n], `item_length` [n], the list of each column but the user's, [n, MAX_ITEM_LIST_LENGTH], and
    the features of user and item.

    The model class says by `example_kind` and `min_history` which examples it learns from (`model/contract.py`). Of
    windows, the training set yields `windows`; its `inter_feat`, from which RecBole counts and samples, stays the same.

    With `benchmark_filename` it is a `PreSplitDataset`; `create_dataset` chooses.

    Attributes:
        time_origin (float): seconds since 1970 (UTC) of the first event kept.
        inter_feat (Examples): every target with its history.
        windows (Examples | None): what this data set yields instead, if anything.

    Raises:
        InputError: the files, or what the keys leave of them, cannot be used; the message names the place.
    """

    def __init__(self, config):
        self.windows: Examples | None = None
        super().__init__(config)

    # ---------------------------------------------------------------- pretrained vectors

    def _load_additional_feat(self, token, dataset_path):
        """Load additional files, but for that of the vectors: its items are not items of the data set for that."""
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
        """RecBole's copy with other examples, which are then what it yields: windows are those of the whole."""
        other = super().copy(new_inter_feat)
        other.windows = None
        if isinstance(new_inter_feat, Examples):
            other.inter_feat = new_inter_feat.replaced(in_batches=True)
        return other

    # ---------------------------------------------------------------- examples

    def data_augmentation(self):
        """Replace the events by examples; RecBole calls it when frames have become tensors."""
        self._aug_presets()
        users, items = (self.inter_feat[name].numpy() for name in (self.uid_field, self.iid_field))
        self.inter_feat, order = self.examples(self.inter_feat)
        self.filter_log.step(f"history: {self.config['history']}", users[order], items[order])
        shortest = int((self.inter_feat.ranges.end - self.inter_feat.ranges.start).min())
        self.filter_log.targets(self.inter_feat[self.uid_field].numpy(), shortest)

    def examples(self, events: Interaction) -> tuple[Examples, np.ndarray]:
        """Sort events, [N] in the file's order, and make a target of every one whose history allows it.

        Returns:
            the examples, and for each event in their log of targets its row in `events`.
        """
        users, times = events[self.uid_field].numpy(), events[self.time_field].numpy()
        order = np.lexsort((times, users))  # stable: what happened at one time keeps the file's order
        width, least = self.max_item_list_len, self.config["min_history"]
        kind = contract.example_kind(self.config.model_class)
        shortest = 1 if least is None else least
        if self.config["history"] == "all":
            log = self._log(events, order)
            return self.table(log, log, prefixes(users[order], width, shortest)), order
        positive = self._positive(events)[order]
        if kind == "window" or not any(self._labels_count()):  # negative events are no examples of anything
            order, positive = order[positive], positive[positive]
        if kind == "window":
            log = self._log(events, order)
            return self.table(log, log, prefixes(users[order], width, shortest)), order
        kept = np.flatnonzero(positive)
        least = contract.min_history(self.config.model_class) if least is None else least
        ranges = filtered_prefixes(users[order], times[order], kept, width, least)
        return self.table(self._log(events, order), self._log(events, order[kept]), ranges), order

    def _positive(self, events: Interaction) -> np.ndarray:
        if self.label_field not in events:
            raise InputError(
                f"history: positive needs labels, but there is no column '{self.label_field}' (LABEL_FIELD); "
                f"load it with load_col or make it with threshold, e.g. threshold: {{'rating': 4}}."
            )
        return events[self.label_field].numpy() > 0

    def _labels_count(self) -> tuple[bool, bool, bool]:
        """Whether labels are learnt, and measured in validation and test: there, negative events are examples, too."""
        measured = "labeled" in evaluation_modes(self.config["eval_args"])
        return learns_labels(self.config, self.config.model_class), measured, measured

    def _log(self, events: Interaction, order: np.ndarray) -> EventLog:
        index = torch.from_numpy(order)
        columns = {name: events[name][index] for name in events}
        return EventLog(columns, tuple(name for name in columns if name != self.uid_field))

    def table(self, targets: EventLog, history: EventLog, ranges: Ranges) -> Examples:
        """The examples of `ranges`; `InputError` if there are none."""
        if len(ranges) == 0:
            least, kind = self.config["min_history"] or 1, "positive " if self.config["history"] == "positive" else ""
            earlier = f"an earlier {kind}one" if least == 1 else f"{least} earlier {kind}ones"
            raise InputError(
                f"no event of data set '{self.dataset_name}' has {earlier} of its user, so there is nothing to train "
                f"on; loosen the filters or give users with more events."
            )
        names = self.config["LIST_SUFFIX"], self.item_list_length_field
        return Examples(targets, history, ranges, *names, self.max_item_list_len)

    # ---------------------------------------------------------------- splits

    def build(self):
        """Split into training, validation and test data as `eval_args` says, or as the files are.

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
        if contract.example_kind(self.config.model_class) == "window" and train.history is train.targets:
            users = train.targets.columns[self.uid_field].numpy()
            ranges = windows(users, train.ranges.target, self.max_item_list_len, self.config["train_window"])
            parts[0].windows = train.replaced(ranges=ranges)
            parts[0].inter_feat = train.replaced(in_batches=False)
        for name, part in zip(("train", "valid", "test"), parts, strict=True):
            log, rows = part.inter_feat.targets.columns, part.inter_feat.ranges.target
            users, items = (log[field].numpy()[rows] for field in (self.uid_field, self.iid_field))
            self.filter_log.split(name, users, items, None if part.windows is None else len(part.windows))
        return parts

    def _split(self) -> list:
        check_split(self.config["eval_args"]["split"])
        if not splits_by_period(self.config["eval_args"]):
            return super().build()
        self._change_feat_format()
        times = self.inter_feat[self.time_field].numpy()
        ends = self.first_time, self.last_time
        rows = rows_of_periods(times, self.config, ends, self._calcu_split_ids, self.from_file)
        self._drop_unused_col()
        return [self.copy(self.inter_feat[part]) for part in rows]

    def inter_matrix(self, form="coo", value_field=None):
        """RecBole's sparse matrix of users and items; of targets alone where it cannot tell users' first events."""
        if self.inter_feat.history is self.inter_feat.targets and self.config["min_history"] in (None, 1):
            return super().inter_matrix(form, value_field)
        return Dataset.inter_matrix(self, form, value_field)
