"""Training through RecBole's trainer: clipping, mixed precision, early stopping, checkpoints and their use."""

import os
import random
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch

from recbole_ext import InputError, create_dataset, data_preparation, get_trainer, run_recbole
from recbole_ext.checkpoint import file as checkpoint


@pytest.fixture
def make_trainer(make_config):
    """A trainer of a fresh small model, and its loaders: (trainer, training, validation and test loader)."""

    def make(*args, **keys):
        config = make_config(*args, **keys)
        random.seed(0), np.random.seed(0), torch.manual_seed(0)
        loaders = data_preparation(config, create_dataset(config))
        model = config.model_class(config, loaders[0]._dataset).to(config["device"])
        return get_trainer(config)(config, model), *loaders

    return make


def losses(trainer) -> list[float]:
    return list(trainer.train_loss_dict.values())


# ---------------------------------------------------------------- the average of the weights


@pytest.mark.parametrize("decay", [0.9, 0.5])
def test_the_moving_average_is_what_is_evaluated_and_saved(make_trainer, decay):
    trainer, train, valid, _ = make_trainer("MEANTIME", epochs=2, ema_decay=decay, eval_step=1)
    expected: dict[str, torch.Tensor] = {}
    evaluated: list[torch.Tensor] = []

    def follow(*_):
        for name, weights in trainer.model.named_parameters():
            now = weights.detach().clone()
            expected[name] = decay * expected[name] + (1 - decay) * now if name in expected else now

    trainer.optimizer.register_step_post_hook(follow)
    evaluate = trainer.evaluate
    trainer.evaluate = lambda *a, **k: (evaluated.append(trainer.model.item_bias.detach().clone()), evaluate(*a, **k))[
        1
    ]
    trainer.fit(train, valid, saved=True)
    content = checkpoint.load(trainer.saved_model_file)
    if content["epoch"] != 1:
        content = checkpoint.load(trainer.saved_model_file.replace(".pth", ".latest"))
    own = content["unaveraged_weights"]
    for name, weights in trainer.model.named_parameters():
        assert torch.allclose(weights, expected[name], atol=1e-6), name  # the model after `fit`
        assert torch.equal(content["state_dict"][name], weights), name
    assert not torch.allclose(own["item_bias"], expected["item_bias"], atol=1e-6)
    assert len(evaluated) == 2
    assert torch.allclose(evaluated[-1], expected["item_bias"], atol=1e-6)


def test_without_a_step_the_average_is_the_model(make_trainer):
    trainer, *_ = make_trainer("MEANTIME", ema_decay=0.9)
    before = trainer.model.item_bias.detach().clone()
    with trainer.weight_average.applied():
        assert torch.equal(trainer.model.item_bias, before)
    assert trainer.weight_average.average == {}


def test_weights_that_two_modules_share_are_saved_averaged_under_both_names(make_trainer):
    trainer, train, valid, _ = make_trainer("GRU4RecCPR", epochs=2, ema_decay=0.9, reranker_CAN_NUM="5")
    trainer.fit(train, valid)
    state = checkpoint.load(trainer.saved_model_file)["state_dict"]
    assert torch.equal(state["item_embedding.weight"], state["out_item_embedding.weight"])
    trainer.evaluate(valid)  # loads the checkpoint
    assert torch.equal(trainer.model.item_embedding.weight, state["item_embedding.weight"])


def test_an_average_without_its_weights_cannot_resume(make_trainer, tmp_path):
    trainer, train, valid, _ = make_trainer("MEANTIME", epochs=1, ema_decay=0.9)
    trainer.fit(train, valid)
    content = checkpoint.load(trainer.saved_model_file)
    bias = content["unaveraged_weights"]["item_bias"]
    other, *_ = make_trainer("MEANTIME", epochs=2)
    checkpoint.save({**content, "config": {**content["config"], "ema_decay": 0.0}}, "edited.pth")
    with pytest.raises(InputError, match="has averaged weights, but its ema_decay is 0.0"):
        other.resume_checkpoint("edited.pth")
    whole = {**content["unaveraged_weights"], "item_bias": bias.to(torch.int64)}
    for change in ({}, {"item_bias": bias[1:]}, whole):
        content["unaveraged_weights"] = change
        checkpoint.save(content, trainer.saved_model_file)
        other, *_ = make_trainer("MEANTIME", epochs=2, ema_decay=0.9)
        with pytest.raises(InputError, match="has no valid weights before averaging of"):
            other.resume_checkpoint(trainer.saved_model_file)


