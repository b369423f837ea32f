"""What a checkpoint holds: one description of its whole content. A file is checked against it once, when it is read.

Keys that the description does not name are ignored, so that a later version can add information without a new format.
An addition that changes the meaning of what is described here raises `checkpoint.FORMAT`.
"""

import math
import re
import reprlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from recbole.utils import FeatureSource, FeatureType
from torch import Tensor

from recbole_ext.data.files.time_units import SECONDS
from recbole_ext.errors import InputError
from recbole_ext.utils.validators import ValidationError, Validator

# ---------------------------------------------------------------------- kinds of values, taken as they are


@dataclass(frozen=True)
class Value(Validator):
    """A value that passes a test, which must not raise."""

    expected: str
    test: Callable[[Any], bool]

    def validate(self, value: Any) -> Any:
        if not self.test(value):
            raise ValidationError(value, self.expected)
        return value


@dataclass(frozen=True)
class Record(Validator):
    """A dictionary with `required` and `optional` keys; other keys are ignored."""

    required: dict[str, Validator]
    optional: dict[str, Validator] = field(default_factory=dict)

    def validate(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValidationError(value, f"a dictionary with the keys {', '.join(self.required)}")
        for key, validator in {**self.required, **self.optional}.items():
            if key in value:
                _validate_member(validator, value[key], f".{key}")
            elif key in self.required:
                raise ValidationError(MISSING, getattr(validator, "expected", "there"), f".{key}")
        return value


@dataclass(frozen=True)
class Each(Validator):
    """A dictionary of any length, from texts (or whole numbers) to values of one kind."""

    validator: Validator
    key: type = str

    def validate(self, value: Any) -> Any:
        if not isinstance(value, dict) or not all(type(key) is self.key for key in value):
            raise ValidationError(value, "a dictionary of " + ("names" if self.key is str else "numbers"))
        for key, member in value.items():
            _validate_member(self.validator, member, f".{key}")
        return value


@dataclass(frozen=True)
class Items(Validator):
    """A list whose members are of one kind."""

    validator: Validator

    def validate(self, value: Any) -> Any:
        if not isinstance(value, list):
            raise ValidationError(value, "a list")
        for place, member in enumerate(value):
            _validate_member(self.validator, member, f"[{place}]")
        return value


class _Missing:
    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


def _validate_member(validator: Validator, value: Any, place: str) -> None:
    try:
        validator.validate(value)
    except ValidationError as error:
        raise ValidationError(error.value, error.expected, place + error.path) from None


# ---------------------------------------------------------------------- tests of single values


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_whole(value: Any, low: int = 0, high: float = math.inf) -> bool:
    return type(value) is int and low <= value <= high


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str and _is_plain(member) for key, member in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _is_tensor(value: Any) -> bool:
    """A tensor of numbers that are all in memory."""
    usual = isinstance(value, Tensor) and value.layout == torch.strided and value.device.type != "meta"
    return usual and not (value.is_quantized or value.is_complex() or value.is_nested)


def _is_mask(value: Any) -> bool:
    return _is_tensor(value) and value.dtype == torch.bool and value.dim() == 1


def _is_item_names(value: Any) -> bool:
    names = value.get("names") if isinstance(value, dict) else None
    return isinstance(names, list) and all(type(text) is str for text in [value.get("column"), *names])


def _is_finite(value: Any) -> bool:
    return _is_tensor(value) and bool(value.isfinite().all())


def _is_vocabulary(value: Any) -> bool:
    texts = isinstance(value, list) and bool(value) and all(type(token) is str for token in value)
    return texts and value[0] == "[PAD]" and len(set(value)) == len(value)


def _is_range(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value)) and value[0] <= value[1]


def _is_words(value: Any) -> bool:
    words = isinstance(value, list) and len(value) == 625 and all(_is_whole(word, 0, 2**32 - 1) for word in value)
    return words and value[-1] <= 624


def _is_words_tensor(value: Any) -> bool:
    words = _is_tensor(value) and value.dtype == torch.int64 and tuple(value.shape) == (624,)
    return words and bool(((value >= 0) & (value < 2**32)).all())


