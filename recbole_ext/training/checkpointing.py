"""Checkpoints of a training: the best epoch and the latest one are stored, and training resumes from the latest."""

import os
import secrets
from collections import OrderedDict
from logging import getLogger
from typing import Any

import torch

from recbole_ext.checkpoint import file as checkpoint_file
from recbole_ext.checkpoint.restore import (
    check_optimizer,
    compare_data,
    compare_keys,
    load_weights,
    unaveraged_weights,
)
from recbole_ext.checkpoint.training_run import LearningCurves, ResumeState, find_resume_state, latest_file
from recbole_ext.data.description import describe
from recbole_ext.data.files.exact_time import ExactTimeDataset
from recbole_ext.data.user_sample import UserSample
from recbole_ext.distributed import processes
from recbole_ext.distributed.restarts import keep_name
from recbole_ext.errors import InputError
from recbole_ext.model import contract
from recbole_ext.model.losses import KEYS_OF_LOSS
from recbole_ext.model.registry import class_path, name_of
from recbole_ext.training.weight_average import WeightAverage
from recbole_ext.utils import random_state
from recbole_ext.utils import signals as stopping
from recbole_ext.utils.atomic_write import remove_unfinished
from recbole_ext.utils.versions import versions

# keys that a resumed training must keep, besides those of its loss and of its model
FIXED_KEYS = (
    "learner", "ema_decay", "loss_type", "train_neg_sample_args", "valid_metric", "eval_args", "exclude_history",
    "tie_break", "eval_users", "sparse_updates",
)  # fmt: skip
# options of an optimizer that come from the checkpoint; the others come from the configuration
STORED_OPTIONS = ("params", "lr", "weight_decay")


