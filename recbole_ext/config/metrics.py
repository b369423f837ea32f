"""Users' metrics: `register_metric` adds a class to RecBole's metrics."""

from collections.abc import Iterable
from typing import Any

from recbole.evaluator import metric_information, metric_types, metrics_dict, smaller_metrics
from recbole.evaluator.base_metric import AbstractMetric
from recbole.utils import EvaluatorType

from recbole_ext.errors import InputError

# what RecBole's collector can gather for a metric
NEEDS = (
    "rec.items", "rec.topk", "rec.meanrank", "rec.score", "data.num_items", "data.num_users", "data.count_items",
    "data.count_users", "data.label",
)  # fmt: skip
REGISTERED: dict[str, type] = {}  # by the names of the classes


def register_metric(metric: Any) -> Any:
    """Add a metric class, so that the keys `metrics` and `valid_metric` accept its name.

    It holds for this process, and for the trials of a search that it starts. A program that loads the checkpoint to
    evaluate it registers the class, too; serving needs no metric.

    Args:
        metric: a subclass of RecBole's `TopkMetric`, `LossMetric` or `AbstractMetric`. Its results are called as the
            class in lower case, with `@k` for each k of `topk` if there are several.

    Returns:
        the class, so that this is a decorator, too.

    Raises:
        InputError: it is no such class, lacks `metric_type`, `metric_need` or `calculate_metric`, or RecBole has a
            metric of that name.
    """
    if not (isinstance(metric, type) and issubclass(metric, AbstractMetric)):
        raise InputError(f"{metric!r} is not a metric; give a subclass of RecBole's TopkMetric or LossMetric.")
    key, own = metric.__name__.lower(), _checked(metric)
    if key in smaller_metrics:  # of a class that this one replaces
        smaller_metrics.remove(key)
    REGISTERED[metric.__name__] = metrics_dict[key] = metric
    metric_types[key], metric_information[key] = own.metric_type, list(own.metric_need)
    if own.smaller:
        smaller_metrics.append(key)
    return metric


def _checked(metric: Any) -> Any:
    name, needs = metric.__name__, getattr(metric, "metric_need", None)
    if name.lower() in metrics_dict and name not in REGISTERED:
        raise InputError(
            f"there is a metric {metrics_dict[name.lower()].__name__} already; give the class another name."
        )
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
    """The keys of a checkpoint for serving, where its metrics may not be registered."""
    metrics = keys.get("metrics")
    if not isinstance(metrics, list) or all(str(metric).lower() in metrics_dict for metric in metrics):
        return keys
    return {key: keys[key] for key in keys if key not in ("metrics", "valid_metric", "topk", "eval_args")}
