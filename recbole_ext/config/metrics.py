"""Metrics: users' own, the names of results, and defaults that fit the user's keys."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import recbole
from recbole.evaluator import TopkMetric, metric_information, metric_types, metrics_dict, smaller_metrics
from recbole.evaluator.base_metric import AbstractMetric
from recbole.utils import EvaluatorType

from recbole_ext.config.negative_sampling import evaluation_modes
from recbole_ext.errors import InputError
from recbole_ext.model.contract import predicts_probabilities
from recbole_ext.utils.literals import read_yaml

# what RecBole's collector can gather for a metric
NEEDS = (
    "rec.items", "rec.topk", "rec.meanrank", "rec.score", "data.num_items", "data.num_users", "data.count_items",
    "data.count_users", "data.label",
)  # fmt: skip
REGISTERED: dict[str, type] = {}  # by class name
PROBABILITY_METRICS = ("LogLoss", "RMSE", "MAE")  # compare predicted probabilities with labels


# ------------------------------------------------------------------------ users' metrics


def register_metric(metric: Any) -> Any:
    """Add a metric class, so that the keys `metrics` and `valid_metric` accept its name.

    The registration lasts as long as this process, and includes the trials of a search that it starts. A program that
    evaluates a checkpoint must register the class, too; serving needs no metrics.

    Args:
        metric: a subclass of RecBole's `TopkMetric`, `LossMetric` or `AbstractMetric`. Its results have the class's
            name in lower case, with `@k` for each k of `topk` if there are several.

    Returns:
        the class, so that `register_metric` is also a decorator.

    Raises:
        InputError: the argument is not a metric class, lacks `metric_type`, `metric_need` or `calculate_metric`, or
            has the name of one of RecBole's metrics.
    """
    if not (isinstance(metric, type) and issubclass(metric, AbstractMetric)):
        raise InputError(f"{metric!r} is not a metric; give a subclass of RecBole's TopkMetric or LossMetric.")
    key, checked = metric.__name__.lower(), _checked(metric)
    if key in smaller_metrics:  # from an earlier class of this name
        smaller_metrics.remove(key)
    REGISTERED[metric.__name__] = metrics_dict[key] = metric
    metric_types[key], metric_information[key] = checked.metric_type, list(checked.metric_need)
    if checked.smaller:
        smaller_metrics.append(key)
    return metric


def _checked(metric: Any) -> Any:
    name, needs = metric.__name__, getattr(metric, "metric_need", None)
    if name.lower() in metrics_dict and name not in REGISTERED:
        raise InputError(f"metric {metrics_dict[name.lower()].__name__} exists already; rename the class.")
    if not isinstance(getattr(metric, "metric_type", None), EvaluatorType):
        raise InputError(f"metric {name} has no metric_type; set it to EvaluatorType.RANKING or EvaluatorType.VALUE.")
    if not isinstance(needs, (list, tuple)) or not set(needs) <= set(NEEDS):
        raise InputError(f"metric {name} has metric_need {needs!r}; it should be a list of some of {', '.join(NEEDS)}.")
    if metric.calculate_metric is AbstractMetric.calculate_metric:
        raise InputError(
            f"metric {name} has no method calculate_metric(dataobject), which returns its results by name."
        )
    return metric


def registered(names: Iterable[str]) -> tuple[type, ...]:
    """The classes of those metrics that `register_metric` added."""
    return tuple(REGISTERED[name] for name in names if name in REGISTERED)


def for_serving(keys: dict[str, Any]) -> dict[str, Any]:
    """The keys of a checkpoint, without those of evaluation if one of its metrics is not registered here."""
    metrics = keys.get("metrics")
    if not isinstance(metrics, list) or all(str(metric).lower() in metrics_dict for metric in metrics):
        return keys
    return {key: keys[key] for key in keys if key not in ("metrics", "valid_metric", "topk", "eval_args")}


# ------------------------------------------------------------------------ kinds and names


def is_label_metric(metric: str, modes: set[str]) -> bool:
    """Whether a metric compares scores with labels. GAUC does so in mode labeled; in other modes it measures ranks."""
    return metric_types[metric.lower()] == EvaluatorType.VALUE or (metric == "GAUC" and modes == {"labeled"})


def fits_modes(metric: str, modes: set[str]) -> bool:
    """Whether a metric can be computed in each of the modes."""
    return not ("full" in modes if is_label_metric(metric, modes) else "labeled" in modes)


def class_name(name: str) -> str | None:
    """The name of a metric as RecBole spells it; None for an unknown metric."""
    return metrics_dict[name.lower()].__name__ if name.lower() in metrics_dict else None


def result_names(metrics: list[str], topk: list[int], modes: set[str]) -> list[str]:
    """Names of the results, e.g. AUC or MRR@10: the choices of `valid_metric`."""
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


def metrics_accepted_by_recbole(metrics: list[str], eval_args: dict[str, Any]) -> list[str]:
    """Metrics from which RecBole's `Config` derives `eval_type` without an error; `check_evaluation` has better ones.

    RecBole counts GAUC among the metrics of ranks. It refuses a mixture of both kinds, and metrics of labels in mode
    full.
    """
    modes = evaluation_modes(eval_args)
    ranks = [metric for metric in metrics if not is_label_metric(metric, modes)]
    if ranks or "full" in modes:
        return ranks or ["Recall"]
    return ["AUC" if metric == "GAUC" else metric for metric in metrics]


# ------------------------------------------------------------------------ defaults


def resolve_defaults(settings: dict[str, Any], user_keys: set[str], model_class: type) -> list[str]:
    """Change those defaults of metrics, `topk` and `valid_metric` that contradict the user's keys.

    The mode and the loss never change, because each of their values answers another question.

    Args:
        settings: all keys and their values; changed in place.
        user_keys: the keys that the user set.
        model_class: class of the model.

    Returns:
        one sentence for each default that was changed.
    """
    notes: list[str] = []

    def change(key: str, value: Any, reason: str) -> None:
        if settings[key] != value:
            notes.append(f"{key}: {value} instead of the default {settings[key]}, for {reason}.")
            settings[key] = value

    modes = evaluation_modes(settings["eval_args"])
    name, _, cutoff = str(settings["valid_metric"]).partition("@")
    if "metrics" not in user_keys:
        metrics, reason = _default_metrics(settings["metrics"], modes, model_class)
        valid = class_name(name) if "valid_metric" in user_keys else None
        if valid is not None and valid not in metrics and fits_modes(valid, modes):
            if is_label_metric(valid, modes) != is_label_metric(metrics[0], modes):
                metrics = []
            metrics, reason = [*metrics, valid], f"valid_metric: {settings['valid_metric']}"
        change("metrics", metrics, reason)
    if "valid_metric" in user_keys:
        k = int(cutoff) if re.fullmatch("[1-9][0-9]{0,8}", cutoff) else 0
        if "topk" not in user_keys and k and k not in settings["topk"]:
            change("topk", [k], f"valid_metric: {settings['valid_metric']}")
    else:
        choices = result_names(settings["metrics"], settings["topk"], modes)
        if settings["valid_metric"].lower() not in {choice.lower() for choice in choices}:
            recbole_name = str(_recbole_defaults()["valid_metric"]).partition("@")[0]
            names = [choice.partition("@")[0] for choice in choices]
            index = next((names.index(metric) for metric in (name, recbole_name) if metric in names), 0)
            reasons = [f"{key}: {settings[key]}" for key in ("metrics", "topk", "eval_args") if key in user_keys]
            change("valid_metric", choices[index], ", ".join(reasons) or f"model: {model_class.__name__}")
    return notes


def _default_metrics(metrics: list[str], modes: set[str], model_class: type) -> tuple[list[str], str]:
    """Default metrics that fit the modes and the model, and the key that they depend on."""
    mode = f"eval_args mode: {', '.join(sorted(modes))}"
    probabilities = predicts_probabilities(model_class)
    if not all(fits_modes(metric, modes) for metric in metrics):
        if modes == {"labeled"}:
            return (["AUC", "LogLoss"] if probabilities else ["AUC"]), mode
        if "labeled" not in modes:
            return list(_recbole_defaults()["metrics"]), mode
    if not probabilities:
        metrics = [metric for metric in metrics if metric not in PROBABILITY_METRICS] or metrics
    return metrics, f"model: {model_class.__name__}"


@cache
def _recbole_defaults() -> dict[str, Any]:
    return read_yaml(str(Path(recbole.__file__).parent / "properties" / "overall.yaml"))
