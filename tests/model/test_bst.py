"""BST against the paper's equations; what it reads; scores of all items; labels."""

import itertools

import numpy as np
import pytest
import torch
from recbole.data.interaction import Interaction

from recbole_ext import BST, InputError, create_dataset, data_preparation, get_trainer, run_recbole
from recbole_ext.model.bst.features import HALF_OCTAVES, gap_index, key_of
from tests.oracles import bst as oracle

DAY = 86400
ITEMS, USERS = 15, 12


@pytest.fixture
def features(write_events, write_lines):
    """A data set with labels, a context column, and features of users and items; returns the `data_path`."""
    random = np.random.default_rng(0)
    events = []
    for user in range(USERS):
        times = np.sort(random.integers(0, 30 * DAY, random.integers(3, 11)))
        events += [
            (
                f"u{user}",
                f"i{random.integers(ITEMS)}",
                1.6e9 + time,
                int(random.random() < 0.6),
                f"t{time % 3}",
                time % 7,
            )
            for time in times
        ]
    columns = ["user_id:token", "item_id:token", "timestamp:float", "label:float", "tab:token", "length:float"]
    path = write_events(events, columns)
    rows = [f"u{user}\t{'mf'[user % 2]}\t{user * 3}" for user in range(USERS)]
    write_lines("user", "user_id:token\tsex:token\tage:float", *rows)
    rows = [f"i{item}\tb{item % 4}\t{' '.join(f'g{tag}' for tag in range(item % 4))}\t{item}" for item in range(ITEMS)]
    write_lines("item", "item_id:token\tbrand:token\ttags:token_seq\tprice:float", *rows)
    return path


EVERYTHING = {
    "load_col": {
        "inter": ["user_id", "item_id", "timestamp", "label", "tab", "length"],
        "user": ["user_id", "sex", "age"], "item": ["item_id", "brand", "tags", "price"],
    },
    "context_features": ["tab", "length"], "cross_features": [["sex", "brand"], ["tab", "item_id"]],
}  # fmt: skip
LABELED = {
    "train_neg_sample_args": None, "metrics": ["AUC", "LogLoss"], "valid_metric": "AUC",
    "eval_args": {"split": {"RS": [0.6, 0.2, 0.2]}, "mode": "labeled"},
}  # fmt: skip
USER_ID = {"user_id_feature": True, "cross_features": [["user_id", "brand"], ["tab", "user_id"]]}
NEW_USERS = {  # users without a training event among the test rows
    **LABELED, "min_history": 0, "history": "positive",
    "eval_args": {"split": {"RS": [0.1, 0.1, 0.8]}, "group_by": "none", "order": "TO", "mode": "labeled"},
}  # fmt: skip


@pytest.fixture
def build(make_model, features):
    """A model in float64 with weights large enough to show, and a batch of all test rows."""

    def make(**keys) -> tuple[BST, Interaction]:
        small = {
            "embedding_size": 4, "gap_embedding_size": 4, "n_heads": 2, "inner_size": 6, "mlp_hidden_size": [9, 5],
            "hidden_dropout_prob": 0.0, "data_path": features, "eval_batch_size": 1000,
        }  # fmt: skip
        model, *_, test = make_model("BST", **{**small, **EVERYTHING, **keys})
        generator = torch.Generator().manual_seed(1)
        model = model.double()
        with torch.no_grad():
            for weights in model.parameters():
                weights.add_(torch.randn(weights.shape, generator=generator, dtype=torch.float64) * 0.1)
            for part in model.modules():
                if isinstance(part, torch.nn.Embedding) and part.padding_idx is not None:
                    part.weight[0] = 0
        rows = [batch[0] for batch in test]
        batch = Interaction({name: torch.cat([part[name] for part in rows]) for name in rows[0].interaction})
        return model.eval(), batch

    return make


def cases(model: BST, batch: Interaction) -> list[oracle.Case]:
    found = []
    for row in range(len(batch)):
        length = int(batch["item_length"][row])
        others = {name: batch[name][row] for name in model.context_features}
        users = {name: model.users.column(name)[batch["user_id"][row]] for name in model.users.names}
        found.append(
            oracle.Case(
                batch["item_id_list"][row, :length].tolist(), batch["timestamp_list"][row, :length].tolist(),
                int(batch["item_id"][row]), float(batch["timestamp"][row]),
                {name: model.items.column(name) for name in model.items.names}, {**users, **others},
                model.crosses.pairs, {name: batch[f"{name}_list"][row, :length] for name in model.history_features},
            )
        )  # fmt: skip
    return found


