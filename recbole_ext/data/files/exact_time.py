"""Filtering and exact time, in the steps of RecBole's `Dataset` that follow reading."""

from logging import getLogger

import numpy as np
import torch
from recbole.data.interaction import Interaction
from recbole.utils import FeatureType
from torch.nn.utils.rnn import pad_sequence

from recbole_ext.data.files.checked_files import CheckedDataset
from recbole_ext.data.files.time_units import check_span, report_period
from recbole_ext.data.filter_log import SEQUENCES
from recbole_ext.errors import InputError

ANY_NUMBER = "[0,inf)"  # of events: the default of the filters by number


class ExactTimeDataset(CheckedDataset):
    """RecBole's sequential data set up to the point where frames become tensors, with exact times.

    `TIME_FIELD` holds float64 seconds since the first event after filtering, for every `time_unit`; it is never
    normalised. Events that are removed are logged.

    Attributes:
        time_origin (float): seconds since 1970 (UTC) of the first event after filtering.
        first_time (float): the same in the unit of the file.
        last_time (float): time of the last event after filtering, in the unit of the file.
        normalised (dict): minimum and maximum of each numeric column that was scaled to [0, 1].

    Raises:
        InputError: the files are wrong, or filters leave no events; the message names the file and line, or the key.
    """

    time_origin: float
    first_time: float
    last_time: float

    def __init__(self, config):
        self.normalised: dict[str, tuple[float, float]] = {}
        super().__init__(config)

    def from_file(self, time: float) -> float:
        """Convert a time from the unit of the file to that of `TIME_FIELD`: seconds since the first event."""
        return (time - self.first_time) * self.unit

    # ---------------------------------------------------------------- filters, each step counted

    def _filter_nan_user_or_item(self):
        """Nothing is left to do: lines without a user or item were left out when they were read."""

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
        for name, interval in (self.config["val_interval"] or {}).items():
            kind = self.field2type.get(name)
            if kind is None:
                raise InputError(f"val_interval names '{name}'; the columns are {', '.join(self.field2type)}.")
            if kind in SEQUENCES or (kind == FeatureType.TOKEN) != isinstance(interval, (list, tuple, set)):
                raise InputError(
                    f"val_interval has {interval!r} for '{name}', a {kind.value}; it should be a list of values for a "
                    f"token, or an interval such as '[3,inf)' for a float."
                )
        super()._filter_by_field_value()
        self._step(f"val_interval: {self.config['val_interval']}")

    def _filter_inter_by_user_or_item(self):
        super()._filter_inter_by_user_or_item()
        self._step("filter_inter_by_user_or_item (a user or item of the event is not in the .user or .item file)")

    def _filter_by_inter_num(self):
        keys = ("user_inter_num_interval", "item_inter_num_interval")
        if all(self.config[key] in (None, ANY_NUMBER) for key in keys):  # RecBole would count all the same
            return
        super()._filter_by_inter_num()
        self._step(", ".join(f"{key}: {self.config[key]}" for key in keys))

    def _parse_intervals_str(self, intervals_str):
        try:
            intervals = super()._parse_intervals_str(intervals_str)
            valid = intervals is None or (
                len(intervals) == str(intervals_str).count(";") + 1
                and not any(low > high for _, low, high, _ in intervals)
            )
        except (ValueError, IndexError):
            valid = False
        if not valid:
            raise InputError(f"'{intervals_str}' is not an interval; write '[5,inf)' or '(0,1];[3,4)', for example.")
        return intervals

    # ---------------------------------------------------------------- exact time

    def _normalize(self):
        """Normalise as RecBole does, except times and the labels made by `threshold`."""
        times = [name for name in (self.time_field, self.list_field(self.time_field)) if name in self.inter_feat]
        if set(times) & set(self.config["normalize_field"] or ()):
            getLogger().warning(
                f"normalize_field names '{self.time_field}', the TIME_FIELD, which is never normalised."
            )
        labels = [self.label_field] if self.config["threshold"] else []
        exact = {name: self.inter_feat[name].copy() for name in (*times, *labels)}
        scaled = self.float_like_fields if self.config["normalize_all"] else self.config["normalize_field"] or ()
        for name in scaled:
            if self.field2type.get(name) == FeatureType.FLOAT and name not in exact:
                (feature,) = self.field2feats(name)
                self.normalised[name] = feature[name].min(), feature[name].max()
        super()._normalize()
        event_times = exact[self.time_field]
        history_starts = [row.min() for row in exact.get(self.list_field(self.time_field), ()) if len(row)]
        first, last = min([event_times.min(), *history_starts]), event_times.max()
        self.first_time, self.last_time, self.time_origin = float(first), float(last), float(first * self.unit)
        period = self.time_origin, float(last * self.unit), self.config["time_unit"], self.time_field
        check_span(*period)
        report_period(*period)
        for name in times:
            exact[name] = (exact[name] - first) * self.unit
        for name, column in exact.items():
            self.inter_feat[name] = column

    def _dataframe_to_interaction(self, data):
        # RecBole copies ids, and converts all numbers to float32
        kinds = {name: np.int64 for name in data if self.field2type[name] == FeatureType.TOKEN}
        if self.time_field in data:
            kinds[self.time_field] = np.float64
        others = super()._dataframe_to_interaction(data.drop(columns=list(kinds))).interaction
        exact = {name: torch.from_numpy(data[name].to_numpy(dtype=kind)) for name, kind in kinds.items()}
        interaction = Interaction({name: exact[name] if name in exact else others[name] for name in data})
        time_list = self.list_field(self.time_field)
        if time_list in data:
            interaction[time_list] = pad_sequence([torch.as_tensor(row) for row in data[time_list]], batch_first=True)
        return interaction
