"""Explanations: exact effects, attention weights against plain formulations in float64, the command and its page."""

import json
import math
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from recbole_ext import InputError, Recommender, create_dataset, data_preparation, get_trainer
from recbole_ext.checkpoint import file as checkpoint
from recbole_ext.checkpoint import training_run
from recbole_ext.checkpoint.training_run import LearningCurves, TrainingRun, read_run
from recbole_ext.cli.entry import main
from recbole_ext.serving.explain import figures as why_figures
from recbole_ext.serving.explain.page import page
from recbole_ext.utils.html import COLOURS
from tests.oracles import bst as bst_oracle
from tests.oracles import lightsans as lightsans_oracle
from tests.oracles.bare import plain_like, randomise
from tests.oracles.parts import linear, norm

NAMES = ["user_id", "item_id", "timestamp"]
SMALL = {
    "MEANTIME": {"hidden_size": 12, "inner_size": 20}, "LightSANs": {"hidden_size": 12, "inner_size": 20},
    "SASRec": {"hidden_size": 12, "inner_size": 20}, "TiSASRec": {"hidden_size": 12},
    "BST": {"embedding_size": 6, "gap_embedding_size": 6, "n_heads": 3, "inner_size": 8, "mlp_hidden_size": [9, 5]},
    "DIN": {"metrics": ["NDCG"]}, "Pop": {},
}  # fmt: skip
SHORT, LONG, ONE = "u1", "u2", "u3"


@pytest.fixture
def events() -> pd.DataFrame:
    """Users with 6, 15 and one event, of 20 items; two events of a user are at the same time."""
    random = np.random.default_rng(4)
    rows = []
    for user, count in ((SHORT, 6), (LONG, 15), (ONE, 1)):
        times = np.sort(1.6e9 + random.integers(0, 30 * 86400, count))
        times[1:2] = times[:1]
        rows += [(user, f"i{item}", time) for item, time in zip(random.permutation(20)[:count], times, strict=True)]
    return pd.DataFrame(rows, columns=NAMES)


@pytest.fixture
def recommender(make_model, make_recommender):
    """A recommender of an untrained model with weights large enough to show, in float64."""

    def make(name="MEANTIME", **keys) -> Recommender:
        layers = {} if name == "DIN" else {"n_layers": 2}
        model, train, *_ = make_model(name, **{**SMALL[name], **layers, **keys})
        model.double()
        randomise(model)
        return make_recommender(model, train)

    return make


def score_of(recommender, events, item, at) -> float:
    found = recommender.recommend(events, k=20, at=at, exclude_seen=False)
    return float(found.set_index("item_id").loc[item, "score"])


def ids_of(recommender, found) -> list[int]:
    return recommender.items.ids(found.events["item_id"].to_numpy()).tolist()


def weights_of(found, layer, head) -> np.ndarray:
    """Of the events and the slot behind them."""
    rows = found.attention[(found.attention["layer"] == layer) & (found.attention["head"] == head)]
    return rows["weight"].to_numpy()


# ---------------------------------------------------------------- effects, score and rank


@pytest.mark.parametrize("name", ["MEANTIME", "LightSANs", "BST", "TiSASRec", "SASRec"])
def test_an_effect_is_the_score_minus_that_of_recommend_without_the_event(recommender, events, name):
    keys = {"n_layers": 1} if name == "BST" else {}
    recommender = recommender(name, **keys)
    at = float(events["timestamp"].max()) + 3600
    found = recommender.explain(events, user=SHORT, item="i7", at=at)
    own = events[events["user_id"] == SHORT]
    assert list(found.events["item_id"]) == list(own["item_id"])
    whole = score_of(recommender, own, "i7", at)
    assert found.score == pytest.approx(whole, abs=1e-6)
    expected = [whole - score_of(recommender, own.drop(row), "i7", at) for row in own.index]
    np.testing.assert_allclose(found.events["effect"], expected, rtol=0, atol=1e-6)
    assert np.abs(expected).max() > 1e-4  # or the agreement would show nothing
    assert found.heads or name == "SASRec"


