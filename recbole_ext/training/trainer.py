"""RecBole's trainers with resumable checkpoints, correct gradient clipping, and clear errors for NaN.

The training loop is RecBole's `Trainer.fit`; the classes here override the methods that it calls.
"""

import math
from contextlib import nullcontext
from functools import cache
from logging import getLogger
from typing import Any

import recbole.utils
import torch
from recbole.utils import ModelType
from torch.nn.utils import clip_grad_norm_

from recbole_ext.checkpoint import file as checkpoint_file
from recbole_ext.checkpoint.restore import load_weights
from recbole_ext.config.checks import check_evaluation
from recbole_ext.config.negative_sampling import check_label_column, check_training
from recbole_ext.distributed import processes
from recbole_ext.distributed.evaluation import SharedEvaluation
from recbole_ext.distributed.training import SharedTraining
from recbole_ext.errors import InputError
from recbole_ext.evaluation.evaluator import LabelCollector, LabelEvaluator
from recbole_ext.evaluation.exclude_history import SeenItemFilter
from recbole_ext.evaluation.item_ranker import ItemRanker
from recbole_ext.evaluation.per_user import check_users, describe_test_data, per_user_table
from recbole_ext.model import contract
from recbole_ext.training.checkpointing import ResumableCheckpoints
from recbole_ext.training.device_batches import DeviceBatches
from recbole_ext.training.lazy_adam import LazyAdam, sparse_gradient
from recbole_ext.training.logs import TensorBoardLog, tensorboard_errors, tensorboard_in_log_dir
from recbole_ext.training.sampled_validation import SampledValidation
from recbole_ext.training.step_checkpoints import StepCheckpoints
from recbole_ext.training.weight_average import WeightAverage


def get_trainer(config) -> type:
    """The trainer class for the model of `config`: RecBole's choice with the mixins of this folder.

    Checkpoints load with `torch.load(weights_only=True)` and are replaced atomically. They hold the configuration as
    plain values, the model's name, the tokens of users and items, the origin of time, versions, and the states of all
    random generators. Gradients are clipped after AMP has unscaled them.
    """
    base = recbole.utils.get_trainer(config["MODEL_TYPE"], config["model"])
    return _with_mixins(base, processes.size() > 1)


@cache
def _with_mixins(base: type, shared: bool) -> type:
    """A subclass of RecBole's trainer class, the same one at each call."""
    mixins = CheckedTrainer, SampledValidation, ResumableCheckpoints, StepCheckpoints, DeviceBatches
    of_several = (SharedTraining, SharedEvaluation) if shared else ()
    return type(base.__name__, (*of_several, *mixins, base), {"__doc__": base.__doc__})


