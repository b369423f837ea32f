"""Programs of torch.export: the scores of the model, for batches of any size, without this package or RecBole."""

import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

from recbole_ext import InputError, Recommender, create_dataset, data_preparation, get_trainer
from recbole_ext.checkpoint import file as checkpoint
from recbole_ext.cli.entry import main
from recbole_ext.serving import exporter as exporting
from recbole_ext.serving.program import ExportedScorer

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs" / "export.md"
SMALL = {
    "MEANTIME": {"hidden_size": 12, "inner_size": 8, "n_layers": 1},
    "LightSANs": {"hidden_size": 8, "inner_size": 8, "n_layers": 1, "k_interests": 3, "random_features": 4},
    "BST": {"embedding_size": 8, "gap_embedding_size": 8, "inner_size": 8, "mlp_hidden_size": [8]},
    "TiSASRec": {"hidden_size": 8, "n_layers": 1},
}
NAMES = ["user_id", "item_id", "timestamp"]
FEATURES = {
    "load_col": {
        "inter": [*NAMES, "tab", "length"], "user": ["user_id", "sex", "age", "likes"],
        "item": ["item_id", "brand", "price"],
    },
    "context_features": ["tab", "length"], "cross_features": [["sex", "brand"], ["tab", "item_id"]],
    "normalize_all": True,
}  # fmt: skip


@pytest.fixture(autouse=True)
def without_traces(monkeypatch) -> None:
    """torch writes all that it thinks while it traces to a log, which pytest keeps and shows."""
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "disabled", True)


@pytest.fixture
def asked(make_model, make_recommender):
    """A recommender with random weights, large enough to show."""

    def make(name, dtype=torch.float32, **keys):
        model, train, *_ = make_model(name, **{**SMALL.get(name, {}), **keys})
        with torch.no_grad():
            for weights in model.parameters():
                weights.add_(torch.randn_like(weights) * 0.2)
        return make_recommender(model.to(dtype), train)

    return make


@pytest.fixture
def with_features(write_events, write_lines, random_events) -> str:
    events = [(*event, f"t{place % 3}", place % 7) for place, event in enumerate(random_events())]
    path = write_events(events, ["user_id:token", "item_id:token", "timestamp:float", "tab:token", "length:float"])
    users = (f"u{n}\t{'mf'[n % 2]}\t{3 * n}\t{' '.join(f'g{like}' for like in range(n % 4))}" for n in range(30))
    write_lines("user", "user_id:token\tsex:token\tage:float\tlikes:token_seq", *users)
    write_lines("item", "item_id:token\tbrand:token\tprice:float", *(f"i{n}\tb{n % 4}\t{n}" for n in range(20)))
    return path


def facts(path: str) -> dict:
    files = {"serving.json": ""}
    torch.export.load(path, extra_files=files)
    return json.loads(files["serving.json"])


