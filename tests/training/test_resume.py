"""Training that goes on: 2 + 2 epochs are 4, bit for bit; what ends a run leaves something to go on from."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import recbole_ext
from recbole_ext import InputError, run_recbole
from recbole_ext.checkpoint import file as checkpoint
from recbole_ext.checkpoint import training_run
from recbole_ext.cli.entry import main
from recbole_ext.utils import signals as stopping

ROOT = str(Path(recbole_ext.__file__).parents[1])
SMALL = {
    "train_batch_size": 16, "show_progress": False, "use_gpu": False, "MAX_ITEM_LIST_LENGTH": 8, "topk": [5],
    "valid_metric": "NDCG@5", "state": "warning", "metric_decimal_place": 12, "learning_rate": 0.01,
}  # fmt: skip
TINY = {"hidden_size": 16, "inner_size": 16, "n_layers": 1}

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_waiting")]


@pytest.fixture
def run(write_events, random_events):
    def run(model="MEANTIME", resume=None, argv=(), **keys):
        path = write_events(random_events())
        if resume is not None:
            return run_recbole(resume=resume, config_dict=keys, argv=list(argv))
        small = {**SMALL, **(TINY if model in ("MEANTIME", "LightSANs", "SASRec") else {}), "data_path": path}
        return run_recbole(model, "toy", None, {**small, **keys}, argv=list(argv))

    return run


def same(one, other, way="state") -> None:
    """Compare bit for bit, and say where it ends."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), way
        for key in one:
            same(one[key], other[key], f"{way}.{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), way
        for place, members in enumerate(zip(one, other, strict=True)):
            same(*members, f"{way}[{place}]")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), way
    else:
        assert one == other, way


def files(result: dict) -> dict[str, dict]:
    """What a run left, without what names the run; `latest` only where the best epoch was not the last."""
    best = result["checkpoint"]
    found = {"best": checkpoint.load(best)}
    if os.path.exists(training_run.latest_file(best)):
        found["latest"] = checkpoint.load(training_run.latest_file(best))
    return {name: {key: value for key, value in state.items() if key not in ("run", "config")}
            for name, state in found.items()}  # fmt: skip


MODELS = [
    ("MEANTIME", {}), ("LightSANs", {}), ("BST", {}), ("TiSASRec", {}), ("SASRec", {}),
    ("SASRec", {"loss_type": "BPR"}),
    ("MEANTIME", {"learner": "adagrad"}), ("BST", {"eval_args": {"mode": "uni5"}}), ("LightSANs", {"eval_step": 2}),
    ("BPR", {}), ("MEANTIME", {"ema_decay": 0.9}), ("BPR", {"ema_decay": 0.5}),
    ("MEANTIME", {"sparse_updates": True, "loss_type": "SSM", "num_negatives": 4, "ema_decay": 0.9}),
    ("TiSASRec", {"sparse_updates": True, "reg_weight": 0.0}),
]  # fmt: skip


@pytest.mark.parametrize(("model", "keys"), MODELS, ids=[" ".join([name, *map(str, keys)]) for name, keys in MODELS])
def test_two_and_two_epochs_are_four_bit_for_bit(run, model, keys):
    straight = run(model, epochs=4, **keys)
    half = run(model, epochs=2, **keys)
    whole = run(resume=half["checkpoint"], epochs=4)
    assert whole["checkpoint"] == half["checkpoint"] != straight["checkpoint"]
    same(files(straight), files(whole))
    for key in ("best_valid_score", "best_valid_result", "test_result"):
        assert straight[key] == whole[key]
    assert max(state["epoch"] for state in files(whole).values()) == 3


def scored(monkeypatch, scores):
    """Have validation give these scores."""
    given = iter(scores)

    def valid_epoch(trainer, *args, **keys):
        score = next(given)
        trainer.last_result = {"ndcg@5": score}
        return score, trainer.last_result

    monkeypatch.setattr("recbole_ext.training.checkpointing.ResumableCheckpoints._valid_epoch", valid_epoch)


def test_the_latest_epoch_is_kept_beside_the_best_one(run, monkeypatch):
    scored(monkeypatch, [0.3, 0.2, 0.1])
    first = run(epochs=3)
    latest = checkpoint.load(training_run.latest_file(first["checkpoint"]))
    best = checkpoint.load(first["checkpoint"])
    assert (best["epoch"], best["cur_step"], best["best_valid_score"]) == (0, 0, 0.3)
    assert (latest["epoch"], latest["cur_step"], latest["best_valid_score"]) == (2, 2, 0.3)
    assert latest["best_valid_result"] == {"ndcg@5": 0.3}
    assert not torch.equal(latest["state_dict"]["item_bias"], best["state_dict"]["item_bias"])
    scored(monkeypatch, [0.2, 0.9])
    again = run(resume=training_run.latest_file(first["checkpoint"]), epochs=5)
    assert again["best_valid_score"] == 0.9
    assert checkpoint.load(first["checkpoint"])["epoch"] == 4
    assert not os.path.exists(training_run.latest_file(first["checkpoint"]))