class ResumableCheckpoints:
    """A mixin for RecBole's trainer classes: each epoch is stored, and training resumes from the latest one.

    It overrides the methods by which RecBole trains and saves, and calls RecBole's through `super()`. RecBole decides
    which epoch is the best one and calls `_save_checkpoint`; the latest epoch is stored by `_end_epoch`. Both write
    through `_write`, and `_checkpoint` makes the content.

    Attributes:
        save_enabled (bool): whether `fit` stores epochs at all.
        save_latest (bool): whether `fit` stores the latest epoch, too, where that is not the best one.
        last_trained_epoch (int): counted from 0; -1 before the first.
        last_saved_epoch (int): the epoch in `saved_model_file`; -1 before the first.
        last_result (dict | None): metrics of the latest validation.
        curves (LearningCurves): of all epochs since the first, also of those before the training was resumed.
        resume_state (ResumeState | None): what `resume_checkpoint` read.
        weight_average (WeightAverage | None): with `ema_decay`. The average is the model's weights in checkpoints and
            after `fit`; checkpoints also have the weights themselves, from which training resumes.
    """

    weight_average: WeightAverage | None = None  # RecBole's constructor sets it, in `_build_optimizer`
    user_sample: UserSample | None = None  # `SampledValidation` sets it

    config: Any
    model: Any
    optimizer: Any
    device: torch.device
    saved_model_file: str
    cur_step: int
    stopping_step: int
    start_epoch: int
    epochs: int
    best_valid_score: float
    best_valid_result: dict[str, float] | None

    def __init__(self, config, model):
        super().__init__(config, model)
        folder, file = os.path.split(self.saved_model_file)
        name = name_of(type(self.model))  # it differs for RecBole's LightSANs and ours
        self.saved_model_file = os.path.join(folder, name + file.removeprefix(type(self.model).__name__))
        self.save_enabled, self.save_latest = False, True
        self.last_trained_epoch = self.last_saved_epoch = -1
        self.last_result: dict[str, float] | None = None  # RecBole saves before it sets best_valid_result
        self.curves = LearningCurves()
        self.resume_state: ResumeState | None = None
        self._train_data: Any = None
        self._owns_file = False  # whether `saved_model_file` is reserved for this run
        self._run_id = secrets.token_hex(8)  # the same in the two files of a run
        self._description: dict[str, Any] | None = None  # of the data set

    # ---------------------------------------------------------------- training

    def fit(self, train_data, valid_data=None, verbose=True, saved=True, *args, **kwargs):
        """RecBole's training, with every epoch stored.

        The best epoch is in the checkpoint. The latest epoch, if it is another one, is in a second file beside it
        (`latest_file`). After `resume_checkpoint`, the results are bit for bit those of an uninterrupted training.

        Raises:
            InputError: a checkpoint cannot hold the model; the data differ from those of the resumed training.
        """
        self._train_data, self.save_enabled = train_data, saved
        if saved:
            _other_parameter(self.model)  # refuse it now rather than after an epoch
        if self.resume_state is not None:
            self._resume(self.resume_state)
        with stopping.epochs():
            result = super().fit(train_data, valid_data, verbose, saved, *args, **kwargs)
            self._end_epoch()
        if self.weight_average is not None and self.weight_average.average:
            self.weight_average.load_weights(self.weight_average.complete())
        return result

    def _train_epoch(self, train_data, epoch_idx, *args, **kwargs):
        self._end_epoch()
        losses = super()._train_epoch(train_data, epoch_idx, *args, **kwargs)
        self.last_trained_epoch = epoch_idx
        self.curves.add_loss(epoch_idx, losses)
        return losses

    def _valid_epoch(self, *args, **kwargs):
        score, self.last_result = super()._valid_epoch(*args, **kwargs)
        self.curves.add_score(score)
        return score, self.last_result

    def _end_epoch(self):
        """Store the latest epoch, once its validation is done, and stop here if a signal has asked for that."""
        stored = self.save_enabled and self.last_trained_epoch >= 0
        if stored and self.save_latest:
            latest = latest_file(self._reserved_file())
            if self.last_trained_epoch != self.last_saved_epoch:
                self._write(latest, self.last_trained_epoch, self.best_valid_result)
            elif os.path.exists(latest) and processes.is_first():
                os.unlink(latest)
        stopping.adopt(*processes.largest(stopping.requested()))
        stopping.stop_if_requested(self.saved_model_file if stored else None)

    # ---------------------------------------------------------------- resuming

    def resume_checkpoint(self, resume_file):
        """Load the latest epoch of the run that wrote a checkpoint; `fit` continues that run and its files.

        Raises:
            InputError: the checkpoint cannot be read, or does not fit the model, the optimizer or the configuration.
                `fit` refuses other data before it writes anything.
        """
        latest = find_resume_state(resume_file, self.device)
        checkpoint, path = latest.checkpoint, latest.path
        if checkpoint.get("random") is None or checkpoint.get("sampler") is None:
            raise InputError(f"checkpoint {path} has no states of random generators; start the training again.")
        of_loss = KEYS_OF_LOSS.get(self.config["loss_type"], ())
        of_sample = ("seed",) if self.config["eval_users"] else ()  # which the users are drawn from
        of_model = contract.structural_keys(self.model)
        of_order = ("train_batch_size", "shuffle") if "partial" in checkpoint else ()
        compare_keys(checkpoint, self.config, (*FIXED_KEYS, *of_loss, *of_sample, *of_order, *of_model), path)
        for key in ("learning_rate", "weight_decay"):
            if checkpoint["config"].get(key) != self.config[key]:
                value = checkpoint["config"].get(key)
                getLogger().warning(f"{key}: stays {value}, the value in the checkpoint's optimizer.")
        load_weights(self.model, checkpoint, path)
        check_optimizer(self.optimizer, checkpoint, path)
        groups = self.optimizer.param_groups
        options = [{key: group[key] for key in group if key not in STORED_OPTIONS} for group in groups]
        super().resume_checkpoint(path)
        for state in self.optimizer.state.values():  # torch leaves `step` where the file was loaded to, and reads it
            if isinstance(state.get("step"), torch.Tensor):
                state["step"] = state["step"].cpu()
        if self.weight_average is not None:
            self.weight_average.load(checkpoint["state_dict"])
            self.weight_average.load_weights(unaveraged_weights(self.model, checkpoint, path))
        elif checkpoint.get("unaveraged_weights"):
            raise InputError(
                f"checkpoint {path} has averaged weights, but its ema_decay is {self.config['ema_decay']}; it was "
                f"edited, so start the training again."
            )
        for group, configured in zip(self.optimizer.param_groups, options, strict=True):
            group.update(configured)
        self.resume_state = latest
        self.best_valid_result = OrderedDict(checkpoint["best_valid_result"]) or None
        self.curves = LearningCurves(checkpoint.get("curves"))
        self.saved_model_file, self._owns_file = os.path.abspath(latest.best_file), True
        self._run_id = checkpoint.get("run", self._run_id)

    def _resume(self, latest: ResumeState) -> None:
        """Check the data and restore all random generators, right before the next epoch."""
        compare_data(latest.checkpoint, self._train_data._dataset, self.config["data_path"], latest.path)
        random_state.restore(latest.checkpoint["random"])
        self._train_data.generator.set_state(latest.checkpoint["sampler"].cpu())
        keep_name(self.saved_model_file)
        for path in (self.saved_model_file, latest_file(self.saved_model_file)) if processes.is_first() else ():
            remove_unfinished(path)  # which a killed process has left
        if self.cur_step > self.stopping_step:
            getLogger().info("Early stopping had ended this training.")
            self.start_epoch = self.epochs

    # ---------------------------------------------------------------- writing

    def _save_checkpoint(self, epoch, verbose=True, **kwargs):
        if self.resume_state is not None and epoch < 0:  # RecBole, where no epoch is left to train
            if os.path.getsize(self.saved_model_file):
                return
            epoch = self.resume_state.checkpoint["epoch"]  # none was validated, hence none is stored as the best one
        path = kwargs.pop("saved_model_file", None) or self._reserved_file()
        try:
            self._write(path, epoch, self.last_result)
        except BaseException:
            if processes.is_first() and os.path.exists(path) and os.path.getsize(path) == 0:  # the reservation
                os.unlink(path)
            raise
        if path == self.saved_model_file:
            self.last_saved_epoch = epoch
        if verbose:
            getLogger().info(f"Saving current: {path}")

    def _reserved_file(self) -> str:
        """The path of the checkpoint, reserved for this run: RecBole's file names differ by the second only."""
        stem, number = self.saved_model_file.removesuffix(".pth"), 1
        if self._owns_file:
            return self.saved_model_file
        while processes.is_first() and not self._owns_file:
            try:
                open(self.saved_model_file, "x").close()
                self._owns_file = True
            except FileExistsError:
                number += 1
                self.saved_model_file = f"{stem}-{number}.pth"
        self.saved_model_file, self._owns_file = processes.text_of_first(self.saved_model_file), True
        keep_name(self.saved_model_file)
        return self.saved_model_file

    def _write(self, path: str, epoch: int, best_result: dict[str, float] | None, **changes: Any) -> None:
        """Write a checkpoint of an epoch, with `changes` of its content; all checkpoints are written here."""
        checkpoint = {**self._checkpoint(epoch, best_result), **changes}  # completes the average in all processes
        if processes.is_first():
            checkpoint_file.save(checkpoint, path)
        processes.wait()

    def _checkpoint(self, epoch: int, best_result: dict[str, float] | None) -> dict[str, Any]:
        """The content of a checkpoint, which `checkpoint/schema.py` describes."""
        loader = self._train_data
        dataset = loader._dataset if loader is not None else None
        fields = [self.config["USER_ID_FIELD"], self.config["ITEM_ID_FIELD"]]
        vocabularies = dataset.field2id_token if dataset is not None else {}
        if self._description is None and isinstance(dataset, ExactTimeDataset):  # not for RecBole's other data sets
            self._description = describe(dataset)
        return {
            "format": checkpoint_file.FORMAT,
            "run": self._run_id,
            "model": type(self.model).__name__,
            "class": class_path(type(self.model)),
            "config": {**self.config.to_dict(), "model": self.config["model"]},
            "epoch": epoch,
            "cur_step": self.cur_step,
            "best_valid_score": float(self.best_valid_score),
            "best_valid_result": dict(best_result or {}),
            "valid_users": self.user_sample and [self.user_sample.users, self.user_sample.all_users],
            "curves": self.curves.to_dict(),
            **self._weights(),
            "other_parameter": _other_parameter(self.model),
            "optimizer": self.optimizer.state_dict(),
            "tokens": {field: list(map(str, vocabularies[field])) for field in fields if field in vocabularies},
            "data_digest": getattr(dataset, "digest", ""),
            "time_origin": getattr(dataset, "time_origin", None),
            "data": self._description,
            "random": random_state.capture(),
            "sampler": loader.generator.get_state() if loader is not None else None,
            "versions": versions(),
        }

    def _weights(self) -> dict[str, dict[str, torch.Tensor]]:
        """The weights to serve and, with `ema_decay`, those from which training resumes."""
        if self.weight_average is None:
            return {"state_dict": self.model.state_dict()}
        unaveraged = {name: weights.detach() for name, weights in self.weight_average.parameters.items()}
        return {"state_dict": self.weight_average.state(self.model), "unaveraged_weights": unaveraged}


def _other_parameter(model: Any) -> dict[str, Any]:
    """What a RecBole model stores besides its weights, such as the counts of Pop.

    Raises:
        InputError: a value could be stored by pickling only.
    """
    values = model.other_parameter()
    submodules = {id(module) for module in model.modules()}
    for key, value in list(values.items()):
        if id(value) in submodules:  # its weights are among the model's weights
            del values[key]
        elif not (value is None or isinstance(value, (torch.Tensor, bool, int, float, str))):
            raise InputError(
                f"the model stores '{key}' as a {type(value).__name__}, which a checkpoint without pickled objects "
                f"cannot hold; run it with --saved=False."
            )
    return values
