"""`benchmark_filename`: files that are the training, validation and test data already."""

import os
from logging import getLogger

import numpy as np
import torch
from recbole.data.interaction import Interaction
from recbole.utils import FeatureType

from recbole_ext.data.event_log import EventLogDataset
from recbole_ext.data.examples import EventLog, Examples, Ranges
from recbole_ext.data.files.atomic_file import AtomicTable
from recbole_ext.data.files.exact_time import EVENTS
from recbole_ext.data.splits import add_empty_validation
from recbole_ext.errors import InputError

FILTERS = ("rm_dup_inter", "val_interval", "user_inter_num_interval", "item_inter_num_interval")


class PreSplitDataset(EventLogDataset):
    """An event log from files that are split already, `<dataset>.<name>.inter` for each name in `benchmark_filename`.

    Three files are training, validation and test data; two are training and test data. The last two of three may hold
    a header alone.

    Files of plain events: the history of an event is what its user did before, according to its own file and the
    earlier files, never a later one. Files with histories of their own (`item_id_list`, and lists of other columns):
    every line is an example as it stands, cut to the newest MAX_ITEM_LIST_LENGTH events; a model that asks for windows
    learns from them as they are.

    Raises:
        InputError: as `EventLogDataset`; the files have different columns; a history is empty, or its lists differ in
            length.
    """

    def may_be_empty(self, path: str) -> bool:
        names = self.config["benchmark_filename"][1:]
        return os.path.basename(path) in {f"{self.dataset_name}.{name}.inter" for name in names}

    def _load_inter_feat(self, token, dataset_path):
        super()._load_inter_feat(token, dataset_path)
        add_empty_validation(self)

    def _load_data(self, token, dataset_path):
        super()._load_data(token, dataset_path)
        ignored = [key for key in FILTERS if self.config[key] not in (None, {}, "[0,inf)")]
        if ignored:
            getLogger().warning(f"benchmark_filename: the files are used as they are, without {', '.join(ignored)}.")

    def _check_columns(self, table: AtomicTable, source) -> None:
        super()._check_columns(table, source)
        if source != EVENTS:
            return
        other = {name for name, origin in self.field2source.items() if origin == EVENTS}
        if other and other != set(table.types):
            raise InputError(
                f"{table.path} has the columns {', '.join(table.types)}, and the file before it has "
                f"{', '.join(sorted(other))}; they should be the same."
            )
        past, times = self.list_field(self.iid_field), self.list_field(self.time_field)
        if past in table.unread and past not in ((self.config["unload_col"] or {}).get("inter") or ()):
            raise InputError(
                f"{table.path} holds histories, '{past}', which load_col leaves out; add it and the lists that go with "
                f"it, or set load_col to None to read all columns."
            )
        if past not in table.types:
            return
        for name, kind in ((past, FeatureType.TOKEN_SEQ), (times, FeatureType.FLOAT_SEQ)):
            if table.types.get(name, kind) != kind:
                wrong = f"{name}:{table.types[name].value}"
                raise InputError(f"{table.path} line 1: '{wrong}' is a history; it should be {name}:{kind.value}.")
        lengths = table.frame[past].map(len)
        table.refuse(lengths == 0, past, "a history should hold one item or more")
        for name in table.types:
            if self.list_field(name) in table.types:
                listed = self.list_field(name)
                table.refuse(table.frame[listed].map(len) != lengths, listed, f"it should be as long as {past}")
        self._refuse_the_future(table)

    def _refuse_the_future(self, table: AtomicTable) -> None:
        """Given histories are in order of time, and end with their example at the latest.

        With `history: positive`, they hold labels of 1 only, and end before their example.
        """
        time, label = self.time_field, self.label_field
        positive = self.config["history"] == "positive"
        if {time, self.list_field(time)} <= set(table.types):
            apart = table.frame[self.list_field(time)].map(lambda row: np.diff(row).min(initial=0))
            table.refuse(apart < 0, self.list_field(time), "a history should be in order of time")
            newest = table.frame[self.list_field(time)].map(np.max)
            late = newest >= table.frame[time] if positive else newest > table.frame[time]
            allowed = f"before its example's {time}{'' if positive else ', or at it'}"
            table.refuse(late, self.list_field(time), f"a history should end {allowed}")
        if positive:
            if self.list_field(label) not in table.types:
                raise InputError(
                    f"{table.path} has histories without '{self.list_field(label)}', by which history: positive could "
                    f"be told; load that column, or set history to all."
                )
            negative = table.frame[self.list_field(label)].map(np.min) <= 0
            table.refuse(negative, self.list_field(label), "with history: positive, it should hold labels of 1 only")

    def _set_alias(self, alias_name, default_value):
        past = self.list_field(self.iid_field)
        if alias_name == "item_id" and past in self.field2type:
            default_value = [*default_value, past]  # the items of histories are the same items
        super()._set_alias(alias_name, default_value)

    def _benchmark_presets(self):
        for name in self.inter_feat:
            if self.list_field(name) in self.inter_feat:
                setattr(self, f"{name}_list_field", self.list_field(name))  # where RecBole's code looks for it
        past = self.list_field(self.iid_field)
        if past in self.inter_feat:
            self.inter_feat[self.item_list_length_field] = self.inter_feat[past].map(len)
            self.set_field_property(self.item_list_length_field, FeatureType.TOKEN, EVENTS, 1)

    def _split(self) -> list:
        self._change_feat_format()
        events = self.inter_feat
        file = np.repeat(np.arange(3), self.file_size_list)
        if self.list_field(self.iid_field) in events:
            whole = self._given(events)
            parts = [whole[file == split] for split in range(3)]
        else:
            self._aug_presets()
            parts = []
            for split in range(3):
                rows = np.flatnonzero(file <= split)
                whole, order = self.examples(events[rows])
                parts.append(whole[file[rows[order[whole.ranges.target]]] == split])
        self.inter_feat = whole  # what samplers and counters take for all events
        self._drop_unused_col()
        return [self.copy(part.replaced(hidden=self.inter_feat.hidden)) for part in parts]

    def _given(self, rows: Interaction) -> Examples:
        """Every row as an example, the histories laid end to end."""
        lengths = rows[self.item_list_length_field]
        lists = [name for name in rows if self.list_field(name) in rows]
        padded = rows[self.list_field(self.iid_field)]
        inside = torch.arange(padded.shape[1]) < lengths[:, None]
        history = EventLog({name: rows[self.list_field(name)][inside] for name in lists}, tuple(lists))
        drop = {self.item_list_length_field, *map(self.list_field, lists)}
        targets = EventLog({name: rows[name] for name in rows if name not in drop})
        end = np.cumsum(lengths.numpy())
        start = np.maximum(end - lengths.numpy(), end - self.max_item_list_len)
        return self.table(targets, history, Ranges(start, end, np.arange(len(rows))))