def _is_generator_state(value: Any) -> bool:
    if not (_is_tensor(value) and value.dtype == torch.uint8 and value.dim() == 1):
        return False
    try:
        torch.Generator().set_state(value.cpu())
    except RuntimeError:
        return False
    return True


def _is_cuda_state(value: Any) -> bool:
    return _is_tensor(value) and value.dtype == torch.uint8 and tuple(value.shape) == (16,)  # seed and offset


def maybe(kind: Value) -> Value:
    return Value(f"{kind.expected}, or None", lambda value: value is None or kind.test(value))


text = Value("a text", lambda value: type(value) is str and value != "")
number = Value("a finite number", _is_number)
count = Value("a whole number, 0 or more", _is_whole)
plain = Value("text, numbers, lists and dictionaries", _is_plain)
vocabulary = Value("a list of different texts, the first of them [PAD]", _is_vocabulary)
number_range = Value("the least and the largest of some numbers", _is_range)
finite_tensor = Value("a tensor of finite numbers", _is_finite)
generator_state = Value("the state of a generator of torch", _is_generator_state)
length = Value(
    "a whole number, or a list of them",
    lambda value: _is_whole(value) or (isinstance(value, list) and bool(value) and all(map(_is_whole, value))),
)
metric = Value("a number", lambda value: type(value) in (int, float) and not math.isinf(value))
loss = Value("a number, or None", lambda value: value is None or type(value) in (int, float))
parameter_numbers = Value(
    "a list of different whole numbers",
    lambda value: isinstance(value, list) and all(map(_is_whole, value)) and len(set(value)) == len(value),
)

# ---------------------------------------------------------------------- the content

COLUMN = Record({
    "type": Value(f"one of {', '.join(kind.value for kind in FeatureType)}",
                  lambda value: type(value) is str and value in {kind.value for kind in FeatureType}),
    "source": text, "length": length, "values": maybe(length),
})  # fmt: skip
DATA = Record({
    "columns": Each(COLUMN), "vocabularies": Each(vocabulary),
    "tables": Record({"user": Each(finite_tensor), "item": Each(finite_tensor)}),
    "extremes": Each(number_range), "normalised": Each(number_range), "first_time": number,
}, {
    "trained_items": maybe(Value("a tensor of True and False", _is_mask)),
    "item_names": maybe(Value("a column and a list of names", _is_item_names)),
})  # fmt: skip
RANDOM = Record({
    "python": Record({
        "version": Value("3", lambda value: type(value) is int and value == 3),
        "words": Value("the 625 words of Python's generator", _is_words), "gauss": maybe(number),
    }),
    "numpy": Record({
        "keys": Value("a tensor with the 624 words of NumPy's generator", _is_words_tensor),
        "position": Value("a whole number up to 624", lambda value: _is_whole(value, 0, 624)),
        "has_gauss": Value("0 or 1", lambda value: _is_whole(value, 0, 1)), "cached": number,
    }),
    "torch": generator_state,
}, {"cuda": Items(Value("the state of a generator of CUDA", _is_cuda_state))})  # fmt: skip
OPTIMIZER = Record({}, {
    "state": Each(Each(Value("a tensor or a number", lambda value: _is_number(value) or _is_tensor(value))), int),
    "param_groups": Items(Record({"params": parameter_numbers, "lr": number, "weight_decay": number})),
})  # fmt: skip
CONTENT = Record(
    {
        "format": count, "model": text, "class": text,
        "config": Record({"model": text, "dataset": text}), "tokens": Each(vocabulary),
        "state_dict": Each(Value("a tensor", _is_tensor)), "optimizer": OPTIMIZER,
        "other_parameter": Each(Value(
            "a tensor, a number, a text or None",
            lambda value: _is_plain(value) and not isinstance(value, (dict, list, tuple)) or _is_tensor(value),
        )),
        "epoch": Value("a whole number, -1 or more", lambda value: _is_whole(value, -1)), "cur_step": count,
        "best_valid_score": Value("a number", lambda value: type(value) is float and not math.isnan(value)),
        "best_valid_result": Each(metric),
    },
    {
        "run": text, "versions": Each(text), "random": RANDOM,
        "curves": Record({"train_loss": Items(loss), "valid_score": Items(maybe(number))}),
        "data_digest": Value("a SHA-256 digest, or empty",
                             lambda value: type(value) is str and bool(re.fullmatch(r"[0-9a-f]{64}|", value))),
        "time_origin": maybe(number), "sampler": maybe(generator_state),
        "data": Value("a dictionary, or None", lambda value: value is None or isinstance(value, dict)),
    },
)  # fmt: skip


