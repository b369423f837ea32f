"""The model of docs/add_a_model.md, exactly as the page has it, through everything that the page promises."""

import logging
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recbole_ext import InputError, Recommender
from recbole_ext.checkpoint import training_run
from recbole_ext.config import config
from recbole_ext.model import contract
from tests import small_data
from tests.snippets import ROOT, snippets

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "add_a_model.md"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The variables of the page's code after it has run."""
    folder = tmp_path_factory.mktemp("page")
    model, usage = snippets(PAGE)
    (folder / "recency.py").write_text(model.code, encoding="utf-8")
    variables: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        patch.setattr(config, "dataset_dir", small_data.finder(folder))
        patch.setattr(logging.getLogger("torch.__trace"), "disabled", True)
        exec(compile(usage.code, str(usage), "exec"), variables)
    sys.modules.pop("recency")
    return {**variables, "folder": folder}


def test_training_resumes_from_the_checkpoint(page: dict[str, Any]) -> None:
    path = page["folder"] / page["result"]["checkpoint"]
    assert page["first"]["checkpoint"] == page["result"]["checkpoint"]
    state = training_run.find_resume_state(path).checkpoint
    assert state["epoch"] == 1
    first, second = state["curves"]["train_loss"]
    assert second < first


def test_recommendations_and_vectors_have_the_models_scores(page: dict[str, Any]) -> None:
    recommended, recommender = page["recommended"], page["recommender"]
    assert len(recommended) == 5
    assert not set(recommended["item_id"]) & set(page["histories"]["item_id"])
    tokens, items = recommender.item_vectors()
    _, users = recommender.user_vectors(page["histories"])
    scores = dict(zip(tokens, items @ users[0], strict=True))
    np.testing.assert_allclose(recommended["score"], [scores[item] for item in recommended["item_id"]], atol=1e-6)


def test_an_explanation_shows_the_weights_of_the_events(page: dict[str, Any]) -> None:
    events = page["explanation"].events
    weights = events["attention_recency"].to_numpy()
    decay = float(page["recommender"].model.log_decay.detach().exp())
    expected = np.exp(-decay * np.array([2, 1, 0]))
    np.testing.assert_allclose(weights, expected / expected.sum(), rtol=1e-5)
    assert np.isfinite(events["effect"]).all()


def test_the_exported_program_gives_the_scores_of_the_model(page: dict[str, Any]) -> None:
    program = torch.export.load(page["folder"] / "recency.pt2").module()
    recommender, history = page["recommender"], page["histories"]["item_id"].to_numpy()
    ids = torch.from_numpy(recommender.items.ids(history))
    with torch.no_grad():
        scores = program(items=ids.unsqueeze(0), lengths=torch.tensor([3]))[0]
    best = recommender.items.ids(page["recommended"]["item_id"].to_numpy())
    np.testing.assert_allclose(scores[best], page["recommended"]["score"], atol=1e-6)


def test_a_checkpoint_of_the_model_needs_its_class(page: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="Recency"):
        Recommender.load(page["folder"] / page["result"]["checkpoint"], "cpu")


def test_the_page_lists_every_member_of_the_contract() -> None:
    text = PAGE.read_text(encoding="utf-8")
    listed = set(re.findall(r"`(\w+)(?:\(config\))?`", "".join(re.findall(r"^\| (`.*?) \|", text, re.MULTILINE))))
    members = {name for protocol in (contract.Model, contract.ItemScorer) for name in vars(protocol)}
    members |= set(contract.Model.__annotations__)
    assert listed == {name for name in members if not name.startswith("_")}


def test_other_modules_ask_through_the_contract() -> None:
    members = {*contract.Model.__annotations__, "prepare", "score_items", "item_table", "attention_weights"}
    asks = re.compile(rf"(?:get|has)attr\([^)]*\"(?:{'|'.join(members)})\"")
    for path in Path(contract.__file__).parents[1].rglob("*.py"):
        if path != Path(contract.__file__):
            assert not asks.search(path.read_text(encoding="utf-8")), path
