"""A model's scoring as one function of plain tensors, which `torch.export` can trace.

B requests, T slots of their lists, L slots at most, C candidates, S members of a sequence, V items.
"""

import copy
from typing import Any

import torch
from recbole.utils import FeatureType
from torch import Tensor, nn
from torch.nn import functional as F

from recbole_ext.data.description import Catalogue
from recbole_ext.errors import InputError
from recbole_ext.model import MODELS
from recbole_ext.model.bst.features import Table

INTEGER, DOUBLE = torch.int64, torch.float64


class ExportedScorer(nn.Module):
    """The scores of a model, from what a client has: ids of items, lengths, and times in seconds since 1970.

    Nothing of the network is written anew: the model's own functions compute the scores, with all rows and all slots
    at once (see `model/batching.py`).

    Args:
        model: one of ours, in evaluation.
        catalogue: what it knows of its data.

    Attributes:
        longest, shortest: events that a history may have, L, and must have.
        any_width: whether lists may have any T up to L; if L is less than 3, torch takes T for a constant.
        features (dict): what the model reads beside the history, names and types.

    Raises:
        InputError: the model is none of ours, or reads a column that a client cannot bring.
    """

    model: Any

    def __init__(self, model: Any, catalogue: Catalogue):
        super().__init__()
        if not issubclass(type(model), tuple(MODELS.values())):
            raise InputError(f"{type(model).__name__} cannot be exported; the models that can are {', '.join(MODELS)}.")
        self.model = _without_users(model) if hasattr(model, "users") else model
        self.longest, self.shortest = int(model.max_seq_length), int(getattr(model, "min_history", 1))
        self.any_width = self.longest >= 3
        self.reads_times = model.reads_times
        # without a history, BST takes the time of the request even where it is told not to look at it
        self.reads_request = self.reads_times and (model.query_time == "target" or not self.shortest)
        self.by_candidates = hasattr(model, "score_at_once")
        self.origin = float(catalogue.time_origin or 0.0)
        self.context = list(getattr(model, "context", ()))
        names = [*self.context, *getattr(getattr(model, "users", None), "names", ())]
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
        if getattr(model, "all_slots", False):
            items = F.pad(items, (0, self.longest - items.shape[1]))
        batch = {model.ITEM_SEQ: items, model.ITEM_SEQ_LEN: lengths}
        if times is not None:
            batch[model.TIME_SEQ] = times - self.origin
        if at is not None:
            batch[model.TIME] = at - self.origin
        if candidates is None:
            return model.full_sort_predict(batch)
        columns = {name: self._scaled(name, values) for name, values in (features or {}).items()}
        batch |= {name: columns.pop(name) for name in self.context}
        return model.score_at_once(model.prepare(batch, columns), candidates)

    def _scaled(self, name: str, values: Tensor) -> Tensor:
        """A column of numbers as RecBole scales it to [0, 1], if it does."""
        if not values.is_floating_point():
            return values
        low, high = self.ranges.get(name, (0.0, 1.0))
        scaled = (values - low) / (high - low) if high > low else torch.ones_like(values)
        return scaled.to(torch.float32)


def _without_users(model: Any) -> Any:
    """The same model without what it knows of the users it was trained on, which its file has no use for."""
    lighter = copy.copy(model)
    lighter._modules = dict(model._modules)
    lighter.users = Table({}, [])
    lighter.users.names = model.users.names
    return lighter
