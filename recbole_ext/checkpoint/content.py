"""Checks of a checkpoint's content: its structure, and values that depend on each other."""

import math
import reprlib
from typing import Any

from recbole.utils import FeatureSource
from torch import Tensor

from recbole_ext.checkpoint.schema import (
    CONTENT,
    DATA,
    MISSING,
    generator_state,
    number_range,
    plain,
    validate_member,
)
from recbole_ext.data.files.time_units import SECONDS
from recbole_ext.errors import InputError
from recbole_ext.utils.validators import ValidationError


def check_content(checkpoint: Any, path: str) -> None:
    """Check that the content of a file is a complete and consistent checkpoint.

    Args:
        checkpoint: the content.
        path: of the file, for the message.

    Raises:
        InputError: a value is missing, has a wrong type, or contradicts another one; the message names the first.
    """
    try:
        CONTENT.validate(checkpoint)
        for key, value in checkpoint["config"].items():
            validate_member(plain, value, f".config.{key}")
        for index, group in enumerate(checkpoint["optimizer"].get("param_groups", [])):
            for key, value in group.items():
                validate_member(plain, value, f".optimizer.param_groups[{index}].{key}")
        _check_consistency(checkpoint)
        if checkpoint.get("data") is not None:
            validate_member(DATA, checkpoint["data"], ".data")
            _check_data(checkpoint)
    except ValidationError as error:
        key = error.path.removeprefix(".") or "its content"
        raise InputError(
            f"{path} is not a checkpoint of recbole_ext, or it was edited: {key} is {_shown(error.value)}; it "
            f"should be {error.expected}."
        ) from None


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of {str(value.dtype).removeprefix('torch.')} in the shape {tuple(value.shape)}"
    text = " ".join(reprlib.repr(value).split())
    return text if len(text) <= 200 else f"{text[:197]}..."


# -------------------------------------------------------------------- values that depend on each other


def _require(condition: bool, key: str, value: Any, expected: str) -> None:
    """Raise `ValidationError` for the value of a key unless a condition holds."""
    if not condition:
        raise ValidationError(value, expected, f".{key}")


def _name(config: dict[str, Any], key: str, default: str) -> str:
    """The name of a column; the default if the value is not a name, which `Config` refuses later."""
    return config[key] if isinstance(config.get(key), str) else default


def _check_consistency(checkpoint: dict[str, Any]) -> None:
    config, result, score = checkpoint["config"], checkpoint["best_valid_result"], checkpoint["best_valid_score"]
    _require(
        checkpoint["class"].endswith(f".{checkpoint['model']}"),
        "class",
        checkpoint["class"],
        f"a class named {checkpoint['model']}",
    )
    valid_metric = config.get("valid_metric")
    if result and valid_metric is not None:
        expected = result.get(str(valid_metric).lower(), MISSING)
        _require(
            score == expected,
            "best_valid_score",
            score,
            f"the value of {valid_metric} in best_valid_result, {expected}",
        )
    if not result and isinstance(config.get("valid_metric_bigger"), bool):
        worst = -math.inf if config["valid_metric_bigger"] else math.inf
        _require(score == worst, "best_valid_score", score, f"{worst}, since best_valid_result is empty")
    curves = checkpoint.get("curves", {"train_loss": [], "valid_score": []})
    for name in ("train_loss", "valid_score"):
        complete = len(curves[name]) == len(curves["train_loss"]) <= checkpoint["epoch"] + 1
        _require(
            complete,
            f"curves.{name}",
            curves[name],
            f"a list with a number for each of {checkpoint['epoch'] + 1} epochs",
        )
    batches, total = (checkpoint.get("partial", {}).get(key, 0) for key in ("batches", "of"))
    _require(batches <= total, "partial.batches", batches, f"at most {total}, as many as there are")
    id_fields = [_name(config, "USER_ID_FIELD", "user_id"), _name(config, "ITEM_ID_FIELD", "item_id")]
    _require(
        set(checkpoint["tokens"]) <= set(id_fields),
        "tokens",
        list(checkpoint["tokens"]),
        f"those of {' and '.join(id_fields)}",
    )
    if checkpoint["tokens"] and "sampler" in checkpoint and "random" in checkpoint:  # written during training
        _require(checkpoint["sampler"] is not None, "sampler", None, generator_state.expected)
        _require(checkpoint.get("data_digest") != "", "data_digest", "", "a SHA-256 digest")
    groups = checkpoint["optimizer"].get("param_groups", [])
    parameters = [parameter for group in groups for parameter in group["params"]]
    _require(len(set(parameters)) == len(parameters), "optimizer.param_groups", parameters, "different parameters")
    unknown = checkpoint["optimizer"].get("state", {}).keys() - set(parameters)
    _require(not unknown, "optimizer.state", sorted(unknown), "of the parameters in param_groups")


