"""`--key=value` and `--key value` as a dictionary of texts, and the options that a command has."""

from collections.abc import Mapping, Sequence
from typing import Any

from recbole_ext.config.values import parse_literal
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


FLAG = "True or False"  # an option that may be given without a value


def check_options(
    command: str, given: Mapping[str, Any], options: Mapping[str, str], needed: Sequence[str] = ()
) -> None:
    """Check that a command has the options that it was given, with values, and that none is missing.

    Args:
        command: its name.
        given: options and the texts of their values; True for one without a value.
        options: the options of the command, each with what its value is, for the message; `FLAG` for those that need no
            value.
        needed: options that must be given.

    Raises:
        InputError: an option is unknown, missing, or has no value.
    """
    unknown = [option for option in given if option not in options]
    if unknown:
        raise InputError(f"{command} has no option --{unknown[0]}; its options are --{', --'.join(options)}.")
    check_values(given, options)
    for option in needed:
        if option not in given:
            raise InputError(f"--{option} is missing; give it {options[option]}.")


def check_values(given: Mapping[str, Any], options: Mapping[str, str]) -> None:
    """Refuse an option without a value, unless it is a `FLAG`."""
    for option, what in options.items():
        value = given.get(option)
        if what != FLAG and (value is True or (isinstance(value, str) and not value.strip())):
            raise InputError(f"--{option} has no value; give it {what}.")


def truth(given: Mapping[str, Any], option: str, default: bool) -> bool:
    """What an option says that is True or False; `InputError` if it says something else."""
    value = given.get(option, default)
    value = parse_literal(value) if isinstance(value, str) else value
    if not isinstance(value, bool):
        raise InputError(f"--{option} is {given[option]!r}; it should be True or False.")
    return value


def item_names_option(given: Mapping[str, Any]) -> Any:
    """What `--item_names` asks for: a file or a column as written, False for no names, None where it is left out."""
    value = given.get("item_names")
    return False if isinstance(value, str) and value.lower() == "false" else value