# ---------------------------------------------------------------- the paper

PLAIN = {
    "load_col": {"inter": ["user_id", "item_id", "timestamp"]}, "context_features": [], "cross_features": [],
}  # fmt: skip


@pytest.mark.parametrize("output", ["target", "flatten"])
@pytest.mark.parametrize(
    ("layers", "heads", "length", "gap", "keys"),
    [
        (1, 2, 8, "log", {}), (2, 4, 8, "log", {}), (3, 1, 3, "day", {}), (1, 8, 5, "position", PLAIN),
        (2, 2, 4, "none", PLAIN), (1, 2, 8, "log", {**LABELED, "history": "positive"}),
        (1, 2, 8, "log", {**LABELED, "history_features": ["label", "tab"]}),
        (2, 2, 4, "day", {"history_features": ["length"]}),
        (1, 2, 8, "log", {**USER_ID, **NEW_USERS}), (2, 2, 8, "log", USER_ID),
    ],
)  # fmt: skip
def test_logits_are_those_of_the_papers_equations(build, layers, heads, length, gap, keys, output):
    model, batch = build(
        n_layers=layers, n_heads=heads, MAX_ITEM_LIST_LENGTH=length, time_gap=gap, output=output, **keys
    )
    assert len(batch) > 8
    weights = {**dict(model.named_buffers()), **dict(model.named_parameters())}
    for mode in (True, False):
        found = model.train(mode).forward(batch)
        for row, case in enumerate(cases(model, batch)):
            expected = oracle.logit(weights, case, length, heads, layers, output, gap, 1e-5)
            torch.testing.assert_close(found[row], expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(model.predict(batch), found.sigmoid())


def test_the_loss_is_the_cross_entropy_of_the_labels(build):
    model, batch = build(**LABELED)
    label, chance = batch["label"].double(), model.predict(batch)
    assert 0 < label.mean() < 1
    expected = -(label * chance.log() + (1 - label) * (1 - chance).log()).mean()
    torch.testing.assert_close(model.calculate_loss(batch), expected)


# ---------------------------------------------------------------- what a score depends on


def test_every_feature_and_every_time_changes_the_score(build):
    model, batch = build()
    batch = batch[batch["item_length"] > 2]
    before = model.forward(batch)

    def differs(changed: Interaction, rows=slice(None)) -> bool:
        return bool((model.forward(changed) != before)[rows].all())

    columns = batch.interaction
    assert differs(Interaction({**columns, "timestamp": columns["timestamp"] + 40 * DAY}))
    for slot in range(3):  # of a history
        times = columns["timestamp_list"].clone()
        times[:, slot] -= 400 * DAY
        assert differs(Interaction({**columns, "timestamp_list": times}))
    assert differs(Interaction({**columns, "tab": columns["tab"] % 3 + 1}))
    assert differs(Interaction({**columns, "length": columns["length"] + 1}))
    for table, ids in ((model.users, columns["user_id"]), (model.items, columns["item_id"])):
        for name in table.names[1 if table is model.items else 0 :]:
            values = table.column(name)
            kept = values.clone()
            if name == "tags":
                values[ids, 0] = values[ids, 0] % 3 + 1
            else:
                values[ids] = values[ids] + 1 if values.is_floating_point() else values[ids] % 2 + 1
            assert not torch.equal(values, kept)
            touched = (values != kept).view(len(values), -1).any(1)[ids]
            assert differs(batch, touched), name
            values.copy_(kept)
    assert not differs(batch)


def test_columns_that_are_not_named_are_not_read(build):
    model, batch = build(context_features=[], cross_features=[])
    columns = batch.interaction
    changed = {"label": 1 - columns["label"], "tab": columns["tab"] % 3 + 1, "length": columns["length"] + 1}
    assert torch.equal(model.forward(Interaction({**columns, **changed})), model.forward(batch))


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"context_features": ["label"]}, "context_features names 'label', which is not a loaded column"),
        ({"context_features": ["timestamp"]}, "names 'timestamp'"), ({"context_features": ["sex"]}, "no column 'sex'"),
        ({"context_features": ["nothing"]}, "no column 'nothing', which context_features names"),
        ({"context_features": ["item_id_list"]}, "no column 'item_id_list'"),
        ({"context_features": ["item_length"]}, "no column 'item_length'"),
        ({"context_features": ["length"], "threshold": {"length": 3}, "LABEL_FIELD": "good"}, "names 'length'"),
        ({"cross_features": [["age", "item_id"]]}, "'age:float' is named by cross_features"),
        ({"cross_features": [["tab", "item_id"]], "context_features": []}, "names 'tab', which is not a feature"),
        ({"cross_features": [["user_id", "brand"]]}, "names 'user_id', which is a feature only if user_id_feature is"),
        ({"context_features": ["user_id"]}, "context_features names 'user_id'; set user_id_feature to True instead"),
        ({"context_features": ["length", "length"]}, "context_features names 'length' twice"),
        ({"cross_features": [["tab", "tab"]]}, "cross_features crosses 'tab' with itself"),
        ({"history_features": ["sex"]}, "no column 'sex'"), ({"history_features": ["timestamp"]}, "names 'timestamp'"),
        ({"history_features": ["item_id"]}, "history_features names 'item_id', which is not a loaded column"),
        ({"n_heads": 3}, "a position has 20 features .4 columns of embedding_size 4.*n_heads 3 does not divide"),
    ],
    ids=repr,
)  # fmt: skip
def test_columns_that_cannot_be_features_are_refused(build, keys, sentence):
    with pytest.raises(InputError, match=sentence):
        build(**{"cross_features": [], **keys})


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"time_gap": "week"}, "'time_gap' is 'week'; it should be one of log, day, position, or None"),
        ({"output": "mean"}, "'output' is 'mean'"), ({"query_time": "now"}, "'query_time' is 'now'"),
        ({"embedding_size": 0}, "embedding_size"),
        ({"cross_features": [["a"]]}, "cross_features' is .*each member a list of 2"),
        ({"mlp_hidden_size": [4, 0.5]}, "mlp_hidden_size"),
        ({"history_features": ["label"], "history": "positive"}, "history_features names 'label', but with hist"),
        ({"history_features": ["tab"], "unused_col": {"inter": ["tab_list"]}}, "unused_col leaves out 'tab_list'"),
        ({"user_id_dropout_prob": 0.1}, "user_id_dropout_prob is 0.1, but user_id_feature is False"),
        ({"user_id_dropout_prob": 1, "user_id_feature": True}, "'user_id_dropout_prob' is 1; it should be a number in"),
        ({"user_id_feature": 1}, "'user_id_feature' is 1; it should be True or False"),
        ({"loss_type": "BPR"}, "loss_type is 'BPR'; BST has one loss and reads none"),
        ({"unused_col": {"inter": ["timestamp_list"]}}, "unused_col leaves out 'timestamp_list', which BST reads"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_data_is_read(make_config, keys, sentence):
    with pytest.raises(InputError, match=sentence):
        make_config("BST", **keys)


def test_columns_may_have_any_name_and_stand_in_any_order(write_events, write_lines, make_model, random_events):
    events = [(*event, f"t{place % 3}", place % 7) for place, event in enumerate(random_events())]
    columns = ["user_id:token", "item_id:token", "timestamp:float", "type:token", "a.b:float"]
    path = write_events(events, columns)
    rows = [(f"i{item}", f"k{item % 4}", item % 5) for item in range(20)]
    keys = {
        "load_col": None, "context_features": ["type", "a.b"], "data_path": path, "embedding_size": 4,
        "gap_embedding_size": 4, "n_heads": 2, "mlp_hidden_size": [8],
    }  # fmt: skip
    scores = []
    for order in ((0, 1, 2), (0, 2, 1)):
        header = [("item_id:token", "keys:token", "price.usd:float")[place] for place in order]
        write_lines("item", "\t".join(header), *("\t".join(str(row[place]) for place in order) for row in rows))
        torch.manual_seed(0)
        model, *_, test = make_model("BST", **keys)
        assert model.items.names == ["item_id", "keys", "price.usd"]
        scores.append(model.eval().full_sort_predict(next(iter(test))[0]))
    assert torch.equal(*scores)


def test_a_number_of_the_context_may_have_been_discretised(build):
    model, batch = build(
        numerical_features=["length"], discretization={"length": {"method": "ED", "bucket": 3}}, cross_features=[]
    )
    assert batch["length"].dim() == 2
    found = model.predict(batch)
    batch.interaction["length"] = batch["length"][:, 0]
    assert torch.equal(model.predict(batch), found)


def test_memory_of_wide_sequences_is_bounded_by_parts_of_the_batch(build, monkeypatch):
    model, batch = build()
    right, rows = model.full_sort_predict(batch), []
    monkeypatch.setattr(model, "_history", lambda part, history=model._history: rows.append(len(part)) or history(part))
    model.budget = 3 * 8 * 8 * (model.item_features.numbers + model.blocks[0].heads)  # of 3 histories of 8
    torch.testing.assert_close(model.full_sort_predict(batch), right, rtol=0, atol=1e-9)
    assert max(rows) == 3
    assert sum(rows) == len(batch)


def test_the_log_names_what_is_read(build, caplog):
    with caplog.at_level("INFO"):
        build()
    assert "BST reads: sequence item_id, brand, price, tags and the time gap (log); MLP target, " in caplog.text
    assert "age, sex, tab, length, sex x brand, tab x item_id; learns label" in caplog.text


def test_numbers_are_taken_in_deviations_from_the_mean_of_the_training_data(build):
    model, _ = build()
    for features, name, values in (
        (model.item_features, "price", torch.arange(ITEMS)), (model.other_features, "age", torch.arange(USERS) * 3),
    ):  # fmt: skip
        number = features.embeddings[key_of(name)]
        torch.testing.assert_close(number.mean, values.double().mean())
        torch.testing.assert_close(number.deviation, values.double().std(correction=0))
        far = number(torch.tensor([1e30, 10 * float(number.deviation) + float(number.mean)], dtype=torch.float64))
        torch.testing.assert_close(far[0], far[1])


def test_gaps_are_cut_into_half_octaves():
    time = torch.tensor([[0.0, 1, 2, 3, 7, 3600, 2.0**32, 1e12]], dtype=torch.float64)
    found = gap_index("log", -time, torch.zeros(1, dtype=torch.float64), torch.tensor([8]))
    assert found.tolist() == [[1, 3, 4, 5, 7, 24, 65, 65]]
    assert HALF_OCTAVES == 66


def test_query_time_last_measures_gaps_from_the_last_event(build):
    model, batch = build(query_time="last")
    before = model.forward(batch)
    columns = batch.interaction
    later = Interaction({**columns, "timestamp": columns["timestamp"] + 400 * DAY})
    assert torch.equal(model.forward(later), before)
    last = columns["timestamp_list"].gather(1, columns["item_length"].unsqueeze(1) - 1).squeeze(1)
    model.query_time = "target"
    assert torch.equal(model.forward(Interaction({**columns, "timestamp": last})), before)
    assert not torch.equal(model.forward(batch), before)


def test_equal_histories_of_a_batch_are_encoded_once(build, monkeypatch):
    model, batch = build()
    calls = []
    history = model._history
    monkeypatch.setattr(model, "_history", lambda part: calls.append(len(part["item_length"])) or history(part))
    copies = Interaction({name: torch.cat([values] * 3) for name, values in batch.interaction.items()})
    copies.interaction["item_id"] = torch.arange(len(copies)) % ITEMS + 1  # as positives and negatives of training
    order = torch.randperm(len(copies), generator=torch.Generator().manual_seed(0))
    alone = torch.cat([model.forward(copies[row : row + 1]) for row in range(len(copies))])
    for rows in (torch.arange(len(copies)), order):
        calls.clear()
        torch.testing.assert_close(model.forward(copies[rows]), alone[rows], rtol=0, atol=1e-9)
        assert sum(calls) == len(batch)
    later = copies["timestamp"].clone()
    later[len(batch) :] += 40 * DAY  # the same histories asked about at another time
    calls.clear()
    model.forward(Interaction({**copies.interaction, "timestamp": later}))
    assert len(batch) < sum(calls) <= 2 * len(batch)


# ---------------------------------------------------------------- all items


@pytest.mark.parametrize(("layers", "output"), [*itertools.product((1, 2), ("target", "flatten"))])
@pytest.mark.parametrize("memory", [1024, 0.01])
def test_scores_of_all_items_are_those_of_each(build, layers, output, memory):
    model, batch = build(n_layers=layers, output=output, eval_memory_mb=memory)
    with torch.no_grad():
        found = model.full_sort_predict(batch)
        for item in range(1, model.n_items):
            one = model.predict(Interaction({**batch.interaction, "item_id": torch.full((len(batch),), item)}))
            torch.testing.assert_close(found[:, item], one, rtol=0, atol=1e-9)
        order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0))
        shuffled = Interaction({**batch.interaction, "item_id": batch["item_id"][order]})
        assert torch.equal(model.full_sort_predict(shuffled), found)