def test_early_stopping_counts_on(run, monkeypatch):
    keys = {"stopping_step": 2}
    scored(monkeypatch, [0.3, 0.2, 0.1, 0.1, 0.9])
    straight = run(epochs=9, **keys)
    assert checkpoint.load(training_run.latest_file(straight["checkpoint"]))["epoch"] == 3
    scored(monkeypatch, [0.3, 0.2])
    half = run(epochs=2, **keys)
    scored(monkeypatch, [0.1, 0.1, 0.9])
    whole = run(resume=half["checkpoint"], epochs=9)
    same(files(straight), files(whole))
    ended = run(resume=half["checkpoint"], epochs=9)  # validation would give 0.9 now
    same(files(straight), files(ended))
    assert ended["best_valid_score"] == 0.3


def test_nothing_left_to_do_tests_the_checkpoint_again(run):
    first = run(epochs=2)
    before = files(first)
    again = run(resume=first["checkpoint"])
    same(files(again), before)
    assert again["test_result"] == first["test_result"]


def test_a_latest_epoch_of_another_run_is_not_taken(run, monkeypatch):
    scored(monkeypatch, [0.3, 0.2, 0.3, 0.2])
    one, other = run(epochs=2), run(epochs=2, seed=5)
    os.replace(training_run.latest_file(other["checkpoint"]), training_run.latest_file(one["checkpoint"]))
    assert training_run.find_resume_state(one["checkpoint"]).path == one["checkpoint"]


def test_what_does_not_go_with_resume_is_one_sentence(run, tmp_path):
    path = run(epochs=1)["checkpoint"]
    for keys, sentence in (
        ({"model": "SASRec"}, "is of MEANTIME, not of SASRec; leave --model out"),
        ({"dataset": "other"}, "is of toy, not of other"),
        ({"config_file_list": ["a.yaml"]}, "config_files cannot be used with resume"),
        ({"saved": False}, "saved=False cannot be used with resume"),
        ({"config_dict": {"epoch": 3}}, "did you mean 'epochs'"),
        ({"argv": ["--lerning_rate=1"]}, "key 'lerning_rate' is not read"),
        ({"config_dict": {"n_layers": 2}}, "does not fit MEANTIME as configured"),
        ({"config_dict": {"kernel_freq": 10.0}}, "kernel_freq is 10.0, but checkpoint"),
        ({"config_dict": {"ema_decay": 0.5}}, "ema_decay is 0.5, but checkpoint"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=sentence):
            run_recbole(resume=path, **{"argv": [], **keys})
    with pytest.raises(InputError, match="there is no checkpoint nowhere.pth"):
        run_recbole(resume="nowhere.pth", argv=[])


# ---------------------------------------------------------------- the command line, and what ends it


def command(path: str, *more: str) -> list[str]:
    words = {**SMALL, **TINY, "data_path": path, "dataset": "toy", "model": "MEANTIME", "stopping_step": 500}
    return [*(f"--{key}={value}" for key, value in words.items()), *more]


def test_the_command_line_resumes(write_events, random_events, capsys):
    path = write_events(random_events())
    assert main(command(path, "--epochs=1")) == 0
    (file,) = Path("saved").glob("*.pth")
    capsys.readouterr()
    assert main([f"--resume={file}", "--epochs=2"]) == 0
    assert f"checkpoint: {file.absolute()}" in capsys.readouterr().out
    assert training_run.find_resume_state(file).checkpoint["epoch"] == 1
    assert main([f"--resume={file}", "--model=SASRec"]) == 2


def start(arguments: list[str], **options) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "recbole_ext", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, env=environment, **pipes, **options)


def first_checkpoint(process: subprocess.Popen) -> str:
    while process.poll() is None:
        whole = [file for file in Path("saved").glob("*.pth") if file.stat().st_size]
        if whole:
            return str(whole[0])
        time.sleep(0.01)
    raise AssertionError(process.communicate()[1])


@pytest.mark.parametrize(("number", "status", "word"), [(signal.SIGINT, 130, "interrupted"),
                                                        (signal.SIGTERM, 143, "terminated")])  # fmt: skip
