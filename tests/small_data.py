"""ml-100k cut to a few users, for examples that name it: the same files, read in a second.

`python -m tests.small_data FOLDER ARGUMENT...` is the command line with that data set, which it writes to FOLDER unless
it is there.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import recbole

from recbole_ext.config import config

NAME, USERS = "ml-100k", 60
SOURCE = Path(recbole.__file__).parent / "dataset_example" / NAME


def written(folder: Path) -> Path:
    """The folder of the small data set, written below `folder` if it is not there."""
    small = folder / NAME
    if not small.exists():
        small.mkdir(parents=True)
        for suffix in ("user", "item"):
            (small / f"{NAME}.{suffix}").write_bytes((SOURCE / f"{NAME}.{suffix}").read_bytes())
        header, *events = (SOURCE / f"{NAME}.inter").read_text(encoding="utf-8").splitlines(keepends=True)
        users = sorted({event.partition("\t")[0] for event in events}, key=int)[:USERS]
        kept = [event for event in events if event.partition("\t")[0] in users]
        (small / f"{NAME}.inter").write_text(header + "".join(kept), encoding="utf-8")
    return small


def finder(folder: Path) -> Callable[..., str]:
    """`dataset_dir`, which takes the small data set for ml-100k where no `data_path` is given."""
    small, usual = written(folder), config.dataset_dir

    def find(data_path: str, dataset: str, from_user: bool, parts: Any = None) -> str:
        return str(small) if dataset == NAME and not from_user else usual(data_path, dataset, from_user, parts)

    return find


def use(folder: str) -> None:
    """Let this process find the small data set, for as long as it runs."""
    config.dataset_dir = finder(Path(folder))


def code_with(folder: Path, code: str) -> str:
    """Python code for a new process that finds the small data set."""
    return f"from tests.small_data import use\nuse({str(folder)!r})\n{code}"


def command_with(folder: Path, words: list[str]) -> list[str]:
    """The words that start the command line in a new process that finds the small data set."""
    return [sys.executable, "-m", "tests.small_data", str(folder), *words]


if __name__ == "__main__":
    from recbole_ext.cli.entry import main

    use(sys.argv[1])
    sys.exit(main(sys.argv[2:]))
