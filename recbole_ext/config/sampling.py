"""Negative sampling and labels: what a model's loss and evaluation need, and whether the keys give it."""

from logging import getLogger
from typing import Any

from recbole.data.dataloader import UserDataLoader
from recbole.data.utils import get_dataloader
from recbole.utils import InputType, ModelType

from recbole_ext.errors import InputError

KEY = "train_neg_sample_args"


def settle_negative_sampling(final: dict[str, Any], given: set[str], model_class: Any) -> None:
    """Make an absent distribution mean no negative sampling, and choose what the loss needs if nothing is given.

    A sequential model trained with cross entropy over all items (CE) draws no negatives; BPR, and models that state
    what they take by their class, need some, but for those that are measured by labels, which then learn labels.

    Raises:
        InputError: the loss and the sampling contradict each other.
    """
    value, loss = final.get(KEY), str(final.get("loss_type"))
    if not value or (KEY in given and value.get("distribution", "uniform") is None):
        value = None
    if value is not None and value.get("dynamic") and not value.get("candidate_num"):
        raise InputError(f"{KEY} is dynamic without candidates to choose from; give it candidate_num, e.g. 10.")
    if value is not None and value.get("dynamic") and final.get("worker"):
        raise InputError(
            f"worker is {final['worker']}, but {KEY} is dynamic, which asks the model for the hardest candidates, and "
            f"worker processes have no model that learns; set worker to 0."
        )
    if model_class.type == ModelType.SEQUENTIAL:
        if KEY not in given:
            states_input = getattr(model_class, "input_type", None) is not None
            labels = "labeled" in evaluation_modes(final["eval_args"])  # then they are learnt, too
            draws = loss == "BPR" or (loss != "CE" and states_input and not labels)
            value = {"distribution": "uniform", "sample_num": 1} if draws else None
        elif value is not None and "labeled" in evaluation_modes(final["eval_args"]):
            raise InputError(
                f"{KEY} is {value}, which takes every event for a positive one, but eval_args mode labeled measures "
                f"labels; set it to None, so that they are learnt."
            )
        if loss == "BPR" and value is None:
            raise InputError(f"{KEY} is None, but loss_type BPR needs negatives; give {{'distribution': 'uniform'}}.")
        if loss == "CE" and value is not None:
            raise InputError(f"{KEY} is {value}, but loss_type CE draws no negatives; leave it out or set it to None.")
        if loss.upper() in ("BPR", "CE") and loss != loss.upper():
            raise InputError(f"loss_type is '{loss}'; write {loss.upper()}.")
    final[KEY] = value


def evaluation_modes(eval_args: dict[str, Any]) -> set[str]:
    """The modes of validation and test, whether `eval_args` gives one for both or one for each."""
    mode = eval_args.get("mode", "full")
    return set(mode.values()) if isinstance(mode, dict) else {mode}


def learns_labels(final: Any, model_class: Any) -> bool:
    """Whether training tells events by their labels; otherwise every one of them is a positive example."""
    sampled = (final[KEY] or {}).get("distribution") not in (None, "none")
    supervised = model_class.type in (ModelType.CONTEXT, ModelType.SEQUENTIAL)
    return supervised and not sampled and _loss_kind(final, model_class) == InputType.POINTWISE


def _loss_kind(final: Any, model_class: Any) -> InputType | None:
    """What a model states to learn from by its class, unless its loss is over all items."""
    over_all_items = "loss_type" in final and final["loss_type"] == "CE"
    return None if over_all_items else getattr(model_class, "input_type", None)


def check_supply(final: dict[str, Any], model_class: Any) -> None:
    """See to it that there are negatives for those who compare with them, and labels where they are learnt or measured.

    Raises:
        InputError: none are sampled, neither `threshold` makes labels, nor is a column of them loaded.
    """
    kind, unsampled = _loss_kind(final, model_class), final[KEY] is None
    if kind == InputType.PAIRWISE and unsampled and get_dataloader(final, "train") is not UserDataLoader:
        raise InputError(f"{KEY} is None, but {final['model']} needs negatives; give {{'distribution': 'uniform'}}.")
    learns = learns_labels(final, model_class)
    labelled = final["threshold"] or final["LABEL_FIELD"] in ((final["load_col"] or {}).get("inter") or ())
    if labelled and kind == InputType.POINTWISE and not unsampled and final["history"] == "all":
        getLogger().warning(
            f"{KEY} draws negatives, so every event counts as positive, whatever its {final['LABEL_FIELD']}; to learn "
            f"labels, set eval_args mode to labeled; to take positive events only, set history to positive."
        )
    if not learns and "labeled" not in final["eval_args"]["mode"].values():
        return
    columns, label = (final["load_col"] or {}).get("inter", "*"), final["LABEL_FIELD"]
    if not final["threshold"] and columns != "*" and label not in columns:
        need = f"{final['model']} without negative sampling" if learns else "eval_args mode labeled"
        raise InputError(
            f"{need} needs labels, but neither threshold makes them nor load_col loads the column '{label}' "
            f"(LABEL_FIELD); give e.g. threshold: {{'rating': 4}}."
        )