SETTINGS = [
    ("MEANTIME", {"n_layers": 2}),
    ("MEANTIME", {"absolute_kernels": ["position", "day", "constant"], "relative_kernels": ["sin", "exp", "log"],
                  "content_bias": True, "query_time": "last"}),
    ("MEANTIME", {"objective": "next", "n_layers": 2}), ("MEANTIME", {"objective": "next", "query_time": "last"}),
    ("MEANTIME", {"loss_type": "SSM", "sparse_updates": True}),
    ("LightSANs", {"n_layers": 2}), ("LightSANs", {"recbole_compat": True}),
    ("LightSANs", {"attention": "full", "position": "absolute"}),
    ("LightSANs", {"attention": "linformer", "position": "relative"}),
    ("LightSANs", {"attention": "performer", "position": "none"}), ("LightSANs", {"attention": "linear"}),
    ("LightSANs", {"attention": "synthesizer", "MAX_ITEM_LIST_LENGTH": 3}),
    ("LightSANs", {"MAX_ITEM_LIST_LENGTH": 1}),
    ("TiSASRec", {"n_layers": 2, "n_heads": 2}), ("TiSASRec", {"time_interval": "global", "MAX_ITEM_LIST_LENGTH": 2}),
    ("BST", {}), ("BST", {"n_layers": 2, "time_gap": "day"}), ("BST", {"output": "flatten", "time_gap": "position"}),
    ("BST", {"n_layers": 2, "output": "flatten", "query_time": "last", "time_gap": "none"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "keys"), SETTINGS, ids=[" ".join([name, *map(str, keys)]) for name, keys in SETTINGS])
def test_every_setting_gives_the_scores_of_the_model_in_double_precision(asked, name, keys):
    assert asked(name, torch.float64, **keys).export("model.pt2") < 1e-12
    assert Path("model.pt2").stat().st_size > 10_000


def test_features_of_users_and_requests_are_inputs_and_the_file_holds_no_user(asked, with_features):
    recommender = asked("BST", data_path=with_features, **FEATURES)
    assert recommender.export("model.pt2") < 1e-6
    program = torch.export.load("model.pt2")
    assert not [name for name in [*program.state_dict, *program.constants] if "users" in name]
    columns = facts("model.pt2")["inputs"]["features"]
    assert set(columns) == {"sex", "age", "likes", "tab", "length"}
    assert columns["sex"] == {"dtype": "int64", "shape": ["B"], "type": "token", "tokens": ["[PAD]", "m", "f"]}
    assert columns["age"] == {"dtype": "float64", "shape": ["B"], "type": "float"}
    assert columns["likes"]["shape"] == ["B", 3]
    batch = exporting._random_batch(ExportedScorer(recommender.model, recommender.description), recommender, 4, 5, 20,
                             torch.Generator().manual_seed(0))  # fmt: skip
    before = program.module()(**batch)
    rows = {name: values[:0] for name, values in batch.items() if name not in ("features", "candidates")}
    features = {name: values[:0] for name, values in batch["features"].items()}
    assert program.module()(**{**batch, **rows, "features": features}).shape == (0, 20)
    for name, values in batch["features"].items():
        other = {**batch["features"], name: values.roll(1, 0)}
        assert not torch.equal(program.module()(**{**batch, "features": other}), before), name


def test_what_clients_cannot_bring_and_what_is_not_ours_is_refused(asked, with_features):
    cut = {
        **FEATURES,
        "normalize_all": False,
        "numerical_features": ["length"],
        "discretization": {"length": {"method": "ED", "bucket": 3}},
    }
    with pytest.raises(InputError, match="column 'length' is discretised, which clients cannot compute"):
        asked("BST", data_path=with_features, **cut).export("model.pt2")
    other = asked("SASRec")
    with pytest.raises(InputError, match="SASRec cannot be exported; .* are MEANTIME, LightSANs, BST, TiSASRec"):
        other.export("model.pt2")
    for path in ("model", "model.onnx", ".pt2", 3, ""):
        with pytest.raises(InputError, match="it should be the name of a file that ends in .pt2"):
            other.export(path)
    with pytest.raises(InputError, match="there is no checkpoint nowhere.pth"):
        Recommender.load("nowhere.pth").export("model.pt2")
    assert not Path("model.pt2").exists()


def test_a_program_that_differs_is_not_written(asked, monkeypatch):
    recommender = asked("LightSANs")
    Path("model.pt2").write_text("before")
    load = torch.export.load

    def tampered(file):
        program = load(file)
        name = next(name for name in program.state_dict if "item_embedding" in name)
        with torch.no_grad():
            program.state_dict[name][3, 0] += 1e-3
        return program

    monkeypatch.setattr(torch.export, "load", tampered)
    with pytest.raises(InputError, match="the exported LightSANs differs from the model by .*; it was not written"):
        recommender.export("model.pt2")
    monkeypatch.setattr(torch.export, "export", lambda *args, **keys: 1 / 0)
    with pytest.raises(InputError, match="cannot export LightSANs as it is configured: division by zero"):
        recommender.export("model.pt2")
    assert Path("model.pt2").read_text() == "before"
    assert not list(Path().glob(".*.part"))


# ---------------------------------------------------------------- the example of the documentation

EVENTS = [("242", 891350000.0), ("302", 891360000.0), ("51", 891370000.0)]  # of the example
WITHOUT_US = "import sys\nsys.modules.update(recbole=None, recbole_ext=None, pandas=None)\n"


@pytest.mark.parametrize("name", ["MEANTIME", "LightSANs", "BST", "TiSASRec"])
def test_the_example_serves_with_torch_alone_what_the_recommender_recommends(make_config, random_events, name, capsys):
    items = ["242", "302", "51", *map(str, range(20))]
    events = [(user, items[int(item[1:])], time - 1.6e9 + 8.87e8) for user, item, time in random_events()]
    config = make_config(name, events, **{**SMALL[name], "epochs": 1, "learning_rate": 0.05, "MAX_ITEM_LIST_LENGTH": 2})
    train, *_ = data_preparation(config, create_dataset(config))
    trainer = get_trainer(config)(config, config.model_class(config, train._dataset))
    trainer.fit(train)
    path = trainer.saved_model_file
    assert main(["export", f"--checkpoint={path}", "--out=model.pt2"]) == 0
    assert re.search(r"model.pt2: \d.\d MiB; largest difference .*: \d.\de[+-]\d\d", capsys.readouterr().out)
    (code,) = re.findall(r"<!-- not run: .*test_export.* -->\n```python\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    done = subprocess.run([sys.executable, "-c", WITHOUT_US + code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    histories = pd.DataFrame([("somebody", *event) for event in EVENTS], columns=NAMES)
    right = Recommender.load(path).recommend(histories, k=10, at=891380000.0, exclude_seen=False)
    assert done.stdout.strip() == repr(list(right["item_id"]))
    told = facts("model.pt2")
    assert told["items"] == checkpoint.load(path)["tokens"]["item_id"]
    assert (told["model"], told["longest_history"], told["device"]) == (name, 2, "cpu")


def test_wrong_options_of_the_command_are_one_sentence(capsys):
    for words, sentence in (
        ([], "required: --checkpoint, --out."), (["--checkpoint=a.pth"], "required: --out."),
        (["--checkpoint=a.pth", "--out=model.pt2"], "there is no checkpoint a.pth"),
        (["--checkpoint=a.pth", "--out=model.pt2", "--k=3"], "export has no option --k"),
    ):  # fmt: skip
        assert main(["export", *words]) == 2
        assert sentence in capsys.readouterr().err
    assert main(["export", "--help"]) == 0
    assert "--out=FILE" in capsys.readouterr().out
