"""`tie_break`: the order of a user's events at the same time, by row of the file or by item token."""

from collections import defaultdict

import numpy as np
import pandas as pd
import pytest

from recbole_ext import InputError, Recommender, create_dataset, get_trainer, run_recbole
from recbole_ext.cli.entry import main
from recbole_ext.data.ranges import token_ranks
from recbole_ext.serving.training_users import training_user_requests
from tests.data_checks import histories

LEAVE_ONE_OUT = {"split": {"LS": "valid_and_test"}, "order": "TO", "mode": "uni5"}
ORDERS = ["file", "item"]


@pytest.fixture
def days(random_events):
    """Events of 15 users on five days; the tokens of items have several lengths, and one is not ASCII."""
    names = [*(f"i{number}" for number in range(19)), "é"]
    return [
        (user, names[int(item[1:])], 1.6e9 - 1.6e9 % 86400 + 86400 * (number * 7 % 5))
        for number, (user, item, _) in enumerate(random_events(users=15))
    ]


def expected_order(events, tie_break: str) -> dict[str, list[str]]:
    """The items of each user in order."""
    key = (lambda event: (event[2], event[1])) if tie_break == "item" else (lambda event: event[2])
    items = defaultdict(list)
    for user, item, _ in sorted(events, key=key):  # a stable sort
        items[user].append(item)
    return dict(items)


def targets(loader) -> dict[str, str]:
    dataset = loader._dataset
    users, items = (dataset.inter_feat[name].numpy() for name in ("user_id", "item_id"))
    tokens = dataset.field2id_token
    return dict(zip(tokens["user_id"][users].tolist(), tokens["item_id"][items].tolist(), strict=True))


@pytest.mark.parametrize("tie_break", ORDERS)
@pytest.mark.parametrize("model", ["SASRec", "MEANTIME", "BPR"])
def test_histories_and_targets_have_that_order(load, days, model, tie_break):
    expected = expected_order(days, tie_break)
    assert expected != expected_order(days, "item" if tie_break == "file" else "file")
    keys = {} if model == "BPR" else {"MAX_ITEM_LIST_LENGTH": 20}
    dataset, train, valid, test = load(model, days, tie_break=tie_break, eval_args=LEAVE_ONE_OUT, **keys)
    assert targets(test) == {user: items[-1] for user, items in expected.items()}
    assert targets(valid) == {user: items[-2] for user, items in expected.items()}
    if model == "BPR":
        return
    assert histories(dataset) == expected
    if model == "MEANTIME":  # a window is the history and its target
        items = dataset.field2id_token["item_id"]
        batch = train._dataset[np.arange(len(train._dataset))]
        for user, past, length, target in zip(
            *(batch[name].tolist() for name in ("user_id", "item_id_list", "item_length", "item_id")), strict=True
        ):
            window = items[[*past[:length], target]].tolist()
            assert window == expected[str(dataset.id2token("user_id", user))][: len(window)]


def test_whole_numbers_are_ordered_by_value_before_other_tokens():
    tokens = ["b", "10", "9", "B", "010", "é", "9", "-1", "1.5", "10" * 30]
    order = ["9", "9", "010", "10", "10" * 30, "-1", "1.5", "B", "b", "é"]
    assert [tokens[index] for index in np.argsort(token_ranks(tokens), kind="stable")] == order
    assert token_ranks([]).tolist() == []


def test_file_is_the_default(load, days):
    assert histories(load("SASRec", days, MAX_ITEM_LIST_LENGTH=20)[0]) == expected_order(days, "file")


def test_the_same_item_twice_at_the_same_time_keeps_the_order_of_rows(make_config, write_events):
    events = [("u", item, 1.6e9, number) for number, item in enumerate("bacaba")]
    columns = ("user_id:token", "item_id:token", "timestamp:float", "row:float")
    keys = {"load_col": {"inter": [name.partition(":")[0] for name in columns]}, "tie_break": "item"}
    dataset = create_dataset(make_config("SASRec", data_path=write_events(events, columns), **keys))
    dataset.build()
    log = dataset.inter_feat.targets.columns
    assert log["row"].tolist() == [1, 3, 5, 0, 4, 2]


@pytest.mark.parametrize("kind", ["events", "examples"])
def test_events_of_an_earlier_file_come_first(load, write_lines, kind):
    files = {"train": "dca", "valid": "fb", "test": "zyex"}
    header, line = "user_id:token\titem_id:token\ttimestamp:float", "u\t{}\t7"
    if kind == "examples":
        header, line = header + "\titem_id_list:token_seq", "u\t{}\t7\tq p r"
    for name, items in files.items():
        path = write_lines(f"{name}.inter", header, *map(line.format, items))
    keys = {"benchmark_filename": [*files], "topk": [1], "valid_metric": "NDCG@1", "tie_break": "item"}
    names = [column.partition(":")[0] for column in header.split("\t")]
    dataset, *loaders = load("SASRec", data_path=path, load_col={"inter": names}, **keys)
    items = dataset.field2id_token["item_id"]
    if kind == "examples":
        row = loaders[0]._dataset[[0]]["item_id_list"][0, :3].tolist()
        assert items[row].tolist() == ["q", "p", "r"]
        return
    assert histories(loaders[-1]._dataset) == {"u": [*"acd", *"bf", *"exyz"]}
    assert histories(loaders[0]._dataset) == {"u": [*"acd"]}
    assert sorted(items[loaders[1]._dataset.inter_feat["item_id"].numpy()].tolist()) == ["b", "f"]