def test_a_model_that_scores_pairs_has_effects_too(recommender, events):
    recommender = recommender("DIN")
    assert type(recommender.scorer).__name__ == "PairScorer"
    found = recommender.explain(events, SHORT, "i7")
    own = events[events["user_id"] == SHORT]
    at = float(own["timestamp"].max())
    expected = score_of(recommender, own, "i7", at) - score_of(recommender, own.drop(own.index[2]), "i7", at)
    assert found.events["effect"][2] == pytest.approx(expected, abs=1e-6)
    assert found.attention.empty
    assert found.heads == []


@pytest.mark.parametrize(("name", "read"), [("MEANTIME", 7), ("LightSANs", 8), ("TiSASRec", 7), ("SASRec", 8)])
def test_events_are_those_in_the_window_and_older_ones_do_not_move_up(recommender, events, name, read):
    recommender = recommender(name)
    at = float(events["timestamp"].max()) + 60
    newest = events[events["user_id"] == LONG].tail(read)
    found = recommender.explain(events, LONG, "i7", at=at)
    assert list(found.events["item_id"]) == list(newest["item_id"])
    whole = score_of(recommender, newest, "i7", at)
    expected = [whole - score_of(recommender, newest.drop(row), "i7", at) for row in newest.index]
    np.testing.assert_allclose(found.events["effect"], expected, rtol=0, atol=1e-6)


def test_score_and_rank_are_those_of_recommend(recommender, events):
    recommender = recommender()
    ranked = recommender.recommend(events, k=20, users=[SHORT])
    third = ranked.iloc[2]
    found = recommender.explain(events, SHORT, third["item_id"])
    assert (found.user, found.item, found.rank, found.candidates) == (SHORT, third["item_id"], 3, 14)
    assert found.score == pytest.approx(third["score"])
    assert found.average_score == pytest.approx(ranked["score"].mean())
    best = recommender.explain(events, SHORT)
    assert (best.item, best.rank) == (ranked["item_id"][0], 1)
    seen = events["item_id"][0]
    assert recommender.explain(events, SHORT, seen).rank is None
    everything = recommender.recommend(events, k=20, users=[SHORT], exclude_seen=False)
    rank = int(everything.set_index("item_id").loc[seen, "rank"])
    assert recommender.explain(events, SHORT, seen, exclude_seen=False).rank == rank


def test_a_model_that_needs_a_history_tells_no_effect_of_the_only_event(recommender, events):
    assert recommender().explain(events, ONE, "i7").events["effect"].isna().all()


def test_the_target_alone_is_scored_where_the_model_can(recommender, events):
    found = recommender("BST", n_layers=1).explain(events, ONE, "i7")
    assert np.isfinite(found.events["effect"]).all()


@pytest.mark.parametrize(("unit", "size"), [("s", 1), ("ms", 1000)])
def test_times_are_in_the_datas_unit_and_dates(recommender, random_events, events, unit, size):
    data = [(user, item, int(time * size)) for user, item, time in random_events()]
    recommender = recommender(events=data, time_unit=unit)
    found = recommender.explain(events.assign(timestamp=events["timestamp"] * size), SHORT, at="2020-12-24T10:00:00")
    own = events[events["user_id"] == SHORT]
    np.testing.assert_allclose(found.events["timestamp"], own["timestamp"] * size, rtol=0, atol=1e-3)
    assert list(found.events["date"]) == list(pd.to_datetime(own["timestamp"], unit="s", utc=True))
    assert found.date == pd.Timestamp("2020-12-24 10:00", tz="UTC")
    before = (found.date - found.events["date"]).dt.total_seconds()
    np.testing.assert_allclose(found.events["seconds_before"], before, atol=1e-3)


def test_events_after_the_request_are_left_out(recommender, events):
    own = events[events["user_id"] == SHORT]
    found = recommender().explain(events, SHORT, "i7", at=float(own["timestamp"].iloc[3]))
    assert len(found.events) == 4


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"user": "nobody"}, "user 'nobody' is not in the histories, which have 3 others"),
        ({"user": None}, "user is None; it should be one user_id"),
        ({"user": [SHORT]}, r"user is \['u1'\]; it should be one user_id"),
        ({"item": "i99"}, "item 'i99' is not among the 20 items that the model knows"),
        ({"item": ["i1"]}, r"item is \['i1'\]; it should be one item_id"),
        ({"at": 1.5e9}, "1 user without an event with an item that the model knows up to .*: 'u1'"),
        ({"at": "noon"}, "at is 'noon'"), ({"exclude_seen": 3}, "exclude_seen is 3"),
        ({"at": 1.6e12}, "at is '1600000000000.0'; in time_unit s that is about the year 52671;"),
        ({"at": {"u1": 9e18}}, "at is '9e"), ({"at": True}, "at is 'True'; it should be a number"),
    ],
)  # fmt: skip
def test_wrong_requests_are_one_sentence(recommender, events, keys, sentence):
    with pytest.raises(InputError, match=sentence):
        recommender().explain(events, **{"user": SHORT, **keys})