# ---------------------------------------------------------------- clipping and precision


class Scaler:
    """What a gradient scaler does, on any device: gradients are `factor` times too large until `step`."""

    factor = 1024.0

    def __init__(self, *args, **keys):
        pass

    def scale(self, loss):
        return loss * self.factor

    def step(self, optimizer):
        for group in optimizer.param_groups:
            for weights in group["params"]:
                if weights.grad is not None:
                    weights.grad /= self.factor
        optimizer.step()

    def update(self):
        pass


def norms_at_each_step(trainer) -> list[float]:
    """Fill the returned list with the norm of the gradient that each step of the optimiser sees."""
    norms = []

    def note(*_):
        gradients = [weights.grad.norm() for weights in trainer.model.parameters() if weights.grad is not None]
        norms.append(float(torch.stack(gradients).norm()))

    trainer.optimizer.register_step_pre_hook(note)  # after the hook that clips
    return norms


def test_the_norm_of_the_gradient_is_bounded_at_each_step(make_trainer):
    trainer, train, *_ = make_trainer(clip_grad_norm=None)
    free = norms_at_each_step(trainer)
    trainer._train_epoch(train, 0)
    bound = min(free) / 2
    trainer, train, *_ = make_trainer(clip_grad_norm={"max_norm": bound})
    clipped = norms_at_each_step(trainer)
    trainer._train_epoch(train, 0)
    assert max(clipped) <= bound * 1.0001
    assert min(clipped) > bound * 0.999


def test_gradients_are_clipped_after_they_are_unscaled(make_trainer, monkeypatch):
    plain, train, *_ = make_trainer(clip_grad_norm={"max_norm": 0.1})
    norms = norms_at_each_step(plain)
    plain._train_epoch(train, 0)
    monkeypatch.setattr("recbole.trainer.trainer.amp.GradScaler", Scaler)
    scaled, train, *_ = make_trainer(clip_grad_norm={"max_norm": 0.1})
    scaled_norms = norms_at_each_step(scaled)
    scaled._train_epoch(train, 0)
    assert scaled_norms == pytest.approx(norms, rel=1e-4)
    for name, weights in plain.model.state_dict().items():
        assert torch.allclose(weights, scaled.model.state_dict()[name], atol=1e-6)


def test_every_optimizer_of_a_trainer_clips(make_trainer):
    trainer, *_ = make_trainer(clip_grad_norm={"max_norm": 1.0})
    other = trainer._build_optimizer(params=[torch.nn.Parameter(torch.zeros(2))])
    for weights in trainer.model.parameters():
        weights.grad = torch.ones_like(weights)
    other.step()
    norm = torch.stack([weights.grad.norm() for weights in trainer.model.parameters()]).norm()
    assert float(norm) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("model", ["MEANTIME", "SASRec"])
def test_an_epoch_in_mixed_precision_is_finite(make_trainer, model):
    trainer, train, valid, _ = make_trainer(model, enable_amp=True, epochs=1)
    seen = []
    trainer.model.register_forward_hook(lambda module, *_: seen.append(torch.is_autocast_enabled("cpu")))
    first = trainer.model.calculate_loss
    trainer.model.calculate_loss = lambda batch: (seen.append(torch.is_autocast_enabled("cpu")), first(batch))[1]
    score, result = trainer.fit(train, valid, saved=False)
    assert True in seen
    assert all(np.isfinite(loss) for loss in losses(trainer))
    assert np.isfinite(score)
    assert all(torch.isfinite(weights).all() for weights in trainer.model.parameters())


# ---------------------------------------------------------------- the run of epochs


def test_training_stops_when_validation_gets_no_better(make_trainer, monkeypatch):
    trainer, train, valid, _ = make_trainer(epochs=30, stopping_step=2)
    scores = iter([0.1, 0.3, 0.2, 0.25, 0.1, 0.9, 0.9])
    monkeypatch.setattr(trainer, "evaluate", lambda *_, **__: {"ndcg@5": next(scores)})
    best, result = trainer.fit(train, valid, saved=True)
    assert best == 0.3
    assert len(losses(trainer)) == 5
    state = checkpoint.load(trainer.saved_model_file)
    assert state["epoch"] == 1
    assert state["best_valid_score"] == 0.3


