"""Options that commands share: which exist, and their values."""

from collections.abc import Mapping, Sequence
from typing import Any

from recbole_ext.errors import InputError
from recbole_ext.utils.literals import parse_literal

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
