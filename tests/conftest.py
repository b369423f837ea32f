"""What the tests share: small data sets in RecBole's atomic format, and configurations for them."""

import os

# tiny tensors: more threads only wait for each other. Before torch is imported, and for processes that tests start
os.environ.setdefault("OMP_NUM_THREADS", "1")

import signal

# a shell that starts the tests in the background lets them ignore SIGINT, and so the processes that they start
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recbole_ext import Config, Recommender, create_dataset, data_preparation, get_trainer
from recbole_ext.data.description import DatasetDescription, describe

Event = tuple[Any, ...]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forbid-skips", action="store_true", help="fail when a test is skipped, for .ci/run")


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.getoption("--forbid-skips") and reporter is not None and reporter.stats.get("skipped"):
        reporter.write_line("a test was skipped, which --forbid-skips does not allow", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def in_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RecBole writes logs and checkpoints below the working directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def without_search_for_nan() -> None:
    """Importing RecBole's models, as some tests do, turns it on for the process: several times slower."""
    torch.autograd.set_detect_anomaly(False)


@pytest.fixture
def write_events(tmp_path: Path) -> Callable[..., str]:
    """Write `data/<name>/<name>.inter`; returns the `data_path` to give."""

    def write(
        events: Iterable[Event],
        columns: Sequence[str] = ("user_id:token", "item_id:token", "timestamp:float"),
        name: str = "toy",
    ) -> str:
        folder = tmp_path / "data" / name
        folder.mkdir(parents=True, exist_ok=True)
        lines = ["\t".join(columns), *("\t".join(str(value) for value in event) for event in events)]
        (folder / f"{name}.inter").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return str(tmp_path / "data")

    return write


@pytest.fixture
def random_events() -> Callable[..., list[Event]]:
    """Events of `users` users with 4 to `longest` events each, times in seconds and file order shuffled."""

    def make(users: int = 30, items: int = 20, longest: int = 12, seed: int = 0, first: float = 1.6e9) -> list[Event]:
        generator = np.random.default_rng(seed)
        events = []
        for user in range(users):
            for _ in range(int(generator.integers(4, longest + 1))):
                time = first + int(generator.integers(0, 40 * 86400))
                events.append((f"u{user}", f"i{generator.integers(items)}", time))
        return [events[index] for index in generator.permutation(len(events))]

    return make


@pytest.fixture
def make_config(write_events, random_events) -> Callable[..., Config]:
    """A `Config` of a small model on the toy data set (or on `events`); keys are given as keywords."""

    def make(model: str | type = "MEANTIME", events: Iterable[Event] | None = None, **keys: Any) -> Config:
        data_path = keys.pop("data_path", None) or write_events(random_events() if events is None else events)
        small = {
            "data_path": data_path, "epochs": 2, "train_batch_size": 16, "show_progress": False, "state": "warning",
            "MAX_ITEM_LIST_LENGTH": 8, "topk": [5], "valid_metric": "NDCG@5", "use_gpu": False,
        }  # fmt: skip
        if model == "MEANTIME":
            small |= {"hidden_size": 16, "inner_size": 32}
        return Config(model, keys.pop("dataset", "toy"), None, {**small, **keys}, argv=[])

    return make


@pytest.fixture
def make_model(make_config) -> Callable[..., tuple]:
    """A freshly initialised model and its loaders: (model, training, validation and test loader)."""

    def make(*args: Any, **keys: Any) -> tuple:
        config = make_config(*args, **keys)
        torch.manual_seed(0)
        loaders = data_preparation(config, create_dataset(config))
        model = config.model_class(config, loaders[0]._dataset)
        return model, *loaders

    return make


@pytest.fixture
def make_checkpoint() -> Callable[..., str]:
    """Train the model of a configuration; returns the path of its checkpoint."""

    def make(config: Config, validate: bool = False) -> str:
        torch.manual_seed(0)
        train, valid, _ = data_preparation(config, create_dataset(config))
        trainer = get_trainer(config)(config, config.model_class(config, train._dataset))
        trainer.fit(train, valid if validate else None)
        return trainer.saved_model_file

    return make


@pytest.fixture
def make_recommender() -> Callable[..., Recommender]:
    """The recommender of a model without a checkpoint, given its training loader."""

    def make(model: Any, train: Any) -> Recommender:
        data = train._dataset
        fields = (data.uid_field, data.iid_field)
        tokens = {field: [str(token) for token in data.field2id_token[field]] for field in fields}
        description = DatasetDescription(data.config, describe(data), tokens, data.time_origin)
        return Recommender(data.config, model, description)

    return make


# -------------------------------------------------------------------- data sets


@pytest.fixture
def write_lines(tmp_path: Path) -> Callable[..., str]:
    """Write a file of the toy data set, by its suffix, from lines; returns the `data_path` to give."""

    def write(suffix: str, *lines: str) -> str:
        folder = tmp_path / "data" / "toy"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"toy.{suffix}").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return str(tmp_path / "data")

    return write


@pytest.fixture
def load(make_config) -> Callable[..., tuple]:
    """A data set and its training, validation and test loader, for SASRec unless another model is named."""

    def load_data(model: str | type = "SASRec", events: Iterable[Event] | None = None, **keys: Any) -> tuple:
        config = make_config(model, events, **keys)
        dataset = create_dataset(config)
        return dataset, *data_preparation(config, dataset)

    return load_data


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """RecBole measures the load of the machine for a second, for its log."""

    class Table:
        draw = staticmethod(lambda: "environment")

    monkeypatch.setattr("recbole_ext.quick_start.get_environment", lambda config: Table)
