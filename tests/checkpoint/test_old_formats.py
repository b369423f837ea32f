"""Checkpoints that older versions wrote load, resume and recommend; `write_sample.py` adds those of a new format."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

from recbole_ext import InputError, Recommender, load_data_and_model, run_recbole
from recbole_ext.checkpoint import file as checkpoint
from recbole_ext.checkpoint import training_run
from tests.checkpoint.write_sample import FOLDER, write_events

pytestmark = pytest.mark.slow

SAMPLES = sorted(path.stem for path in FOLDER.glob("*.pth"))


@pytest.fixture
def sample(request, tmp_path, monkeypatch) -> str:
    """The path of a copy of a sample checkpoint, beside its data set."""
    monkeypatch.chdir(tmp_path)
    write_events(tmp_path / "dataset")
    (tmp_path / "saved").mkdir()
    for suffix in (".pth", ".latest"):
        shutil.copyfile(FOLDER / f"{request.param}{suffix}", tmp_path / "saved" / f"sample{suffix}")
    return str(tmp_path / "saved" / "sample.pth")


def test_the_first_sample_is_among_them():
    assert "dec3669" in SAMPLES


@pytest.mark.parametrize("sample", SAMPLES, indirect=True)
def test_the_model_loads_with_its_weights_and_data(sample):
    _, model, dataset, *_ = load_data_and_model(sample, "cpu", config_dict={"data_path": "dataset"})
    stored = checkpoint.load(sample)["state_dict"]
    assert all(torch.equal(weights, stored[name]) for name, weights in model.state_dict().items())
    assert dataset.user_num == 13
    assert dataset.item_num == 11


@pytest.mark.parametrize("sample", SAMPLES, indirect=True)
def test_training_resumes_after_the_latest_epoch(sample):
    result = run_recbole(resume=sample, config_dict={"data_path": "dataset", "epochs": 3}, argv=[])
    latest = training_run.find_resume_state(sample).checkpoint
    assert Path(result["checkpoint"]).samefile(sample)
    assert latest["epoch"] == 2
    assert len(latest["curves"]["train_loss"]) == 3
    assert None not in latest["curves"]["train_loss"]


@pytest.mark.parametrize("sample", SAMPLES, indirect=True)
def test_a_key_that_is_newer_than_the_checkpoint_has_its_default(sample):
    keys = {"data_path": "dataset", "epochs": 3, "objective": "next"}
    with pytest.raises(InputError, match="objective is 'next', but checkpoint .* was trained with 'cloze'"):
        run_recbole(resume=sample, config_dict=keys, argv=[])


@pytest.mark.parametrize("sample", SAMPLES, indirect=True)
def test_the_checkpoint_alone_recommends(sample):
    histories = pd.DataFrame(
        {"user_id": ["new", "new", "u1"], "item_id": ["i1", "i2", "i3"], "timestamp": [1.6e9, 1.60001e9, 1.6e9]}
    )
    recommended = Recommender.load(sample, "cpu").recommend(histories, k=3)
    assert list(recommended["user_id"]) == ["new"] * 3 + ["u1"] * 3
    assert not {"i1", "i2"} & set(recommended["item_id"][:3])
    assert recommended["score"].notna().all()


def test_the_first_module_path_of_from_recbole_still_works():
    from recbole_ext.model import lightsans
    from recbole_ext.model.lightsans_recbole import from_recbole

    assert from_recbole is lightsans.from_recbole
