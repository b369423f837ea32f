"""MEANTIME on data: the time of the request, days, windows, options, and data sets it can stand on."""

import pytest
import recbole.data
import torch
from recbole.data.dataset import SequentialDataset
from recbole.data.interaction import Interaction
from torch import Tensor

from recbole_ext import Config, InputError, create_dataset, data_preparation
from recbole_ext.model import MEANTIME, batching
from recbole_ext.model.batching import length_buckets, unique_consecutive_rows
from recbole_ext.model.layers import Dropout
from tests.oracles.bare import bare_meantime, randomise, sequences

DAY = 86400
START = 1_600_000_000  # 13 September 2020, 12:26:40 UTC


def request(*histories: list[tuple[int, float]], at: list[float] | None = None, width: int = 8) -> Interaction:
    """Histories of (item, time), asked for at the times `at`."""
    items, times = torch.zeros(len(histories), width).long(), torch.zeros(len(histories), width).double()
    for row, history in enumerate(histories):
        for slot, (item, time) in enumerate(history):
            items[row, slot], times[row, slot] = item, time
    columns = {"item_id_list": items, "timestamp_list": times, "item_length": torch.tensor([len(h) for h in histories])}
    if at is not None:
        columns["timestamp"] = torch.tensor(at, dtype=torch.float64)
    return Interaction(columns)


def model_of(**keys) -> MEANTIME:
    model = bare_meantime(**{"hidden_size": 16, "inner_size": 32, "MAX_ITEM_LIST_LENGTH": 8, **keys})
    randomise(model)
    return model.eval()


@torch.no_grad()
def scores(model: MEANTIME, interaction: Interaction) -> Tensor:
    return model.full_sort_predict(interaction)[:, 1:]


HISTORY = [(3, 100.0), (5, 5000.0), (9, 90000.0)]

# ---------------------------------------------------------------- the time of the request


def test_the_time_of_the_request_counts_when_it_is_known():
    model = model_of(query_time="target")
    soon, late = (scores(model, request(HISTORY, at=[at])) for at in (90060.0, 900000.0))
    assert not torch.allclose(soon, late, atol=1e-3)


def test_the_time_of_the_request_does_not_count_when_it_is_unknown():
    model = model_of(query_time="last")
    soon, late = (scores(model, request(HISTORY, at=[at])) for at in (90060.0, 900000.0))
    assert torch.equal(soon, late)
    assert torch.equal(soon, scores(model, request(HISTORY)))


def test_an_unknown_time_is_that_of_the_last_event():
    known, unknown = model_of(query_time="target"), model_of(query_time="last")
    assert torch.equal(scores(known, request(HISTORY, at=[90000.0])), scores(unknown, request(HISTORY, at=[5e5])))


def test_a_request_without_a_time_stands_at_the_last_event():
    model = model_of(query_time="target")
    assert torch.equal(scores(model, request(HISTORY)), scores(model, request(HISTORY, at=[90000.0])))


@pytest.mark.parametrize("query_time", ["target", "last"])
def test_training_sees_the_time_of_the_newest_event_only_if_scoring_does(query_time):
    model = model_of(query_time=query_time)
    losses = []
    for at in (90060.0, 900000.0):
        torch.manual_seed(0)
        window = request(HISTORY, HISTORY[:1], at=[at, at])
        window.update(Interaction({"item_id": torch.tensor([7, 8])}))
        losses.append(float(model.calculate_loss(window).detach()))
    assert (losses[0] == losses[1]) == (query_time == "last")


def test_the_target_of_a_training_window_is_part_of_it(monkeypatch):
    model, seen = model_of(mask_ratio=1.0), []
    monkeypatch.setattr(model, "cloze_loss", lambda *args: seen.extend(args) or torch.tensor(0.0))
    window = request(HISTORY, HISTORY[:1], at=[90060.0, 90061.0])
    window.update(Interaction({"item_id": torch.tensor([7, 8])}))
    model.calculate_loss(window)
    tokens, time, length, answers, chosen = seen
    assert answers.tolist() == [[3, 5, 9, 7], [3, 8, 0, 0]]
    assert length.tolist() == [4, 2]
    assert chosen.tolist() == [[True] * 4, [True, True, False, False]]
    assert time[0].tolist() == [100.0, 5000.0, 90000.0, 90060.0]
    assert time[1, :2].tolist() == [100.0, 90061.0]
    assert (tokens == model.mask_id).any()


# ---------------------------------------------------------------- days


