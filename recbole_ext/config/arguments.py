"""`--key=value` and `--key value` as a dictionary of texts, and the options that a command has."""

from collections.abc import Sequence
from typing import Any

from recbole_ext.errors import InputError


def parse_arguments(argv: Sequence[str], strict: bool = True) -> dict[str, Any]:
    """Split command-line arguments into keys and the texts of their values.

    Args:
        argv: arguments without the program's name. `--key` alone stands for True.
        strict: refuse what is no key. A library reading its host program's arguments is not strict and skips it.

    Raises:
        InputError: a bare word (when strict), or one key given twice with different values.
    """
    if not isinstance(argv, (list, tuple)):
        raise InputError(f"argv is {argv!r}; it should be a list of texts.")
    found: dict[str, Any] = {}
    rest = list(argv)
    while rest:
        word = str(rest.pop(0))
        if not word.startswith("--") or word.partition("=")[0] == "--":
            if strict:
                raise InputError(f"argument '{word}' is not understood; write --key=value.")
            continue
        key, equals, text = word[2:].partition("=")
        value: Any = text
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else True
        if strict and found.get(key, value) != value:
            raise InputError(f"key '{key}' is given twice, as '{found[key]}' and as '{value}'; give it once.")
        found[key] = value
    return found
