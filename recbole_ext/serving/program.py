"""A model's scoring as one function of plain tensors, which `torch.export` can trace.

B requests, T slots of their lists, L slots at most, C candidates, S members of a sequence, V items.
"""

from typing import Any

import torch
from recbole.utils import FeatureType
from torch import Tensor, nn
from torch.nn import functional as F

from recbole_ext.data.description import DatasetDescription
from recbole_ext.errors import InputError
from recbole_ext.model import MODELS, contract

INTEGER, DOUBLE = torch.int64, torch.float64


class ExportedScorer(nn.Module):
    """Scores from what a client has: item ids, lengths, and times in seconds since 1970.

    The model's own functions compute the scores, for all rows and all slots at once (see `model/batching.py`).

    Args:
        model: with `prepare` and `score_items` (`model/contract.py`), in evaluation mode.
        description: of its training data.

    Attributes:
        longest, shortest: maximum length L and minimum length of a history.
        any_width: whether lists may have any T up to L; for L below 3, torch treats T as a constant.
        features (dict): names and types of the features that the model reads beside the history.

    Raises:
        InputError: the model cannot be exported, or reads a column that a client cannot compute.
    """

    model: Any

    def __init__(self, model: Any, description: DatasetDescription):
        super().__init__()
        if contract.item_scorer(model) is None:
            raise InputError(
                f"{type(model).__name__} cannot be exported; the models that can are {', '.join(MODELS)}, and "
                f"models of your own with prepare and score_items."
            )
        self.model = contract.for_export(model)
        self.longest, self.shortest = int(model.max_seq_length), contract.min_history(model)
        self.any_width = self.longest >= 3
        self.reads_times, self.reads_request_time = contract.reads_times(model), contract.reads_request_time(model)
        self.reads_user_id = contract.reads_user_id(model)
        self.by_candidates, self.full_width = contract.scores_candidates(model), contract.needs_full_width(model)
        self.time_field = description.time_field
        self.time_list_field = description.time_field + description.config["LIST_SUFFIX"]
        self.origin = float(description.time_origin or 0.0)
        self.context_features = contract.context_features(model)
        self.history_features = contract.history_features(model)
        names = [*self.context_features, *contract.user_features(model)]
        self.features = {name: description.field2type[name] for name in names}
        self.event_features = {name: description.field2type[name] for name in self.history_features}
        self.list_suffix, names = description.config["LIST_SUFFIX"], [*names, *self.history_features]
        discretised = [name for name in names if name in (description.config["discretization"] or {})]
        if discretised:
            raise InputError(
                f"column '{discretised[0]}' is discretised, which clients cannot compute; the model cannot be exported "
                f"with it."
            )
        self.ranges = {name: description.normalised[name] for name in names if name in description.normalised}

    def inputs(self) -> dict[str, Any]:
        """Type and axes of each input by name; for `features`, of each column."""
        inputs: dict[str, Any] = {"items": (INTEGER, "BT"), "lengths": (INTEGER, "B")}
        if self.reads_times:
            inputs["times"] = (DOUBLE, "BT")
        if self.reads_request_time:
            inputs["at"] = (DOUBLE, "B")
        if self.event_features:
            columns = {name: self._feature_input(kind, "BT") for name, kind in self.event_features.items()}
            inputs["event_features"] = columns
        if self.reads_user_id:
            inputs["users"] = (INTEGER, "B")
        if self.features:
            inputs["features"] = {name: self._feature_input(kind) for name, kind in self.features.items()}
        if self.by_candidates:
            inputs["candidates"] = (INTEGER, "C")
        return inputs

    @staticmethod
    def _feature_input(kind: FeatureType, axes: str = "B") -> tuple[torch.dtype, str]:
        dtype = DOUBLE if kind == FeatureType.FLOAT else INTEGER
        return dtype, axes + "S" if kind == FeatureType.TOKEN_SEQ else axes

    def forward(
        self,
        items: Tensor,
        lengths: Tensor,
        times: Tensor | None = None,
        at: Tensor | None = None,
        event_features: dict[str, Tensor] | None = None,
        users: Tensor | None = None,
        features: dict[str, Tensor] | None = None,
        candidates: Tensor | None = None,
    ) -> Tensor:
        """Scores of all items [B, V + 1], where column 0 has no meaning; or of the candidates, [B, C].

        Args:
            items: item ids, oldest first, then 0: [B, T].
            lengths: number of events in each history, [B].
            times: times of these events, seconds since 1970, float64 [B, T].
            at: times of the requests, [B].
            event_features: columns of the events of the histories, as `features`, [B, T] each.
            users: user ids, 0 for unknown users, [B].
            features: features of users and requests with the values of the training files: ids [B] or [B, S], or
                numbers float64 [B].
            candidates: item ids, [C].
        """
        model = self.model
        if self.full_width:
            items = F.pad(items, (0, self.longest - items.shape[1]))
        batch = {model.ITEM_SEQ: items, model.ITEM_SEQ_LEN: lengths}
        if times is not None:
            batch[self.time_list_field] = times - self.origin
        if at is not None:
            batch[self.time_field] = at - self.origin
        for name, values in (event_features or {}).items():
            batch[name + self.list_suffix] = self.scale(name, values)
        if users is not None:
            batch[model.USER_ID] = users
        user_features = {name: self.scale(name, values) for name, values in (features or {}).items()}
        batch |= {name: user_features.pop(name) for name in self.context_features}
        prepared = model.prepare(batch, user_features) if user_features else model.prepare(batch)
        if candidates is None:
            return model.score_items(prepared, slice(model.n_items))
        return model.score_candidates(prepared, candidates)

    def scale(self, name: str, values: Tensor) -> Tensor:
        """A feature as the model reads it: numbers are scaled to [0, 1] if they were in training."""
        if not values.is_floating_point():
            return values
        low, high = self.ranges.get(name, (0.0, 1.0))
        scaled = (values - low) / (high - low) if high > low else torch.ones_like(values)
        return scaled.to(torch.float32)