def test_without_an_event_there_is_nothing_to_tell(recommender, events):
    with pytest.raises(InputError, match="user 'u1' has no event before the request"):
        recommender("BST", n_layers=1).explain(events, SHORT, at=1.5e9)


def test_a_user_who_has_had_everything_gets_an_item_only_when_seen_ones_count(recommender):
    times = 1.6e9 + np.arange(20)
    events = pd.DataFrame({"user_id": "u1", "item_id": [f"i{n}" for n in range(20)], "timestamp": times})
    recommender = recommender("LightSANs")
    with pytest.raises(InputError, match="user 'u1' has had every item"):
        recommender.explain(events, "u1")
    assert recommender.explain(events, "u1", exclude_seen=False).rank == 1


# ---------------------------------------------------------------- attention, against plain formulations


def test_meantimes_weights_are_the_plain_models(recommender, events):
    kernels = {"absolute_kernels": ["position", "day", "constant"], "relative_kernels": ["sin", "exp", "log"]}
    recommender = recommender(**kernels)
    found = recommender.explain(events, SHORT, "i7", at=float(events["timestamp"].max()) + 86400)
    plain = plain_like(recommender.model)
    items = torch.tensor([[*ids_of(recommender, found), recommender.model.mask_id]])
    first = recommender.description.first_time
    time = torch.tensor([[*(found.events["timestamp"] - first), found.time - first]], dtype=torch.float64)
    real = torch.ones_like(items, dtype=torch.bool)
    absolute = 2 * ([plain._slot_features(name, time, real) for name in plain.absolute],)  # queries and keys
    gap = time.unsqueeze(2) - time.unsqueeze(1)
    relative = [plain._gap_features(name, gap / plain.tau) for name in plain.relative]
    x = plain.item_embedding(items)
    names = [*plain.absolute, *plain.relative]
    for layer, block in enumerate(plain.blocks, 1):
        own, normed = block.attention, block.attention_norm(x)
        query, key = (part(normed).split(own.d, dim=-1) for part in (own.query, own.key))
        for head, name in enumerate(names):
            logits = own._logits(head, query[head], key[head], absolute, relative) / math.sqrt(own.d)
            expected = logits.softmax(-1)[0, -1].detach().numpy()
            np.testing.assert_allclose(weights_of(found, layer, name), expected, rtol=0, atol=1e-5)
            assert np.ptp(expected) > 1e-3
        x = block(x, absolute, relative, real.unsqueeze(1))
    assert found.layer == 2
    assert found.heads == [f"attention_{name}" for name in names]
    for name in names:
        np.testing.assert_allclose(found.events[f"attention_{name}"], weights_of(found, 2, name)[:-1])
    assert set(found.attention.loc[found.attention["place"] == 6, "slot"]) == {"request"}


