"""`log_dir`: where RecBole's folders `log` and `log_tensorboard` are made, which it has in the working directory."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import recbole.utils.utils
from recbole.utils import init_logger

from recbole_ext.config.paths import writable_dir


def check_log_dir(config: Any) -> None:
    """Make the folders of a run's logs; `InputError` if they cannot be written."""
    for folder in (os.path.join("log", config["model"]), "log_tensorboard"):
        writable_dir(os.path.join(_folder(config), folder), "the log of a run")


def start_log_file(config: Any) -> None:
    """Let RecBole set up logging, with its file in `log_dir`."""
    here = os.getcwd()
    os.makedirs(_folder(config), exist_ok=True)
    os.chdir(_folder(config))  # RecBole's path is relative, and becomes absolute when the file is opened
    try:
        init_logger(config)
    finally:
        os.chdir(here)


@contextlib.contextmanager
def tensorboard_in_log_dir(config: Any) -> Iterator[None]:
    """Have a trainer that is made inside write TensorBoard's files to `log_dir`."""
    module: Any = recbole.utils.utils
    usual = module.SummaryWriter
    module.SummaryWriter = lambda path: usual(os.path.join(_folder(config), path))
    try:
        yield
    finally:
        module.SummaryWriter = usual


def _folder(config: Any) -> str:
    return config["log_dir"] or "."  # RecBole's own Config has no such key
