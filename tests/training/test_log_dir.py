"""`log_dir`: logs and TensorBoard's files lie where the user wants them."""

import os
from logging import getLogger
from pathlib import Path

import pytest

from recbole_ext import InputError, get_trainer, run_recbole
from recbole_ext.quick_start import check_log_dir, create_dataset, data_preparation

pytestmark = pytest.mark.usefixtures("no_waiting")


@pytest.fixture
def run(make_config, monkeypatch):
    def run(**keys):
        monkeypatch.setattr(getLogger(), "handlers", [])  # those of pytest keep the log out of a file
        config = make_config("Pop", epochs=1, **keys)
        given = {key: config[key] for key in config.user_keys}
        return run_recbole("Pop", "toy", None, given | keys, argv=[])

    yield run
    for handler in getLogger().handlers:
        handler.close()


def test_a_run_logs_below_its_log_dir_and_nowhere_else(run):
    here = os.getcwd()
    run(log_dir="deep/logs")
    assert os.getcwd() == here
    assert set(os.listdir()) == {"data", "saved", "deep"}
    assert set(os.listdir("deep/logs")) == {"log", "log_tensorboard"}
    assert list(Path("deep/logs/log/Pop").glob("*.log"))
    assert list(Path("deep/logs/log_tensorboard").rglob("events.*"))


def test_the_default_is_the_working_directory_as_in_recbole(run):
    run()
    assert set(os.listdir()) == {"data", "saved", "log", "log_tensorboard"}


def test_a_resumed_run_logs_where_it_logged(run):
    path = run(log_dir="logs")["checkpoint"]
    run_recbole(config_dict={"epochs": 2}, argv=[], resume=path)
    assert not Path("log").exists()
    assert not Path("log_tensorboard").exists()


def test_a_log_dir_that_cannot_be_written_is_refused(make_config):
    Path("file").touch()
    with pytest.raises(InputError, match="the log of a run cannot be written to .*file/log"):
        check_log_dir(make_config(log_dir="file"))


def test_a_trainer_by_itself_writes_tensorboards_files_there(make_config):
    config = make_config(log_dir="logs")
    train, *_ = data_preparation(config, create_dataset(config))
    trainer = get_trainer(config)(config, config.model_class(config, train._dataset))
    trainer.tensorboard.close()
    assert Path(trainer.tensorboard.log_dir).is_relative_to(Path("logs").absolute() / "log_tensorboard")
    assert not Path("log_tensorboard").exists()
