"""`benchmark_filename`: files that contain the training, validation and test data."""

import os
from logging import getLogger

import numpy as np
import torch
from recbole.data.interaction import Interaction
from recbole.utils import FeatureType

from recbole_ext.data.event_log_dataset import EventLogDataset
from recbole_ext.data.examples import EventLog, Examples
from recbole_ext.data.files.atomic_file import AtomicTable
from recbole_ext.data.files.checked_files import EVENTS
from recbole_ext.data.files.exact_time import ANY_NUMBER
from recbole_ext.data.ranges import Ranges
from recbole_ext.data.splits import add_empty_validation
from recbole_ext.errors import InputError

FILTERS = ("rm_dup_inter", "val_interval", "user_inter_num_interval", "item_inter_num_interval")


class PreSplitDataset(EventLogDataset):
    """An event log from files that are split already, `<dataset>.<name>.inter` for each name in `benchmark_filename`.

    Three files are training, validation and test data; two are training and test data. The last two of three may
    consist of a header only.

    Files are of two kinds:
    - events: the history of an event is the earlier events of its user in the same file and the files before it.
    - examples with histories (`item_id_list`, and lists of other columns): each line is an example. Histories are cut
      to the newest MAX_ITEM_LIST_LENGTH events. Models that learn from windows use these examples instead. Histories
      keep their order, whatever `tie_break` is.

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
        ignored = [key for key in FILTERS if self.config[key] not in (None, {}, ANY_NUMBER)]
        if ignored:
            getLogger().warning(f"benchmark_filename: the files are not filtered; {', '.join(ignored)} has no effect.")

    def _check_columns(self, table: AtomicTable, source) -> None:
        super()._check_columns(table, source)
        if source != EVENTS:
            return
        other = {name for name, origin in self.field2source.items() if origin == EVENTS}
        if other and other != set(table.types):
            raise InputError(
                f"{table.path} has the columns {', '.join(table.types)}, but the file before it has "
                f"{', '.join(sorted(other))}; they should be the same."
            )
        item_list, time_list = self.list_field(self.iid_field), self.list_field(self.time_field)
        if item_list in table.unread and item_list not in ((self.config["unload_col"] or {}).get("inter") or ()):
            raise InputError(
                f"{table.path} has histories, '{item_list}', but load_col does not contain them; add it and the lists "
                f"of other columns, or set load_col to None to read all columns."
            )
        if item_list not in table.types:
            return
        for name, kind in ((item_list, FeatureType.TOKEN_SEQ), (time_list, FeatureType.FLOAT_SEQ)):
            if table.types.get(name, kind) != kind:
                wrong = f"{name}:{table.types[name].value}"
                raise InputError(f"{table.path} line 1: '{wrong}' is a history; it should be {name}:{kind.value}.")
        lengths = table.frame[item_list].map(len)
        table.refuse(lengths == 0, item_list, "a history should have one item or more")
        for name in map(self.list_field, table.types):
            if name in table.types:
                table.refuse(table.frame[name].map(len) != lengths, name, f"it should be as long as {item_list}")
        self._check_histories(table)

    def _check_histories(self, table: AtomicTable) -> None:
        """Check that histories are sorted by time and contain no event later than their example.

        With `history: positive`, they should contain only labels of 1, and only events earlier than their example.
        """
        time, label_list = self.time_field, self.list_field(self.label_field)
        positive = self.config["history"] == "positive"
        if {time, self.list_field(time)} <= set(table.types):
            smallest_gap = table.frame[self.list_field(time)].map(lambda row: np.diff(row).min(initial=0))
            table.refuse(smallest_gap < 0, self.list_field(time), "a history should be in order of time")
            newest = table.frame[self.list_field(time)].map(np.max)
            late = newest >= table.frame[time] if positive else newest > table.frame[time]
            allowed = f"before its example's {time}{'' if positive else ', or at it'}"
            table.refuse(late, self.list_field(time), f"a history should end {allowed}")
        if positive:
            if label_list not in table.types:
                raise InputError(
                    f"{table.path} has histories without '{label_list}', which history: positive needs; load that "
                    f"column, or set history to all."
                )
            negative = table.frame[label_list].map(np.min) <= 0
            table.refuse(negative, label_list, "with history: positive, all labels should be 1")

    def _set_alias(self, alias_name, default_value):
        item_list = self.list_field(self.iid_field)
        if alias_name == "item_id" and item_list in self.field2type:
            default_value = [*default_value, item_list]  # both columns share their tokens
        super()._set_alias(alias_name, default_value)

    def _benchmark_presets(self):
        for name in self.inter_feat:
            if self.list_field(name) in self.inter_feat:
                setattr(self, f"{name}_list_field", self.list_field(name))  # the attribute that RecBole reads
        item_list = self.list_field(self.iid_field)
        if item_list in self.inter_feat:
            self.inter_feat[self.item_list_length_field] = self.inter_feat[item_list].map(len)
            self.set_field_property(self.item_list_length_field, FeatureType.TOKEN, EVENTS, 1)

    def _split(self) -> list:
        self._change_feat_format()
        events = self.inter_feat
        file = np.repeat(np.arange(3), self.file_size_list)
        if self.list_field(self.iid_field) in events:
            examples = self._examples_of_lines(events)
            parts = [examples[file == split] for split in range(3)]
        else:
            self._aug_presets()
            parts = []
            for split in range(3):
                rows = np.flatnonzero(file <= split)
                examples, order = self.examples(events[rows])
                parts.append(examples[file[rows[order[examples.ranges.target]]] == split])
        self.inter_feat = examples  # of all files, for RecBole's samplers and counts
        self._drop_unused_col()
        return [self.copy(part.replaced(dropped=self.inter_feat.dropped)) for part in parts]

    def _sorts_events(self) -> bool:
        return False  # the files keep their order

    def _tie_keys(self, items: np.ndarray) -> tuple[np.ndarray, ...]:
        keys = super()._tie_keys(items)
        # the items are those of the first one, two or three files; events of an earlier file come first
        return (*keys, np.repeat(np.arange(3), self.file_size_list)[: len(items)]) if keys else ()

    def _examples_of_lines(self, rows: Interaction) -> Examples:
        """Make each row an example, with the concatenated histories as the log of histories."""
        lengths = rows[self.item_list_length_field]
        lists = [name for name in rows if self.list_field(name) in rows]
        padded = rows[self.list_field(self.iid_field)]
        mask = torch.arange(padded.shape[1]) < lengths[:, None]
        history = EventLog({name: rows[self.list_field(name)][mask] for name in lists}, tuple(lists))
        of_history = {self.item_list_length_field, *map(self.list_field, lists)}
        targets = EventLog({name: rows[name] for name in rows if name not in of_history})
        end = np.cumsum(lengths.numpy())
        start = np.maximum(end - lengths.numpy(), end - self.max_item_list_len)
        return self.table(targets, history, Ranges(start, end, np.arange(len(rows))))
