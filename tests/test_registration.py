"""`register`: RecBole's own functions find our models, when asked to and not before."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import recbole_ext

pytestmark = pytest.mark.slow

ROOT = str(Path(recbole_ext.__file__).parents[1])
# where RecBole 1.2.1 itself runs
stock = pytest.mark.skipif(
    np.__version__ >= "2" or importlib.util.find_spec("ray") is None, reason="stock RecBole needs NumPy 1.26 and Ray"
)


def python(code: str, **more: str) -> str:
    """The last line that `code` prints in a fresh process."""
    environment = {**os.environ, "PYTHONPATH": ROOT, **more}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


START = """
import json
import numpy
from recbole.utils import get_model
import recbole_ext
from recbole_ext import InputError, MODELS, register

def found(name):
    try:
        return get_model(name).__module__.split(".")[0]
    except (ValueError, ModuleNotFoundError):
        return None

def said(*names, **keys):
    try:
        register(*names, **keys)
    except InputError as error:
        return str(error)
"""


def test_recboles_get_model_finds_ours_after_register_and_not_before():
    code = """
before = [found(name) for name in MODELS]
register()
register()
after = [found(name) for name in MODELS]
register(override=True)
print(json.dumps([before, after, [get_model(name) is MODELS[name] for name in MODELS]]))
"""
    before, after, all_of_them = json.loads(python(START + code))
    assert list(recbole_ext.MODELS) == ["MEANTIME", "LightSANs", "BST", "TiSASRec"]
    assert before == [None, "recbole", None, None]
    assert after == ["recbole_ext", "recbole", "recbole_ext", "recbole_ext"]
    assert all(all_of_them)


def test_a_model_of_recbole_is_not_replaced_unasked():
    code = """
sentences = [said("LightSANs"), said("Meantime"), said("BST"), found("MEANTIME"), found("BST"), found("LightSANs")]
print(json.dumps([*sentences, said("LightSANs", override=True), found("LightSANs"), found("SASRec")]))
"""
    refused, unknown, *rest = json.loads(python(START + code))
    assert refused.startswith("RecBole already has a model LightSANs")
    assert "override=True" in refused
    assert unknown == "register names 'Meantime'; it should be one of MEANTIME, LightSANs, BST, TiSASRec."
    assert rest == [None, None, "recbole_ext", "recbole", None, "recbole_ext", "recbole"]


def test_our_own_ways_work_as_before():
    code = """
from recbole_ext import Config
keys = lambda model: Config(model, "ml-100k", argv=[]).to_dict()
before = [keys(model) for model in ("MEANTIME", "SASRec")]
register()
print(json.dumps(before == [keys(model) for model in ("MEANTIME", "SASRec")]))
"""
    assert json.loads(python(START + code)) is True


SMALL = """
small = {"epochs": 1, "data_path": "data", "show_progress": False, "state": "WARNING", "use_gpu": False, "topk": [5],
         "valid_metric": "NDCG@5", "MAX_ITEM_LIST_LENGTH": 8,
         "load_col": {"inter": ["user_id", "item_id", "timestamp"]}}
"""


@stock
@pytest.mark.parametrize("name", ["MEANTIME", "BST", "LightSANs", "TiSASRec"])
def test_stock_recbole_trains_loads_and_ranks(write_events, random_events, name):
    write_events(random_events())
    code = """
import glob
from recbole.quick_start import load_data_and_model, objective_function, run_recbole
from recbole.utils.case_study import full_sort_topk
register(override=True)
result = run_recbole(model=NAME, dataset="toy", config_dict=small)
config, model, dataset, train, valid, test = load_data_and_model(glob.glob("saved/*.pth")[0])
users = dataset.token2id("user_id", ["u1", "u2"])
scores, items = full_sort_topk(users, model, test, k=5, device=config["device"])
import ray.tune, recbole.quick_start.quick_start as there
there.tune.report = lambda **metrics: None
tried = objective_function({**small, "model": NAME, "dataset": "toy"}, saved=False)
print(json.dumps([type(model) is MODELS[NAME], result["test_result"]["ndcg@5"], list(items.shape),
                  tried["best_valid_score"], config["normalize_all"]]))
"""
    lines = START + SMALL + f"NAME = {name!r}\n" + code
    # RecBole pickles its checkpoints, and torch must be told to load them
    ours, score, shape, tried, normalised = json.loads(python(lines, TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD="1"))
    assert ours
    assert 0 <= score <= 1
    assert 0 <= tried <= 1
    assert shape == [2, 5]
    assert normalised is False