def test_losses_and_scores_go_to_tensorboard(make_trainer):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trainer, train, valid, _ = make_trainer(epochs=2)
    trainer.fit(train, valid, saved=False)
    trainer.tensorboard.close()
    (folder,) = os.listdir("log_tensorboard")
    events = EventAccumulator(f"log_tensorboard/{folder}")
    events.Reload()
    assert {"Vaild_score", "Loss/Train"} <= set(events.Tags()["scalars"])
    assert len(events.Scalars("Vaild_score")) == 2


def test_progress_is_shown_when_asked_for(make_trainer, capfd):
    trainer, train, valid, _ = make_trainer(epochs=1)
    trainer.fit(train, valid, saved=False, show_progress=True)
    shown = capfd.readouterr().err
    assert "Train" in shown
    assert "Evaluate" in shown
    assert "100%" in shown
    trainer.evaluate(valid, load_best_model=False, show_progress=False)
    assert "Evaluate" not in capfd.readouterr().err


def test_metrics_are_plain_numbers_in_recboles_order(make_trainer):
    trainer, train, valid, _ = make_trainer(epochs=1, topk=[3, 5])
    seen = []
    _, best = trainer.fit(train, valid, saved=False, callback_fn=lambda epoch, score: seen.append(score))
    assert isinstance(best, OrderedDict)
    assert list(best)[:2] == ["recall@3", "recall@5"]
    assert {type(value) for value in best.values()} == {float} == {type(score) for score in seen}


def test_metrics_that_count_items_are_measured(make_trainer):
    names = ["ItemCoverage", "GiniIndex", "ShannonEntropy", "AveragePopularity", "TailPercentage", "Recall"]
    keys = {"metrics": names, "valid_metric": "ItemCoverage@5", "topk": [5, 20], "epochs": 1}
    trainer, train, valid, _ = make_trainer("SASRec", **keys)
    _, best = trainer.fit(train, valid, saved=False)
    assert best["itemcoverage@20"] == pytest.approx(20 / 21, abs=1e-4)  # RecBole counts the padding as an item
    assert 0 <= best["giniindex@20"] < best["giniindex@5"] <= 1
    counts = np.bincount(train._dataset.inter_feat["item_id"].numpy())[1:]
    assert best["averagepopularity@20"] == pytest.approx(counts.mean(), abs=1e-3)
    assert trainer.evaluate(valid, load_best_model=False) == best


# ---------------------------------------------------------------- checkpoints


def test_a_checkpoint_holds_plain_values_and_all_that_is_needed_to_use_it(make_trainer):
    trainer, train, valid, _ = make_trainer(epochs=1)
    trainer.fit(train, valid)
    state = torch.load(trainer.saved_model_file, weights_only=True)

    def check(value, way):
        if isinstance(value, dict):
            for key, member in value.items():
                assert type(key) in (str, int), way
                check(member, f"{way}.{key}")
        elif isinstance(value, (list, tuple)):
            for member in value:
                check(member, way)
        else:
            assert value is None or type(value) in (str, int, float, bool, torch.Tensor), (way, type(value))

    for key, value in state.items():
        check(value, key)
    data = train._dataset
    assert state["model"] == "MEANTIME"
    assert state["class"] == "recbole_ext.model.meantime.MEANTIME"
    assert state["config"]["dataset"] == "toy"
    assert state["config"]["hidden_size"] == 16
    assert state["tokens"]["item_id"][0] == "[PAD]"
    assert len(state["tokens"]["item_id"]) == data.item_num
    assert state["tokens"]["user_id"] == list(data.field2id_token["user_id"])
    assert state["time_origin"] == data.time_origin > 1.6e9
    assert state["versions"]["torch"] == torch.__version__
    assert "numpy" in state["random"]
    assert torch.equal(state["sampler"], train.generator.get_state())
    assert state["best_valid_result"]["ndcg@5"] == state["best_valid_score"] > 0


