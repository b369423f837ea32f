"""Values of configuration keys from text: YAML files, command-line arguments and literals; nothing is evaluated."""

import ast
import copy
import os
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from recbole_ext.errors import InputError

NONE_WORDS = {"none", "null", "~", ""}
TRUTH_WORDS = {"true": True, "false": False}
MAX_VALUES = 1_000_000  # in a file: nested aliases can expand to more values than memory holds


class TagError(yaml.constructor.ConstructorError):
    """A value has an explicit tag, such as `!!int`."""


class LiteralLoader(yaml.SafeLoader):
    """YAML without tags, with numbers as Python writes them.

    `1e-3` is a number (in YAML 1.1 text); 007, 1:30 and 2020-01-01 are text (in YAML 1.1 7, 90 and a date).
    Anchors, aliases and merge keys work.
    """

    def compose_node(self, parent, index):
        event = self.peek_event()
        if (tag := getattr(event, "tag", None)) is not None:  # aliases have no tag
            written = tag.replace(TAG, "!!")
            raise TagError(None, None, f"it has the tag '{written}'; write the value without a tag", event.start_mark)
        return super().compose_node(parent, index)

    def construct_document(self, node):
        if _expanded(node, {}) > MAX_VALUES:
            raise yaml.constructor.ConstructorError(
                None, None, f"with its aliases written out it has more than {MAX_VALUES:,} values", node.start_mark
            )
        return super().construct_document(node)


def _expanded(node: yaml.Node, sizes: dict[int, int]) -> int:
    """The number of values of a node with its aliases expanded; a recursive alias counts as 0."""
    if id(node) not in sizes:
        sizes[id(node)] = 0
        members = node.value if isinstance(node, yaml.CollectionNode) else ()
        parts = [part for member in members for part in (member if isinstance(member, tuple) else (member,))]
        sizes[id(node)] = 1 + sum(_expanded(part, sizes) for part in parts)
    return sizes[id(node)]


def _mapping(loader: LiteralLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    """A mapping; repeated keys, of which YAML keeps the last, are an error."""
    seen: set[str] = set()
    for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
        if key.value in seen:
            raise yaml.constructor.ConstructorError(None, None, f"key '{key.value}' appears twice", key.start_mark)
        seen.add(key.value)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


FLOAT = r"[-+]?(?:(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)"
PLAIN_NUMBERS = {"int": r"[-+]?(?:0|[1-9][\d_]*)", "float": FLOAT}
TAG = "tag:yaml.org,2002:"
NOT_RESOLVED = {"int", "float", "timestamp", "value"}  # numbers are Python's; dates and `=` stay text

LiteralLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in pairs if tag.removeprefix(TAG) not in NOT_RESOLVED]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _kind, _pattern in PLAIN_NUMBERS.items():
    LiteralLoader.add_implicit_resolver(TAG + _kind, re.compile(f"^(?:{_pattern})$"), list("-+0123456789."))


LiteralLoader.add_constructor(TAG + "map", _mapping)


def read_yaml(path: str) -> dict[str, Any]:
    """Read one configuration file.

    Returns:
        The keys and values of the file, `{}` for an empty one.

    Raises:
        InputError: the file is missing, is not YAML, has tags, or is not a mapping of keys to values.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        values = yaml.load(text, Loader=LiteralLoader)
    except OSError as error:
        raise InputError(f"config file {path or repr(path)} cannot be read: {error.strerror}.") from error
    except yaml.reader.ReaderError as error:
        number = text.count("\n", 0, error.position) + 1
        raise InputError(
            f"config file {path} line {number} holds the character U+{error.character:04X}, which YAML does not allow; "
            f"remove it."
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise InputError(f"config file {path}{line} is not plain YAML: {problem}.") from error
    except ValueError as error:  # a NUL in the path, a number of thousands of digits
        raise InputError(f"config file {path!r} cannot be read: {error}.") from error
    except RecursionError as error:
        raise InputError(f"config file {path} is nested too deeply; keys and values take a few levels.") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InputError(f"config file {path} holds a {type(values).__name__}; it should hold `key: value` lines.")
    return {str(key): value for key, value in values.items()}


def read_property_file(path: str) -> dict[str, Any]:
    """Read a property file, cached because a search creates thousands of `Config`s."""
    return copy.deepcopy(_property_file(path, os.stat(path).st_mtime_ns))


@lru_cache(maxsize=64)
def _property_file(path: str, modified: int) -> dict[str, Any]:
    return read_yaml(path)


def parse_literal(text: str) -> Any:
    """Read the text of one value: a Python or YAML literal, else the text itself.

    `[1, 5]`, `{'LS': 'valid_and_test'}`, `1e-3`, `True`, `none` and `~` are values; anything that is
    not a literal, such as `__import__('os')`, stays text.

    Raises:
        InputError: the value has a YAML tag.
    """
    word = text.strip()
    if word.lower() in NONE_WORDS:
        return None
    if word.lower() in TRUTH_WORDS:
        return TRUTH_WORDS[word.lower()]
    try:
        value = ast.literal_eval(word)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        if word[0] not in "[{":  # bare words stay as they are; `[sin, log]` is easier to type than with quotes
            return text
        try:
            value = yaml.load(word, Loader=LiteralLoader)
        except TagError as error:
            raise InputError(f"{text!r} is not plain YAML: {error.problem}.") from error
        except (yaml.YAMLError, ValueError, RecursionError):
            return text
    plain = isinstance(value, (str, int, float, list, tuple, dict, bool)) or value is None
    return value if plain else text


def to_builtin(value: Any) -> Any:
    """The same value in built-in types, which YAML, JSON and `torch.load(weights_only=True)` accept."""
    if hasattr(value, "tolist"):  # NumPy and torch; isinstance(np.float64(1), float) is True, so this comes first
        value = value.tolist()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): to_builtin(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [to_builtin(item) for item in value]
    return str(value)


def parse_arguments(argv: Sequence[str], strict: bool = True, words: list[str] | None = None) -> dict[str, Any]:
    """Split the arguments `--key=value` and `--key value` into keys and the texts of their values.

    Args:
        argv: arguments without the program's name. `--key` without a value stands for True.
        strict: refuse all other arguments; otherwise they are skipped, as a library must that reads the arguments of
            its host program.
        words: a list that gets the other arguments, for a command that takes some; None means it takes none.

    Raises:
        InputError: an argument has another form (when strict), or a key has two different values.
    """
    if not isinstance(argv, (list, tuple)):
        raise InputError(f"argv is {argv!r}; it should be a list of texts.")
    values: dict[str, Any] = {}
    rest = list(argv)
    while rest:
        word = str(rest.pop(0))
        if not word.startswith("--") or word.partition("=")[0] == "--":
            if words is not None and not word.startswith("-"):
                words.append(word)
            elif strict:
                raise InputError(f"argument '{word}' is not understood; write --key=value.")
            continue
        key, equals, text = word[2:].partition("=")
        value: Any = text
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else True
        if strict and values.get(key, value) != value:
            raise InputError(f"--{key} is given twice, as '{values[key]}' and as '{value}'; give it once.")
        values[key] = value
    return values