@pytest.mark.parametrize("position", ["decoupled", "relative", "none"])
def test_lightsans_weights_are_those_of_the_papers_equations(recommender, events, position):
    recommender = recommender("LightSANs", position=position, k_interests=3, n_heads=2)
    found = recommender.explain(events, SHORT, "i7")
    weights, eps, heads, d = dict(recommender.model.named_parameters()), 1e-12, 2, 6
    eps = recommender.model.norm.eps
    x = norm(weights, "norm", weights["item_embedding.weight"][ids_of(recommender, found)], eps)
    for layer in (1, 2):
        name = f"blocks.{layer - 1}.attention"
        query, key = (linear(weights, f"{name}.items.{part}", x) for part in ("query", "key"))
        value = linear(weights, f"{name}.value", x)
        softmax = lightsans_oracle.softmax
        key_members = softmax((key @ weights[f"{name}.items.key_interests"]).T)  # [K, T]
        value_members = softmax((value @ weights[f"{name}.items.value_interests"]).T)
        own = found.interests[found.interests["layer"] == layer]
        for column, members in (("key_weight", key_members), ("value_weight", value_members)):
            np.testing.assert_allclose(own[column], members.detach().flatten(), rtol=0, atol=1e-9)
        places = lightsans_oracle.position_logits(weights, f"{name}.position", len(x), heads, position, eps)
        for head in range(heads):
            part = slice(head * d, (head + 1) * d)
            use = softmax(query[-1, part] @ (key_members @ key)[:, part].T / math.sqrt(d))  # [K]
            rows = found.interest_use
            rows = rows[(rows["layer"] == layer) & (rows["head"] == head + 1)]
            np.testing.assert_allclose(rows["weight"], use.detach(), rtol=0, atol=1e-9)
            expected = (use @ value_members).detach()
            np.testing.assert_allclose(weights_of(found, layer, f"items_{head + 1}"), expected, rtol=0, atol=1e-9)
            if places is not None:
                expected = softmax(places[head][-1]).detach()
                shown = weights_of(found, layer, f"positions_{head + 1}")
                np.testing.assert_allclose(shown, expected, rtol=0, atol=1e-9)
        x = lightsans_oracle.block(weights, f"blocks.{layer - 1}", x, heads, position, eps)
    assert len(found.heads) == (2 if position == "none" else 4)


@pytest.mark.parametrize("attention", ["full", "performer", "linear", "synthesizer"])
def test_weights_that_no_layer_makes_give_its_context(recommender, events, attention):
    recommender = recommender("LightSANs", attention=attention, position="none", n_layers=1, n_heads=2)
    found = recommender.explain(events, SHORT, "i7")
    model = recommender.model
    x = model.norm(model.item_embedding.weight[ids_of(recommender, found)]).unsqueeze(0)
    own = model.blocks[0].attention
    real = torch.ones(1, x.shape[1], dtype=torch.bool)
    context = own.items(x[:, -1:], x, real, own.value)[0, 0]
    mixed = [torch.tensor(weights_of(found, 1, f"items_{head + 1}")) @ own.value(x)[0, :, head * 6 : head * 6 + 6]
             for head in (0, 1)]  # fmt: skip
    torch.testing.assert_close(torch.cat(mixed), context, rtol=0, atol=1e-6)
    if attention == "full":
        query, key = own.items.query(x[0, -1]), own.items.key(x[0])
        expected = (key[:, :6] @ query[:6] / math.sqrt(6)).softmax(0).detach()
        np.testing.assert_allclose(weights_of(found, 1, "items_1"), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("keys", "heads"), [({"recbole_compat": True}, 0), ({"attention": "linformer"}, 2)])
def test_weights_that_are_no_attention_to_events_are_not_told(recommender, events, keys, heads):
    found = recommender("LightSANs", n_heads=2, **keys).explain(events, SHORT, "i7")
    assert len(found.heads) == heads
    assert found.interests.empty
    assert np.isfinite(found.events["effect"]).all()


@pytest.mark.parametrize("output", ["target", "flatten"])
def test_bsts_weights_are_those_of_the_papers_equations(recommender, events, output):
    recommender = recommender("BST", output=output)
    found = recommender.explain(events, SHORT, "i7")
    weights, model = dict(recommender.model.named_parameters()), recommender.model
    table, d = weights["gap_embedding.weight"], 4
    items = weights["item_features.embeddings.of_item_id.weight"]
    target = int(recommender.items.ids(np.array(["i7"], dtype=object))[0])
    rows = [1 + math.floor(2 * math.log2(1 + seconds)) for seconds in found.events["seconds_before"]]
    slots = [torch.cat([items[one], table[row]]) for one, row in zip(ids_of(recommender, found), rows, strict=True)]
    x = torch.stack([*slots, torch.cat([items[target], table[0]])])
    for layer in (1, 2):
        query, key = (linear(weights, f"blocks.{layer - 1}.{part}", x) for part in ("query", "key"))
        for head in range(3):
            part = slice(head * d, (head + 1) * d)
            expected = lightsans_oracle.softmax(query[-1, part] @ key[:, part].T / math.sqrt(d)).detach()
            np.testing.assert_allclose(weights_of(found, layer, f"head_{head + 1}"), expected, rtol=0, atol=1e-9)
        x = bst_oracle.block(weights, f"blocks.{layer - 1}", x, 3, model.blocks[0].attention_norm.eps)
    behind = found.attention[found.attention["place"] == 6]
    assert set(behind["slot"]) == {"target"}
    assert set(behind["item_id"]) == {"i7"}