def test_days_begin_at_midnight_utc(make_model):
    midnight = START - START % DAY
    times = [midnight - 1, midnight, midnight + DAY - 1, midnight + DAY]
    after = [midnight + 5 * DAY, midnight + 6 * DAY]  # validation and test
    events = [(f"u{user}", f"i{slot}", time) for user in range(3) for slot, time in enumerate(times + after)]
    model, *_ = make_model(events=events, topk=[2], valid_metric="NDCG@2")
    seconds = torch.tensor(times, dtype=torch.float64) - times[0]
    assert days_of(model, seconds) == [0, 1, 1, 2]


def days_of(model: MEANTIME, seconds: Tensor) -> list[int]:
    """Rows of the table of days that the model uses at these times, in seconds since the first event."""
    table = model.kernel_embeddings["day"].weight
    return [(table == row).all(1).nonzero().item() for row in model._absolute("day", None, seconds)]


def test_the_table_of_days_ends_with_the_training_events_and_later_days_use_its_last_row(make_model):
    events = [(f"u{user}", f"i{slot}", START + slot * DAY) for user in range(3) for slot in range(6)]
    model, train, _, test = make_model(events=events, topk=[2], valid_metric="NDCG@2")
    assert model.kernel_embeddings["day"].num_embeddings == 4  # the last two days are validation and test
    assert days_of(model, torch.tensor([3.0, 4.0, 5.0, 1e4]).double() * DAY) == [3, 3, 3, 3]
    assert torch.isfinite(scores(model.eval(), next(iter(test))[0])).all()


def test_days_before_the_first_use_the_first():
    assert days_of(model_of(), torch.tensor([-1e9, -1.0, 0.0]).double()) == [0, 0, 0]


def test_scores_change_with_the_day_alone():
    model = model_of(absolute_kernels=["day"], relative_kernels=[])
    one, same, other = (scores(model, request([(3, at)], at=[at])) for at in (100.0, 80000.0, 100000.0))
    assert torch.equal(one, same)
    assert not torch.allclose(one, other, atol=1e-3)


@pytest.mark.parametrize("stretch", [0.1, 1, 10], ids=["days", "weeks", "a year"])
@pytest.mark.parametrize("stock", [False, True], ids=["event log", "RecBole's data set"])
def test_milliseconds_read_as_seconds_are_an_error_that_names_time_unit(make_config, random_events, stock, stretch):
    seconds = [(user, item, START + (time - START) * stretch) for user, item, time in random_events()]
    milliseconds = [(user, item, int(time) * 1000) for user, item, time in seconds]
    config = make_config(events=milliseconds)

    def build():
        MEANTIME(config, SequentialDataset(config) if stock else create_dataset(config))

    with pytest.raises(InputError, match="time_unit"):
        build()


def with_same_weights(make_model, *settings: dict) -> list[Tensor]:
    """Scores of the test requests by one set of weights, on several data sets."""
    found, state = [], None
    for keys in settings:
        model, _, _, test = make_model(**keys)
        if state is None:
            randomise(model)
            state = model.state_dict()
        model.load_state_dict(state)
        found.append(torch.cat([scores(model.eval(), batch[0]) for batch in test]))
    return found


def test_a_file_in_milliseconds_scores_like_one_in_seconds(make_model, random_events):
    seconds = random_events()
    milliseconds = [(user, item, int(time * 1000)) for user, item, time in seconds]
    days = [(user, item, time / DAY) for user, item, time in seconds]
    one, two, three = with_same_weights(
        make_model, {"events": seconds}, {"events": milliseconds, "time_unit": "ms"}, {"events": days, "time_unit": "D"}
    )
    assert torch.allclose(one, two, atol=1e-5)
    assert torch.allclose(one, three, atol=1e-4)


@pytest.mark.parametrize("normalize_all", [True, False])
def test_times_are_never_normalised(make_model, random_events, normalize_all):
    keys = {"events": random_events(), "normalize_all": normalize_all}
    one, two = with_same_weights(make_model, {"events": random_events()}, keys)
    assert torch.equal(one, two)


def test_ml_100k_has_many_days_and_is_the_same_normalised_or_not():
    found = []
    for normalize_all in (True, False):
        config = Config(
            "MEANTIME", "ml-100k", None,
            {"normalize_all": normalize_all, "hidden_size": 16, "inner_size": 16, "MAX_ITEM_LIST_LENGTH": 10}, argv=[],
        )  # fmt: skip
        train, _, test = data_preparation(config, create_dataset(config))
        torch.manual_seed(0)
        model = config.model_class(config, train._dataset)
        assert model.kernel_embeddings["day"].num_embeddings > 200
        found.append(scores(model.eval(), next(iter(test))[0]))
    assert torch.equal(found[0], found[1])


# ---------------------------------------------------------------- data sets and windows


