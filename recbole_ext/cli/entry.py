"""The command line: chooses the command, and turns its errors into messages and exit statuses."""

import contextlib
import importlib
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Sequence
from signal import SIGINT, SIGTERM

from recbole_ext.cli.run import number_of_processes
from recbole_ext.distributed import environment
from recbole_ext.distributed.environment import LOST, are_announced, end_with_parent, was_launched
from recbole_ext.distributed.launcher import launch
from recbole_ext.errors import InputError, ProcessLost, SearchError, is_lack_of_memory
from recbole_ext.utils.atomic_write import WriteError
from recbole_ext.utils.signals import SigtermReceived, graceful_signals, outcome, pending_signal
from recbole_ext.utils.versions import __version__
from recbole_ext.utils.wording import nearest

COMMANDS = ("run", "tune", "recommend", "explain", "export", "compare")  # each a module of this package


def program() -> int:
    """Run the command line as a program; returns its exit status.

    A search runs in a child process, and a training with `--nproc` in several, which this one watches: see
    `recbole_ext.tuning.supervisor` and `recbole_ext.distributed.launcher`.
    """
    if sys.argv[1:2] == ["tune"] and os.name == "posix":
        from recbole_ext.tuning.supervisor import supervised

        return supervised(main, sys.argv[1:])
    count, rest = number_of_processes(sys.argv[1:])
    return launch(count, rest) if count > 1 and os.name == "posix" and not are_announced() else main()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line in this process; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        # RecBole's deprecation warnings do not concern users
        warnings.filterwarnings("ignore", category=FutureWarning)
        if (wrong := environment.problem()) is not None:
            raise InputError(wrong)
        end_with_parent()
        with graceful_signals(), _processes_joined():
            _command(argv)
            sys.stdout.flush()
            return 0
    except InputError as error:
        _say(str(error))
        return 2
    except (SigtermReceived, KeyboardInterrupt) as error:
        return _stopped(type(error), f"; {_hint(str(error))}" if str(error) else "")
    except ProcessLost as error:
        if was_launched():  # `launch` says which one
            return LOST
        _say(f"failed while running: {error}{f'; {_hint(error.file)}' if error.file else ''}")
        return 1
    except Exception as error:
        if (signal := pending_signal()) is not None:  # torch's writer of files turned it into another error
            return _stopped(signal)
        # a traceback does not help with a full disk, a diverged model or too little memory
        if not isinstance(error, (OSError, FloatingPointError, SearchError)) and not is_lack_of_memory(error):
            _print_error(traceback.format_exc().rstrip())
        if not _output_works() and isinstance(error, OSError) and error.filename is None:
            error = WriteError(error.errno, error.strerror, "standard output")
        _say(f"failed while running: {error}")
        return 1


def _say(sentence: str) -> None:
    _print_error(f"recbole-ext: {sentence}")


def _print_error(text: str) -> None:
    """Print to standard error, unless another process of this run has already said why it fails."""
    processes = sys.modules.get("recbole_ext.distributed.processes")
    # before its import has ended, the processes have not met; and torch cannot be imported again after half an import
    if processes is None or processes.says_failure():
        print(text, file=sys.stderr)


def _processes_joined() -> contextlib.AbstractContextManager[None]:
    """`processes.joined`; without several processes, torch is not imported."""
    if not are_announced():
        return contextlib.nullcontext()
    from recbole_ext.distributed.processes import joined

    return joined()


def _hint(checkpoint: str) -> str:
    return f"resume it with --resume={shlex.quote(checkpoint)}"


def _command(argv: list[str]) -> None:
    if "--version" in argv:
        print(f"recbole_ext {__version__}")
        return
    named = bool(argv) and not str(argv[0]).startswith("-")
    name, arguments = (argv[0], argv[1:]) if named else ("run", argv)
    if name not in COMMANDS:
        near = nearest(str(name), COMMANDS)
        hint = f"did you mean {near}?" if near else f"commands: {', '.join(COMMANDS)}."
        raise InputError(f"there is no command '{name}'; {hint}")
    if name != "run" and are_announced():
        raise InputError(f"{name} runs in one process, but this one is one of several; start it without torchrun.")
    command = importlib.import_module(f"recbole_ext.cli.{name}")
    if "--help" in arguments or "-h" in arguments:
        print(command.parser.format_help(), end="")
    else:
        command.main(arguments)


def _output_works() -> bool:
    """Whether what was printed can be written; if not, it is dropped, or Python would print an error at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def _stopped(signal: type[BaseException], hint: str = "") -> int:
    word, status = outcome(SIGTERM if issubclass(signal, SigtermReceived) else SIGINT)
    _say(f"{word}{hint}")
    return status


if __name__ == "__main__":
    sys.exit(program())