def check_content(state: Any, path: str) -> None:
    """See to it that what a file holds is a whole checkpoint.

    Args:
        state: what was read.
        path: of the file, for the message.

    Raises:
        InputError: names the first value that is missing, of another kind than it should be, or contradicts others.
    """
    try:
        CONTENT.validate(state)
        for key, value in state["config"].items():
            _validate_member(plain, value, f".config.{key}")
        for index, group in enumerate(state["optimizer"].get("param_groups", [])):
            for key, value in group.items():
                _validate_member(plain, value, f".optimizer.param_groups[{index}].{key}")
        _check_agreement(state)
        if state.get("data") is not None:
            _validate_member(DATA, state["data"], ".data")
            _check_data(state)
    except ValidationError as error:
        place = error.path.removeprefix(".") or "its content"
        raise InputError(
            f"{path} is not a checkpoint of recbole_ext, or it was edited: {place} is {_shown(error.value)}; it "
            f"should be {error.expected}."
        ) from None


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of {str(value.dtype).removeprefix('torch.')} in the shape {tuple(value.shape)}"
    words = " ".join(reprlib.repr(value).split())
    return words if len(words) <= 200 else f"{words[:197]}..."


# ---------------------------------------------------------------------- what has to agree


def _demand(condition: bool, place: str, value: Any, expected: str) -> None:
    if not condition:
        raise ValidationError(value, expected, f".{place}")


def _name(config: dict[str, Any], key: str, default: str) -> str:
    """The name of a column; `Config` refuses what is no name."""
    return config[key] if isinstance(config.get(key), str) else default


def _check_agreement(state: dict[str, Any]) -> None:
    config, result, score = state["config"], state["best_valid_result"], state["best_valid_score"]
    _demand(state["class"].endswith(f".{state['model']}"), "class", state["class"], f"a class named {state['model']}")
    valid_metric = config.get("valid_metric")
    if result and valid_metric is not None:
        expected = result.get(str(valid_metric).lower(), MISSING)
        _demand(
            score == expected, "best_valid_score", score, f"that of {valid_metric} in best_valid_result, {expected}"
        )
    if not result and isinstance(config.get("valid_metric_bigger"), bool):
        worst = -math.inf if config["valid_metric_bigger"] else math.inf
        _demand(score == worst, "best_valid_score", score, f"{worst}, since best_valid_result is empty")
    curves = state.get("curves", {"train_loss": [], "valid_score": []})
    for name in ("train_loss", "valid_score"):
        fits = len(curves[name]) == len(curves["train_loss"]) <= state["epoch"] + 1
        _demand(fits, f"curves.{name}", curves[name], f"a list with a number for each of {state['epoch'] + 1} epochs")
    named = [_name(config, "USER_ID_FIELD", "user_id"), _name(config, "ITEM_ID_FIELD", "item_id")]
    _demand(set(state["tokens"]) <= set(named), "tokens", list(state["tokens"]), f"those of {' and '.join(named)}")
    if state["tokens"] and "sampler" in state and "random" in state:  # written by a training
        _demand(state["sampler"] is not None, "sampler", None, generator_state.expected)
        _demand(state.get("data_digest") != "", "data_digest", "", "a SHA-256 digest")
    groups = state["optimizer"].get("param_groups", [])
    parameters = [parameter for group in groups for parameter in group["params"]]
    _demand(len(set(parameters)) == len(parameters), "optimizer.param_groups", parameters, "different parameters")
    strange = state["optimizer"].get("state", {}).keys() - set(parameters)
    _demand(not strange, "optimizer.state", sorted(strange), "of the parameters in param_groups")