def test_recboles_own_data_set_gives_the_same_scores_where_its_times_are_exact(make_config, random_events):
    events = random_events(first=0)  # float32 holds seconds below 2^24 exactly
    found, state = [], None
    for stock in (False, True):
        config = make_config(events=events)
        dataset = SequentialDataset(config) if stock else create_dataset(config)
        train, _, test = recbole.data.data_preparation(config, dataset)
        model = config.model_class(config, train._dataset)
        if state is None:
            randomise(model)
            state = {key: values for key, values in model.state_dict().items() if "day" not in key}
        model.load_state_dict(state, strict=False)
        with torch.no_grad():  # the two know different numbers of days
            model.kernel_embeddings["day"].weight.fill_(0.1)
        assert torch.isfinite(model.train().calculate_loss(next(iter(train))))
        batches = [batch[0] for batch in test]
        order = torch.cat([batch["user_id"] for batch in batches]).argsort()
        found.append(torch.cat([scores(model.eval(), batch) for batch in batches])[order])
    assert torch.allclose(found[0], found[1], atol=1e-5)


def test_of_a_long_history_the_newest_events_count():
    model = model_of(MAX_ITEM_LIST_LENGTH=4)
    long = [(3, 10.0), (4, 20.0), (5, 30.0), (6, 400.0), (7, 5000.0)]
    alone = scores(model, request(long[-3:], at=[9000.0], width=4))
    assert torch.equal(scores(model, request(long, at=[9000.0])), alone)
    mixed = scores(model, request(long, long[:1], at=[9000.0, 9000.0]))
    assert torch.allclose(mixed[:1], alone, atol=1e-5)
    assert torch.allclose(mixed[1:], scores(model, request(long[:1], at=[9000.0])), atol=1e-5)


def test_of_a_long_window_the_newest_events_are_trained(monkeypatch):
    model, seen = model_of(MAX_ITEM_LIST_LENGTH=4), []
    monkeypatch.setattr(model, "cloze_loss", lambda *args: seen.extend(args) or torch.tensor(0.0))
    window = request([(3, 10.0), (4, 20.0), (5, 30.0), (6, 400.0), (7, 5000.0)], at=[9000.0])
    window.update(Interaction({"item_id": torch.tensor([8])}))
    model.calculate_loss(window)
    assert seen[3].tolist() == [[5, 6, 7, 8]]
    assert seen[1].tolist() == [[30.0, 400.0, 5000.0, 9000.0]]


# ---------------------------------------------------------------- parts of a batch


def test_parts_of_a_batch_give_every_row_its_own_scores(monkeypatch):
    model = model_of()
    items, time, length = sequences([7, 1, 3, 7, 2, 5, 1, 6])
    batch = {"item_id_list": items, "timestamp_list": time, "item_length": length, "timestamp": time.amax(1) + 60}
    whole = scores(model, Interaction(batch))
    for pairs in (1, 30, 130):
        monkeypatch.setattr(batching, "MAX_PAIRS", (pairs, pairs))
        assert torch.allclose(scores(model, Interaction(batch)), whole, atol=1e-5)


def test_rows_are_taken_longest_first_within_the_bound(monkeypatch):
    monkeypatch.setattr(batching, "MAX_PAIRS", (50, 50))
    parts = [(rows.tolist(), slots) for rows, slots in length_buckets(torch.tensor([2, 9, 5, 5, 3, 2]))]
    assert parts == [([1], 9), ([2, 3], 5), ([4, 0, 5], 3)]


def test_runs_of_equal_rows_are_scored_once(monkeypatch):
    model = model_of()
    one, two = request(HISTORY, at=[90060.0]), request(HISTORY[:2], at=[90060.0])
    columns = {key: torch.cat([one[key], one[key], two[key], two[key], two[key], one[key]]) for key in one.interaction}
    counted = []
    original = model.encode

    def counting(items, *arguments, **keys):
        counted.append(len(items))
        return original(items, *arguments, **keys)

    monkeypatch.setattr(model, "encode", counting)
    found = scores(model, Interaction(columns))
    assert sum(counted) == 3
    right = torch.cat([scores(model, one if row in (0, 1, 5) else two) for row in range(6)])
    assert torch.allclose(found, right, atol=1e-5)


def test_rows_that_differ_in_one_column_are_distinct():
    first, run = unique_consecutive_rows(
        torch.tensor([[1, 2], [1, 2], [1, 3], [1, 3]]), torch.tensor([5.0, 5.0, 5.0, 6.0])
    )
    assert first.tolist() == [0, 2, 3]
    assert run.tolist() == [0, 0, 1, 2]


# ---------------------------------------------------------------- options


def test_content_bias_adds_a_parameter_that_counts():
    without, with_bias = model_of(content_bias=False), model_of(content_bias=True)
    extra = set(with_bias.state_dict()) - set(without.state_dict())
    assert extra == {f"blocks.{block}.attention.content_bias" for block in range(2)}
    without.load_state_dict({key: values for key, values in with_bias.state_dict().items() if key not in extra})
    assert not torch.allclose(scores(with_bias, request(HISTORY)), scores(without, request(HISTORY)), atol=1e-3)


