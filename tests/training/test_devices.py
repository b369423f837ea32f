"""Which device a run takes, and what it leaves of the process's own choice."""

import os

import pytest
import torch

from recbole_ext import Config
from recbole_ext.config.checks import limit_eval_batch

VISIBLE = "CUDA_VISIBLE_DEVICES"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    monkeypatch.setenv(VISIBLE, "before")  # so that the test's own changes are undone afterwards
    monkeypatch.delenv(VISIBLE)


@pytest.fixture
def accelerator(monkeypatch):
    """A machine that says it has one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def make(**keys) -> Config:
    return Config("MEANTIME", "ml-100k", None, keys, argv=[])


def test_without_an_accelerator_the_cpu_is_taken(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert make()["device"] == torch.device("cpu")


def test_use_gpu_false_takes_the_cpu_and_hides_nothing_from_others(accelerator, monkeypatch):
    assert make(use_gpu=False)["device"] == torch.device("cpu")
    assert VISIBLE not in os.environ
    monkeypatch.setenv(VISIBLE, "3")
    assert make(use_gpu=False, gpu_id="1")["device"] == torch.device("cpu")
    assert os.environ[VISIBLE] == "3"


def test_devices_chosen_outside_survive_unless_gpu_id_is_given(accelerator, monkeypatch):
    assert make()["device"] == torch.device("cuda")
    monkeypatch.setenv(VISIBLE, "2,3")
    assert make()["device"] == torch.device("cuda")
    assert os.environ[VISIBLE] == "2,3"
    assert make(gpu_id="1")["gpu_id"] == "1"
    assert os.environ[VISIBLE] == "1"


def test_no_devices_outside_means_the_cpu(accelerator, monkeypatch):
    monkeypatch.setenv(VISIBLE, "")
    assert make()["device"] == torch.device("cpu")
    assert os.environ[VISIBLE] == ""


@pytest.mark.parametrize(
    ("given", "visible"),
    [
        (0, "0"),
        ("0,1", "0,1"),
        ([0, 1], "0,1"),
        ((2, 3), "2,3"),
        ("[1,2]", "1,2"),
        (None, ""),
        ("", ""),
        ("GPU-1a-b", "GPU-1a-b"),
    ],
)
def test_gpu_id_may_be_a_number_several_or_a_name(accelerator, given, visible):
    config = make(gpu_id=given)
    assert config["gpu_id"] == visible == os.environ[VISIBLE]
    assert config["device"].type == ("cuda" if visible else "cpu")


# ---------------------------------------------------------------- memory of evaluation


def limited(items: int, model="MEANTIME", **keys) -> int:
    config = Config(model, "ml-100k", None, {"topk": [10], **keys}, argv=[])
    limit_eval_batch(config, items + 1)
    return config["eval_batch_size"]


def test_a_million_items_are_scored_for_few_rows_at_a_time():
    rows = limited(1_000_000)
    assert 16 <= rows <= 100  # 4 bytes a score: at most 0.4 GiB for the scores themselves
    assert limited(1_000_000, eval_memory_mb=4096) == pytest.approx(4 * rows, abs=4)
    assert limited(1_000_000, eval_memory_mb=1) == 1
    assert limited(1_000_000, eval_memory_mb=None) == 4096
    assert limited(1000) == 4096
    assert limited(1000, eval_batch_size=7) == 7


def test_a_batch_of_sampled_candidates_counts_candidates():
    full = limited(1_000_000)
    sampled = limited(1_000_000, eval_args={"mode": "uni9"})
    assert sampled == 10 * full
    assert limited(1_000_000, eval_args={"mode": {"valid": "uni9", "test": "full"}}) == full


def test_recboles_general_models_count_scores_of_all_items():
    assert limited(1_000_000, "BPR") == 4096  # one user, which RecBole makes of it
    assert limited(1000, "BPR", eval_batch_size=10**9) == pytest.approx(2**30 / 16, rel=1e-3)


def test_a_model_that_scores_pair_by_pair_gets_fewer_rows():
    keys = {"eval_args": {"mode": "full"}, "metrics": "NDCG", "valid_metric": "NDCG@10"}
    assert limited(10_000, "DIN", **keys) < limited(10_000, "SASRec", **keys) / 10


def test_metrics_of_labels_score_no_catalogue():
    keys = {"eval_args": {"mode": "labeled"}, "metrics": "AUC", "valid_metric": "AUC", "threshold": {"rating": 4}}
    assert limited(10**7, "FM", **keys) == 4096