def test_a_signal_ends_the_epoch_and_training_goes_on_exactly(run, write_events, random_events, number, status, word):
    path = write_events(random_events())
    process = start(command(path, "--epochs=500"))
    file = first_checkpoint(process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == status, errors
    assert "ending after this epoch; a second signal (Ctrl-C) ends at once" in errors
    assert errors.splitlines()[-1] == f"recbole-ext: {word}; resume it with --resume={os.path.abspath(file)}"
    done = training_run.find_resume_state(file).checkpoint["epoch"] + 1
    assert not [name for name in os.listdir("saved") if name.endswith(".part")]
    resumed = run(resume=file, epochs=done + 2)
    straight = run(epochs=done + 2, stopping_step=500)
    same(files(straight), files(resumed))


def twice() -> None:
    with stopping.graceful_signals(), stopping.epochs():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


def between() -> None:
    with stopping.graceful_signals(), stopping.epochs():
        signal.raise_signal(signal.SIGTERM)
        stopping.stop_if_requested("file")


def outside() -> None:
    with stopping.graceful_signals():
        signal.raise_signal(signal.SIGINT)


def test_a_signal_waits_for_the_end_of_an_epoch_once():
    with pytest.raises(KeyboardInterrupt):
        twice()
    with pytest.raises(stopping.SigtermReceived, match="file"):
        between()
    with pytest.raises(KeyboardInterrupt):
        outside()


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stopping.graceful_signals():
            signal.raise_signal(signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_library_call_leaves_signals_alone(run):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    run(epochs=1)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_killed_run_goes_on_as_if_it_had_not_been(run, write_events, random_events):
    process = start(command(write_events(random_events()), "--epochs=500"))
    file = first_checkpoint(process)
    time.sleep(0.2)
    process.kill()
    process.communicate()
    done = training_run.find_resume_state(file).checkpoint["epoch"] + 1
    resumed = run(resume=file, epochs=done + 1)
    straight = run(epochs=done + 1, stopping_step=500)
    same(files(straight), files(resumed))


def test_resuming_removes_what_a_killed_process_left_half_written(run):
    path = run(epochs=1)["checkpoint"]
    folder, name = os.path.split(path)
    left = [Path(folder, f".{own}.99999.part") for own in (name, os.path.basename(training_run.latest_file(path)))]
    other = Path(folder, ".other.pth.99999.part")  # of a run that may be alive
    living = Path(folder, f".{name}.{os.getppid()}.part")
    for file in (*left, other, living):
        file.write_bytes(b"half")
    run(resume=path, epochs=2)
    assert not any(file.exists() for file in left)
    assert other.exists()
    assert living.exists()


@pytest.mark.parametrize("more", [0, 1])
def test_a_run_that_was_killed_before_its_first_validation_goes_on(run, monkeypatch, more):
    save = checkpoint.save

    def save_and_fail(state, path):
        save(state, path)
        if state["epoch"] == 1:
            raise SystemExit("killed")

    monkeypatch.setattr(checkpoint, "save", save_and_fail)
    with pytest.raises(SystemExit):
        run(epochs=4, eval_step=4)
    monkeypatch.setattr(checkpoint, "save", save)
    (latest,) = Path("saved").glob("*.latest")
    best = latest.with_suffix(".pth")
    best.touch()  # the name that it reserved
    result = run(resume=str(best), epochs=2 + more)
    assert Path(result["checkpoint"]).samefile(best)
    assert training_run.find_resume_state(best).checkpoint["epoch"] == 1 + more


@pytest.mark.parametrize("change", [{"random": ["else"]}, {"random": None}, {"sampler": None}, {"optimizer": {"a": 1}}])
def test_a_state_that_nothing_can_go_on_from_is_one_sentence(run, change):
    path = run(epochs=1)["checkpoint"]
    checkpoint.save({**checkpoint.load(path), **change}, path)
    with pytest.raises(InputError, match=f"{next(iter(change))} is|has no state of this optimizer"):
        run(resume=path, epochs=2)


def test_checkpoints_of_models_of_one_name_are_told_apart(run):
    ours, theirs = run("LightSANs", epochs=1), run("recbole.LightSANs", epochs=1)
    assert os.path.basename(ours["checkpoint"]).startswith("LightSANs-")
    assert os.path.basename(theirs["checkpoint"]).startswith("recbole.LightSANs-")
    for path, model in ((theirs["checkpoint"], "LightSANs"), (ours["checkpoint"], "recbole.LightSANs")):
        with pytest.raises(InputError, match=f"not of {model}; leave --model out"):
            run_recbole(resume=path, model=model, argv=[])
    again = run_recbole(resume=theirs["checkpoint"], model="recbole.LightSANs", argv=[])
    assert again["test_result"] == theirs["test_result"]


@pytest.mark.parametrize("value", [{}, 5, True, ["a.pth"], ""])
def test_resume_from_what_is_no_path_is_refused(run, value):
    with pytest.raises(InputError, match=r"resume is .*; it should be the path of a checkpoint"):
        run(resume=value)


def test_a_run_with_all_its_epochs_says_that_nothing_is_left_to_train(run, caplog):
    first = run(epochs=2)
    caplog.set_level("INFO")
    again = run(resume=first["checkpoint"], epochs=1, state="info")
    assert "2 epochs are done, and epochs is 1; nothing is left to train" in caplog.text
    assert again["test_result"] == first["test_result"]