def test_a_history_without_items_is_scored(build):
    model, batch = build(**LABELED, history="positive")
    empty = batch["item_length"] == 0
    columns = {**batch.interaction, "item_length": torch.zeros_like(batch["item_length"])}
    nothing = Interaction(columns)
    assert torch.isfinite(model.forward(nothing)).all()
    assert torch.isfinite(model.full_sort_predict(nothing)).all()
    torch.testing.assert_close(model.forward(nothing)[empty], model.forward(batch)[empty], rtol=0, atol=1e-9)


# ---------------------------------------------------------------- labels


def test_clicks_that_follow_from_a_feature_are_learnt(write_events, write_lines, no_waiting):
    random = np.random.default_rng(0)
    events = []
    for user in range(60):
        for number in range(12):
            item = int(random.integers(20))
            events.append((f"u{user}", f"i{item}", 1.6e9 + user + number * 1000, int(item % 2 == user % 2)))
    path = write_events(events, ["user_id:token", "item_id:token", "timestamp:float", "label:float"])
    write_lines("user", "user_id:token\tside:token", *(f"u{user}\ts{user % 2}" for user in range(60)))
    write_lines("item", "item_id:token\tkind:token", *(f"i{item}\tk{item % 2}" for item in range(20)))
    keys = {
        **LABELED, "data_path": path, "epochs": 15, "train_batch_size": 64, "show_progress": False, "state": "warning",
        "use_gpu": False, "mlp_hidden_size": [32], "learning_rate": 0.01, "history": "positive",
        "load_col": {"inter": ["user_id", "item_id", "timestamp", "label"], "user": ["user_id", "side"],
                     "item": ["item_id", "kind"]},
    }  # fmt: skip
    result = run_recbole("BST", "toy", None, keys, saved=False, argv=[])
    assert result["test_result"]["auc"] > 0.95
    assert result["test_result"]["logloss"] < 0.4