def _check_data(state: dict[str, Any]) -> None:
    """Sizes, types and sources of columns agree with their tokens, tables and ranges."""
    config, tokens, data = state["config"], state["tokens"], state["data"]
    columns, unit = data["columns"], SECONDS.get(str(config.get("time_unit", "s")), 1.0)
    more = config.get("additional_feat_suffix")
    sources = {source.value for source in FeatureSource} | (set(map(str, more)) if isinstance(more, list) else set())
    ids = {"user": _name(config, "USER_ID_FIELD", "user_id"), "item": _name(config, "ITEM_ID_FIELD", "item_id")}
    origin, expected = state.get("time_origin"), data["first_time"] * unit
    _demand(origin is not None and math.isclose(origin, expected, rel_tol=1e-12, abs_tol=1e-6), "time_origin", origin,
            f"data.first_time in seconds, {expected}")  # fmt: skip
    for name in ids.values():
        _demand(name in tokens, f"tokens.{name}", MISSING, "there")
        _demand(name in columns, f"data.columns.{name}", MISSING, "there")
    for name, column in columns.items():
        place, source = f"data.columns.{name}", column["source"]
        _demand(source in sources, f"{place}.source", source, f"one of {', '.join(sorted(sources))}")
        numbers = column["type"] in ("float", "float_seq")
        _demand(not numbers or column["values"] is not None, f"{place}.values", None, "a whole number")
        known = tokens.get(name, data["vocabularies"].get(name))
        if known is not None:
            _demand(column["type"] in ("token", "token_seq"), f"{place}.type", column["type"], "token or token_seq")
            _demand(column["values"] == len(known), f"{place}.values", column["values"],
                    f"{len(known)}, the number of its tokens")  # fmt: skip
        if source in ids and name != ids[source]:
            _demand(name in data["tables"][source], f"data.tables.{source}.{name}", MISSING, "a tensor")
    for name in data["vocabularies"]:
        _demand(name in columns, f"data.columns.{name}", MISSING, "there, as in vocabularies")
    for source, table in data["tables"].items():
        for name, values in table.items() if source in ids else ():
            _check_table(f"data.tables.{source}.{name}", values, columns.get(name), source, len(tokens[ids[source]]))
    for part in ("extremes", "normalised"):
        for name in data[part]:
            kind = columns.get(name, {}).get("type")
            _demand(kind in ("float", "float_seq"), f"data.columns.{name}.type", kind, f"float, as in {part}")
    items = len(tokens[ids["item"]])
    trained, names = data.get("trained_items"), data.get("item_names")
    _demand(trained is None or len(trained) == items, "data.trained_items", trained, f"a tensor of {items} rows")
    _demand(names is None or len(names["names"]) == items, "data.item_names.names", names, f"a list of {items} names")
    time = _name(config, "TIME_FIELD", "timestamp")
    _demand(time in data["extremes"], f"data.extremes.{time}", MISSING, number_range.expected)


def _check_table(place: str, values: Tensor, column: dict[str, Any] | None, source: str, rows: int) -> None:
    """A column of `user` or `item` features: values [rows], or [rows, length] of sequences."""
    _demand(column is not None and column["source"] == source, place, values, f"a column with the source {source}")
    assert column is not None
    numbers, sequence = column["type"] in ("float", "float_seq"), column["type"].endswith("_seq")
    _demand(values.dim() > 0 and len(values) == rows, place, values, f"a tensor of {rows} rows")
    _demand(values.is_floating_point() == numbers, place, values, f"a tensor for the type {column['type']}")
    if sequence:
        wide = column["length"] if isinstance(column["length"], int) else column["length"][0]
        _demand(values.dim() > 1 and values.shape[1] == wide, place, values, f"a tensor of {wide} columns")
    if not numbers:
        inside = values.numel() == 0 or (int(values.min()) >= 0 and int(values.max()) < (column["values"] or 0))
        _demand(inside, place, values, f"a tensor of ids from 0 to {(column['values'] or 0) - 1}")
