"""A data set that is read and split once, for several runs that differ in other keys."""

from typing import Any

from recbole.utils import init_seed

from recbole_ext.data import create_dataset, data_preparation
from recbole_ext.errors import recbole_errors_as_input_error


class SharedData:
    """Users, items, events and their split, from which every run makes loaders of its own.

    A random split is that of every run with the seed of `config`: random numbers begin with it here.

    Args:
        config: configuration of one of the runs.

    Attributes:
        keys (set[str]): the keys that were read to make it. Runs in which one of them differs need data of their own.

    Raises:
        InputError: the files, the filters or the split are wrong.
    """

    def __init__(self, config):
        init_seed(config["seed"], config["reproducibility"])
        recorder = _Recorder(config)
        self.dataset: Any = create_dataset(recorder)
        self.dataset.makes_loaders = True
        with recbole_errors_as_input_error(f"eval_args {config['eval_args']} with data set '{config['dataset']}'"):
            self.parts: list = self.dataset.build()
        self.keys: set[str] = recorder.keys
        self._configure(config)

    def loaders(self, config) -> tuple:
        """Training, validation and test loader for a run, as `data_preparation` makes them from the files."""
        self._configure(config)
        self.dataset.build = lambda: self.parts  # of this object alone: RecBole's loaders begin with a split
        try:
            return data_preparation(config, self.dataset)
        finally:
            del self.dataset.build

    def _configure(self, config) -> None:
        for part in (self.dataset, *self.parts):
            part.config = config


class _Recorder:
    """A configuration that remembers which of its keys were read."""

    def __init__(self, config):
        self.config, self.keys = config, set()

    def __getitem__(self, key):
        self.keys.add(key)
        return self.config[key]

    def __contains__(self, key):
        self.keys.add(key)
        return key in self.config

    def __setitem__(self, key, value):
        self.config[key] = value

    def __getattr__(self, name):
        if name.startswith("__"):  # copying and pickling ask for these before there is a configuration
            raise AttributeError(name)
        return getattr(self.config, name)
