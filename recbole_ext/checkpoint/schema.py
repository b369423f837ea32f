"""The structure of a checkpoint: its keys and the type of each value. `content.check_content` applies it.

Other keys are ignored, so that later versions can add information without a new format. A change in the meaning of the
keys below needs a new `file.FORMAT`.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from recbole.utils import FeatureType
from torch import Tensor

from recbole_ext.utils.validators import ValidationError, Validator

# ---------------------------------------------------------------------- validators, which return values unchanged


@dataclass(frozen=True)
class Value(Validator):
    """A value for which `test`, a function that never raises, is true."""

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
                validate_member(validator, value[key], f".{key}")
            elif key in self.required:
                raise ValidationError(MISSING, getattr(validator, "expected", "there"), f".{key}")
        return value


@dataclass(frozen=True)
class Each(Validator):
    """A dictionary from strings (or integers) to values that pass one validator."""

    validator: Validator
    key: type = str

    def validate(self, value: Any) -> Any:
        if not isinstance(value, dict) or not all(type(key) is self.key for key in value):
            raise ValidationError(value, "a dictionary of " + ("names" if self.key is str else "numbers"))
        for key, member in value.items():
            validate_member(self.validator, member, f".{key}")
        return value


@dataclass(frozen=True)
class Items(Validator):
    """A list whose members pass one validator."""

    validator: Validator

    def validate(self, value: Any) -> Any:
        if not isinstance(value, list):
            raise ValidationError(value, "a list")
        for index, member in enumerate(value):
            validate_member(self.validator, member, f"[{index}]")
        return value


class _Missing:
    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


def validate_member(validator: Validator, value: Any, path: str) -> None:
    """Validate a value; an error inside it gets `path` as a prefix of its path."""
    try:
        validator.validate(value)
    except ValidationError as error:
        raise ValidationError(error.value, error.expected, path + error.path) from None


# ---------------------------------------------------------------------- tests of single values


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _terms(loss: Any) -> list[Any]:
    """The terms of a loss: itself, or the members of a list."""
    return loss if isinstance(loss, list) else [loss]


def _is_whole(value: Any, low: int = 0, high: float = math.inf) -> bool:
    return type(value) is int and low <= value <= high


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str and _is_plain(member) for key, member in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _is_tensor(value: Any) -> bool:
    """A dense tensor of real numbers with its values in memory."""
    dense = isinstance(value, Tensor) and value.layout == torch.strided and not value.is_meta
    return dense and not (value.is_quantized or value.is_complex() or value.is_nested)


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


def _is_python_words(value: Any) -> bool:
    words = isinstance(value, list) and len(value) == 625 and all(_is_whole(word, 0, 2**32 - 1) for word in value)
    return words and value[-1] <= 624


def _is_numpy_words(value: Any) -> bool:
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


def optional(validator: Value) -> Value:
    return Value(f"{validator.expected}, or None", lambda value: value is None or validator.test(value))


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
    "source": text, "length": length, "values": optional(length),
})  # fmt: skip
DATA = Record({
    "columns": Each(COLUMN), "vocabularies": Each(vocabulary),
    "tables": Record({"user": Each(finite_tensor), "item": Each(finite_tensor)}),
    "extremes": Each(number_range), "normalised": Each(number_range), "first_time": number,
}, {
    "trained_items": optional(Value("a tensor of True and False", _is_mask)),
    "item_names": optional(Value("a column and a list of names", _is_item_names)),
})  # fmt: skip
RANDOM = Record({
    "python": Record({
        "version": Value("3", lambda value: type(value) is int and value == 3),
        "words": Value("the 625 words of Python's generator", _is_python_words), "gauss": optional(number),
    }),
    "numpy": Record({
        "keys": Value("a tensor with the 624 words of NumPy's generator", _is_numpy_words),
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
        "valid_users": optional(Value(
            "two whole numbers, the users of validation and all users",
            lambda value: isinstance(value, list) and len(value) == 2 and all(map(_is_whole, value)),
        )),
        "partial": Record({  # the epoch after `epoch`, if the checkpoint was stored within it
            "batches": Value("a whole number, 1 or more", lambda value: _is_whole(value, 1)), "of": count,
            "loss": Value("a number, or a list of them",
                          lambda value: all(type(term) is float for term in _terms(value))),
        }, {
            "average": Each(Record({"average": finite_tensor, "lacks": Value("a tensor", _is_tensor)})),
        }),
        "run": text, "versions": Each(text), "random": RANDOM,
        "unaveraged_weights": Each(Value("a tensor", _is_tensor)),
        "curves": Record({"train_loss": Items(loss), "valid_score": Items(optional(number))}),
        "data_digest": Value("a SHA-256 digest, or empty",
                             lambda value: type(value) is str and bool(re.fullmatch(r"[0-9a-f]{64}|", value))),
        "time_origin": optional(number), "sampler": optional(generator_state),
        "data": Value("a dictionary, or None", lambda value: value is None or isinstance(value, dict)),
    },
)  # fmt: skip