@pytest.mark.parametrize("name", ["MEANTIME", "LightSANs", "BST", "TiSASRec"])
def test_what_a_head_attends_to_sums_to_1(recommender, events, name):
    found = recommender(name).explain(events, LONG, "i7")
    sums = found.attention.groupby(["layer", "head"])["weight"].sum()
    assert len(sums) == 2 * len(found.heads)
    np.testing.assert_allclose(sums, 1, rtol=0, atol=1e-6)
    assert len(set(found.attention["place"])) == len(found.events) + (name in ("MEANTIME", "BST"))


def test_explaining_leaves_nothing_behind_in_the_model(recommender, events):
    recommender = recommender("LightSANs", attention="full")
    recommender.explain(events, SHORT)
    for module in recommender.model.modules():
        assert not module._forward_pre_hooks
    assert all(weights.grad is None for weights in recommender.model.parameters())


# ---------------------------------------------------------------- what training leaves


@pytest.fixture
def trained(make_config, make_checkpoint):
    """A checkpoint of two epochs on the toy data, with validation."""

    def make(name="MEANTIME", **keys) -> str:
        config = make_config(name, **{**SMALL[name], **({} if name == "Pop" else {"n_layers": 1}), **keys})
        return make_checkpoint(config, validate=True)

    return make


def validation_gives(monkeypatch, *scores):
    given = iter(scores)
    monkeypatch.setattr(
        "recbole_ext.training.trainer.CheckedTrainer.evaluate", lambda *_, **__: {"ndcg@5": next(given)}
    )


def test_a_checkpoint_holds_the_curves_up_to_its_epoch_and_the_latest_state_all_of_them(trained, monkeypatch):
    validation_gives(monkeypatch, 0.1, 0.3, 0.2)
    path = trained(epochs=3)
    curves = checkpoint.load(path)["curves"]
    assert curves["valid_score"] == [0.1, 0.3]
    run = read_run(path)
    assert (run.best_epoch, run.best_score, run.valid_result) == (2, 0.3, {"ndcg@5": 0.3})
    assert run.valid_score == [0.1, 0.3, 0.2]
    assert run.train_loss[:2] == curves["train_loss"]
    assert all(isinstance(loss, float) and loss > 0 for loss in run.train_loss)


def test_the_curves_are_read_without_loading_the_checkpoint_twice(trained, monkeypatch):
    validation_gives(monkeypatch, 0.1, 0.3, 0.2)
    path = trained(epochs=3)
    run, content, load, loaded = read_run(path), checkpoint.load(path), checkpoint.load, []
    monkeypatch.setattr(training_run, "load", lambda file, *rest: loaded.append(file) or load(file, *rest))
    assert read_run(path, content) == run
    assert loaded == [training_run.latest_file(path)]


def test_epochs_without_a_validation_have_no_score(trained):
    run = read_run(trained(epochs=3, eval_step=2))
    assert [score is None for score in run.valid_score] == [True, False, True]
    assert None not in run.train_loss


def test_a_checkpoint_without_curves_loads_and_goes_on(trained, make_config):
    path = trained(epochs=2)
    for file in (path, training_run.latest_file(path)):
        if os.path.exists(file):
            state = checkpoint.load(file)
            del state["curves"]
            torch.save(state, file)
    assert read_run(path).train_loss == []
    config = make_config(epochs=3, **SMALL["MEANTIME"], n_layers=1)
    train, valid, _ = data_preparation(config, create_dataset(config))
    trainer = get_trainer(config)(config, config.model_class(config, train._dataset))
    trainer.resume_checkpoint(path)
    trainer.fit(train, valid)
    assert [loss is None for loss in trainer.curves.to_dict()["train_loss"]] == [True, True, False]
    Recommender.load(path)


# ---------------------------------------------------------------- the command


@pytest.fixture
def call(capsys):
    def call(**options):
        status = main(["explain", *(f"--{key}={value}" for key, value in options.items() if value is not None)])
        out, err = capsys.readouterr()
        return status, out, err

    return call


