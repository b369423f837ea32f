"""`--nproc` and torchrun as users start them: one result, one log, and what follows when a process ends early."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from recbole_ext.checkpoint import file as checkpoint_file
from recbole_ext.checkpoint.training_run import find_resume_state
from tests.snippets import ROOT

pytestmark = pytest.mark.slow
LIMIT = 600  # seconds, of a command
PYTHON = [sys.executable, str(ROOT / "run_recbole_ext.py")]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
KEYS = [
    "--model=MEANTIME", "--dataset=toy", "--train_batch_size=8", "--hidden_size=16", "--inner_size=32",
    "--hidden_dropout_prob=0", "--attn_dropout_prob=0", "--MAX_ITEM_LIST_LENGTH=8", "--topk=[5]",
    "--valid_metric=NDCG@5", "--use_gpu=False", "--show_progress=False", "--eval_batch_size=4", "--stopping_step=1000",
]  # fmt: skip


@pytest.fixture
def command(write_events, random_events, tmp_path) -> Callable[..., subprocess.Popen]:
    """Start the command line in the background; all its processes are killed at the end of the test."""
    data, started = write_events(random_events(31, 23)), []

    def start(*arguments: str, program: list[str] = PYTHON) -> subprocess.Popen:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        given = {argument.partition("=")[0] for argument in arguments}
        others = [key for key in [*KEYS, f"--data_path={data}"] if key.partition("=")[0] not in given]
        process = subprocess.Popen(
            [*program, *arguments, *([] if "--resume" in given else others)],
            cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        for child in descendants(process):
            child.kill()
        process.kill()
        process.communicate()


def descendants(process: subprocess.Popen) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def worker(process: subprocess.Popen, rank: int) -> psutil.Process:
    """The process of a run with this number."""
    for child in descendants(process):
        if child.environ().get("RANK") == str(rank):
            return child
    raise AssertionError(f"there is no process {rank}")


def wait_for_epochs(folder: Path, count: int, process: subprocess.Popen) -> Path:
    """The checkpoint of a run, as soon as it has that many epochs."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end and process.poll() is None:
        for path in folder.glob("*.pth"):
            if path.stat().st_size and find_resume_state(path).checkpoint["epoch"] >= count - 1:
                return path
        time.sleep(0.2)
    raise AssertionError(f"no checkpoint: {process.communicate()[1] if process.poll() is not None else 'time is up'}")


def progress(path: Path) -> tuple[int, int]:
    """The last complete epoch of a run, and the number of batches of the next one."""
    state = find_resume_state(path).checkpoint
    return state["epoch"], state.get("partial", {}).get("batches", 0)