def test_a_run_never_writes_on_another_runs_checkpoint(make_trainer):
    trainers = [make_trainer(epochs=1) for _ in range(3)]
    for trainer, *_ in trainers:
        trainer.saved_model_file = os.path.abspath("saved/same-second.pth")
    for trainer, train, valid, _ in trainers:
        trainer.fit(train, valid)
    assert sorted(os.listdir("saved")) == ["same-second-2.pth", "same-second-3.pth", "same-second.pth"]
    assert len({trainer.saved_model_file for trainer, *_ in trainers}) == 3
    for trainer, _, _, test in trainers:
        assert trainer.evaluate(test) == trainer.evaluate(test, model_file=trainer.saved_model_file)


def test_a_first_checkpoint_that_cannot_be_written_leaves_no_file(make_trainer, monkeypatch):
    trainer, train, valid, _ = make_trainer(epochs=1)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="pth cannot be written: No space left"):
        trainer.fit(train, valid)
    assert os.listdir("saved") == []


def test_evaluation_loads_the_best_epoch(make_trainer):
    trainer, train, valid, test = make_trainer(epochs=2)
    trainer.fit(train, valid)
    with torch.no_grad():
        before = trainer.evaluate(test)
        for weights in trainer.model.parameters():
            weights.zero_()
    assert trainer.evaluate(test, load_best_model=False) != before
    assert trainer.evaluate(test) == before


def test_sampled_candidates_are_the_same_each_time_and_training_does_not_notice(make_trainer):
    trainer, _, valid, _ = make_trainer(eval_args={"mode": "uni5"}, metric_decimal_place=12)
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = random.random(), np.random.rand(), torch.rand(1)
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    first = trainer.evaluate(valid, load_best_model=False)
    assert (random.random(), np.random.rand(), torch.rand(1)) == expected
    assert trainer.evaluate(valid, load_best_model=False) == first
    trainer.config["seed"] += 1
    assert trainer.evaluate(valid, load_best_model=False) != first


@pytest.mark.parametrize(
    "use",
    [
        lambda trainer, test: trainer.evaluate(test, model_file="planted.pth"),
        lambda trainer, test: trainer.resume_checkpoint("planted.pth"),
    ],
    ids=["evaluate", "resume_checkpoint"],
)
def test_a_planted_payload_is_refused_wherever_a_checkpoint_is_used(make_trainer, tmp_path, use):
    class Payload:
        def __reduce__(self):
            return (open, (str(tmp_path / "marker"), "w"))

    trainer, train, valid, test = make_trainer(epochs=1)
    trainer.fit(train, valid)
    state = checkpoint.load(trainer.saved_model_file)
    torch.save({**state, "payload": Payload()}, "planted.pth")
    with pytest.raises(InputError, match="contains pickled objects"):
        use(trainer, test)
    assert not (tmp_path / "marker").exists()


def test_training_goes_on_from_a_checkpoint(make_trainer):
    trainer, train, *_ = make_trainer(epochs=2)
    trainer.fit(train)  # without validation every epoch is kept
    path = trainer.saved_model_file

    again, train, *_ = make_trainer(epochs=4)
    again.resume_checkpoint(path)
    assert again.start_epoch == 2
    assert again.saved_model_file == path
    for name, weights in trainer.model.state_dict().items():
        assert torch.equal(weights, again.model.state_dict()[name])
    steps = [int(values["step"]) for values in again.optimizer.state_dict()["state"].values()]
    assert set(steps) == {2 * len(train)}
    again.fit(train)
    assert list(again.train_loss_dict) == [2, 3]
    assert again.train_loss_dict[3] < trainer.train_loss_dict[0]
    assert checkpoint.load(path)["epoch"] == 3


def test_other_data_than_the_checkpoints_is_refused_before_anything_is_written(make_trainer, random_events):
    trainer, train, *_ = make_trainer(epochs=1)
    trainer.fit(train)
    path = Path(trainer.saved_model_file)
    before = path.read_bytes()
    renamed = [("x" if user == "u3" else user, item, time) for user, item, time in random_events()]
    for events, match in (
        (renamed, "has 30 values of user_id in another order"),
        (random_events(first=1.6e9 + 1), "have changed since checkpoint"),
    ):
        again, train, *_ = make_trainer(events=events, epochs=2)
        again.resume_checkpoint(path)
        with pytest.raises(InputError, match=match):
            again.fit(train)
    assert path.read_bytes() == before


