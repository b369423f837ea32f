"""Training windows and histories of positive events, against plain loops."""

from collections import defaultdict

import numpy as np
import pytest
import torch

from recbole_ext import InputError, create_dataset, data_preparation
from recbole_ext.data.ranges import filtered_prefixes, prefixes, user_starts, windows

LABELLED = ("user_id:token", "item_id:token", "timestamp:float", "label:float")


def whole(loader) -> list[tuple]:
    """User, history, times of the history, target and its time of every example of a loader's data set, as tokens."""
    data = loader._dataset
    batch = data[np.arange(len(data))]
    users, items = data.field2id_token["user_id"], data.field2id_token["item_id"]
    rows = []
    for index, length in enumerate(batch["item_length"].tolist()):
        assert not batch["item_id_list"][index, length:].any()
        assert not batch["timestamp_list"][index, length:].any()
        past = [str(token) for token in items[batch["item_id_list"][index, :length].numpy()]]
        times = (batch["timestamp_list"][index, :length] + data.time_origin).tolist()
        when = float(batch["timestamp"][index]) + data.time_origin
        rows.append((str(users[batch["user_id"][index]]), past, times, str(items[batch["item_id"][index]]), when))
    return rows


def by_user(events) -> dict[str, list[tuple]]:
    """Events of each user by time, those of one time in the order given."""
    found = defaultdict(list)
    for event in sorted(events, key=lambda event: event[2]):
        found[event[0]].append(event)
    return found


@pytest.mark.parametrize(("width", "step"), [(4, 2), (4, 100), (3, 1), (2, 5), (50, 7)])
def test_windows_end_at_the_last_training_event_and_every_step_before_while_they_are_full(
    width, step, make_config, random_events
):
    events = [*random_events(), ("pair", "i1", 1.6e9), ("pair", "i2", 1.6e9 + 1)]
    config = make_config(
        "MEANTIME", events, MAX_ITEM_LIST_LENGTH=width, train_window=step, eval_args={"split": {"LS": "valid_and_test"}}
    )
    train, valid, test = data_preparation(config, create_dataset(config))
    expected = []
    for user, history in by_user(events).items():
        training = history[:-2] if len(history) > 3 else history  # two events make one example, which is kept
        end = len(training)
        while end == len(training) or end >= width:
            window = training[max(0, end - width) : end]
            past = window[:-1]
            expected.append((user, [e[1] for e in past], [e[2] for e in past], window[-1][1], window[-1][2]))
            end -= step
    assert sorted(whole(train)) == sorted(expected)
    assert len(train._dataset) == len(expected)

    prefix = make_config("SASRec", events, MAX_ITEM_LIST_LENGTH=width, eval_args={"split": {"LS": "valid_and_test"}})
    for loader, other in zip((valid, test), data_preparation(prefix, create_dataset(prefix))[1:], strict=True):
        assert sorted(whole(loader)) == sorted(whole(other))


def test_windows_leave_all_that_recbole_counts_as_it_is(make_config, random_events):
    events = random_events(users=40, items=30)
    found = []
    for model in ("SASRec", "MEANTIME"):
        config = make_config(
            model, events, MAX_ITEM_LIST_LENGTH=3, **({"train_window": 3} if model == "MEANTIME" else {})
        )
        train, *_ = data_preparation(config, create_dataset(config))
        data = train._dataset
        found.append(
            (data.item_counter, data.user_counter, data.inter_num, data.inter_matrix("csr").toarray().tolist())
        )
    assert len(train._dataset) < data.inter_num
    assert found[0] == found[1]


def test_unused_columns_do_not_stop_windows_from_being_made(make_config, random_events):
    sizes = set()
    for unused in (None, {"inter": ["timestamp"]}):
        config = make_config("MEANTIME", random_events(), unused_col=unused, train_window=2, MAX_ITEM_LIST_LENGTH=3)
        train, *_ = data_preparation(config, create_dataset(config))
        sizes.add((len(train._dataset), len(train._dataset.inter_feat)))
    assert len(sizes) == 1
    assert len(set(sizes.pop())) == 2


# -------------------------------------------------------------------- histories of positive events

COLUMNS = {"inter": ["user_id", "item_id", "timestamp", "label"]}
ALL_LABELS = {  # learns labels and is measured by them: negative events are examples, too
    "model": "DIN", "history": "positive", "load_col": COLUMNS, "metrics": ["LogLoss"], "valid_metric": "LogLoss",
    "train_neg_sample_args": None, "eval_args": {"split": {"RS": [1, 0, 0]}, "mode": "labeled"},
}  # fmt: skip


