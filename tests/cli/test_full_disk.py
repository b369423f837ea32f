"""A full disk: every file that is written fails with one sentence that names it, and what was there before stays."""

import importlib.util
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

import recbole_ext
from recbole_ext import create_dataset, data_preparation, get_trainer
from recbole_ext.checkpoint import file as checkpoint
from recbole_ext.cli import explain as explain_command
from recbole_ext.cli.files import writer
from recbole_ext.cli.run import write_json
from recbole_ext.evaluation.per_user import write_per_user
from recbole_ext.serving import exporter as exporting
from recbole_ext.serving.explain.explanation import Explanation
from recbole_ext.serving.recommender import Recommender
from recbole_ext.training.logs import raise_errors
from recbole_ext.tuning.journal import Journal
from recbole_ext.utils import atomic_write as whole_file

FULL = "/dev/full"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.exists(FULL), reason="no device that is always full here"),
]
needs_pyarrow = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")

SIZES = pytest.mark.parametrize("rows", [1, 20_000], ids=["when it is closed", "in the middle"])


@pytest.fixture
def full(tmp_path, monkeypatch) -> None:
    """Files on their way lie on a full device."""

    def unfinished(path: str, process: str) -> str:
        link = tmp_path / ".unfinished"
        if not link.is_symlink():
            link.symlink_to(FULL)
        return str(link)

    monkeypatch.setattr(whole_file, "unfinished", unfinished)


def frame(rows: int) -> pd.DataFrame:
    return pd.DataFrame({"user_id": [f"u{n}" for n in range(rows)], "rank": 1, "item_id": "i", "score": 0.5})


def recommendations(path: str, rows: int) -> None:
    with writer(path, "user_id", "item_id") as write:
        write(frame(rows))


def explanation(rows: int) -> SimpleNamespace:
    return SimpleNamespace(events=frame(rows), to_dict=lambda: {"events": ["x"] * rows})


def export(path: str, rows: int, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(exporting, "ExportedScorer", lambda *_: torch.nn.Module())
    for name, value in (("_trace", None), ("_description", {}), ("_compare", 0.0)):
        patch.setattr(exporting, name, lambda *_, value=value: value)
    patch.setattr(torch.export, "save", lambda program, file, extra_files: file.write(b"x" * rows))
    patch.setattr(torch.export, "load", lambda file: SimpleNamespace(module=lambda: None))
    exporting.write(SimpleNamespace(model=None, description=None), path)


def report(path: str, rows: int, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("recbole_ext.serving.explain.page.page", lambda *_: "x" * rows)
    Recommender.write_report(SimpleNamespace(path=None), object.__new__(Explanation), path)


FILES = {
    "a.pth": lambda path, rows, patch: checkpoint.save({"weights": torch.zeros(rows)}, path),
    "result.json": lambda path, rows, patch: write_json({"values": [0.5] * rows}, path),
    "out.csv": lambda path, rows, patch: recommendations(path, rows),
    "out.jsonl": lambda path, rows, patch: recommendations(path, rows),
    "out.parquet": lambda path, rows, patch: recommendations(path, rows),
    "users.csv": lambda path, rows, patch: write_per_user(frame(rows), path),
    "users.parquet": lambda path, rows, patch: write_per_user(frame(rows), path),
    "model.pt2": export,
    "why.html": report,
    "why.csv": lambda path, rows, patch: explain_command._write(None, explanation(rows), "out", path),
    "why.json": lambda path, rows, patch: explain_command._write(None, explanation(rows), "json", path),
    "trials.csv": lambda path, rows, patch: Journal(os.path.dirname(path)).write("trials.csv", "x" * rows),
    "best.yaml": lambda path, rows, patch: Journal(os.path.dirname(path)).write_yaml("best.yaml", {"a": "x" * rows}),
}


@SIZES
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs_pyarrow if "parquet" in name else []) for name in FILES]
)
def test_every_file_is_as_before_and_the_sentence_names_it(full, tmp_path, monkeypatch, name, rows):
    path = tmp_path / name
    path.write_text("before")
    with pytest.raises(OSError, match="No space left on device") as caught:
        FILES[name](str(path), rows, monkeypatch)
    assert str(caught.value) == f"{path} cannot be written: No space left on device"
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == [name]


def test_a_trial_that_cannot_be_noted_names_the_journal(tmp_path):
    (tmp_path / "trials.jsonl").symlink_to(FULL)
    with pytest.raises(OSError, match="trials.jsonl cannot be written: No space left on device"):
        Journal(str(tmp_path)).add({"trial": 1})


def test_the_log_names_its_file_and_prints_no_traceback(tmp_path, capfd):
    (tmp_path / "run.log").symlink_to(FULL)
    log = logging.getLogger("of this test")
    handler = logging.FileHandler(tmp_path / "run.log")
    raise_errors(handler)
    log.addHandler(handler)
    with pytest.raises(OSError, match="run.log cannot be written: No space left on device"):
        log.warning("a line")
    handler.stream.close = lambda: None  # it would try again
    log.removeHandler(handler)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("good_writes", [0, 1])
def test_the_log_for_tensorboard_names_itself_and_prints_no_traceback(make_config, monkeypatch, capfd, good_writes):
    config = make_config("SASRec", epochs=3)
    train, valid, _ = data_preparation(config, create_dataset(config))
    left = iter([True] * good_writes)

    def write(*_):
        if not next(left, False):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("tensorboard.compat.tensorflow_stub.io.gfile.LocalFileSystem._write", write)
    model = config.model_class(config, train._dataset)
    with pytest.raises(OSError, match="^the log for TensorBoard cannot be written: No space left on device$"):
        get_trainer(config)(config, model).fit(train, valid, saved=False)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("words", ["--version", "recommend --help"])
def test_output_that_cannot_be_printed_is_one_sentence(words):
    environment = {**os.environ, "PYTHONPATH": str(Path(recbole_ext.__file__).parents[1]), "PYTHONUNBUFFERED": ""}
    with open(FULL, "w") as output:
        done = subprocess.run(
            [sys.executable, "-m", "recbole_ext", *words.split()], stdout=output, stderr=subprocess.PIPE, text=True,
            env=environment,
        )  # fmt: skip
    message = "recbole-ext: failed while running: standard output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, message)


def test_torch_does_not_notice_an_error_and_the_first_one_is_raised():
    class Disk:
        written = b""

        def write(self, data: bytes) -> None:
            if len(self.written) > 5000:
                raise KeyboardInterrupt
            self.written += bytes(data)

        def flush(self) -> None:
            pass

    target = whole_file.DeferredErrors(Disk())
    torch.save({str(number): torch.zeros(1000) for number in range(9)}, target)
    with pytest.raises(KeyboardInterrupt):
        target.check()