@pytest.mark.parametrize("tie_break", ORDERS)
def test_recommendations_read_histories_in_that_order(make_config, make_model, days, tie_break):
    network, train, _, test = make_model("SASRec", days, tie_break=tie_break, MAX_ITEM_LIST_LENGTH=20, epochs=1)
    trainer = get_trainer(test.config)(test.config, network)
    trainer.fit(train)
    network.eval()
    expected = expected_order(days, tie_break)
    recommender = Recommender.load(trainer.saved_model_file)
    new = [("new", item, 1.6e9) for item in ("i3", "stranger", "i11", "é", "i2")]
    table = pd.DataFrame([*days, *new], columns=["user_id", "item_id", "timestamp"])
    expected["new"] = ["i11", "i2", "i3", "é"] if tie_break == "item" else ["i3", "i11", "é", "i2"]
    requests = [recommender.reader.read(table), training_user_requests(recommender, {})]
    for request, users in zip(requests, (expected, expected.keys() - {"new"}), strict=True):
        batch = request.examples.gather()
        past = {
            user: recommender.items.tokens[items[:length].numpy()].tolist()
            for user, items, length in zip(request.users, batch["item_id_list"], batch["item_length"], strict=True)
        }
        assert past == {user: expected[user] for user in users}


def test_rows_without_times_keep_their_order(make_model, days):
    network, train, _, test = make_model("SASRec", days, tie_break="item", MAX_ITEM_LIST_LENGTH=20, epochs=1)
    trainer = get_trainer(test.config)(test.config, network)
    trainer.fit(train)
    recommender = Recommender.load(trainer.saved_model_file)
    table = pd.DataFrame({"user_id": "new", "item_id": ["i3", "i11", "i2"]})
    batch = recommender.reader.read(table).examples.gather()
    assert recommender.items.tokens[batch["item_id_list"][0, :3].numpy()].tolist() == ["i3", "i11", "i2"]


def test_the_context_of_a_request_is_that_of_the_last_event(make_config, write_events):
    events = [(f"u{user}", item, 1.6e9, f"tab-{item}") for user in range(4) for item in "bdca"]
    columns = ("user_id:token", "item_id:token", "timestamp:float", "tab:token")
    names = [column.partition(":")[0] for column in columns]
    keys = {"load_col": {"inter": names}, "context_features": ["tab"], "tie_break": "item", "topk": [1]}
    result = run_recbole("BST", "toy", None, {
        "data_path": write_events(events, columns), "valid_metric": "NDCG@1", "epochs": 1, "use_gpu": False,
        "show_progress": False, "state": "critical", **keys,
    }, argv=[])  # fmt: skip
    recommender = Recommender.load(result["checkpoint"])
    table = pd.DataFrame(events, columns=names)
    for request in (recommender.reader.read(table), training_user_requests(recommender, {})):
        tabs = recommender.description.field2id_token["tab"]
        assert {tabs[index] for index in request.examples.gather()["tab"].tolist()} == {"tab-d"}


def test_a_checkpoint_belongs_to_one_order(no_waiting, write_events, days, capsys):
    keys = {
        "data_path": write_events(days), "topk": [5], "valid_metric": "NDCG@5", "use_gpu": False, "state": "critical",
        "show_progress": False, "epochs": 1, "tie_break": "item",
    }  # fmt: skip
    path = run_recbole("SASRec", "toy", None, keys, argv=[])["checkpoint"]
    with pytest.raises(InputError, match=r"tie_break is 'file', but checkpoint .* was trained with 'item'"):
        run_recbole(resume=path, config_dict={"tie_break": "file"}, argv=[])
    resumed = run_recbole(resume=path, config_dict={"epochs": 2}, argv=[])
    assert resumed["test_result"]
    whole = run_recbole("SASRec", "toy", None, {**keys, "epochs": 2}, argv=[])
    assert whole["test_result"] == resumed["test_result"]
    assert main(["recommend", f"--checkpoint={path}", "--all_users", "--k=3", "--out=top.csv"]) == 0


def test_the_digest_of_the_data_depends_on_the_order(make_config, days):
    digests = {order: create_dataset(make_config("SASRec", days, tie_break=order)).digest for order in ORDERS}
    assert digests["item"] != digests["file"] == create_dataset(make_config("SASRec", days)).digest


def test_models_that_sort_by_themselves_do_not_read_the_key(make_config):
    with pytest.raises(InputError, match="'tie_break' is not read by DIEN: its data set class in RecBole sorts"):
        make_config("DIEN", tie_break="item")
    make_config("DIEN", tie_break="file")


@pytest.mark.parametrize("value", ["user", "rows", 1, None, True])
def test_other_values_are_refused(make_config, value):
    with pytest.raises(InputError, match="key 'tie_break' is .*; it should be one of file, item"):
        make_config(tie_break=value)