def _check_data(checkpoint: dict[str, Any]) -> None:
    """Check that the columns agree with their tokens, tables and ranges."""
    config, tokens, data = checkpoint["config"], checkpoint["tokens"], checkpoint["data"]
    columns, unit = data["columns"], SECONDS.get(str(config.get("time_unit", "s")), 1.0)
    suffixes = config.get("additional_feat_suffix")
    sources = {source.value for source in FeatureSource}
    sources |= set(map(str, suffixes)) if isinstance(suffixes, list) else set()
    ids = {"user": _name(config, "USER_ID_FIELD", "user_id"), "item": _name(config, "ITEM_ID_FIELD", "item_id")}
    origin, expected = checkpoint.get("time_origin"), data["first_time"] * unit
    _require(origin is not None and math.isclose(origin, expected, rel_tol=1e-12, abs_tol=1e-6), "time_origin", origin,
            f"data.first_time in seconds, {expected}")  # fmt: skip
    for name in ids.values():
        _require(name in tokens, f"tokens.{name}", MISSING, "there")
        _require(name in columns, f"data.columns.{name}", MISSING, "there")
    for name, column in columns.items():
        path, source = f"data.columns.{name}", column["source"]
        _require(source in sources, f"{path}.source", source, f"one of {', '.join(sorted(sources))}")
        numbers = column["type"] in ("float", "float_seq")
        _require(not numbers or column["values"] is not None, f"{path}.values", None, "a whole number")
        vocabulary = tokens.get(name, data["vocabularies"].get(name))
        if vocabulary is not None:
            _require(column["type"] in ("token", "token_seq"), f"{path}.type", column["type"], "token or token_seq")
            _require(column["values"] == len(vocabulary), f"{path}.values", column["values"],
                    f"{len(vocabulary)}, the number of its tokens")  # fmt: skip
        if source in ids and name != ids[source]:
            _require(name in data["tables"][source], f"data.tables.{source}.{name}", MISSING, "a tensor")
    for name in data["vocabularies"]:
        _require(name in columns, f"data.columns.{name}", MISSING, "there, as in vocabularies")
    for source, table in data["tables"].items():
        for name, values in table.items() if source in ids else ():
            _check_table(f"data.tables.{source}.{name}", values, columns.get(name), source, len(tokens[ids[source]]))
    for part in ("extremes", "normalised"):
        for name in data[part]:
            kind = columns.get(name, {}).get("type")
            _require(kind in ("float", "float_seq"), f"data.columns.{name}.type", kind, f"float, as in {part}")
    items = len(tokens[ids["item"]])
    trained, names = data.get("trained_items"), data.get("item_names")
    _require(trained is None or len(trained) == items, "data.trained_items", trained, f"a tensor of {items} rows")
    _require(names is None or len(names["names"]) == items, "data.item_names.names", names, f"a list of {items} names")
    time = _name(config, "TIME_FIELD", "timestamp")
    _require(time in data["extremes"], f"data.extremes.{time}", MISSING, number_range.expected)


def _check_table(path: str, values: Tensor, column: dict[str, Any] | None, source: str, rows: int) -> None:
    """Check a column of `user` or `item` features: values [rows], or [rows, length] for sequences."""
    _require(column is not None and column["source"] == source, path, values, f"a column with the source {source}")
    assert column is not None
    numbers, sequence = column["type"] in ("float", "float_seq"), column["type"].endswith("_seq")
    _require(values.dim() > 0 and len(values) == rows, path, values, f"a tensor of {rows} rows")
    _require(values.is_floating_point() == numbers, path, values, f"a tensor for the type {column['type']}")
    if sequence:
        length = column["length"] if isinstance(column["length"], int) else column["length"][0]
        _require(values.dim() > 1 and values.shape[1] == length, path, values, f"a tensor of {length} columns")
    if not numbers:
        valid = values.numel() == 0 or (int(values.min()) >= 0 and int(values.max()) < (column["values"] or 0))
        _require(valid, path, values, f"a tensor of ids from 0 to {(column['values'] or 0) - 1}")