def wait_within_epoch(folder: Path, stored: tuple[int, int], process: subprocess.Popen) -> Path:
    """The checkpoint of a run, as soon as it is one of some batches of an epoch, and newer than `stored`."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end and process.poll() is None:
        for path in folder.glob("*.latest"):
            reached = progress(path)
            if 2 < reached[1] < 20 and reached > (stored[0], stored[1] + 2):
                return path.with_suffix(".pth")
        time.sleep(0.05)
    raise AssertionError(f"no checkpoint: {process.communicate()[1] if process.poll() is not None else 'time is up'}")


def result(path: Path) -> dict:
    return {name: json.loads(path.read_text())[name] for name in ("best_valid_result", "test_result")}


def curves(path: Path) -> dict:
    return find_resume_state(path).checkpoint["curves"]


def test_two_processes_print_log_and_write_what_one_does(command, tmp_path):
    outputs = []
    for count in (1, 2):
        process = command(
            f"--nproc={count}", "--epochs=2", f"--json=result{count}.json", f"--per_user=users{count}.csv",
            f"--checkpoint_dir=saved{count}", f"--log_dir=logs{count}",
        )  # fmt: skip
        out, error = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, error
        outputs.append([line for line in out.splitlines() if not line.startswith("checkpoint")])
        (checkpoint,) = (tmp_path / f"saved{count}").glob("*.pth")
        assert "nproc" not in checkpoint_file.load(checkpoint)["config"]
        (log,) = (tmp_path / f"logs{count}/log/MEANTIME").iterdir()
        assert len(list((tmp_path / f"logs{count}/log_tensorboard").iterdir())) == 1
        assert log.read_text().count("Loading model structure") == 1
    assert outputs[0] == outputs[1]
    assert result(tmp_path / "result1.json") == result(tmp_path / "result2.json")
    assert (tmp_path / "users1.csv").read_text() == (tmp_path / "users2.csv").read_text()


def test_a_killed_process_ends_the_run_and_another_number_of_processes_resumes_it(command, tmp_path):
    whole = command("--epochs=40", "--checkpoint_dir=whole")
    assert whole.wait(LIMIT) == 0
    broken = command("--nproc=3", "--epochs=4000", "--checkpoint_dir=saved")
    checkpoint = wait_for_epochs(tmp_path / "saved", 3, broken)
    victim, others = worker(broken, 1), [worker(broken, 0), worker(broken, 2)]
    victim.kill()
    begin = time.monotonic()
    _, error = broken.communicate(timeout=60)
    assert time.monotonic() - begin < 60
    assert broken.returncode == 1
    assert error.splitlines()[-1] == (
        "recbole-ext: failed while running: process 1 of 3 was ended by SIGKILL, so the others have ended; "
        f"resume the run with --resume={checkpoint}"
    )
    assert "Traceback" not in error
    assert not any(process.is_running() for process in others)
    done = len(curves(checkpoint)["train_loss"])
    assert 3 <= done < 40
    resumed = command(f"--resume={checkpoint}", "--epochs=40", "--nproc=2")
    assert resumed.wait(LIMIT) == 0, resumed.communicate()[1]
    (reference,) = (tmp_path / "whole").glob("*.pth")
    assert curves(checkpoint)["train_loss"] == pytest.approx(curves(reference)["train_loss"], abs=1e-4)


def test_a_run_killed_within_epochs_resumes_there_with_another_number_of_processes(command, tmp_path):
    keys = ["--epochs=3", "--train_window=1", "--train_batch_size=2"]
    whole = command(*keys, "--checkpoint_dir=whole")
    assert whole.wait(LIMIT) == 0, whole.communicate()[1]
    arguments, stored = [*keys, "--checkpoint_dir=saved", "--checkpoint_minutes=0.001"], (-1, 0)
    for count, victim in ((2, 0), (3, 2), (2, None)):  # the last one is the parent
        process = command(*arguments, f"--nproc={count}")
        checkpoint = wait_within_epoch(tmp_path / "saved", stored, process)
        workers = [worker(process, rank) for rank in range(count)]
        (process if victim is None else workers[victim]).kill()
        _, error = process.communicate(timeout=60)
        assert process.returncode == (1 if victim is not None else -signal.SIGKILL), error
        assert not psutil.wait_procs(workers, timeout=60)[1]
        assert not stored[1] or f"continues after {stored[1]} of" in error
        stored = progress(checkpoint)
        assert stored[1]  # within an epoch
        arguments = [f"--resume={checkpoint}"]
    last = command(*arguments)
    assert last.wait(LIMIT) == 0, last.communicate()[1]
    (reference,) = (tmp_path / "whole").glob("*.pth")
    assert curves(checkpoint)["train_loss"] == pytest.approx(curves(reference)["train_loss"], abs=1e-4)
    assert curves(checkpoint)["valid_score"] == curves(reference)["valid_score"]


def test_sigterm_to_one_process_stops_all_after_the_epoch(command, tmp_path):
    process = command("--nproc=2", "--epochs=4000", "--checkpoint_dir=saved")
    checkpoint = wait_for_epochs(tmp_path / "saved", 2, process)
    worker(process, 1).send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=LIMIT)
    assert process.returncode == 143, error
    assert error.count("recbole-ext: terminated; resume it with --resume=") == 1
    before = len(curves(checkpoint)["train_loss"])
    process = command(f"--resume={checkpoint}", "--epochs=4000", "--nproc=2", "--checkpoint_minutes=9")
    while len(curves(checkpoint)["train_loss"]) < before + 2:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)  # to the parent, which tells the first process
    _, error = process.communicate(timeout=LIMIT)
    assert process.returncode == 130, error
    assert error.count("recbole-ext: interrupted; resume it with --resume=") == 1


def test_the_processes_end_with_their_parent_and_leave_no_folder(command, tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    process = command("--nproc=2", "--epochs=4000", "--checkpoint_dir=saved")
    wait_for_epochs(tmp_path / "saved", 1, process)
    workers = [worker(process, rank) for rank in range(2)]
    process.kill()
    psutil.wait_procs(workers, timeout=60)
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in workers)
    assert not list((tmp_path / "temporary").glob("recbole-ext-*"))  # beside torch's cache


def test_wrong_input_is_one_sentence(command):
    process = command("--nproc=2", "--objective=none")
    _, error = process.communicate(timeout=LIMIT)
    assert process.returncode == 2
    assert len(error.splitlines()) == 1, error
    assert "objective" in error


@pytest.mark.parametrize("machines", [1, 2])
def test_torchrun_restarts_and_the_processes_continue(machines, command, tmp_path):
    """Two processes, of one machine or of two as far as torchrun can tell, of which one is killed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = [
        *TORCHRUN, f"--nnodes={machines}", f"--nproc-per-node={2 // machines}", "--max-restarts=5",
        "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=job1", "--local-addr=127.0.0.1",
        PYTHON[1],
    ]  # fmt: skip
    arguments = ["--epochs=60", "--checkpoint_dir=saved", "--json=result.json"]
    agents = [command(*arguments, program=program) for _ in range(machines)]
    checkpoint = wait_for_epochs(tmp_path / "saved", 3, agents[0])
    assert (tmp_path / "saved/.job1.torchrun").read_text() == checkpoint.name
    ranks = {child.environ().get("RANK"): child for agent in agents for child in descendants(agent)}
    ranks["1"].kill()
    errors = [agent.communicate(timeout=LIMIT)[1] for agent in agents]
    assert [agent.returncode for agent in agents] == [0] * machines, "\n\n".join(errors)
    assert len(curves(checkpoint)["train_loss"]) == 60
    assert len(list((tmp_path / "saved").glob("*.pth"))) == 1  # the same run
    assert not (tmp_path / "saved/.job1.torchrun").exists()
    assert result(tmp_path / "result.json")["test_result"]
