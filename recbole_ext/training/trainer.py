"""RecBole's trainers with checkpoints that are plain, whole and self-contained."""

import math
import os
import secrets
from collections import OrderedDict
from functools import cache
from logging import getLogger
from typing import Any

import recbole.utils
import torch
from recbole.utils import ModelType
from torch.nn.utils import clip_grad_norm_

from recbole_ext.checkpoint import file as checkpoint
from recbole_ext.checkpoint.training_run import Curves
from recbole_ext.config.evaluation import check_evaluation
from recbole_ext.config.negative_sampling import check_label_column, check_training
from recbole_ext.data.description import describe
from recbole_ext.data.files.exact_time import ExactTimeDataset
from recbole_ext.errors import InputError
from recbole_ext.evaluation.evaluator import CountingCollector, LabelEvaluator
from recbole_ext.evaluation.exclude_history import History
from recbole_ext.evaluation.per_user import check_users, per_user_table
from recbole_ext.model import contract
from recbole_ext.model.registry import class_path, name_of
from recbole_ext.training.logs import TensorBoardLog, tensorboard_errors, tensorboard_in_log_dir
from recbole_ext.utils import signals as stopping
from recbole_ext.utils.atomic_write import remove_unfinished
from recbole_ext.utils.random_state import random_states, restore_random
from recbole_ext.utils.versions import versions

RESUMED = ("params", "lr", "weight_decay")  # of an optimizer's options; the others follow from the configuration


