"""The data set of this package: one sorted event log, exact time, examples as ranges."""

from typing import Any

import numpy as np
import torch
from recbole.data.dataset import Dataset, SequentialDataset
from recbole.data.interaction import Interaction
from recbole.utils import FeatureSource, FeatureType

from recbole_ext.data.atomic import read_atomic
from recbole_ext.data.examples import EventLog, Examples, Ranges
from recbole_ext.data.funnel import Funnel
from recbole_ext.data.ranges import filtered_prefixes, prefixes, windows
from recbole_ext.data.times import check_span, check_times, seconds_per_unit
from recbole_ext.errors import InputError

HISTORIES = ("all", "positive")


class EventLogDataset(SequentialDataset):
    """RecBole's sequential data set without copies of histories and without rounded times.

    `TIME_FIELD` holds float64 seconds since the first event kept, whatever `time_unit` the file has; it is never
    normalised. Events are sorted by user and time, and events of one time keep their order in the file.

    What a model class may ask for, by class attributes:
        example_kind: `"prefix"` (default; every event is a target) or `"window"` (training examples are windows).
        min_history: shortest history an example may have with `history: positive`, 1 by default.

    Attributes:
        time_origin (float): seconds since 1970 (UTC) of the first event kept.

    Raises:
        InputError: the files, or what the keys leave of them, cannot be used; the message names the place.
    """

    time_origin: float

    def __init__(self, config):
        if config["history"] not in HISTORIES:
            raise InputError(f"history is '{config['history']}'; it should be one of {', '.join(HISTORIES)}.")
        self.unit = seconds_per_unit(config["time_unit"])
        self.funnel = Funnel(config["USER_ID_FIELD"], config["ITEM_ID_FIELD"])
        self.counted: Examples | None = None
        super().__init__(config)

    # ---------------------------------------------------------------- reading

    def _load_feat(self, filepath, source):
        wanted, unwanted = self._get_load_and_unload_col(source)
        if wanted == set():
            return None
        if wanted is None and unwanted:
            from recbole_ext.data.atomic import read_header

            encoding = self.config["encoding"] or "utf-8-sig"
            wanted = set(read_header(filepath, self.config["field_separator"], encoding)) - unwanted
        table = read_atomic(
            filepath, self.config["field_separator"], self.config["seq_separator"],
            self.config["encoding"] or "utf-8", wanted,
        )  # fmt: skip
        if table.frame.empty:
            raise InputError(f"{filepath} holds a header and nothing else; it should hold at least one row.")
        for name, kind in table.types.items():
            self._describe(name, kind, source, table.frame)
        if source == FeatureSource.INTERACTION:
            self._check_events(filepath, table.types, table.frame)
        return table.frame

    def _describe(self, name, kind, source, frame) -> None:
        """Tell RecBole what it has to know of a column, and cut sequences to `seq_len`."""
        self.field2source[name], self.field2type[name] = source, kind
        if kind in (FeatureType.FLOAT, FeatureType.FLOAT_SEQ):
            self.field2bucketnum[name] = 2
        if kind in (FeatureType.TOKEN, FeatureType.FLOAT):
            self.field2seqlen[name] = 1
            return
        limit = (self.config["seq_len"] or {}).get(name)
        if limit:
            frame[name] = [row[:limit] for row in frame[name]]
        self.field2seqlen[name] = max(map(len, frame[name]))

    def _check_events(self, path: str, types: dict[str, FeatureType], frame) -> None:
        for key, field in (
            ("USER_ID_FIELD", self.uid_field),
            ("ITEM_ID_FIELD", self.iid_field),
            ("TIME_FIELD", self.time_field),
        ):
            if field not in types:
                raise InputError(f"{path} has no column '{field}', which {key} names; it has {', '.join(types)}.")
        if types[self.time_field] != FeatureType.FLOAT:
            kind = types[self.time_field].value
            raise InputError(
                f"{path} line 1: time column '{self.time_field}' is a {kind}; write {self.time_field}:float."
            )
        check_times(frame[self.time_field], path)

    # ---------------------------------------------------------------- filtering, each step counted

    def _data_filtering(self):
        self.funnel.begin(self.inter_feat)
        super()._data_filtering()

    def _filter_nan_user_or_item(self):
        super()._filter_nan_user_or_item()
        self.funnel.step("user and item ids", self.inter_feat)

    def _remove_duplication(self):
        keep = self.config["rm_dup_inter"]
        if keep is None:
            return
        if keep not in ("first", "last"):
            raise InputError(f"rm_dup_inter is '{keep}'; it should be first or last.")
        by_time = self.inter_feat.iloc[np.argsort(self.inter_feat[self.time_field].to_numpy(), kind="stable")]
        again = by_time.duplicated(subset=[self.uid_field, self.iid_field], keep=keep)
        self.inter_feat.drop(again.index[again], inplace=True)
        self.funnel.step(f"rm_dup_inter: {keep}", self.inter_feat)

    def _filter_by_field_value(self):
        super()._filter_by_field_value()
        self.funnel.step(f"val_interval: {self.config['val_interval']}", self.inter_feat)

    def _filter_inter_by_user_or_item(self):
        super()._filter_inter_by_user_or_item()
        self.funnel.step("filter_inter_by_user_or_item", self.inter_feat)

    def _filter_by_inter_num(self):
        super()._filter_by_inter_num()
        intervals = (self.config["user_inter_num_interval"], self.config["item_inter_num_interval"])
        self.funnel.step("user_inter_num_interval: {}, item_inter_num_interval: {}".format(*intervals), self.inter_feat)

    # ---------------------------------------------------------------- exact time

    def _time_columns(self, frame) -> list[str]:
        return [name for name in (self.time_field, self._list_field(self.time_field)) if name in frame]

    def _list_field(self, name: str) -> str:
        return name + self.config["LIST_SUFFIX"]

    def _normalize(self):
        raw = {name: self.inter_feat[name].copy() for name in self._time_columns(self.inter_feat)}
        super()._normalize()
        times = raw[self.time_field]
        pasts = [row.min() for row in raw.get(self._list_field(self.time_field), ()) if len(row)]
        first = min([times.min(), *pasts])
        self.time_origin = float(first * self.unit)
        check_span(self.time_origin, float(times.max() * self.unit), self.config["time_unit"], self.time_field)
        for name, column in raw.items():
            self.inter_feat[name] = (column - first) * self.unit

    def _dataframe_to_interaction(self, data):
        interaction = super()._dataframe_to_interaction(data)
        for name in self._time_columns(data):
            if name == self.time_field:
                interaction[name] = torch.from_numpy(data[name].to_numpy(dtype=np.float64, copy=True))
            else:
                rows = [torch.as_tensor(row, dtype=torch.float64) for row in data[name]]
                interaction[name] = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        return interaction

    # ---------------------------------------------------------------- examples

    def _benchmark_presets(self):
        if self._list_field(self.iid_field) in self.inter_feat:
            super()._benchmark_presets()

    def data_augmentation(self):
        self._aug_presets()
        self.inter_feat = self._examples(self.inter_feat)
        self.funnel.examples(self.inter_feat, self.time_field)

    def _examples(self, events: Interaction) -> Examples:
        """Sort the events and make every one of them a target whose history allows it."""
        users, times = events[self.uid_field].numpy(), events[self.time_field].numpy()
        order = np.lexsort((times, users))  # stable: what happened at one time keeps the file's order
        positive = self.config["history"] == "positive"
        kind = example_kind(self.config)
        if positive:
            labels = self._labels(events)[order]
            if kind == "window":  # next-item training and ranking on clicks alone
                order, labels = order[labels > 0], labels[labels > 0]
        log = self._log(events, order)
        users, times, width = users[order], times[order], self.max_item_list_len
        if not positive or kind == "window":
            return self._table(log, log, prefixes(users, width))
        kept = np.flatnonzero(labels > 0)
        least = getattr(self.config.model_class, "min_history", 1)
        ranges = filtered_prefixes(users, times, kept, width, least)
        return self._table(log, self._log(events, order[kept]), ranges)

    def _labels(self, events: Interaction) -> np.ndarray:
        if self.label_field not in events:
            raise InputError(
                f"history: positive needs labels, but there is no column '{self.label_field}' (LABEL_FIELD); "
                f"load it with load_col or make it with threshold, e.g. threshold: {{'rating': 4}}."
            )
        return events[self.label_field].numpy()

    def _log(self, events: Interaction, order: np.ndarray) -> EventLog:
        index = torch.from_numpy(order)
        columns = {name: events[name][index] for name in events}
        return EventLog(columns, tuple(name for name in columns if name != self.uid_field))

    def _table(self, targets: EventLog, history: EventLog, ranges: Ranges) -> Examples:
        if len(ranges) == 0:
            raise InputError(
                f"no event of data set '{self.dataset_name}' has an earlier one of its user, so there is nothing to "
                f"train on; loosen the filters or give users with two events or more."
            )
        return Examples(
            targets, history, ranges, self.config["LIST_SUFFIX"], self.item_list_length_field, self.max_item_list_len
        )

    def __getitem__(self, index, join=True):
        batch = self.inter_feat[index]
        if isinstance(batch, Examples):
            batch = batch.gather()
        return self.join(batch) if join else batch

    # ---------------------------------------------------------------- splits

    def build(self):
        """Split into training, validation and test data as `eval_args` says.

        Returns:
            list of three data sets that share one event log.
        """
        datasets = super().build() if self.benchmark_filename_list is None else self._build_presplit()
        datasets[0] = self._training_examples(datasets[0])
        for name, part in zip(("train", "valid", "test"), datasets, strict=False):
            self.funnel.split(name, part.inter_feat)
        if len(datasets[0].inter_feat) == 0:
            raise InputError(f"eval_args {self.config['eval_args']} leaves nothing to train on.")
        return datasets

    def _training_examples(self, train):
        table = train.inter_feat
        if example_kind(self.config) != "window" or not len(table) or table.history is not table.targets:
            return train
        users = table.targets.columns[self.uid_field].numpy()
        ranges = windows(users, table.ranges.target, self.max_item_list_len, self.config["train_window"])
        other = train.copy(table.replaced(ranges=ranges))
        other.counted = table
        return other

    def _build_presplit(self):
        """`benchmark_filename`: the files are the splits; a history never holds an event of a later file."""
        Dataset._change_feat_format(self)
        events, sizes = self.inter_feat, self.file_size_list
        if len(sizes) != 3:
            raise InputError(f"benchmark_filename lists {len(sizes)} files; give three: training, validation, test.")
        file = np.repeat(np.arange(3), sizes)
        with_lists = self._list_field(self.iid_field) in events
        if not with_lists:
            self._aug_presets()
        parts = []
        for split in range(3):
            if with_lists:
                table = self._given_histories(events[np.flatnonzero(file == split)])
            else:
                rows = np.flatnonzero(file <= split)
                table = self._examples(events[rows])
                users, times = events[self.uid_field].numpy()[rows], events[self.time_field].numpy()[rows]
                from_file = file[rows][np.lexsort((times, users))]
                table = table.replaced(ranges=table.ranges[from_file[table.ranges.target] == split])
            parts.append(self.copy(table))
        self.inter_feat = parts[-1].inter_feat  # what samplers count: every file's events
        return parts

    def _given_histories(self, rows: Interaction) -> Examples:
        """Files that bring their histories along (`item_id_list`, ...), as RecBole's benchmark files do."""
        lengths = rows[self.item_list_length_field].numpy()
        lists = [name for name in rows if self._list_field(name) in rows]
        inside = torch.arange(rows[self._list_field(self.iid_field)].shape[1]) < torch.from_numpy(lengths)[:, None]
        history = EventLog(
            {name: rows[self._list_field(name)][:, : inside.shape[1]][inside] for name in lists}, tuple(lists)
        )
        drop = {self.item_list_length_field, *map(self._list_field, lists)}
        targets = EventLog({name: rows[name] for name in rows if name not in drop})
        end = np.cumsum(lengths)
        start = np.maximum(end - lengths, end - self.max_item_list_len)
        return self._table(targets, history, Ranges(start, end, np.arange(len(rows))))

    # ---------------------------------------------------------------- what metrics count

    @property
    def item_counter(self):
        return self._counter(self.iid_field)

    @property
    def user_counter(self):
        return self._counter(self.uid_field)

    def _counter(self, name: str) -> Any:
        from collections import Counter

        table = self.counted if self.counted is not None else self.inter_feat
        return Counter(np.asarray(table[name]).tolist())


def example_kind(config) -> str:
    """The kind of training examples that the model asks for: `prefix` or `window`."""
    return getattr(config.model_class, "example_kind", "prefix")


def keeps_event_log(dataset) -> bool:
    """Whether a data set is one of ours, so that its times are exact seconds since `time_origin`."""
    return isinstance(dataset, EventLogDataset)
