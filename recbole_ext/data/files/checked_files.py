"""From atomic files to frames whose columns, lines and values have been checked."""

import os
from logging import getLogger

import numpy as np
import pandas as pd
from recbole.data.dataset import SequentialDataset
from recbole.utils import FeatureSource, FeatureType

from recbole_ext.data.files.atomic_file import AtomicTable, download, read_atomic, refuse_padding
from recbole_ext.data.files.item_files import check_names, names_in_item_file
from recbole_ext.data.files.time_units import mistyped, seconds_per_unit, year_of
from recbole_ext.data.filter_log import SEQUENCES, FilterLog, warn_of_copies
from recbole_ext.errors import InputError

EVENTS, USERS, ITEMS = FeatureSource.INTERACTION, FeatureSource.USER, FeatureSource.ITEM
CLASSES = {"AUC", "GAUC", "LogLoss"}  # metrics of two classes


class CheckedDataset(SequentialDataset):
    """RecBole's sequential data set, as far as files become frames and tokens become ids.

    Invalid values are refused; lines that are left out are logged.

    Attributes:
        unit (float): seconds in one unit of the file's times.
        item_names (dict | None): name of each item token, from the column that the key `item_names` names.

    Raises:
        InputError: the files are wrong; the message names the file and line, or the key.
    """

    def __init__(self, config):
        self.unit = seconds_per_unit(config["time_unit"])
        self.filter_log = FilterLog()
        self.item_names: dict[str, str] | None = None
        super().__init__(config)

    def may_be_empty(self, path: str) -> bool:
        """Whether a file may consist of a header only."""
        return False

    def list_field(self, name: str) -> str:
        """Name of the column with the history of a column."""
        return name + self.config["LIST_SUFFIX"]

    # ---------------------------------------------------------------- files

    def _load_data(self, token, dataset_path):
        super()._load_data(token, dataset_path)
        self._check_reserved()
        self._warn_of_copies()
        self.filter_log.begin(self.inter_feat[self.uid_field], self.inter_feat[self.iid_field])
        self._load_item_names(os.path.join(dataset_path, f"{token}.item"))

    def _warn_of_copies(self) -> None:
        warn_of_copies(self.inter_feat, self.time_field, self.field2type, self.config)

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
        table = read_atomic(filepath, *separators, encoding, load, unload, self.may_be_empty(filepath), compact=True)
        refuse_padding(table)
        if not table.types:
            return None
        self._check_columns(table, source)
        self._drop_lines_without_id(table, source)
        if source == EVENTS:
            self._check_values(table)
        for name, kind in table.types.items():
            self._register_column(name, kind, source, table.frame)
        table.frame.index = pd.RangeIndex(len(table.frame))  # reset_index would copy the columns
        return table.frame

    # ---------------------------------------------------------------- checks

    def _check_reserved(self) -> None:
        """Refuse a column whose name a history or label gets: in a batch, one would replace the other."""
        reserved = set(map(self.list_field, self.inter_feat))
        if self.item_list_length_field in reserved:
            raise InputError(
                f"ITEM_LIST_LENGTH_FIELD is '{self.item_list_length_field}', which is also the name of a column's "
                f"list; choose another name."
            )
        reserved.add(self.item_list_length_field)
        if self.config["threshold"]:
            reserved.add(self.label_field)
        for name, source in self.field2source.items():
            allowed = source == EVENTS and (self.benchmark_filename_list or name in (self.config["threshold"] or ()))
            if name in reserved and not allowed:
                raise InputError(
                    f"column '{name}' of data set '{self.dataset_name}' has a name reserved for histories or labels; "
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
        id_field = {USERS: self.uid_field, ITEMS: self.iid_field}.get(source)
        if id_field in table.types and table.types[id_field] != FeatureType.TOKEN:  # no id would be that of an event
            wrong, key = f"{id_field}:{table.types[id_field].value}", "USER_ID" if source == USERS else "ITEM_ID"
            raise InputError(f"{table.path} line 1: '{wrong}' is {key}_FIELD; it should be {id_field}:token.")
        for name in table.types:
            # RecBole joins tables by column name, so one column would silently replace the other
            if source in (USERS, ITEMS) and name != id_field and name in self.field2source:
                raise InputError(
                    f"{table.path} has a column '{name}', and so has another file of the data set; "
                    f"leave one of them out with load_col, or give them different names."
                )

    def _drop_lines_without_id(self, table: AtomicTable, source: FeatureSource | str) -> None:
        """Remove lines without a user or item, as RecBole does, and warn of their number."""
        ids = {EVENTS: [self.uid_field, self.iid_field], USERS: [self.uid_field], ITEMS: [self.iid_field]}
        fields = [field for field in ids.get(source, ()) if field in table.types]
        missing = table.frame[fields].isna().any(axis=1).to_numpy()
        if not missing.any():
            return
        first = f"{table.path} line {table.line(int(np.argmax(missing)))}: no {' or no '.join(fields)}"
        if missing.all():
            raise InputError(f"{first}, as in all lines; every line should have one.")
        getLogger().warning(f"{first}; {missing.sum():,} such lines are left out.")
        table.frame = table.frame[~missing]

    def _check_values(self, table: AtomicTable) -> None:
        """Refuse events without a time or a label, which RecBole would replace by the mean of the others."""
        for name in (self.time_field, self.label_field, *(self.config["threshold"] or ())):
            if name in table.types:
                table.refuse(table.frame[name].isna(), name, "give every event one or drop the line")
        if self.time_field in table.types and self.time_field not in (self.config["val_interval"] or {}):
            years = year_of(table.frame[self.time_field].to_numpy() * self.unit)
            reason = f"in time_unit {self.config['time_unit']} that is centuries from most of the others; correct it"
            table.refuse(mistyped(years), self.time_field, reason)
        label = self.label_field
        if label in table.types and (CLASSES & set(self.config["metrics"]) or self.config["history"] == "positive"):
            wrong = ~table.frame[label].isin([0, 1])
            table.refuse(wrong, label, "a label should be 0 or 1; threshold makes labels from other numbers")

    # ---------------------------------------------------------------- columns

    def _register_column(self, name, kind, source, frame) -> None:
        """Set RecBole's attributes of a column, and cut sequences to `seq_len`."""
        self.field2source[name], self.field2type[name], self.field2seqlen[name] = source, kind, 1
        if kind in (FeatureType.FLOAT, FeatureType.FLOAT_SEQ):
            self.field2bucketnum[name] = 2
        if kind in SEQUENCES:
            limit = (self.config["seq_len"] or {}).get(name)
            frame[name] = [row[:limit] for row in frame[name]]
            self.field2seqlen[name] = max(map(len, frame[name]), default=0)

    def _remap(self, remap_list):
        """RecBole's, which reads each token of a categorical column once instead of once for each row."""
        tables, codes = [], []
        for feat, field, kind in remap_list:
            column = feat[field]
            if isinstance(column.dtype, pd.CategoricalDtype):
                first = pd.unique(column.cat.codes)  # in the order of their first rows, which decides about the ids
                first = first[first >= 0]
                code = np.zeros(len(column.cat.categories) + 1, dtype=np.int64)  # the last one is of no token
                code[first] = np.arange(1, len(first) + 1)
                codes.append(code[column.cat.codes])
                feat = pd.DataFrame({field: column.cat.categories[first]})
            else:
                codes.append(None)
            tables.append((feat, field, kind))
        super()._remap(tables)
        for (feat, field, _), (table, *_), code in zip(remap_list, tables, codes, strict=True):
            if code is not None:
                feat[field] = np.append(0, table[field])[code]

    def _fill_nan(self):
        for feat_name in self.feat_name_list:
            frame = getattr(self, feat_name)
            for name in frame:
                frame[name] = fill_missing(frame[name], self.field2type[name])


def fill_missing(column: pd.Series, kind: FeatureType) -> pd.Series | list[np.ndarray]:
    """Replace missing values: tokens by padding (0), numbers by the mean, sequences by an empty one."""
    if kind == FeatureType.TOKEN:
        return column.fillna(0).astype(np.int64)
    if kind == FeatureType.FLOAT:
        if column.isna().all():
            raise InputError(f"column '{column.name}' has no numbers; leave it out with load_col or unload_col.")
        return column.fillna(column.mean())
    empty = np.array([], dtype=np.int64 if kind == FeatureType.TOKEN_SEQ else np.float64)
    return [row if isinstance(row, np.ndarray) else empty for row in column]
