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
    """The scores of a model, from what a client has: ids of items, lengths, and times in seconds since 1970.

    Nothing of the network is written anew: the model's own functions compute the scores, with all rows and all slots
    at once (see `model/batching.py`).

    Args:
        model: with `prepare` and `score_items`, in evaluation (`model/contract.py`).
        catalogue: what it knows of its data.

    Attributes:
        longest, shortest: events that a history may have, L, and must have.
        any_width: whether lists may have any T up to L; if L is less than 3, torch takes T for a constant.
        features (dict): what the model reads beside the history, names and types.

    Raises:
        InputError: the model cannot be exported, or reads a column that a client cannot bring.
    """

    model: Any

    def __init__(self, model: Any, catalogue: DatasetDescription):
        super().__init__()
        if contract.item_scorer(model) is None:
            raise InputError(
                f"{type(model).__name__} cannot be exported; the models that can are {', '.join(MODELS)}, and "
                f"models of your own with prepare and score_items."
            )
        self.model = contract.for_export(model)
        self.longest, self.shortest = int(model.max_seq_length), contract.min_history(model)
        self.any_width = self.longest >= 3
        self.reads_times, self.reads_request = contract.reads_times(model), contract.reads_request_time(model)
        self.by_candidates, self.full_width = contract.scores_candidates(model), contract.needs_full_width(model)
        self.time_field = catalogue.time_field
        self.times_field = catalogue.time_field + catalogue.config["LIST_SUFFIX"]
        self.origin = float(catalogue.time_origin or 0.0)
        self.context = contract.context_features(model)
        names = [*self.context, *contract.user_features(model)]
        self.features = {name: catalogue.field2type[name] for name in names}
        cut = [name for name in names if name in (catalogue.config["discretization"] or {})]
        if cut:
            raise InputError(f"column '{cut[0]}' is discretised, which clients cannot bring; the model cannot be "
                             f"exported with it.")  # fmt: skip
        self.ranges = {name: catalogue.normalised[name] for name in names if name in catalogue.normalised}

    def inputs(self) -> dict[str, Any]:
        """Type and axes of each input, by its name; of `features` for each column."""
        inputs: dict[str, Any] = {"items": (INTEGER, "BT"), "lengths": (INTEGER, "B")}
        if self.reads_times:
            inputs["times"] = (DOUBLE, "BT")
        if self.reads_request:
            inputs["at"] = (DOUBLE, "B")
        if self.features:
            inputs["features"] = {name: self._column(kind) for name, kind in self.features.items()}
        if self.by_candidates:
            inputs["candidates"] = (INTEGER, "C")
        return inputs

    @staticmethod
    def _column(kind: FeatureType) -> tuple[torch.dtype, str]:
        dtype = DOUBLE if kind == FeatureType.FLOAT else INTEGER
        return dtype, "BS" if kind == FeatureType.TOKEN_SEQ else "B"

    def forward(
        self,
        items: Tensor,
        lengths: Tensor,
        times: Tensor | None = None,
        at: Tensor | None = None,
        features: dict[str, Tensor] | None = None,
        candidates: Tensor | None = None,
    ) -> Tensor:
        """Scores [B, V + 1], of which column 0 means nothing, or [B, C] of the candidates.

        Args:
            items: ids, oldest first, then 0: [B, T].
            lengths: events of each history, [B].
            times: of these events, seconds since 1970, float64 [B, T].
            at: of the requests, [B].
            features: columns of users and requests as their files have them: ids [B] or [B, S], numbers float64 [B].
            candidates: ids, [C].
        """
        model = self.model
        if self.full_width:
            items = F.pad(items, (0, self.longest - items.shape[1]))
        batch = {model.ITEM_SEQ: items, model.ITEM_SEQ_LEN: lengths}
        if times is not None:
            batch[self.times_field] = times - self.origin
        if at is not None:
            batch[self.time_field] = at - self.origin
        columns = {name: self._scaled(name, values) for name, values in (features or {}).items()}
        batch |= {name: columns.pop(name) for name in self.context}
        prepared = model.prepare(batch, columns) if columns else model.prepare(batch)
        if candidates is None:
            return model.score_items(prepared, slice(model.n_items))
        return model.score_candidates(prepared, candidates)

    def _scaled(self, name: str, values: Tensor) -> Tensor:
        """A column of numbers as RecBole scales it to [0, 1], if it does."""
        if not values.is_floating_point():
            return values
        low, high = self.ranges.get(name, (0.0, 1.0))
        scaled = (values - low) / (high - low) if high > low else torch.ones_like(values)
        return scaled.to(torch.float32)