def test_a_checkpoint_without_the_optimisers_state_is_refused(make_trainer):
    trainer, train, *_ = make_trainer(epochs=1)
    trainer.fit(train)
    checkpoint.save({**checkpoint.load(trainer.saved_model_file), "optimizer": {"odd": 1}}, "odd.pth")
    with pytest.raises(InputError, match="odd.pth has no state of this optimizer"):
        make_trainer(epochs=2)[0].resume_checkpoint("odd.pth")


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        ("learner", {"learner": "sgd"}), ("valid_metric", {"valid_metric": "MRR@5"}),
        ("eval_args", {"eval_args": {"split": {"RS": [0.8, 0.1, 0.1]}}}), ("kernel_freq", {"kernel_freq": 10.0}),
        ("loss_type", {"loss_type": "BCE"}), ("num_negatives", {"num_negatives": 7}),
        ("negative_distribution", {"negative_distribution": "popularity"}),
        ("gbce_calibration", {"gbce_calibration": 0.5}),
    ],
)  # fmt: skip
def test_training_does_not_go_on_as_another_one(make_trainer, key, keys):
    loss = {"loss_type": "gBCE", "num_negatives": 5}
    trainer, train, *_ = make_trainer(epochs=1, **loss)
    trainer.fit(train)
    with pytest.raises(InputError, match=f"{key} is .*, but checkpoint .* was trained with"):
        make_trainer(epochs=2, **{**loss, **keys})[0].resume_checkpoint(trainer.saved_model_file)


def test_a_key_that_the_loss_does_not_read_may_change(make_trainer):
    trainer, train, *_ = make_trainer(epochs=1, loss_type="BCE", num_negatives=5)
    trainer.fit(train)
    resumed = make_trainer(epochs=2, loss_type="BCE", num_negatives=5, gbce_calibration=0.5)[0]
    resumed.resume_checkpoint(trainer.saved_model_file)
    assert resumed.start_epoch == 1


def test_a_step_size_that_the_checkpoint_decides_is_said(make_trainer, caplog):
    trainer, train, *_ = make_trainer(epochs=1)
    trainer.fit(train)
    make_trainer(epochs=2, learning_rate=0.5)[0].resume_checkpoint(trainer.saved_model_file)
    assert "learning_rate: stays 0.001, the value in the checkpoint's optimizer." in caplog.text


def test_the_best_result_survives_a_resumption_that_brings_nothing_better(make_trainer, monkeypatch):
    trainer, train, valid, _ = make_trainer(epochs=1)
    score, result = trainer.fit(train, valid)
    again, train, valid, _ = make_trainer(epochs=2)
    again.resume_checkpoint(trainer.saved_model_file)
    monkeypatch.setattr(again, "_valid_epoch", lambda *_, **__: (-1.0, {"ndcg@5": -1.0}))
    assert again.fit(train, valid) == (score, result)


def test_a_checkpoint_of_another_shape_is_refused(make_trainer):
    trainer, train, valid, _ = make_trainer(epochs=1)
    trainer.fit(train, valid)
    other, *_ = make_trainer(hidden_size=32)
    with pytest.raises(InputError, match="does not fit MEANTIME as configured: size mismatch"):
        other.resume_checkpoint(trainer.saved_model_file)


def test_a_model_whose_state_needs_pickling_is_refused_before_training(make_trainer):
    trainer, train, valid, _ = make_trainer("ItemKNN")
    with pytest.raises(InputError, match=r"stores 'w' as a csc_matrix.*--saved=False"):
        trainer.fit(train, valid)
    assert losses(trainer) == []
    trainer.fit(train, valid, saved=False)


def test_a_loss_that_is_no_number_ends_the_training(make_trainer):
    trainer, train, *_ = make_trainer(epochs=1)
    with torch.no_grad():
        trainer.model.item_bias.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="the training loss is not a number"):
        trainer.fit(train)


def test_a_validation_score_that_is_no_number_is_said(make_trainer, monkeypatch):
    trainer, train, valid, _ = make_trainer(epochs=1)
    monkeypatch.setattr(trainer, "evaluate", lambda *_, **__: {"ndcg@5": float("nan")})
    with pytest.raises(FloatingPointError, match="valid_metric NDCG@5 is nan on the validation data"):
        trainer.fit(train, valid)