def test_no_history_holds_the_future_the_present_or_what_was_not_clicked(make_config, write_events):
    """Each event is a lure: unclicked right before, clicked at the same moment, and clicked right after."""
    events, clicked = [], {}
    for user in range(20):
        for number in range(10):
            time, moment = 1.6e9 + number * 100 + user, f"{user}-{number}"
            events += [
                (f"u{user}", f"before-{moment}", time - 1, 0),
                (f"u{user}", f"target-{moment}", time, number % 2),
                (f"u{user}", f"same-{moment}", time, 1), (f"u{user}", f"after-{moment}", time + 1, 1),
            ]  # fmt: skip
    for user, item, time, label in events:
        if label:
            clicked.setdefault(user, []).append((time, item))
    order = np.random.default_rng(0).permutation(len(events))
    columns = ["user_id:token", "item_id:token", "timestamp:float", "label:float"]
    keys = {
        **LABELED, "data_path": write_events([events[row] for row in order], columns), "history": "positive",
        "load_col": {"inter": ["user_id", "item_id", "timestamp", "label"]}, "MAX_ITEM_LIST_LENGTH": 50,
        "min_history": 0,
    }  # fmt: skip
    config = make_config("BST", **keys)
    loaders = data_preparation(config, create_dataset(config))
    names, users = (loaders[0]._dataset.field2id_token[field] for field in ("item_id", "user_id"))
    seen = 0
    for loader in loaders:
        data = loader._dataset
        batch = data[np.arange(len(data))]
        for row in range(len(batch)):
            length, time = int(batch["item_length"][row]), float(batch["timestamp"][row])
            past = {names[item] for item in batch["item_id_list"][row, :length].tolist()}
            moment = time + data.time_origin
            assert past == {item for when, item in clicked[users[batch["user_id"][row]]] if when < moment}
            assert (batch["timestamp_list"][row, :length] < time).all()
            assert (batch["label_list"][row, :length] == 1).all()
            seen += 1
    assert seen == len(events)


def test_negatives_of_the_evaluation_are_the_same_each_time(make_model, make_config):
    config = make_config("BST", eval_args={"mode": "uni5"}, mlp_hidden_size=[8])
    torch.manual_seed(0)
    train, _, test = data_preparation(config, create_dataset(config))
    trainer = get_trainer(config)(config, BST(config, train._dataset))
    assert trainer.evaluate(test, load_best_model=False) == trainer.evaluate(test, load_best_model=False)