def test_the_command_writes_what_the_library_tells(call, trained, events):
    path = trained(epochs=1)
    events.to_csv("new.csv", index=False)
    item = next(f"i{number}" for number in range(20) if f"i{number}" not in set(events["item_id"][:6]))
    targets = {"report": "out/why.html", "out": "why.csv", "json": "why.json"}
    status, out, err = call(checkpoint=path, histories="new.csv", user=SHORT, item=item, device="cpu", **targets)
    assert (status, err) == (0, "")
    found = Recommender.load(path, "cpu").explain(events, SHORT, item)
    assert out.startswith(f"{item} for u1: rank {found.rank} of 14, score ")
    assert f"report: {os.path.abspath('out/why.html')}" in out
    table = pd.read_csv("why.csv")
    assert list(table.columns) == list(found.events.columns)
    np.testing.assert_allclose(table["effect"], found.events["effect"], atol=1e-6)
    told = json.loads(Path("why.json").read_text())
    assert (told["rank"], told["item"], len(told["events"])) == (found.rank, item, 6)
    assert told["events"][0]["date"].startswith("2020-")
    text = Path("out/why.html").read_text()
    assert '"curves": {"data"' in text
    assert "MEANTIME on toy; this is the model of epoch 1" in text


def test_the_best_item_of_a_user_with_one_event(call, trained, events):
    events.to_csv("new.csv", index=False)
    status, out, _ = call(checkpoint=trained("LightSANs", epochs=1), histories="new.csv", user=ONE, report="why.html",
                          json="why.json")  # fmt: skip
    assert status == 0
    assert "rank 1 of 19" in out
    assert "the only event" in out
    assert json.loads(Path("why.json").read_text())["events"][0]["effect"] is None
    assert "The only past event is" in Path("why.html").read_text()


def test_wrong_commands_are_one_sentence_and_status_2(call, trained, events):
    events.to_csv("new.csv", index=False)
    path, other = trained(epochs=1), trained("Pop", epochs=1)
    for change, sentence in (
        ({"checkpoint": None}, "required: --checkpoint."), ({"user": None}, "required: --user."),
        ({"histories": None}, "required: --histories."), ({"users": "u1"}, "explain has no option --users"),
        ({"user": "nobody"}, "user 'nobody' is not in the histories"), ({"item": "i99"}, "item 'i99' is not among"),
        ({"report": "why.txt"}, "--report is 'why.txt'; it should be the name of a file that ends in .html"),
        ({"out": "table.html"}, "ends in .csv"), ({"at": "noon"}, "at is 'noon'"),
        ({"exclude_seen": "maybe"}, "--exclude_seen is 'maybe'"), ({"histories": "none.csv"}, "there is no such file"),
        ({"checkpoint": other}, "is of Pop, which is not a sequential model"),
    ):  # fmt: skip
        options = {"checkpoint": path, "histories": "new.csv", "user": SHORT, "report": "why.html", **change}
        status, out, err = call(**options)
        assert (status, out) == (2, ""), err
        assert sentence in err
        assert err.count("\n") == 1
        assert not os.path.exists("why.html")


def test_help_is_about_the_command(capsys):
    assert main(["explain", "--help"]) == 0
    assert "--report FILE.html" in capsys.readouterr().out


# ---------------------------------------------------------------- the page

RUN = TrainingRun("MEANTIME", "</script><i>", "NDCG@5", 0.3, 2, {"ndcg@5": 0.3}, [3.0, 2.0, 1.0], [0.1, 0.3, None])
BAD = '</script><b>i7</b> "quoted" $ink$ ' + "x" * 200


def own(text: str) -> str:
    """The page without plotly itself."""
    return re.sub(r"<script>/\*\*.*?</script>", "", text, count=1, flags=re.DOTALL)


def figures_of(text: str) -> dict:
    return json.loads(re.search(r"^const figures = (.*);$", own(text), flags=re.MULTILINE)[1])


@pytest.fixture
def named(events):
    """The events with a name that could break a page in place of `i7`; it is the short user's newest item."""
    last = events.index[events["user_id"] == SHORT][-1]
    return events.assign(item_id=events["item_id"].replace({"i7": "i19"})).assign(
        item_id=lambda frame: frame["item_id"].where(frame.index != last, BAD)
    )


