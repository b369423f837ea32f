"""From atomic files to clean frames: reading, filtering and exact time, in the steps of RecBole's `Dataset`."""

import os
from logging import getLogger

import numpy as np
import pandas as pd
import torch
from recbole.data.dataset import SequentialDataset
from recbole.utils import FeatureSource, FeatureType
from torch.nn.utils.rnn import pad_sequence

from recbole_ext.data.files.atomic_file import AtomicTable, download, read_atomic, refuse_padding
from recbole_ext.data.files.item_files import check_names, names_in_item_file
from recbole_ext.data.files.time_units import check_span, mistyped, report_period, seconds_per_unit, year_of
from recbole_ext.data.filter_log import SEQUENCES, FilterLog, warn_of_copies
from recbole_ext.errors import InputError

EVENTS, USERS, ITEMS = FeatureSource.INTERACTION, FeatureSource.USER, FeatureSource.ITEM
CLASSES = {"AUC", "GAUC", "LogLoss"}  # metrics of two classes


class ExactTimeDataset(SequentialDataset):
    """RecBole's sequential data set up to the point where frames become tensors, with times as they are.

    `TIME_FIELD` holds float64 seconds since the first event kept, whatever `time_unit` the file has; it is never
    normalised. What cannot be right is refused, and what is left out is logged.

    Attributes:
        time_origin (float): seconds since 1970 (UTC) of the first event kept.
        first_time (float): the same in the unit of the file.
        last_time (float): time of the last event kept, in the unit of the file.
        normalised (dict): least and largest value of each column of numbers that was scaled to [0, 1].
        item_names (dict | None): name of each item token, from the column that the key `item_names` gives.

    Raises:
        InputError: the files, or what the keys leave of them, cannot be used; the message names the place.
    """

    time_origin: float
    first_time: float
    last_time: float

    def __init__(self, config):
        self.unit = seconds_per_unit(config["time_unit"])
        self.filter_log = FilterLog()
        self.normalised: dict[str, tuple[float, float]] = {}
        self.item_names: dict[str, str] | None = None
        super().__init__(config)

    def may_be_empty(self, path: str) -> bool:
        """Whether a file may hold a header alone."""
        return False

    def from_file(self, time: float) -> float:
        """A time in the unit of the file as `TIME_FIELD` holds it: seconds since the first event kept."""
        return (time - self.first_time) * self.unit

    def list_field(self, name: str) -> str:
        """Name of the column that holds the past of a column."""
        return name + self.config["LIST_SUFFIX"]

    # ---------------------------------------------------------------- reading

    def _load_data(self, token, dataset_path):
        super()._load_data(token, dataset_path)
        self._check_reserved()
        warn_of_copies(self.inter_feat, self.time_field, self.field2type, self.config)
        self.filter_log.begin(self.inter_feat[self.uid_field], self.inter_feat[self.iid_field])
        self._load_item_names(os.path.join(dataset_path, f"{token}.item"))

    def _load_item_names(self, path: str) -> None:
        column = self.config["item_names"]
        if column is not None:
            self.item_names = names_in_item_file(path, self.iid_field, column, self.config)
            check_names(self.item_names, self.inter_feat[self.iid_field].dropna().unique(), f"{path}, {column}")

    def _download(self):
        download(self.config)

    def _load_feat(self, filepath, source):
        load, unload = self._get_load_and_unload_col(source)
        if load == set():
            return None
        separators = self.config["field_separator"], self.config["seq_separator"]
        encoding = self.config["encoding"] or "utf-8"
        table = read_atomic(filepath, *separators, encoding, load, unload, self.may_be_empty(filepath))
        refuse_padding(table)
        if not table.types:
            return None
        self._check_columns(table, source)
        self._drop_nameless(table, source)
        if source == EVENTS:
            self._check_values(table)
        for name, kind in table.types.items():
            self._describe(name, kind, source, table.frame)
        return table.frame.reset_index(drop=True)

    def _check_reserved(self) -> None:
        """No column has the name of one that histories get: in a batch, the one would stand in the other's place."""
        reserved = set(map(self.list_field, self.inter_feat))
        if self.item_list_length_field in reserved:
            raise InputError(
                f"ITEM_LIST_LENGTH_FIELD is '{self.item_list_length_field}', which is the name of a column's list; "
                f"choose another."
            )
        reserved.add(self.item_list_length_field)
        if self.config["threshold"]:
            reserved.add(self.label_field)
        for name, source in self.field2source.items():
            given = source == EVENTS and (self.benchmark_filename_list or name in (self.config["threshold"] or ()))
            if name in reserved and not given:
                raise InputError(
                    f"column '{name}' of data set '{self.dataset_name}' has a name that histories or labels get; "
                    f"leave it out with load_col, or change LIST_SUFFIX, ITEM_LIST_LENGTH_FIELD or LABEL_FIELD."
                )

    def _check_columns(self, table: AtomicTable, source: FeatureSource | str) -> None:
        if source == EVENTS:
            for key, kind in (("USER_ID", "token"), ("ITEM_ID", "token"), ("TIME", "float"), ("LABEL", "float")):
                field = self.config[f"{key}_FIELD"]
                if field not in table.types and key != "LABEL":
                    names = ", ".join(table.types)
                    raise InputError(f"{table.path} has no column '{field}', which {key}_FIELD names; it has {names}.")
                if table.types.get(field, FeatureType(kind)).value != kind:
                    wrong = f"{field}:{table.types[field].value}"
                    raise InputError(f"{table.path} line 1: '{wrong}' is {key}_FIELD; it should be {field}:{kind}.")
            for field in self.config["threshold"] or ():
                if table.types.get(field, FeatureType.FLOAT) != FeatureType.FLOAT:
                    wrong = f"{field}:{table.types[field].value}"
                    raise InputError(
                        f"{table.path} line 1: '{wrong}' is named by threshold; it should be {field}:float."
                    )
        own = {USERS: self.uid_field, ITEMS: self.iid_field}.get(source)
        for name in table.types:
            # RecBole joins by name: the one would silently stand in the other's place
            if source in (USERS, ITEMS) and name != own and name in self.field2source:
                raise InputError(
                    f"{table.path} has a column '{name}', and so has another file of the data set; "
                    f"leave one of them out with load_col or give them different names."
                )

    def _drop_nameless(self, table: AtomicTable, source: FeatureSource | str) -> None:
        """Leave out lines without the user or the item, as RecBole does, and say how many."""
        ids = {EVENTS: [self.uid_field, self.iid_field], USERS: [self.uid_field], ITEMS: [self.iid_field]}
        fields = [field for field in ids.get(source, ()) if field in table.types]
        missing = table.frame[fields].isna().any(axis=1).to_numpy()
        if not missing.any():
            return
        place = f"{table.path} line {table.line(int(np.argmax(missing)))}"
        if missing.all():
            raise InputError(f"{place}: no {' or no '.join(fields)}, as in all lines; every line should have one.")
        getLogger().warning(f"{place}: no {' or no '.join(fields)}; {missing.sum():,} such lines are left out.")
        table.frame = table.frame[~missing]

    def _check_values(self, table: AtomicTable) -> None:
        """Refuse events without a time or a label: RecBole would make one up, the mean of the others."""
        for name in (self.time_field, self.label_field, *(self.config["threshold"] or ())):
            if name in table.types:
                table.refuse(table.frame[name].isna(), name, "give every event one or drop the line")
        if self.time_field in table.types and self.time_field not in (self.config["val_interval"] or {}):
            years = year_of(table.frame[self.time_field].to_numpy() * self.unit)
            wanted = f"in time_unit {self.config['time_unit']} that is centuries from most of the others; correct it"
            table.refuse(mistyped(years), self.time_field, wanted)
        label = self.label_field
        if label in table.types and (CLASSES & set(self.config["metrics"]) or self.config["history"] == "positive"):
            wrong = ~table.frame[label].isin([0, 1])
            table.refuse(wrong, label, "a label should be 0 or 1; threshold makes such of other numbers")

    def _describe(self, name, kind, source, frame) -> None:
        """Tell RecBole what it has to know of a column, and cut sequences to `seq_len`."""
        self.field2source[name], self.field2type[name], self.field2seqlen[name] = source, kind, 1
        if kind in (FeatureType.FLOAT, FeatureType.FLOAT_SEQ):
            self.field2bucketnum[name] = 2
        if kind in SEQUENCES:
            limit = (self.config["seq_len"] or {}).get(name)
            frame[name] = [row[:limit] for row in frame[name]]
            self.field2seqlen[name] = max(map(len, frame[name]), default=0)

    def _fill_nan(self):
        for feat_name in self.feat_name_list:
            frame = getattr(self, feat_name)
            for name in frame:
                frame[name] = fill_missing(frame[name], self.field2type[name])

    # ---------------------------------------------------------------- filtering, each step counted

    def _step(self, name: str) -> None:
        for feat_name in self.feat_name_list:
            if getattr(self, feat_name).empty:
                rows = {"inter_feat": "event", "user_feat": "user", "item_feat": "item"}.get(feat_name, feat_name)
                raise InputError(f"no {rows} is left after {name}; loosen that filter.")
        self.filter_log.step(name, self.inter_feat[self.uid_field], self.inter_feat[self.iid_field])

    def _remove_duplication(self):
        keep = self.config["rm_dup_inter"]
        if keep is None:
            return
        if keep not in ("first", "last"):
            raise InputError(f"rm_dup_inter is '{keep}'; it should be first or last.")
        by_time = self.inter_feat.iloc[np.argsort(self.inter_feat[self.time_field].to_numpy(), kind="stable")]
        again = by_time.duplicated(subset=[self.uid_field, self.iid_field], keep=keep)
        self.inter_feat.drop(again.index[again], inplace=True)
        self._step(f"rm_dup_inter: {keep}")

    def _filter_by_field_value(self):
        for name, wanted in (self.config["val_interval"] or {}).items():
            kind = self.field2type.get(name)
            if kind is None:
                raise InputError(f"val_interval names '{name}'; the columns are {', '.join(self.field2type)}.")
            if kind in SEQUENCES or (kind == FeatureType.TOKEN) != isinstance(wanted, (list, tuple, set)):
                raise InputError(
                    f"val_interval gives {wanted!r} for '{name}', a {kind.value}; it should be a list of values for a "
                    f"token, an interval such as '[3,inf)' for a float."
                )
        super()._filter_by_field_value()
        self._step(f"val_interval: {self.config['val_interval']}")

    def _filter_inter_by_user_or_item(self):
        super()._filter_inter_by_user_or_item()
        self._step("filter_inter_by_user_or_item (a user or item of the event is not in the .user or .item file)")

    def _filter_by_inter_num(self):
        super()._filter_by_inter_num()
        keys = ("user_inter_num_interval", "item_inter_num_interval")
        self._step(", ".join(f"{key}: {self.config[key]}" for key in keys))

    def _parse_intervals_str(self, intervals_str):
        try:
            intervals = super()._parse_intervals_str(intervals_str)
            wrong = intervals is not None and (
                len(intervals) != str(intervals_str).count(";") + 1 or any(low > high for _, low, high, _ in intervals)
            )
        except (ValueError, IndexError):
            wrong = True
        if wrong:
            raise InputError(f"'{intervals_str}' is not an interval; write '[5,inf)' or '(0,1];[3,4)', for example.")
        return intervals

    # ---------------------------------------------------------------- exact time

    def _normalize(self):
        """Normalise as RecBole does, but neither times nor the labels that `threshold` has made."""
        times = [name for name in (self.time_field, self.list_field(self.time_field)) if name in self.inter_feat]
        if set(times) & set(self.config["normalize_field"] or ()):
            getLogger().warning(f"normalize_field names '{self.time_field}', the TIME_FIELD, which stays as it is.")
        labels = [self.label_field] if self.config["threshold"] else []
        exact = {name: self.inter_feat[name].copy() for name in (*times, *labels)}
        scaled = self.float_like_fields if self.config["normalize_all"] else self.config["normalize_field"] or ()
        for name in scaled:
            if self.field2type.get(name) == FeatureType.FLOAT and name not in exact:
                (feature,) = self.field2feats(name)
                self.normalised[name] = feature[name].min(), feature[name].max()
        super()._normalize()
        now = exact[self.time_field]
        past = [row.min() for row in exact.get(self.list_field(self.time_field), ()) if len(row)]
        first = min([now.min(), *past])
        check_span(float(first * self.unit), float(now.max() * self.unit), self.config["time_unit"], self.time_field)
        self.first_time, self.last_time, self.time_origin = float(first), float(now.max()), float(first * self.unit)
        report_period(self.time_origin, float(now.max() * self.unit), self.config["time_unit"], self.time_field)
        for name in times:
            exact[name] = (exact[name] - first) * self.unit
        for name, column in exact.items():
            self.inter_feat[name] = column

    def _dataframe_to_interaction(self, data):
        interaction = super()._dataframe_to_interaction(data)  # makes float32 of all numbers
        if self.time_field in data:
            interaction[self.time_field] = torch.tensor(data[self.time_field].to_numpy(dtype=np.float64))
        past = self.list_field(self.time_field)
        if past in data:
            interaction[past] = pad_sequence([torch.as_tensor(row) for row in data[past]], batch_first=True)
        return interaction


def fill_missing(column: pd.Series, kind: FeatureType) -> pd.Series | list[np.ndarray]:
    """A column of a frame without missing values: tokens become padding (0), numbers the mean, sequences empty."""
    if kind == FeatureType.TOKEN:
        return column.fillna(0).astype(np.int64)
    if kind == FeatureType.FLOAT:
        if column.isna().all():
            raise InputError(f"column '{column.name}' holds no number; leave it out with load_col or unload_col.")
        return column.fillna(column.mean())
    empty = np.array([], dtype=np.int64 if kind == FeatureType.TOKEN_SEQ else np.float64)
    return [row if isinstance(row, np.ndarray) else empty for row in column]