class PlainCheckpoints:
    """What this package adds to a RecBole trainer: see `get_trainer`.

    The mixin stands before a trainer class of RecBole and changes it through `super()` only.
    """

    config: Any
    model: Any
    optimizer: Any
    device: torch.device
    saved_model_file: str
    tensorboard: Any
    cur_step: int
    best_valid_score: float
    best_valid_result: dict[str, float] | None

    def __init__(self, config, model):
        self.train_data: Any = None
        self.resumable = True  # whether each epoch leaves its state on the disk, not the best one alone
        self.owns_file = False  # whether nobody else writes saved_model_file
        self.run = secrets.token_hex(8)  # which files are of one run
        self.saves, self.trained, self.stored = False, -1, -1  # the last epoch there was, and in saved_model_file
        self.resumed: tuple[Any, ...] | None = None  # what `resume_checkpoint` read, and from where
        self.last_result: dict[str, float] | None = None  # RecBole saves before it notes the best result
        self.curves = Curves()
        self.description: dict[str, Any] | None = None  # of the data set
        self.history: History | None = None  # of the users under evaluation, where it is left out of rankings
        check_evaluation(config)
        with tensorboard_errors(), tensorboard_in_log_dir(config):
            super().__init__(config, model)
        self.tensorboard = TensorBoardLog(self.tensorboard)
        folder, file = os.path.split(self.saved_model_file)
        name = name_of(type(self.model))  # RecBole's LightSANs and ours have checkpoints of different names
        self.saved_model_file = os.path.join(folder, name + file.removeprefix(type(self.model).__name__))
        self.clip_grad_norm = None  # done in _build_optimizer
        self.eval_collector, self.evaluator = CountingCollector(config), LabelEvaluator(config)

    # ---------------------------------------------------------------- training

    def _build_optimizer(self, **kwargs):
        optimizer = super()._build_optimizer(**kwargs)
        # RecBole clips gradients while AMP still has them scaled; a step's own hook sees them unscaled
        if self.config["clip_grad_norm"]:
            optimizer.register_step_pre_hook(self._clip)
        return optimizer

    def _clip(self, *_):
        clip_grad_norm_(self.model.parameters(), **self.config["clip_grad_norm"])

    def fit(self, train_data, valid_data=None, verbose=True, saved=True, *args, **kwargs):
        """RecBole's training, of which every epoch can be resumed from.

        Each epoch leaves its state on the disk: in the checkpoint if it is the best one so far, in a second file
        beside it (`checkpoint.latest_file`) if not. After `resume_checkpoint`, training goes on as if it had not ended.

        Raises:
            InputError: training lacks negatives or labels that the loss needs, or evaluation lacks labels.
        """
        check_training(self.config)
        check_label_column(self.config, train_data._dataset)
        self.train_data, self.saves = train_data, saved
        if saved:
            _other_state(self.model)  # refuse better now than after an epoch
        if self.resumed:
            self._go_on(train_data)
        with stopping.epochs():
            result = super().fit(train_data, valid_data, verbose, saved, *args, **kwargs)
            self._end_epoch()
        return result

    def _go_on(self, train_data):
        state, place, file = self.resumed
        checkpoint.compare_data(state, train_data._dataset, place, file)
        restore_random(state["random"])
        train_data.generator.set_state(state["sampler"].cpu())
        for own in (self.saved_model_file, checkpoint.latest_file(self.saved_model_file)):
            remove_unfinished(own)  # of the process that was killed
        if self.cur_step > self.stopping_step:
            getLogger().info(f"Training had ended after {self.stopping_step} evaluations without a better one.")
            self.start_epoch = self.epochs

    def _train_epoch(self, train_data, epoch_idx, *args, **kwargs):
        self._end_epoch()
        try:
            losses = super()._train_epoch(train_data, epoch_idx, *args, **kwargs)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):  # how torch's batch normalisation words it
                raise
            raise InputError(
                f"train_batch_size is {self.config['train_batch_size']}, with which a batch has one example alone, and "
                f"{type(self.model).__name__} normalises over the examples of a batch; give another train_batch_size."
            ) from error
        self.trained = epoch_idx
        self.curves.trained(epoch_idx, losses)
        return losses

    def _end_epoch(self):
        """See to it that the last epoch is on the disk, now that its evaluation is done; end here if that is asked."""
        stored = self.saves and self.trained >= 0
        if stored and self.resumable:
            latest = checkpoint.latest_file(self._own_file())
            if self.trained != self.stored:
                checkpoint.save(self._state(self.trained, self.best_valid_result), latest)
            elif os.path.exists(latest):
                os.unlink(latest)
        stopping.stop_if_requested(self.saved_model_file if stored else None)

    def _valid_epoch(self, *args, **kwargs):
        score, self.last_result = super()._valid_epoch(*args, **kwargs)
        if not math.isfinite(score):  # no epoch would ever count as the best one
            raise FloatingPointError(
                f"valid_metric {self.config['valid_metric']} is {score} on the validation data; choose another metric."
            )
        self.curves.validated(score)
        return score, self.last_result

    def _check_nan(self, loss):
        if torch.isnan(loss):
            raise FloatingPointError("the training loss is not a number: training has diverged; lower learning_rate.")

    def evaluate(self, eval_data, load_best_model=True, model_file=None, show_progress=False):
        """RecBole's evaluation, of the best model in a checkpoint of ours or of the model as it is.

        Loaders of `data_preparation` draw the same candidates (`mode: uniN` and `popN`) on every pass.

        Returns:
            the metrics as plain numbers, or None without data.

        Raises:
            InputError: labels are measured, and the data have none; a metric needs counts of the training data, which a
                trainer has after `fit` only.
        """
        if eval_data:
            check_label_column(self.config, eval_data._dataset)
        if eval_data and load_best_model:
            path = model_file or self.saved_model_file
            checkpoint.load_weights(self.model, checkpoint.load(path, self.device), path)
            getLogger().info(f"Loading model structure and parameters from {path}")
        if eval_data:
            self.eval_collector.check_training_data()
        self.history = History(eval_data._dataset, self.config) if eval_data and self._excludes() else None
        result = super().evaluate(eval_data, load_best_model=False, show_progress=show_progress)
        return result and type(result)((name, float(value)) for name, value in result.items())

    def evaluate_per_user(self, eval_data, load_best_model=True, model_file=None, show_progress=False):
        """`evaluate`, with the values that its metrics average.

        Returns:
            the metrics, as `evaluate`, and a DataFrame with the metrics of each user, see `per_user_table`; None and
            None without data.
        """
        check_users(self.config)
        self.eval_collector.keeps_rows = self.evaluator.keeps_collected = True
        try:
            result = self.evaluate(eval_data, load_best_model, model_file, show_progress)
            if result is None:
                return None, None
            dataset, collected = eval_data._dataset, self.evaluator.collected
            tokens = dataset.field2id_token[dataset.uid_field]
            return result, per_user_table(self.evaluator.metric_class, collected, dataset.uid_field, tokens)
        finally:
            self.eval_collector.keeps_rows = self.evaluator.keeps_collected = False
            self.evaluator.collected = None

    def _excludes(self) -> bool:
        return self.config["exclude_history"] and self.config["MODEL_TYPE"] == ModelType.SEQUENTIAL

    def _full_sort_batch_eval(self, batched_data):
        self.eval_collector.row_of_candidate = None
        batch = _with_numbers(super()._full_sort_batch_eval(batched_data))
        if self.history is not None:
            self.history.take_out(batch[1], batch[0])
        return batch

    def _neg_sample_batch_eval(self, batched_data):
        self.eval_collector.row_of_candidate = batched_data[1]
        return _with_numbers(super()._neg_sample_batch_eval(batched_data))

    # ---------------------------------------------------------------- checkpoints

    def resume_checkpoint(self, resume_file):
        """Go on with `fit` after the latest epoch of the run that wrote a checkpoint; its files are written on.

        `fit` refuses other data than the checkpoint's, before anything is written.
        """
        best, newest, state = checkpoint.newest(resume_file, self.device)
        if state.get("random") is None or state.get("sampler") is None:
            raise InputError(f"checkpoint {newest} holds no states of random generators; start the training anew.")
        same = ("learner", "loss_type", "valid_metric", "eval_args", "exclude_history")
        checkpoint.compare_keys(state, self.config, (*same, *contract.structural_keys(self.model)), newest)
        for key in ("learning_rate", "weight_decay"):
            if state["config"].get(key) != self.config[key]:
                getLogger().warning(f"{key}: stays {state['config'].get(key)}, as the checkpoint's optimiser has it.")
        checkpoint.load_weights(self.model, state, newest)
        checkpoint.check_optimizer(self.optimizer, state, newest)
        options = [{key: group[key] for key in group if key not in RESUMED} for group in self.optimizer.param_groups]
        super().resume_checkpoint(newest)
        for group, own in zip(self.optimizer.param_groups, options, strict=True):
            group.update(own)
        self.resumed = state, self.config["data_path"], newest
        self.best_valid_result = OrderedDict(state["best_valid_result"]) or None
        self.curves = Curves(state.get("curves"))
        self.saved_model_file, self.owns_file, self.run = best, True, state.get("run", self.run)

    def _save_checkpoint(self, epoch, verbose=True, **kwargs):
        if self.resumed and epoch < 0:  # nothing was left to train
            if os.path.getsize(self.saved_model_file):
                return
            epoch = self.resumed[0]["epoch"]  # of which no epoch was validated
        path = kwargs.pop("saved_model_file", None) or self._own_file()
        try:
            checkpoint.save(self._state(epoch, self.last_result), path)
        except BaseException:
            if os.path.exists(path) and os.path.getsize(path) == 0:  # nothing but the reservation
                os.unlink(path)
            raise
        if path == self.saved_model_file:
            self.stored = epoch
        if verbose:
            getLogger().info(f"Saving current: {path}")

    def _own_file(self) -> str:
        """The path of the checkpoint, reserved for this run: RecBole names files by the second alone."""
        stem, number = self.saved_model_file.removesuffix(".pth"), 1
        while not self.owns_file:
            try:
                open(self.saved_model_file, "x").close()
                self.owns_file = True
            except FileExistsError:
                number += 1
                self.saved_model_file = f"{stem}-{number}.pth"
        return self.saved_model_file

    def _state(self, epoch: int, best_result: dict[str, float] | None) -> dict[str, Any]:
        dataset = self.train_data._dataset if self.train_data is not None else None
        fields = [self.config["USER_ID_FIELD"], self.config["ITEM_ID_FIELD"]]
        known = dataset.field2id_token if dataset is not None else {}
        return {
            "format": checkpoint.FORMAT,
            "run": self.run,
            "model": type(self.model).__name__,
            "class": class_path(type(self.model)),
            "config": {**self.config.to_dict(), "model": self.config["model"]},
            "epoch": epoch,
            "cur_step": self.cur_step,
            "best_valid_score": float(self.best_valid_score),
            "best_valid_result": dict(best_result or {}),
            "curves": self.curves.to_dict(),
            "state_dict": self.model.state_dict(),
            "other_parameter": _other_state(self.model),
            "optimizer": self.optimizer.state_dict(),
            "tokens": {field: [str(token) for token in known[field]] for field in fields if field in known},
            "data_digest": getattr(dataset, "digest", ""),
            "time_origin": getattr(dataset, "time_origin", None),
            "data": self._described(dataset),
            "random": random_states(),
            "sampler": self.train_data.generator.get_state() if self.train_data is not None else None,
            "versions": versions(),
        }

    def _described(self, dataset: Any) -> dict[str, Any] | None:
        """What the model can be rebuilt and asked from without its data; None of RecBole's other data sets."""
        if self.description is None and isinstance(dataset, ExactTimeDataset):
            self.description = describe(dataset)
        return self.description


def _with_numbers(batch: tuple) -> tuple:
    """A batch of evaluation as it is; `FloatingPointError` if its scores rank nothing."""
    if torch.isnan(batch[1]).any():
        raise FloatingPointError("the model's scores are not numbers: training has diverged; lower learning_rate.")
    return batch


def _other_state(model: Any) -> dict[str, Any]:
    """What RecBole's model keeps beside its weights (Pop's counts, say), if no pickling is needed to store it."""
    values = model.other_parameter()
    submodules = {id(module) for module in model.modules()}
    for key, value in list(values.items()):
        if id(value) in submodules:  # its weights are among the model's own
            del values[key]
        elif not (value is None or isinstance(value, (torch.Tensor, bool, int, float, str))):
            raise InputError(
                f"the model keeps '{key}' as a {type(value).__name__}, which a checkpoint without pickled objects "
                f"cannot hold; run it with --saved=False."
            )
    return values


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
