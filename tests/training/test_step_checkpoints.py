"""`checkpoint_minutes`: a training that ends within an epoch continues with the next batch, bit for bit."""

import os
import signal
import time
import traceback
from pathlib import Path

import pytest
import torch

from recbole_ext import MEANTIME, InputError, run_recbole
from recbole_ext.checkpoint import file as checkpoint
from recbole_ext.checkpoint import training_run
from recbole_ext.training import step_checkpoints
from recbole_ext.utils import signals as stopping
from tests.training.test_resume import SMALL, TINY, command, files, same, start

EVERY_STEP = 1e-9  # minutes

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_waiting")]


class Killed(BaseException):
    """What ends a run at once, as SIGKILL does: nothing is written afterwards."""


@pytest.fixture
def run(write_events, random_events):
    """Train a small model of 8 batches an epoch, or resume a run."""

    def run(model="MEANTIME", resume=None, **keys):
        path = write_events(random_events())
        if resume is not None:
            return run_recbole(resume=resume, config_dict=keys, argv=[])
        small = {**SMALL, **(TINY if model in ("MEANTIME", "SASRec") else {}), "data_path": path, "epochs": 2}
        size = 4 if model == "MEANTIME" else 24
        return run_recbole(model, "toy", None, {**small, "train_batch_size": size, **keys}, argv=[])

    return run


@pytest.fixture
def kill(monkeypatch, run):
    """Run until a number of checkpoints is written; returns the path of the run's checkpoint."""

    def kill(saves, *args, **keys):
        save, written = checkpoint.save, []

        def save_and_end(content, path):
            save(content, path)
            written.append(path)
            if len(written) == saves:
                raise Killed

        before = set(Path("saved").glob("*.pth"))
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "save", save_and_end)
            with pytest.raises(Killed):
                run(*args, checkpoint_minutes=EVERY_STEP, **keys)
        (path,) = set(Path("saved").glob("*.pth")) - before
        return str(path)

    return kill


MODELS = [
    ("MEANTIME", {}), ("MEANTIME", {"ema_decay": 0.9, "learner": "adagrad"}), ("SASRec", {"loss_type": "BPR"}),
    ("BERT4Rec", {}), ("BPR", {}),
    ("MEANTIME", {"loss_type": "SSM", "num_negatives": 4, "sparse_updates": True, "ema_decay": 0.9}),
    ("MEANTIME", {"worker": 2}), ("MEANTIME", {"eval_step": 2, "eval_users": 9}), ("BPR", {"shuffle": False}),
    ("LightSANs", {"targets_per_user": 2, "train_batch_size": 4}),
    ("BPR", {"train_neg_sample_args": {"distribution": "uniform", "sample_num": 1, "dynamic": True,
                                       "candidate_num": 3}}),
]  # fmt: skip


@pytest.mark.parametrize(("model", "keys"), MODELS, ids=[" ".join([name, *map(str, keys)]) for name, keys in MODELS])
def test_a_run_that_was_killed_within_an_epoch_continues_bit_for_bit(run, kill, model, keys):
    straight = run(model, **keys)
    for saves in (3, 12):
        path = kill(saves, model, **keys)
        assert training_run.find_resume_state(path).checkpoint["partial"]["batches"] > 1
        resumed = run(resume=path, checkpoint_minutes=None)
        same(files(straight), files(resumed))
        for key in ("best_valid_score", "best_valid_result", "test_result"):
            assert straight[key] == resumed[key]


def test_every_batch_of_an_epoch_can_be_the_last_one(run, kill):
    straight = run(epochs=2)
    for saves in range(1, 11):
        path = kill(saves, epochs=2)
        state = training_run.find_resume_state(path)
        batches = state.checkpoint.get("partial", {"batches": 0})["batches"]
        assert (state.checkpoint["epoch"], batches) == ((-1, saves) if saves < 9 else (0, saves - 9))
        resumed = run(resume=path)
        same(files(straight), files(resumed))