def test_dropout_acts_on_embeddings_attention_coefficients_and_sublayers(monkeypatch):
    acted = []
    monkeypatch.setattr(Dropout, "forward", lambda layer, x: acted.append((layer.p, tuple(x.shape))) or x)
    model = model_of(
        hidden_dropout_prob=0.3, attn_dropout_prob=0.4, n_layers=1, relative_kernels=["sin", "log"]
    ).train()
    items, time, length = sequences([6, 4])
    model.encode(items, time, length)
    states, inner, attention = (2, 6, 16), (2, 6, 32), (2, 6, 6)
    assert acted.count((0.4, attention)) == 4  # of every head
    assert acted.count((0.4, states)) == 2  # the coefficients of each relative kernel
    assert acted.count((0.3, states)) == 1 + 2 + 3  # items; position and day; two sublayers and the block
    assert acted.count((0.3, inner)) == 1
    assert len(acted) == 13


def test_the_padding_class_adds_to_the_loss():
    losses = []
    for pad_class in (False, True):
        model = model_of(pad_class=pad_class)
        items, time, length = sequences([6, 4])
        losses.append(model.cloze_loss(items, time, length, items, items > 0))
    assert losses[1] > losses[0]  # one more class to tell apart


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"absolute_kernels": ["positon"]},
            "'absolute_kernels' is .'positon'.; it should be a list",
        ),
        ({"absolute_kernels": ["sin"]}, "'absolute_kernels' is .'sin'."),
        ({"relative_kernels": ["day"]}, "'relative_kernels' is .'day'."),
        ({"absolute_kernels": [], "relative_kernels": []}, "both empty"),
        ({"absolute_kernels": ["day", "day"]}, "must be distinct"),
        ({"absolute_kernels": 5}, "'absolute_kernels' is 5"),
        ({"relative_kernels": {"sin": 1}}, "'relative_kernels' is {'sin': 1}"),
        ({"hidden_size": 0}, "'hidden_size' is 0"),
        ({"hidden_size": None}, "'hidden_size' is None"),
        ({"hidden_size": 18}, "hidden_size is 18, which 4 kernels"),
        ({"absolute_kernels": [], "relative_kernels": ["sin"], "hidden_size": 15}, "even"),
        ({"loss_type": "BPR"}, "'loss_type' is 'BPR'; it should be one of CE, SSM, gBCE, BCE"),
        ({"query_time": "now"}, "'query_time' is 'now'"),
        ({"mask_ratio": 0}, "'mask_ratio' is 0"),
        ({"mask_ratio": 1.5}, "'mask_ratio' is 1.5"),
        ({"mask_ratio": float("nan")}, "'mask_ratio' is nan"),
        ({"kernel_freq": -1}, "'kernel_freq' is -1"),
        ({"kernel_time_unit": 1e-300}, "'kernel_time_unit' is 1e-300"),
        ({"kernel_time_unit": 1e300}, "'kernel_time_unit' is 1e"),
        ({"layer_norm_eps": -1e-5}, "'layer_norm_eps' is -1e-05"),
        ({"initializer_range": -0.02}, "'initializer_range' is -0.02"),
        ({"kernel_time_unit": 0}, "'kernel_time_unit' is 0"),
        ({"kernel_time_unit": "s"}, "'kernel_time_unit' is 's'"),
        ({"n_layers": None}, "'n_layers' is None"),
        ({"n_layers": 1.5}, "'n_layers' is 1.5"),
        ({"n_layers": 0}, "'n_layers' is 0"),
        ({"train_window": 0}, "'train_window' is 0"),
        ({"inner_size": 0}, "'inner_size' is 0"),
        ({"MAX_ITEM_LIST_LENGTH": 1}, "'MAX_ITEM_LIST_LENGTH' is 1"),
    ],
    ids=str,
)
def test_a_bad_option_is_named_with_its_value(keys, said):
    with pytest.raises(InputError, match=said) as raised:
        bare_meantime(**keys)
    assert str(raised.value).endswith(".")


def test_one_kernel_may_be_given_as_a_word():
    model = bare_meantime(absolute_kernels="position", relative_kernels=None)
    assert (model.absolute, model.relative) == (["position"], [])


def test_the_day_kernel_without_a_time_column_is_an_error_that_names_unused_col(make_model):
    with pytest.raises(InputError, match="take it out of unused_col"):
        make_model(unused_col={"inter": ["timestamp"]})
    model, train, *_ = make_model(unused_col={"inter": ["timestamp"]}, absolute_kernels=["position"], hidden_size=18)
    assert torch.isfinite(model.calculate_loss(next(iter(train))))
