"""Options of a command, declared once each with argparse: they make its help, and its refusals of one sentence."""

import argparse
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from recbole_ext.errors import InputError
from recbole_ext.utils.literals import parse_arguments, parse_literal
from recbole_ext.utils.validators import Bool, Str, ValidationError, Validator
from recbole_ext.utils.wording import nearest

EXIT_STATUS = """
Exit status: 0 done, 1 failed while running, 2 the request was wrong, 130 interrupted, 143 terminated."""


class NamesFile(Validator):
    """The name of a file with names of items; False for no names."""

    raw_text, expected = True, "a file with two columns, items and names, or False"

    def validate(self, value: Any) -> str | bool:
        return False if value.lower() == "false" else FILE.validate(value)


FILE, FOLDER, BOOL = Str(expected="the name of a file"), Str(expected="the name of a folder"), Bool()


class OptionParser(argparse.ArgumentParser):
    """The options of a command, as `--name=value` or `--name value`.

    Args:
        command: its name.
        usage: its arguments in one line.
        description: what the command does.
        epilog: what its help ends with, before the exit statuses.
    """

    def __init__(self, command: str, usage: str, description: str, epilog: str = ""):
        super().__init__(
            command, f"recbole-ext {usage}", description, epilog + EXIT_STATUS, allow_abbrev=False,
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=28),
        )  # fmt: skip
        self.validators: dict[str, Validator] = {}
        self.without_value: set[str] = set()

    def add_option(
        self, name: str, metavar: str, validator: Validator, help: str, default: Any = None, required: bool = False
    ) -> None:
        """Declare an option that needs a value."""
        self.validators[name] = validator
        self.add_argument(
            f"--{name}", metavar=metavar, type=_reader(validator), help=help, default=default, required=required
        )

    def add_flag(
        self, name: str, help: str, default: Any = False, metavar: str = "BOOL", validator: Validator = BOOL
    ) -> None:
        """Declare an option that stands for True if it has no value."""
        self.without_value.add(name)
        self.add_argument(
            f"--{name}", metavar=metavar, nargs="?", const=True, type=_reader(validator), help=help, default=default
        )

    def parse(self, argv: Sequence[str], words: list[str] | None = None) -> argparse.Namespace:
        """The values of the options.

        Args:
            argv: the arguments.
            words: a list that gets the arguments without an option; None if the command takes none.

        Raises:
            InputError: an option is unknown, repeated, missing or wrong.
        """
        known = [*self.validators, *self.without_value]
        for name in parse_arguments(argv, words=words):
            if name not in known:  # before argparse, which misses the required option of a misspelt one
                near = nearest(name, known)
                hint = f"did you mean --{near}?" if near else f"its options are --{', --'.join(known)}."
                raise InputError(f"{self.prog} has no option --{name}; {hint}")
        return self.parse_with_keys(argv, None if words is None else [])[0]

    def parse_with_keys(
        self, argv: Sequence[str], words: list[str] | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """The values of the options, and the other arguments, which are configuration keys: `["--key=value", ...]`."""
        options = []
        for name, value in parse_arguments(argv, words=words).items():
            if value is True and name in self.validators:
                value = ""  # refused by its reader
            options.append(f"--{name}" if value is True else f"--{name}={value}")
        return self.parse_known_args(options)

    def error(self, message: str) -> NoReturn:
        """Raise argparse's refusal, e.g. "argument --k: is '0'; it should be ...", as an `InputError`."""
        message = re.sub(r"^argument (--\w+): ", r"\1 ", message)
        raise InputError(message if message.endswith(".") else f"{message}.")


def _reader(validator: Validator) -> Callable[[str], Any]:
    """argparse's `type` of an option: reads its text and validates the value."""
    expected = getattr(validator, "expected", "a value")

    def read(text: str) -> Any:
        if not text.strip():
            raise argparse.ArgumentTypeError(f"has no value; give it {expected}.")
        try:
            return validator.validate(text if validator.raw_text else parse_literal(text))
        except ValidationError as error:
            raise argparse.ArgumentTypeError(f"is {text!r}; it should be {error.expected}.") from error
        except InputError as error:
            raise argparse.ArgumentTypeError(f"cannot be read: {error}") from error

    return read


def add_request_options(parser: OptionParser, histories_required: bool) -> None:
    """Declare the options that `recommend` and `explain` share."""
    parser.add_option("checkpoint", "FILE", FILE, "the file that training wrote", required=True)
    parser.add_option(
        "histories", "FILE", FILE,
        "events with user, item and time, in columns named as in training: .inter, .csv or .parquet. The column of "
        "times may be missing if the model does not read it; then the order of the rows counts",
        required=histories_required,
    )  # fmt: skip
    parser.add_option(
        "at", "TIME", Validator(),
        "recommend as of this time, written as in the histories; later events are ignored (default: just after the "
        "user's last event)",
    )  # fmt: skip
    parser.add_flag("exclude_seen", "whether to leave out items of the user's own events (default: True)", True)
    parser.add_flag(
        "trained_items_only", "whether to leave out items without a training event, which the model has not learnt"
    )
    parser.add_option(
        "item_names", "FILE", NamesFile(),
        "names to show beside items: a file with two columns, items and names, or False for none (default: the names "
        "that the checkpoint holds, see the training key item_names)",
    )  # fmt: skip
    parser.add_option(
        "device", "NAME", Str(expected="the name of a device, e.g. cpu"),
        "cpu or cuda:0 (default: what training would use on this machine)",
    )  # fmt: skip
