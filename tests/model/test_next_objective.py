"""`objective: next`: against a plain formulation, one prefix at a time; what it may know; training and use."""

import numpy as np
import pandas as pd
import pytest
import torch

from recbole_ext import InputError, Recommender, run_recbole
from recbole_ext.model.meantime import attention
from tests.golden import next_objective
from tests.model.test_meantime_oracle import MIXTURES, NAMES, tolerance
from tests.oracles.bare import DAY, bare_meantime, plain_like, randomise, sequences

ITEMS, LENGTHS = 40, [11, 2, 3, 7, 13, 5]  # of windows: events and the target


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """The queries of a window in several chunks, as in long windows."""
    monkeypatch.setattr(attention, "CAUSAL_CHUNK", 4)


def both(absolute, relative, query_time, architecture="bert4rec"):
    model = bare_meantime(
        ITEMS, 1001, absolute_kernels=absolute, relative_kernels=relative, hidden_size=12, inner_size=20,
        MAX_ITEM_LIST_LENGTH=13, objective="next", query_time=query_time, content_bias=True,
        architecture=architecture,
    ).double()  # fmt: skip
    randomise(model)
    return model, plain_like(model, True)


def requests(items, time, length):
    """Windows whose last event is the target, as the interaction of a training batch."""
    last = (length - 1).unsqueeze(1)
    inside = torch.arange(items.shape[1]) < last
    return {
        "item_id_list": items * inside, "timestamp_list": time * inside, "item_length": length - 1,
        "item_id": items.gather(1, last).squeeze(1), "timestamp": time.gather(1, last).squeeze(1),
    }  # fmt: skip


def query_times(time, query_time):
    """The time of the query of each event but the last."""
    return time[1:] if query_time == "target" else time[:-1]


@pytest.mark.parametrize("architecture", ["bert4rec", "sasrec"])
@pytest.mark.parametrize("query_time", ["target", "last"])
@pytest.mark.parametrize(("absolute", "relative"), MIXTURES, ids=NAMES)
def test_loss_and_gradients_are_those_of_each_prefix_alone(absolute, relative, query_time, architecture):
    model, plain = both(absolute, relative, query_time, architecture)
    items, time, length = sequences(LENGTHS, ITEMS, 1000 * DAY, 3)
    losses = []
    for row, count in enumerate(length.tolist()):
        queries = query_times(time[row, :count], query_time)
        for end in range(1, count):
            events = items[row, : count - 1].clone()
            events[end:] = 1  # later events must not matter
            state = plain.encode_next(events, time[row, : count - 1], queries)[end - 1]
            losses.append(torch.nn.functional.cross_entropy(plain.scores(state)[1:], items[row, end] - 1))
    expected = torch.stack(losses).mean()
    loss = model.calculate_loss(requests(items, time, length))
    assert loss.item() == pytest.approx(expected.item(), abs=tolerance(relative))
    loss.backward()
    expected.backward()
    ours, theirs = dict(model.named_parameters()), dict(plain.named_parameters())
    assert ours.keys() == theirs.keys()
    for name, weights in theirs.items():
        if weights.grad is not None:
            assert (ours[name].grad - weights.grad).abs().max() < 10 * tolerance(relative), name


@pytest.mark.parametrize("architecture", ["bert4rec", "sasrec"])
@pytest.mark.parametrize("query_time", ["target", "last"])
@pytest.mark.parametrize(("absolute", "relative"), MIXTURES, ids=NAMES)
def test_scores_are_those_of_the_oracle(absolute, relative, query_time, architecture):
    model, plain = both(absolute, relative, query_time, architecture)
    items, time, length = sequences(LENGTHS, ITEMS, 1000 * DAY, 3)
    scores = model.eval().full_sort_predict(requests(items, time, length))
    for row, count in enumerate(length.tolist()):
        queries = query_times(time[row, :count], query_time)
        state = plain.encode_next(items[row, : count - 1], time[row, : count - 1], queries)[-1]
        assert (scores[row] - plain.scores(state)).abs().max() < tolerance(relative)


@pytest.mark.parametrize("name", next_objective.KEYS)
def test_scores_loss_and_gradients_are_those_of_the_reference_file(name):
    with np.load(next_objective.FOLDER / f"{name}.npz") as file:
        reference = {key: torch.from_numpy(file[key]) for key in file.files if key != "config"}
    model = next_objective.model_of(name)
    model.load_state_dict({key.partition("/")[2]: v for key, v in reference.items() if key.startswith("param/")})
    batch = requests(*(reference[f"in/{column}"] for column in ("items", "time", "length")))
    assert (model.full_sort_predict(batch) - reference["out/scores"]).abs().max() < 1e-5  # sin of long gaps
    loss = model.calculate_loss(batch)
    assert loss.item() == pytest.approx(reference["out/loss"].item(), abs=1e-5)
    loss.backward()
    for key, weights in model.named_parameters():
        assert (weights.grad - reference[f"grad/{key}"]).abs().max() < 1e-5, key