@pytest.mark.parametrize(("part", "event"), [("valid", 4), ("test", 5)])
def test_auc_of_labels_of_one_class_is_refused_before_training(make_config, write_events, part, event):
    events = [
        (f"u{user}", f"i{number}", 1.6e9 + number, float(number == event or (user + number) % 2))
        for user in range(9)
        for number in range(6)
    ]
    columns = ("user_id:token", "item_id:token", "timestamp:float", "rating:float")
    keys = {
        "metrics": ["AUC"], "valid_metric": "AUC", "eval_args": {"mode": "labeled"}, "threshold": {"rating": 1},
        "data_path": write_events(events, columns),
    }  # fmt: skip
    config = make_config("DIN", **keys)
    with pytest.raises(InputError, match=f"AUC, but in the {part} data every 'label' is 1; AUC needs labels of 0 and"):
        data_preparation(config, create_dataset(config))


def test_scores_that_are_no_numbers_end_an_evaluation(make_model):
    model, train, valid, _ = make_model()
    trainer = get_trainer(train.config)(train.config, model)
    with torch.no_grad():
        model.item_bias.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="not numbers"):
        trainer.evaluate(valid, load_best_model=False)


def test_a_checkpoint_made_step_by_step_knows_its_events_and_when_they_were(make_config, random_events):
    digests = []
    for first in (1.6e9, 1.6e9 + 43200):
        dataset = create_dataset(make_config(events=random_events(first=first)))
        train, *_ = data_preparation(dataset.config, dataset)
        digests.append(train._dataset.digest)
    assert digests[0] != digests[1]
    assert len(digests[0]) == 64


def test_a_checkpoint_knows_every_column_of_its_events(make_config, write_events, random_events):
    columns = ("user_id:token", "item_id:token", "timestamp:float", "words:token_seq", "price:float")
    keys, digests = {"load_col": None, "context_features": ["words", "price"], "mlp_hidden_size": [4]}, []
    for word, price in (("a", 1), ("b", 1), ("a", 2)):
        events = [(*event, "a b", place % 5) for place, event in enumerate(random_events())]
        events[0] = (*events[0][:3], f"{word} c", price)
        dataset = create_dataset(make_config("BST", data_path=write_events(events, columns), **keys))
        digests.append(dataset.digest)
    assert len(set(digests)) == 3
    train, valid, _ = data_preparation(dataset.config, dataset)  # sequences of tokens are stored and read, too
    trainer = get_trainer(dataset.config)(dataset.config, dataset.config.model_class(dataset.config, train._dataset))
    trainer.fit(train, valid)
    described = torch.load(trainer.saved_model_file, weights_only=True)["data"]["columns"]
    assert described["words_list"]["length"] == [8, 2]


def test_negatives_of_a_single_item_are_refused(make_config):
    events = [(f"u{user}", "x", time) for user in range(3) for time in range(6)]
    config = make_config("BST", events=events, topk=[1], valid_metric="NDCG@1")
    with pytest.raises(InputError, match="draws negatives, but the data set has only 1 item"):
        data_preparation(config, create_dataset(config))


def test_sampled_candidates_of_a_single_item_are_refused(make_config):
    events = [(f"u{user}", "x", time) for user in range(3) for time in range(6)]
    config = make_config(events=events, topk=[1], valid_metric="NDCG@1", eval_args={"mode": "uni5"})
    with pytest.raises(InputError, match="only 1 item"):
        data_preparation(config, create_dataset(config))


@pytest.mark.parametrize("batch", [1, 11])
def test_a_batch_of_one_example_is_one_sentence_where_the_model_normalises_over_it(batch, write_events):
    rows = [
        (f"u{user}", f"i{(user + step) % 7}", 100 * user + step, step % 2) for user in range(5) for step in range(4)
    ]
    path = write_events(rows[:-2], ("user_id:token", "item_id:token", "timestamp:float", "label:float"))
    keys = {
        "data_path": path, "load_col": {"inter": ["user_id", "item_id", "timestamp", "label"]}, "use_gpu": False,
        "epochs": 1, "metrics": ["LogLoss"], "valid_metric": "LogLoss", "train_batch_size": batch,
        "show_progress": False,
        "eval_args": {"split": {"date": [400, 401]}, "mode": "labeled"},
    }  # fmt: skip
    with pytest.raises(InputError, match=f"^train_batch_size is {batch}, with which a batch has a single example"):
        run_recbole("DIN", "toy", None, keys, argv=[], saved=False)
