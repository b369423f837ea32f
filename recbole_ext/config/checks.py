"""Contradictions between keys, found before anything is read or trained."""

from logging import getLogger
from typing import Any

from recbole.utils import ModelType

from recbole_ext.errors import InputError

NO_SAMPLING: tuple = (None, "None", "none", "~", {})


def settle_negative_sampling(final: dict[str, Any], given: set[str], model_class: type[Any]) -> None:
    """Make `None`, `'None'`, `~` and `{}` mean no negative sampling, and choose what the loss needs if none is given.

    A sequential model trained with cross entropy over all items draws no negatives; every other loss needs some.
    """
    key = "train_neg_sample_args"
    value = final.get(key)
    if value in NO_SAMPLING or (isinstance(value, dict) and value.get("distribution") in NO_SAMPLING):
        value = None
    sequential = model_class.type == ModelType.SEQUENTIAL
    loss = final.get("loss_type")
    if sequential and key not in given:
        value = None if loss == "CE" else {"distribution": "uniform", "sample_num": 1}
        if loss is None and not _needs_negatives(model_class):
            value = None
    if sequential and loss == "BPR" and value is None:
        raise InputError(f"{key} is None, but loss_type BPR needs negatives; give {{'distribution': 'uniform'}}.")
    if sequential and loss == "CE" and value is not None:
        raise InputError(f"{key} is {value}, but loss_type CE draws no negatives; leave it out or set it to None.")
    final[key] = value


def _needs_negatives(model_class: type[Any]) -> bool:
    return getattr(model_class, "input_type", None) is not None


def settle_time_column(final: dict[str, Any], given: set[str], model_class: type[Any]) -> None:
    """See to it that a sequential model's time column is loaded.

    RecBole loads `[user_id, item_id]` unless told otherwise; the columns that the keys name are added. A list of the
    user's own without the time is a contradiction.
    """
    if model_class.type != ModelType.SEQUENTIAL:
        return
    time, columns = final.get("TIME_FIELD"), final.get("load_col")
    if not time:
        raise InputError("TIME_FIELD is empty; sequential models need the name of the time column.")
    if time in (final.get("numerical_features") or []):
        raise InputError(f"numerical_features names '{time}', the TIME_FIELD; time is never discretised.")
    unload = (final.get("unload_col") or {}).get("inter", [])
    if time in unload:
        raise InputError(f"unload_col leaves out '{time}', the TIME_FIELD; sequential models need it.")
    if not isinstance(columns, dict) or columns.get("inter") == "*":
        return
    wanted = columns.get("inter")
    wanted = [wanted] if isinstance(wanted, str) else list(wanted or [])
    ids = [final["USER_ID_FIELD"], final["ITEM_ID_FIELD"]]
    if "load_col" in given:
        missing = [field for field in (*ids, time) if field not in wanted]
        if missing:
            raise InputError(
                f"load_col lists {wanted} for the .inter file, without '{missing[0]}'; sequential models need "
                f"USER_ID_FIELD '{ids[0]}', ITEM_ID_FIELD '{ids[1]}' and TIME_FIELD '{time}'."
            )
        return
    extra = [field for field in (final.get("threshold") or {}) if field not in wanted]
    if wanted == ["user_id", "item_id"]:  # RecBole's default, whatever the columns are called here
        wanted = ids
    columns["inter"] = [*wanted, *(field for field in (time, *extra) if field not in wanted)]


def check_devices(final: dict[str, Any]) -> None:
    """One run is one process on one device."""
    if (
        "local_rank" in final
        or final.get("nproc", 1) not in (None, 1)
        or final.get("world_size", -1) not in (None, -1, 1)
    ):
        raise InputError("nproc, world_size and local_rank ask for several processes; recbole_ext trains in one.")


def check_metrics(config: Any) -> None:
    """`valid_metric` has to be one of `metrics` at one of `topk`."""
    metrics, topk = config["metrics"], config["topk"]
    valid = str(config["valid_metric"])
    if config["eval_type"].name == "RANKING":
        choices = [f"{metric}@{k}" for metric in metrics for k in topk]
    else:
        choices = list(metrics)
    if valid.lower() not in {choice.lower() for choice in choices}:
        raise InputError(f"valid_metric is '{valid}', which is not measured; choose one of {', '.join(choices)}.")


def check_catalogue(config: Any, n_items: int) -> None:
    """`topk` cannot exceed the number of items, padding left out.

    Args:
        config: the run's configuration.
        n_items: RecBole's count, with the padding item.
    """
    if config["eval_type"].name == "RANKING" and max(config["topk"]) > n_items - 1:
        raise InputError(f"topk is {max(config['topk'])}, but the data set has only {n_items - 1} items.")


def limit_eval_batch(config: Any, n_items: int) -> None:
    """Cap the rows scored at once, so that scores over all items stay within `eval_memory_mb`.

    RecBole's sequential evaluation scores `eval_batch_size` rows against every item: at a million items its default
    asks for 15 GiB. A score costs about 16 bytes on its way through the collector.
    """
    budget = config["eval_memory_mb"]
    modes = set(config["eval_args"]["mode"].values())
    if not budget or "labeled" in modes or config["eval_type"].name != "RANKING":
        return
    rows = max(1, int(budget * 2**20 / (16 * n_items)))
    # a batch of sampled candidates counts candidates, not users
    sizes = [1 if mode == "full" else 1 + int(mode[3:]) for mode in modes]
    limit = rows * max(sizes)
    if limit < config["eval_batch_size"]:
        getLogger().info(
            f"eval_batch_size: {limit} instead of {config['eval_batch_size']}, for eval_memory_mb = {budget}."
        )
        config["eval_batch_size"] = limit