def test_chunks_of_queries_give_the_states_and_weights_of_a_whole_window(monkeypatch):
    model, _ = both(["position", "day", "constant"], ["sin", "exp", "log"], "target")
    items, time, length = sequences([13, 9], ITEMS, 100 * DAY, 1)
    found = []
    for size in (4, 100):
        monkeypatch.setattr(attention, "CAUSAL_CHUNK", size)
        weights: list[torch.Tensor] = []
        states = model.encode(items, time, length, weights=weights, query_time=time + 60)
        found.append((states, weights))
    (chunked, parts), (whole, heads) = found
    assert (len(parts), len(heads)) == (4 * 6, 6)
    assert [part.shape[1:] for part in parts[::6]] == [(4, 4), (4, 8), (4, 12), (1, 13)]
    assert torch.allclose(chunked, whole, atol=1e-12)
    for head, part in zip(heads, parts[-6:], strict=True):
        assert torch.allclose(part[:, -1], head[:, -1], atol=1e-12)


def test_only_the_request_tells_the_time_of_the_target():
    items, time, length = sequences([6, 6], ITEMS, 100 * DAY, 1)
    batch = requests(items, time, length)
    later = {**batch, "timestamp": batch["timestamp"] + 9 * DAY}
    for query_time, equal in (("target", False), ("last", True)):
        model, _ = both(["position", "day"], ["sin", "log"], query_time)
        scores, moved = (model.eval().full_sort_predict(interaction) for interaction in (batch, later))
        assert torch.equal(scores, moved) == equal


KEYS = {
    "objective": "next", "hidden_size": 16, "inner_size": 32, "MAX_ITEM_LIST_LENGTH": 12, "epochs": 2, "topk": [5],
    "valid_metric": "NDCG@5", "show_progress": False,
}  # fmt: skip


@pytest.mark.parametrize("loss_type", ["CE", "SSM", "gBCE", "BCE"])
def test_a_run_resumes_recommends_and_explains(loss_type, write_events, random_events, tmp_path):
    keys = {**KEYS, "loss_type": loss_type, "num_negatives": 7, "data_path": write_events(random_events())}
    whole = run_recbole(model="MEANTIME", dataset="toy", config_dict={**keys, "checkpoint_dir": "whole"}, argv=[])
    half = {**keys, "epochs": 1, "checkpoint_dir": "half"}
    path = run_recbole(model="MEANTIME", dataset="toy", config_dict=half, argv=[])["checkpoint"]
    resumed = run_recbole(resume=path, config_dict={"epochs": 2}, argv=[])
    assert resumed["test_result"] == whole["test_result"]
    recommender = Recommender.load(whole["checkpoint"], device="cpu")
    assert recommender.config["objective"] == "next"
    histories = pd.DataFrame(random_events()[:40], columns=["user_id", "item_id", "timestamp"])
    user = histories["user_id"][0]
    assert len(recommender.recommend(histories, k=3, users=[user])) == 3
    explanation = recommender.explain(histories, user)
    assert explanation.attention["weight"].notna().all()


@pytest.mark.parametrize("loss_type", ["SSM", "gBCE", "BCE"])
@pytest.mark.parametrize("distribution", ["popularity", "in_batch", "mixed"])
def test_lightsans_takes_the_same_losses(loss_type, distribution, write_events, random_events):
    keys = {**KEYS, "epochs": 1, "loss_type": loss_type, "negative_distribution": distribution, "k_interests": 2}
    keys |= {"num_negatives": 7, "data_path": write_events(random_events())}
    del keys["objective"]
    result = run_recbole(model="LightSANs", dataset="toy", config_dict=keys, argv=[])
    assert 0 <= result["test_result"]["ndcg@5"] <= 1
    other = run_recbole(model="LightSANs", dataset="toy", config_dict={**keys, "recbole_compat": True}, argv=[])
    assert 0 <= other["test_result"]["ndcg@5"] <= 1


def test_a_loss_with_negatives_of_its_own_takes_none_from_recbole(write_events, random_events):
    keys = {**KEYS, "loss_type": "SSM", "data_path": write_events(random_events())}
    with pytest.raises(InputError, match="loss_type SSM has its own \\(num_negatives\\)"):
        run_recbole(
            model="MEANTIME", dataset="toy", argv=[],
            config_dict={**keys, "train_neg_sample_args": {"distribution": "uniform"}},
        )  # fmt: skip
    with pytest.raises(InputError, match="pad_class is True with loss_type SSM"):
        run_recbole(model="MEANTIME", dataset="toy", config_dict={**keys, "pad_class": True}, argv=[])