@pytest.fixture
def labelled_events(random_events):
    """Clicks and non-clicks, many at the same time: the list that was shown at once."""
    generator = np.random.default_rng(7)
    return [
        (*event[:2], event[2] // 500_000 * 500_000, int(generator.integers(2))) for event in random_events(longest=20)
    ]


def positive_past(history, event):
    return [other for other in history if other[3] == 1 and other[2] < event[2]]


@pytest.mark.parametrize("width", [3, 50])
def test_positive_histories_hold_clicks_strictly_earlier_than_the_target(
    width, make_config, write_events, labelled_events
):
    config = make_config(data_path=write_events(labelled_events, LABELLED), MAX_ITEM_LIST_LENGTH=width, **ALL_LABELS)
    train, *_ = data_preparation(config, create_dataset(config))
    expected, ties = [], 0
    for user, history in by_user(labelled_events).items():
        for event in history:
            past = positive_past(history, event)[-width:]
            ties += any(other[2] == event[2] and other[3] for other in history if other is not event)
            if past:
                expected.append((user, [e[1] for e in past], [e[2] for e in past], *event[1:3]))
    assert ties > 20  # such as a history that counts ties would hold
    assert sorted(whole(train)) == sorted(expected)
    batch = train._dataset[np.arange(len(train._dataset))]
    inside = torch.arange(width) < batch["item_length"][:, None]
    assert torch.equal(batch["label_list"], inside.float())


def test_a_leak_made_on_purpose_does_not_reach_a_history(make_config, write_events):
    shown = [
        ("a", "before", 10, 1),
        ("a", "target", 20, 0),
        ("a", "leak", 20, 1),
        ("a", "later", 30, 1),
        ("b", "x", 1, 1),
    ]
    config = make_config(data_path=write_events(shown, LABELLED), **ALL_LABELS)
    train, *_ = data_preparation(config, create_dataset(config))
    histories = {target: past for _, past, _, target, _ in whole(train)}
    assert histories == {"target": ["before"], "leak": ["before"], "later": ["before", "leak"]}


def test_a_model_that_takes_windows_sees_positive_events_only(make_config, write_events, labelled_events):
    keys = {"load_col": COLUMNS, "train_window": 3}
    clicks = [event for event in labelled_events if event[3]]
    found = []
    for events, history in ((labelled_events, "positive"), (clicks, "all")):
        config = make_config("MEANTIME", data_path=write_events(events, LABELLED), history=history, **keys)
        found.append([sorted(whole(loader)) for loader in data_preparation(config, create_dataset(config))])
    assert found[0] == found[1]


DRAWN = {"distribution": "uniform", "sample_num": 1}
RANKED = {"eval_args": {"split": {"RS": [0.6, 0.2, 0.2]}}}
MEASURED = {**ALL_LABELS, "eval_args": {"split": {"RS": [0.6, 0.2, 0.2]}, "mode": "labeled"}}


@pytest.mark.parametrize(
    ("keys", "learns", "measures"),
    [
        ({"model": "SASRec", **RANKED}, False, False), ({"model": "MEANTIME", **RANKED}, False, False),
        ({"model": "BST", "train_neg_sample_args": DRAWN, **RANKED}, False, False),
        ({"model": "BST", "train_neg_sample_args": None, **RANKED}, True, False),
        ({**MEASURED, "model": "SASRec", "metrics": ["AUC"], "valid_metric": "AUC"}, False, True),
        (MEASURED, True, True),
    ],
    ids=["CE", "windows", "drawn", "learnt", "measured", "learnt and measured"],
)  # fmt: skip
def test_negative_events_are_examples_of_labels_and_of_nothing_else(
    keys, learns, measures, load, write_events, labelled_events
):
    """A non-click is neither a positive example to learn, nor a hit of a ranking."""
    path = write_events(labelled_events, LABELLED)
    _, *loaders = load(**{"data_path": path, "history": "positive", "load_col": COLUMNS, **keys})
    labels = [set(loader._dataset.inter_feat["label"].tolist()) for loader in loaders]
    assert labels == [{0, 1} if some else {1} for some in (learns, measures, measures)]


def test_the_last_click_is_what_is_left_out_where_events_are_ranked(load, write_events, labelled_events):
    _, _, _, test = load(
        "SASRec", data_path=write_events(labelled_events, LABELLED), history="positive", load_col=COLUMNS
    )
    found = {(user, target, time) for user, _, _, target, time in whole(test)}
    clicks = by_user(event for event in labelled_events if event[3])
    wanted = {(user, *events[-1][1:3]) for user, events in clicks.items() if len(events) > 3}
    assert wanted <= found
    assert len(wanted) > 10


def test_a_model_class_may_ask_for_longer_histories_or_for_none(
    make_config, write_events, labelled_events, monkeypatch
):
    config = make_config(data_path=write_events(labelled_events, LABELLED), **ALL_LABELS)
    for least in (0, 1, 3):
        monkeypatch.setattr(config.model_class, "min_history", least, raising=False)
        train, *_ = data_preparation(config, create_dataset(config))
        lengths = [len(past) for _, past, *_ in whole(train)]
        histories = by_user(labelled_events).values()
        wanted = [len(positive_past(history, event)[-8:]) for history in histories for event in history]
        assert sorted(lengths) == sorted(length for length in wanted if length >= least)


@pytest.mark.parametrize(("model", "least"), [("SASRec", 1), ("SASRec", 3), ("BST", 0), ("MEANTIME", 2)])
def test_the_shortest_history_may_be_chosen_for_histories_of_all_events(model, least, load, random_events):
    events = random_events()
    dataset, train, _, test = load(model, events, min_history=least, MAX_ITEM_LIST_LENGTH=20, **RANKED)
    lengths = sorted((dataset.inter_feat.ranges.end - dataset.inter_feat.ranges.start).tolist())
    assert lengths == sorted(
        place for history in by_user(events).values() for place in range(len(history)) if place >= least
    )
    counted = dataset.inter_matrix("csr").sum()
    assert counted == (len(events) if least == 1 else len(lengths))
    assert np.isfinite(train_a_step(train))


def train_a_step(loader) -> float:
    model = loader.config.model_class(loader.config, loader._dataset)
    return float(model.calculate_loss(next(iter(loader))))


def test_a_model_of_clicks_can_do_without_a_history(load, write_events, labelled_events):
    path = write_events(labelled_events, LABELLED)
    _, train, *_ = load(data_path=path, **ALL_LABELS, min_history=0)
    assert int(train._dataset.inter_feat["item_length"].min()) == 0
    assert np.isfinite(train_a_step(train))


@pytest.mark.parametrize("history", ["all", "positive"])
def test_a_history_shorter_than_the_model_can_take_is_refused(history, make_config):
    with pytest.raises(InputError, match="min_history is 0, but SASRec needs a history: give 1 or more"):
        make_config("SASRec", min_history=0, history=history)


def test_positive_histories_without_labels_are_refused(make_config):
    config = make_config("SASRec", history="positive")
    with pytest.raises(InputError, match=r"history: positive needs labels.*'label' \(LABEL_FIELD\).*threshold"):
        data_preparation(config, create_dataset(config))


def test_a_history_that_is_neither_all_nor_positive_is_refused(make_config):
    with pytest.raises(InputError, match="key 'history' is 'clicks'; it should be one of all, positive"):
        create_dataset(make_config("SASRec", history="clicks"))


def test_labels_that_are_all_negative_leave_nothing_to_learn_from(make_config, write_events, random_events):
    path = write_events([(*event, 0) for event in random_events()], LABELLED)
    columns = {"inter": ["user_id", "item_id", "timestamp", "label"]}
    config = make_config("SASRec", data_path=path, history="positive", load_col=columns)
    with pytest.raises(InputError, match="no event of data set 'toy' has 1 positive event of its user"):
        data_preparation(config, create_dataset(config))


# -------------------------------------------------------------------- the arithmetic alone


def test_ranges_of_logs_of_one_event_or_none():
    nobody = np.array([], dtype=np.int64)
    none = np.array([], dtype=np.float64)
    for users, times in ((nobody, none), (np.array([5]), np.array([1.0]))):
        assert len(user_starts(users)) == len(users)
        assert len(prefixes(users, 3)) == len(filtered_prefixes(users, times, nobody, 3, 1)) == 0
        assert len(windows(users, nobody, 3, 2)) == 0
    assert len(filtered_prefixes(np.array([5]), np.array([1.0]), np.array([0]), 3, 0)) == 1


def test_windows_do_not_depend_on_the_order_of_targets():
    users = np.repeat([1, 2, 3], [6, 2, 9])
    targets = prefixes(users, 4).target
    expected = windows(users, targets, 4, 2)
    mixed = windows(users, np.random.default_rng(0).permutation(targets), 4, 2)
    for one, other in zip(vars(expected).values(), vars(mixed).values(), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("keys", [
    {"train_neg_sample_args": {"distribution": "popularity", "sample_num": 1}}, {"eval_args": {"mode": "pop3"}},
])  # fmt: skip
def test_popularity_that_leaves_nothing_to_draw_is_refused_and_not_waited_for(load, write_events, keys):
    columns = ("user_id:token", "item_id:token", "timestamp:float", "label:float")
    events = [(f"u{user}", f"i{item}", 1e9 + item, int(item == 1)) for user in range(3) for item in range(6)]
    path = write_events([*events, *((f"u{user}", "i1", 2e9, 1) for user in range(3))], columns)
    with pytest.raises(InputError, match="drawn by popularity from the 1 items of the targets"):
        load("BST", data_path=path, load_col=None, history="positive", **keys)