def test_the_page_is_whole_in_itself_and_escapes_what_data_says(recommender, random_events, named):
    data = [(user, BAD if item == "i7" else item, time) for user, item, time in random_events()]
    found = recommender("LightSANs", events=data).explain(named, SHORT, BAD)
    text = own(page(found, RUN))
    assert not re.search(r"https?://|src=|<link|@import|url\(", text)
    assert text.count("</script>") == 1
    assert "<b>i7" not in text
    assert "&lt;/script&gt;&lt;b&gt;i7&lt;/b&gt;" in text
    figures = figures_of(page(found, RUN))
    assert set(figures) == {"effects", "heads", "interests", "curves"}
    for name in figures:
        assert f'<div id="{name}">' in text
    shown = json.dumps(figures["effects"])
    assert "<b>i7" not in shown
    assert "&lt;b&gt;i7" in shown
    labels = figures["effects"]["layout"]["yaxis"]["ticktext"]
    assert max(map(len, labels)) < 80
    used = set(re.findall(r'"\$(\w+)\$"', text))
    assert used <= set(COLOURS["light"])
    assert set(COLOURS["light"]) == set(COLOURS["dark"])


def test_many_events_get_their_strongest_and_all_over_time(recommender, random_events):
    random = np.random.default_rng(0)
    rows = [("u1", f"i{random.integers(20)}", 1.6e9 + hour * 3600) for hour in range(200)]
    recommender = recommender("BST", n_layers=1, MAX_ITEM_LIST_LENGTH=200)
    found = recommender.explain(pd.DataFrame(rows, columns=NAMES), "u1", "i7", exclude_seen=False)
    assert len(found.events) == 200
    figures = figures_of(page(found, None))
    assert set(figures) == {"effects", "time", "heads"}
    bars = figures["effects"]["data"][0]
    strongest = found.events["effect"].abs().nlargest(15)
    np.testing.assert_allclose(np.abs(bars["x"]), strongest)
    assert figures["time"]["data"][0]["y"] == found.events["effect"].tolist()
    assert len(figures["time"]["layout"]["xaxis"]["ticktext"]) == 6
    rows = figures["heads"]["data"][0]["z"]
    assert [len(row) for row in rows] == [201] * 3
    assert figures["heads"]["layout"]["xaxis"]["ticktext"][-1] == "the item itself"


def test_words_of_the_page(recommender, events):
    recommender = recommender()
    ranked = recommender.recommend(events, k=20, users=[SHORT])
    text = page(recommender.explain(events, SHORT), None)
    assert f"<h1>Why item {ranked['item_id'][0]} was recommended to user u1</h1>" in text
    assert "Rank 1 of 14 items" in text
    last = page(recommender.explain(events, SHORT, ranked["item_id"].iloc[-1]), None)
    assert "scores as it does for user u1</h1>" in last
    seen = page(recommender.explain(events, SHORT, events["item_id"][0]), None)
    assert "Not ranked: the user has had this item" in seen
    effect = recommender.explain(events, SHORT).events["effect"]
    assert ("The strongest events against this item" in text) == bool((effect < 0).any())
    assert "How the model was trained" not in text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "less than a minute"), (60, "1 minute"), (7300, "2 hours"), (86400 * 3, "3 days"), (86400 * 800, "2 years")],
)
def test_spans_of_time_in_words(seconds, words):
    assert why_figures.ago(seconds) == words


def test_curves_mark_the_epoch_of_the_model():
    figure = why_figures.curves(RUN)
    loss, score, best = figure["data"]
    assert (loss["x"], loss["y"]) == ([1, 2, 3], [3.0, 2.0, 1.0])
    assert score["y"] == [0.1, 0.3, None]
    assert (best["x"], best["y"]) == ([2], [0.3])


@pytest.mark.parametrize("stored", [None, {}, {"train_loss": [], "valid_score": []}])
def test_curves_begin_empty_without_stored_ones(stored):
    curves = LearningCurves(stored)
    curves.add_loss(1, (2.0, 0.5))
    curves.add_score(0.25)
    assert curves.to_dict() == {"train_loss": [None, 2.5], "valid_score": [None, 0.25]}


@pytest.mark.parametrize("path", ["", None, 5, b"why.html", "folder/", ".", "a\0b.html"], ids=repr)
def test_a_page_for_no_file_is_one_sentence(recommender, events, path):
    found = recommender("LightSANs").explain(events, SHORT)
    with pytest.raises(InputError):
        recommender("LightSANs").write_report(found, path)
    with pytest.raises(InputError, match="explanation is a str; it should be the result of explain"):
        recommender("LightSANs").write_report("found", "why.html")