def life(work, events: int) -> int:
    """The exit status of a process that does some work, and kills itself at an event: a batch, or a file to rename."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    left = iter(range(events - 1, -1, -1))

    def ending(function):
        def call(*args):
            if next(left) == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args)

        return call

    try:
        os.replace, MEANTIME.calculate_loss = ending(os.replace), ending(MEANTIME.calculate_loss)
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def test_a_process_may_be_killed_again_and_again(run):
    straight = run(epochs=2)
    before, statuses = set(Path("saved").glob("*.pth")), []
    statuses.append(life(lambda: run(epochs=2, checkpoint_minutes=EVERY_STEP), 4))
    (path,) = set(Path("saved").glob("*.pth")) - before
    for events in [3, 6, 4, 5, 8, 7] * 3:
        statuses.append(life(lambda: run(resume=path), events))  # checkpoint_minutes is stored
        if statuses[-1] != signal.SIGKILL:
            break
    assert set(statuses[:-1]) == {signal.SIGKILL}
    assert statuses[-1] == 0
    assert len(statuses) > 6
    same(files(straight), files({"checkpoint": str(path)}))


def test_checkpoints_are_written_when_the_minutes_are_over(run, monkeypatch):
    class Clock:
        now = 0.0

        def __call__(self):
            self.now += 20  # seconds for each batch
            return self.now

    saved = []
    save = checkpoint.save
    monkeypatch.setattr(step_checkpoints, "monotonic", Clock())
    monkeypatch.setattr(checkpoint, "save", lambda content, path: (saved.append(content), save(content, path)))
    run(epochs=1, checkpoint_minutes=1)
    assert [content["partial"]["batches"] for content in saved if "partial" in content] == [3, 6]
    assert saved[-1]["epoch"] == 0
    assert "partial" not in saved[-1]
    assert not list(Path("saved").glob("*.latest"))
    saved.clear()
    run(epochs=1, checkpoint_minutes=9)
    assert [content["epoch"] for content in saved] == [0]


@pytest.mark.parametrize("step", [1, 5, 8, 9])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_the_step(run, monkeypatch, capsys, step, number):
    straight = run(epochs=2)
    loss, calls = MEANTIME.calculate_loss, []

    def interrupted(model, interaction):
        calls.append(1)
        if len(calls) == step:
            signal.raise_signal(number)
        return loss(model, interaction)

    monkeypatch.setattr(MEANTIME, "calculate_loss", interrupted)
    ends = (KeyboardInterrupt, stopping.SigtermReceived)
    with pytest.raises(ends) as ended, stopping.graceful_signals():
        run(epochs=2, checkpoint_minutes=1e6)
    assert len(calls) == step
    assert "ending after this step; a second signal" in capsys.readouterr().err
    monkeypatch.setattr(MEANTIME, "calculate_loss", loss)
    state = training_run.find_resume_state(ended.value.args[0])
    assert state.checkpoint["partial"]["batches"] == (step if step < 9 else 1)
    resumed = run(resume=ended.value.args[0])
    same(files(straight), files(resumed))


def test_without_the_key_nothing_is_written_within_an_epoch(run, monkeypatch):
    saved = []
    save = checkpoint.save
    monkeypatch.setattr(checkpoint, "save", lambda content, path: (saved.append(content), save(content, path)))
    run(epochs=2)
    assert not any("partial" in content for content in saved)


def test_keys_that_change_the_batches_are_refused(run, kill):
    path = kill(3)
    for keys, sentence in (
        ({"train_batch_size": 8}, "train_batch_size is 8, but checkpoint"),
        ({"shuffle": False}, "shuffle is False, but checkpoint"),
        ({"train_window": 1}, "train_window is 1|after 3 of 8 batches of an epoch, but an epoch has"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=sentence):
            run(resume=path, **keys)
    latest = training_run.latest_file(path)
    content = checkpoint.load(latest)
    for change in ({"batches": 0, "of": 8, "loss": 1.0}, {"batches": 9, "of": 8, "loss": 1.0}, {"batches": 3, "of": 8}):
        torch.save({**content, "partial": change}, latest)
        with pytest.raises(InputError, match=r"or it was edited: partial\."):
            run(resume=path)
    torch.save({**content, "partial": {**content["partial"], "of": 7}}, latest)
    with pytest.raises(InputError, match="stored after 3 of 7 batches of an epoch, but an epoch has 8 batches"):
        run(resume=path)


@pytest.mark.parametrize("value", [0, -1, "x", True])
def test_wrong_values_are_one_sentence(make_config, value):
    with pytest.raises(InputError, match=r"key 'checkpoint_minutes' is .*; it should be a number in \(0, inf\)"):
        make_config(checkpoint_minutes=value)


def test_models_with_their_own_kind_of_epoch_are_refused(run):
    with pytest.raises(InputError, match="checkpoint_minutes is 5, but RecVAE has its own kind of epoch"):
        run("RecVAE", checkpoint_minutes=5)


# ---------------------------------------------------------------- processes


@pytest.mark.parametrize(("number", "worker"), [(signal.SIGKILL, 0), (signal.SIGTERM, 2)])
def test_a_process_that_ends_within_an_epoch_continues_exactly(write_events, random_events, run, number, worker):
    path = write_events(random_events())
    words = command(path, f"--worker={worker}", f"--checkpoint_minutes={EVERY_STEP}", "--epochs=40")
    words = [word.replace("train_batch_size=16", "train_batch_size=1") for word in words]
    process = start(words, start_new_session=True)
    while process.poll() is None and not list(Path("saved").glob("*.latest")):
        time.sleep(0.01)
    time.sleep(0.3)
    os.killpg(process.pid, number)  # also the workers, as a system that takes the machine away does
    _, errors = process.communicate(timeout=300)
    assert process.returncode == (-number if number == signal.SIGKILL else 143), errors
    assert errors.count("ending after this") == (number == signal.SIGTERM)
    (file,) = Path("saved").glob("*.pth")
    state = training_run.find_resume_state(file).checkpoint
    epochs = state["epoch"] + 2
    resumed = run(resume=str(file), epochs=epochs)
    assert not [name for name in os.listdir("saved") if name.endswith(".part")]
    straight = run(epochs=epochs, stopping_step=500, train_batch_size=1)
    same(files(straight), files(resumed))