class CheckedTrainer:
    """A mixin for RecBole's trainer classes: checks before training, clipping, and evaluation.

    It overrides methods of RecBole's trainers and calls the original ones through `super()`.
    """

    config: Any
    model: Any
    device: torch.device
    saved_model_file: str
    tensorboard: Any
    weight_average: WeightAverage | None

    def __init__(self, config, model):
        check_evaluation(config)
        with tensorboard_errors(), tensorboard_in_log_dir(config):
            super().__init__(config, model)
        self.takes_whole_batches = contract.takes_whole_batches(model)  # with several processes
        self.tensorboard = TensorBoardLog(self.tensorboard)
        self.clip_grad_norm = None  # so that RecBole does not clip: `_build_optimizer` adds the clipping
        self.eval_collector, self.evaluator = LabelCollector(config), LabelEvaluator(config)
        self._seen_items: SeenItemFilter | None = None  # during an evaluation with `exclude_history`
        self._item_ranker: ItemRanker | None = None  # during an evaluation that reads the best items only

    # ---------------------------------------------------------------- training

    def fit(self, train_data, *args, **kwargs):
        """RecBole's training; see `ResumableCheckpoints.fit`.

        Raises:
            InputError: the loss needs negatives or labels that the configuration or the data lack.
        """
        check_training(self.config)
        check_label_column(self.config, train_data._dataset)
        return super().fit(train_data, *args, **kwargs)

    def _build_optimizer(self, **kwargs):
        if self.config["sparse_updates"]:  # RecBole's own models have no such key
            optimizer = LazyAdam(kwargs.get("params", self.model.parameters()), self.config["learning_rate"])
        else:
            optimizer = super()._build_optimizer(**kwargs)
        if self.config["ema_decay"]:  # RecBole's own Config has no such key
            self.weight_average = self.weight_average or WeightAverage(self.model, self.config["ema_decay"])
            optimizer.register_step_pre_hook(self.weight_average.before_step)
            optimizer.register_step_post_hook(self.weight_average.update)
        # RecBole clips gradients while AMP has them scaled; a hook of the step sees them unscaled
        if self.config["clip_grad_norm"]:
            optimizer.register_step_pre_hook(self._clip)
        return optimizer

    def _clip(self, *_):
        clip_grad_norm_(list(map(_with_dense_gradient, self.model.parameters())), **self.config["clip_grad_norm"])

    def _train_epoch(self, train_data, epoch_idx, *args, **kwargs):
        try:
            return super()._train_epoch(train_data, epoch_idx, *args, **kwargs)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):  # the message of torch's batch normalisation
                raise
            raise InputError(
                f"train_batch_size is {self.config['train_batch_size']}, with which a batch has a single example, but "
                f"{type(self.model).__name__} normalises over the examples of a batch; give another train_batch_size."
            ) from error

    def _check_nan(self, loss):
        if math.isnan(loss.item()):
            raise FloatingPointError("the training loss is not a number: training has diverged; lower learning_rate.")

    def _valid_epoch(self, *args, **kwargs):
        with self.weight_average.applied() if self.weight_average else nullcontext():
            score, result = super()._valid_epoch(*args, **kwargs)
        if not math.isfinite(score):  # no epoch would ever count as the best one
            raise FloatingPointError(
                f"valid_metric {self.config['valid_metric']} is {score} on the validation data; choose another metric."
            )
        return score, result

    # ---------------------------------------------------------------- evaluation

    def evaluate(self, eval_data, load_best_model=True, model_file=None, show_progress=False):
        """RecBole's evaluation of the best epoch in a checkpoint, or of the model in its present state.

        Loaders of `data_preparation` draw the same candidates of sampled evaluation (`mode: uniN`, ...) on every pass.

        Args:
            eval_data: a loader, or None.
            load_best_model: whether to load the weights of a checkpoint first.
            model_file: that checkpoint; by default the one that `fit` has written.
            show_progress: whether to show a progress bar.

        Returns:
            the metrics as plain numbers, or None without data.

        Raises:
            InputError: metrics of labels are configured, and the data have no labels; a metric needs counts of the
                training data, which a trainer has after `fit` only.
        """
        if not eval_data:
            return None
        check_label_column(self.config, eval_data._dataset)
        if load_best_model:
            path = model_file or self.saved_model_file
            load_weights(self.model, checkpoint_file.load(path, self.device), path)
            getLogger().info(f"Loading model structure and parameters from {path}")
        self.eval_collector.check_training_data()
        exclude_history = self.config["exclude_history"] and self.config["MODEL_TYPE"] == ModelType.SEQUENTIAL
        self._seen_items = SeenItemFilter(eval_data._dataset, self.config) if exclude_history else None
        ranks_items = contract.has_item_table(self.model) and self.eval_collector.needs_best_items_only()
        self._item_ranker = ItemRanker(self.model.eval(), max(self.config["topk"])) if ranks_items else None
        result = super().evaluate(eval_data, load_best_model=False, show_progress=show_progress)
        if self._seen_items is not None:
            self._seen_items.log_repeated_targets()
        return type(result)((name, float(value)) for name, value in result.items())

    def evaluate_per_user(self, eval_data, load_best_model=True, model_file=None, show_progress=False):
        """`evaluate`, with the metrics of each user.

        Returns:
            the metrics, as `evaluate`, and the DataFrame of `per_user_table`; None and None without data. The
            DataFrame's `attrs` hold the keys of the run, `config`, and its `test_data` (see `describe_test_data`).
        """
        check_users(self.config)
        self.eval_collector.keeps_rows = self.evaluator.keeps_collected = True
        try:
            result = self.evaluate(eval_data, load_best_model, model_file, show_progress)
            if result is None:
                return None, None
            dataset, collected = eval_data._dataset, self.evaluator.collected
            tokens = dataset.field2id_token[dataset.uid_field]
            users = per_user_table(self.evaluator.metric_class, collected, dataset.uid_field, tokens)
            test_data = describe_test_data(dataset, self.config["eval_args"]["mode"]["test"] == "labeled")
            users.attrs = {"config": self.config.to_dict(), "test_data": test_data}
            return result, users
        finally:
            self.eval_collector.keeps_rows = self.evaluator.keeps_collected = False
            self.evaluator.collected = None

    def _full_sort_batch_eval(self, batched_data):
        self.eval_collector.row_of_candidate = None
        if self._item_ranker is not None:
            interaction, _, *positives = batched_data
            interaction = interaction.to(self.device)
            seen = None if self._seen_items is None else self._seen_items.pairs(interaction)
            ranked = self._item_ranker.rank(interaction, seen)
            _refuse_nan(ranked.scores)
            return interaction, ranked, *positives
        interaction, scores, *positives = super()._full_sort_batch_eval(batched_data)
        _refuse_nan(scores)
        if self._seen_items is not None:
            self._seen_items.exclude(scores, interaction)
        return interaction, scores, *positives

    def _neg_sample_batch_eval(self, batched_data):
        _, self.eval_collector.row_of_candidate, *_ = batched_data
        interaction, scores, *positives = super()._neg_sample_batch_eval(batched_data)
        _refuse_nan(scores)
        return interaction, scores, *positives


def _with_dense_gradient(parameter: torch.Tensor) -> torch.Tensor:
    """The parameter, or a tensor whose gradient is the rows of the parameter's sparse one and shares their memory."""
    gradient = sparse_gradient(parameter)
    if gradient is None:
        return parameter
    values = gradient.values()
    stand_in = torch.empty_like(values)
    stand_in.grad = values
    return stand_in


def _refuse_nan(scores: torch.Tensor) -> None:
    """`FloatingPointError` if a score is not a number."""
    if torch.isnan(scores).any():
        raise FloatingPointError("the model's scores are not numbers: training has diverged; lower learning_rate.")
