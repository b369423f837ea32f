"""Negative sampling and labels: which of them the loss and the evaluation need, and whether the keys provide them."""

from logging import getLogger
from typing import Any

from recbole.data.dataloader import UserDataLoader
from recbole.data.utils import get_dataloader
from recbole.utils import InputType, ModelType

from recbole_ext.errors import InputError
from recbole_ext.model import contract
from recbole_ext.model.losses import AUTO, LOSSES

KEY = "train_neg_sample_args"
OWN_NEGATIVES = (*LOSSES, AUTO)  # values of loss_type without RecBole's negatives
UNSEEN = "-unseen"  # ends the modes uniN-unseen and popN-unseen


def resolve_negative_sampling(settings: dict[str, Any], user_keys: set[str], model_class: Any) -> None:
    """Choose the negative sampling that the loss needs, unless the user sets it.

    Sequential models sample no negatives for cross entropy over all items (CE). BPR and models with `input_type`
    sample one negative by default, unless the evaluation mode is `labeled`: then they are trained on the labels.

    Args:
        settings: all keys and their values; changed in place.
        user_keys: the keys that the user set.
        model_class: class of the model.

    Raises:
        InputError: the loss and the sampling contradict each other. `check_training` refuses missing negatives.
    """
    value, loss = settings.get(KEY), str(settings.get("loss_type"))
    if not value or (KEY in user_keys and value.get("distribution", "uniform") is None):
        value = None
    if value is not None:  # without its None values, for which RecBole has defaults
        value = {name: member for name, member in value.items() if member is not None or name == "distribution"}
    if value is not None and value.get("dynamic") and not value.get("candidate_num"):
        raise InputError(f"{KEY} is dynamic, but has no candidate_num; set it, e.g. to 10.")
    if value is not None and value.get("dynamic") and settings.get("worker"):
        raise InputError(
            f"worker is {settings['worker']}, but {KEY} is dynamic: the model being trained chooses the negatives, and "
            f"worker processes do not have it; set worker to 0."
        )
    if model_class.type == ModelType.SEQUENTIAL:
        if KEY not in user_keys:
            has_input_type = contract.input_type(model_class) is not None
            labels = "labeled" in evaluation_modes(settings["eval_args"])
            draws = loss == "BPR" or (loss not in OWN_NEGATIVES and has_input_type and not labels)
            value = {"distribution": "uniform", "sample_num": 1} if draws else None
        if loss in OWN_NEGATIVES and value is not None:
            need = "draws no negatives" if loss == "CE" else "has its own (num_negatives)"
            raise InputError(f"{KEY} is {value}, but loss_type {loss} {need}; leave it out or set it to None.")
        if loss.upper() in ("BPR", "CE") and loss != loss.upper():
            raise InputError(f"loss_type is '{loss}'; write {loss.upper()}.")
    settings[KEY] = value


def evaluation_modes(eval_args: dict[str, Any]) -> set[str]:
    """The modes of validation and test; `eval_args` has one mode for both or one for each."""
    mode = eval_args.get("mode", "full")
    return set(mode.values()) if isinstance(mode, dict) else {mode}


def sample_count(mode: str) -> int:
    """N of the modes uniN, popN, uniN-unseen and popN-unseen; 0 for full and labeled."""
    return int(mode.removesuffix(UNSEEN)[3:]) if mode.startswith(("uni", "pop")) else 0


def draws_unseen(mode: str) -> bool:
    """Whether the candidates of a mode are items that the user has not had."""
    return mode.endswith(UNSEEN)


def learns_labels(settings: Any, model_class: Any) -> bool:
    """Whether the model is trained on labels; otherwise every event is a positive example."""
    supervised = model_class.type in (ModelType.CONTEXT, ModelType.SEQUENTIAL)
    return supervised and not draws_negatives(settings) and _loss_kind(settings, model_class) == InputType.POINTWISE


def _loss_kind(settings: Any, model_class: Any) -> InputType | None:
    """The `input_type` of a model; None if `loss_type` replaces it or the model has none."""
    by_loss_type = "loss_type" in settings and settings["loss_type"] in OWN_NEGATIVES
    return None if by_loss_type else contract.input_type(model_class)


def draws_negatives(settings: Any) -> bool:
    """Whether training draws negatives."""
    return (settings[KEY] or {}).get("distribution") not in (None, "none")


def warn_of_unused_labels(settings: dict[str, Any], model_class: Any) -> None:
    """Warn if labels are ignored because negatives are sampled."""
    labelled = settings["threshold"] or settings["LABEL_FIELD"] in ((settings["load_col"] or {}).get("inter") or ())
    pointwise = _loss_kind(settings, model_class) == InputType.POINTWISE
    if labelled and pointwise and draws_negatives(settings) and settings["history"] == "all":
        getLogger().warning(
            f"{KEY} draws negatives, so every event is a positive, whatever its {settings['LABEL_FIELD']}; to learn "
            f"the labels, set eval_args mode to labeled; to use positive events only, set history to positive."
        )


def check_training(config: Any) -> None:
    """Refuse a loss that lacks its negatives or labels.

    Raises:
        InputError: no negatives are sampled; or `threshold` makes no labels, and no column of labels is loaded.
    """
    hint = "set it to {'distribution': 'uniform'}"
    if not draws_negatives(config):
        if config["MODEL_TYPE"] == ModelType.SEQUENTIAL and config["loss_type"] == "BPR":
            raise InputError(f"{KEY} is None, but loss_type BPR needs negatives; {hint}.")
        pairwise = _loss_kind(config, config.model_class) == InputType.PAIRWISE
        if pairwise and get_dataloader(config, "train") is not UserDataLoader:
            raise InputError(f"{KEY} is None, but {config['model']} needs negatives; {hint}.")
    if learns_labels(config, config.model_class) and not labels_are_loaded(config):
        user = f"{config['model']} without negative sampling"
        raise InputError(missing_labels(user, f"load_col loads '{config['LABEL_FIELD']}'"))


def labels_are_loaded(config: Any) -> bool:
    """Whether `threshold` makes labels, or `load_col` loads their column or all columns."""
    columns = (config["load_col"] or {}).get("inter", "*")
    return bool(config["threshold"]) or columns == "*" or config["LABEL_FIELD"] in (columns or ())


def check_label_column(config: Any, dataset: Any) -> None:
    """Raise `InputError` if training or evaluation needs labels and the data has no column of labels."""
    label, evaluates_labels = config["LABEL_FIELD"], "labeled" in evaluation_modes(config["eval_args"])
    if (evaluates_labels or learns_labels(config, config.model_class)) and label not in dataset.inter_feat:
        user = "eval_args mode labeled" if evaluates_labels else f"{config['model']} without negative sampling"
        raise InputError(missing_labels(user, f"has data set '{dataset.dataset_name}' a column '{label}'"))


def missing_labels(user: str, source: str) -> str:
    """The message that labels are missing for their user, a model or an evaluation mode."""
    return (
        f"{user} needs labels, but neither threshold makes them nor {source} (LABEL_FIELD); set e.g. threshold: "
        f"{{'rating': 4}}."
    )
