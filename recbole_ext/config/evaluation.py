"""What evaluation measures: metrics, `topk`, `valid_metric` and the mode of `eval_args`, and whether they fit together.

A configuration may be made for its data alone. So nothing is refused here until evaluation is set up.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

import recbole
from recbole.evaluator import TopkMetric, metric_types, metrics_dict
from recbole.utils import EvaluatorType, ModelType

from recbole_ext.config.metrics import registered
from recbole_ext.config.negative_sampling import (
    KEY,
    check_training,
    draws_negatives,
    evaluation_modes,
    labels_are_loaded,
    missing_labels,
)
from recbole_ext.errors import InputError
from recbole_ext.model.contract import predicts_probabilities
from recbole_ext.model.registry import is_known, name_of
from recbole_ext.utils.literals import read_yaml

PROBABILITY_METRICS = ("LogLoss", "RMSE", "MAE")  # they compare a prediction with the label itself


def is_label_metric(metric: str, modes: set[str]) -> bool:
    """Whether a metric measures scores of labelled events; GAUC does in mode labeled, and ranks in the others."""
    return metric_types[metric.lower()] == EvaluatorType.VALUE or (metric == "GAUC" and modes == {"labeled"})


def metrics_accepted_by_recbole(metrics: list[str], eval_args: dict[str, Any]) -> list[str]:
    """Metrics that RecBole's `Config` lets pass, to find `eval_type` from; `check_evaluation` refuses later.

    RecBole counts GAUC among the metrics of ranks. It refuses metrics of both kinds, and metrics of labels in mode
    full.
    """
    modes = evaluation_modes(eval_args)
    ranks = [metric for metric in metrics if not is_label_metric(metric, modes)]
    if ranks or "full" in modes:
        return ranks or ["Recall"]
    return ["AUC" if metric == "GAUC" else metric for metric in metrics]


# ------------------------------------------------------------------------ defaults


def resolve_defaults(final: dict[str, Any], given: set[str], model_class: type) -> list[str]:
    """Let defaults of metrics, `topk` and `valid_metric` follow the keys that were given, where they contradict them.

    The mode and the loss never follow: there is more than one choice, and each answers another question.

    Args:
        final: all keys and their values; changed in place.
        given: the keys that are not defaults.
        model_class: class of the model.

    Returns:
        one sentence for each default that was changed.
    """
    notes: list[str] = []

    def follow(key: str, value: Any, reason: str) -> None:
        if final[key] != value:
            notes.append(f"{key}: {value} instead of the default {final[key]}, for {reason}.")
            final[key] = value

    def because(*keys: str) -> str:
        return ", ".join(f"{key}: {final[key]}" for key in keys if key in given) or f"model: {model_class.__name__}"

    modes = evaluation_modes(final["eval_args"])
    name, _, cut = str(final["valid_metric"]).partition("@")
    if "metrics" not in given:
        metrics, reason = _fitting(final["metrics"], modes, model_class)
        wanted = _spelling(name) if "valid_metric" in given else None
        if wanted is not None and wanted not in metrics and _can_measure(wanted, modes):
            if is_label_metric(wanted, modes) != is_label_metric(metrics[0], modes):
                metrics = []
            metrics, reason = [*metrics, wanted], f"valid_metric: {final['valid_metric']}"
        follow("metrics", metrics, reason)
    wanted_cut = int(cut) if "valid_metric" in given and re.fullmatch("[1-9][0-9]{0,8}", cut) else 0
    if "topk" not in given and wanted_cut and wanted_cut not in final["topk"]:
        follow("topk", [wanted_cut], because("valid_metric"))
    if "valid_metric" not in given:
        choices = valid_metrics(final["metrics"], final["topk"], modes)
        if final["valid_metric"].lower() not in {choice.lower() for choice in choices}:
            usual = str(_recbole_defaults()["valid_metric"]).partition("@")[0]
            names = [choice.partition("@")[0] for choice in choices]
            index = next((names.index(one) for one in (name, usual) if one in names), 0)
            follow("valid_metric", choices[index], because("metrics", "topk", "eval_args"))
    return notes


def _fitting(metrics: list[str], modes: set[str], model_class: type) -> tuple[list[str], str]:
    """Default metrics that fit the modes and the model, and what they follow."""
    mode = f"eval_args mode: {', '.join(sorted(modes))}"
    probable = predicts_probabilities(model_class)
    if not all(_can_measure(metric, modes) for metric in metrics):
        if modes == {"labeled"}:
            return (["AUC", "LogLoss"] if probable else ["AUC"]), mode
        if "labeled" not in modes:
            return list(_recbole_defaults()["metrics"]), mode
    if not probable:
        metrics = [metric for metric in metrics if metric not in PROBABILITY_METRICS] or metrics
    return metrics, f"model: {model_class.__name__}"


def _can_measure(metric: str, modes: set[str]) -> bool:
    """Whether each of the modes gives what the metric needs."""
    return not ("full" in modes if is_label_metric(metric, modes) else "labeled" in modes)


def _spelling(name: str) -> str | None:
    """A metric as RecBole writes it; None where there is no such metric."""
    return metrics_dict[name.lower()].__name__ if name.lower() in metrics_dict else None


@cache
def _recbole_defaults() -> dict[str, Any]:
    return read_yaml(str(Path(recbole.__file__).parent / "properties" / "overall.yaml"))


def valid_metrics(metrics: list[str], topk: list[int], modes: set[str]) -> list[str]:
    """Names under which the metrics are reported, e.g. AUC or MRR@10: the choices of `valid_metric`."""
    names = []
    for metric in metrics:
        at_each_k = [f"{metric}@{k}" for k in topk]
        if metric == "GAUC" or is_label_metric(metric, modes):
            names += [metric]
        elif registered([metric]) and not issubclass(metrics_dict[metric.lower()], TopkMetric):
            names += [metric, *at_each_k]  # only the class itself knows how many results it has
        else:
            names += at_each_k
    return names


# ------------------------------------------------------------------------ checks


def check_run(config: Any) -> None:
    """Refuse what a run cannot be trained or evaluated with, before any data is read; `InputError` as the two raise."""
    check_training(config)
    check_evaluation(config)


def check_evaluation(config: Any) -> None:
    """Refuse keys of evaluation that contradict each other or the model; the data are not needed.

    Raises:
        InputError: one sentence names the keys, their values and what would be right.
    """
    metrics, modes = config["metrics"], set(config["eval_args"]["mode"].values())
    labels = [metric for metric in metrics if is_label_metric(metric, modes)]
    ranks = [metric for metric in metrics if metric not in labels]
    _check_modes(config, modes)
    if labels and ranks:
        raise InputError(
            f"metrics has {labels[0]}, which measures labels, and {ranks[0]}, which measures ranks; give one."
        )
    if labels and "full" in modes:
        raise InputError(f"metrics has {labels[0]}, which measures labels; set eval_args mode to labeled, or to uniN.")
    if ranks and "labeled" in modes:
        raise InputError(
            f"eval_args mode labeled gives no ranks, which {ranks[0]} measures; give metrics such as AUC, or set mode "
            f"to full."
        )
    _check_probabilities(config, labels)
    valid, choices = config["valid_metric"], valid_metrics(metrics, config["topk"], modes)
    if valid.lower() not in {choice.lower() for choice in choices}:
        known = _spelling(valid.partition("@")[0])
        fits = known is None or _can_measure(known, modes)
        other = "" if fits else f", or set eval_args mode to {'labeled' if 'full' in modes else 'full'}"
        raise InputError(
            f"valid_metric is '{valid}', which is not measured; choose one of {', '.join(choices)}{other}."
        )


def _check_modes(config: Any, modes: set[str]) -> None:
    sequential, sampled = config["MODEL_TYPE"] == ModelType.SEQUENTIAL, modes - {"full"}
    if sequential and config["eval_args"]["order"] != "TO":
        raise InputError(f"eval_args order is '{config['eval_args']['order']}'; sequential models need 'TO'.")
    if config["exclude_history"] and sampled and sequential:
        raise InputError(
            f"exclude_history is True, but eval_args mode is {min(sampled)}; it takes items out of a ranking of all: "
            f"set mode to full."
        )
    if "labeled" not in modes:
        return
    if len(modes) > 1:
        raise InputError(f"eval_args mode is {config['eval_args']['mode']}; labeled goes with labeled only.")
    if sequential and draws_negatives(config):
        raise InputError(
            f"{KEY} is {config[KEY]}, which takes every event for a positive one, but eval_args mode labeled measures "
            f"labels; set it to None, so that they are learnt."
        )
    if not labels_are_loaded(config):
        raise InputError(missing_labels("eval_args mode labeled", f"load_col loads '{config['LABEL_FIELD']}'"))


def _check_probabilities(config: Any, labels: list[str]) -> None:
    wrong = [metric for metric in labels if metric in PROBABILITY_METRICS]
    if not wrong or predicts_probabilities(config.model_class):
        return
    own = "" if is_known(config.model_class) else ", or predicts_probabilities = True in the class if they are some"
    name = name_of(config.model_class)
    raise InputError(
        f"metrics has {wrong[0]}, which measures probabilities, but the predictions of {name} are scores "
        f"without bounds; give AUC or GAUC, or choose a model of clicks such as BST or DIN{own}."
    )
