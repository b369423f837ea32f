"""RecBole's trainers with checkpoints that are plain, whole and self-contained."""

import os
from functools import cache
from logging import getLogger
from typing import Any

import numpy as np
import recbole.utils
import torch
from torch.nn.utils import clip_grad_norm_

from recbole_ext import checkpoint
from recbole_ext.errors import InputError


class PlainCheckpoints:
    """What this package adds to a RecBole trainer: see `get_trainer`.

    The mixin stands before a trainer class of RecBole and changes it through `super()` only.
    """

    config: Any
    model: Any
    optimizer: Any
    cur_step: int
    best_valid_score: float
    best_valid_result: dict[str, float] | None

    def __init__(self, config, model):
        super().__init__(config, model)
        path, number = self.saved_model_file, 1
        while os.path.exists(path):  # RecBole names files by the second
            number += 1
            path = f"{self.saved_model_file.removesuffix('.pth')}-{number}.pth"
        self.saved_model_file = path
        self.train_data = None
        # RecBole clips gradients while AMP still has them scaled; a step's own hook sees them unscaled
        self.clip, self.clip_grad_norm = self.clip_grad_norm, None
        if self.clip:
            self.optimizer.register_step_pre_hook(self._clip)

    def _clip(self, *_):
        clip_grad_norm_(self.model.parameters(), **self.clip)

    def fit(self, train_data, *args, **kwargs):
        self.train_data = train_data
        return super().fit(train_data, *args, **kwargs)

    def _save_checkpoint(self, epoch, verbose=True, **kwargs):
        path = kwargs.pop("saved_model_file", self.saved_model_file)
        checkpoint.save(self._state(epoch), path)
        if verbose:
            getLogger().info(f"Saving current: {path}")

    def _state(self, epoch: int) -> dict[str, Any]:
        dataset = self.train_data._dataset if self.train_data is not None else None
        fields = [self.config["USER_ID_FIELD"], self.config["ITEM_ID_FIELD"]]
        known = dataset.field2id_token if dataset is not None else {}
        return {
            "format": checkpoint.FORMAT,
            "model": type(self.model).__name__,
            "config": {**self.config.as_plain(), "model": self.config["model"]},
            "epoch": epoch,
            "cur_step": self.cur_step,
            "best_valid_score": float(self.best_valid_score),
            "best_valid_result": {key: float(value) for key, value in (self.best_valid_result or {}).items()},
            "state_dict": self.model.state_dict(),
            "other_parameter": _plain_state(self.model.other_parameter()),
            "optimizer": self.optimizer.state_dict(),
            "tokens": {field: [str(token) for token in known[field]] for field in fields if field in known},
            "time_origin": getattr(dataset, "time_origin", None),
            "random": checkpoint.random_states(),
            "sampler": self.train_data.generator.get_state() if self.train_data is not None else None,
            "versions": checkpoint.versions(),
        }


def _plain_state(values: dict[str, Any]) -> dict[str, Any]:
    """Extra state of RecBole's models (Pop's counts, say), if it can be stored without pickling objects."""
    kept = {}
    for key, value in values.items():
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            value = torch.from_numpy(value)
        if not (value is None or isinstance(value, (torch.Tensor, bool, int, float, str))):
            raise InputError(
                f"the model keeps '{key}' as a {type(value).__name__}, which a checkpoint without pickled objects "
                f"cannot hold; run it with --saved=False."
            )
        kept[key] = value
    return kept


@cache
def _with_plain_checkpoints(base: type) -> type:
    return type(base.__name__, (PlainCheckpoints, base), {"__doc__": base.__doc__})


def get_trainer(config) -> type:
    """The trainer class for the model of `config`: RecBole's choice, with our checkpoints and clipping.

    Checkpoints load with `torch.load(weights_only=True)` and hold the configuration as plain values, the model's name,
    the tokens of users and items, the origin of time, versions and the states of all random generators. They are
    replaced atomically. Gradients are clipped after AMP has unscaled them.
    """
    base = recbole.utils.get_trainer(config["MODEL_TYPE"], config["model"])
    return _with_plain_checkpoints(base)
