"""Search spaces as RecBole writes them in `hyper.test`, for example

    learning_rate loguniform -8,0
    embedding_size choice [64,96,128]
    mlp_hidden_size choice ['[64, 64]', '[128, 128]']

Blanks separate key, way and values. The ends of `loguniform` are exponents of e. Values are literals, never evaluated.
"""

import math
from typing import Any

from recbole_ext.config.values import parse_literal
from recbole_ext.errors import InputError

NUMBERS = {"uniform": 2, "loguniform": 2, "quniform": 3}


def read(path: str) -> dict[str, Any]:
    """The space of a file: `{key: {way: values}}`.

    Raises:
        InputError: the file cannot be read, or a line is not `key way values`; the message names file and line.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = file.read().splitlines()
    except (OSError, ValueError) as error:
        raise InputError(f"search space {path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    space: dict[str, Any] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        words = line.split(maxsplit=2)
        where = f"search space {path} line {number}"
        if len(words) < 3:
            raise InputError(f"{where} is '{line.strip()}'; it should be a key, a way and values, separated by blanks.")
        if words[0] in space:
            raise InputError(f"{where}: key '{words[0]}' appears twice.")
        space[words[0]] = {words[1]: _values(words[1], words[2], where)}
    return space


def _values(way: str, text: str, where: str) -> list:
    if way == "choice":
        values = _literal(text, where)
        if not isinstance(values, (list, tuple)) or not values:
            raise InputError(f"{where}: choice is {text!r}; it should be a list such as [64,96,128].")
        return list(values)
    if way not in NUMBERS:
        raise InputError(f"{where}: '{way}' is no way to search; it should be one of choice, {', '.join(NUMBERS)}.")
    found = [_literal(part, where) for part in text.split(",")]
    if len(found) != NUMBERS[way] or not all(isinstance(one, (int, float)) for one in found):
        raise InputError(f"{where}: {way} is '{text}'; it should be {NUMBERS[way]} numbers with commas between.")
    if way == "loguniform":
        try:
            return [math.exp(end) for end in found]
        except OverflowError as error:
            raise InputError(f"{where}: loguniform is '{text}'; its ends are exponents of e, e.g. -8,0.") from error
    return found


def _literal(text: str, where: str) -> Any:
    try:
        return parse_literal(text)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
