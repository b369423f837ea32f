"""Searches on two nodes and with a killed driver, with real Ray processes on this machine."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import recbole_ext

pytestmark = pytest.mark.ray

ray = pytest.importorskip("ray", minversion="2.45")
ROOT = Path(recbole_ext.__file__).resolve().parents[1]
SMALL = [
    "--model=MEANTIME", "--dataset=toy", "--hidden_size=16", "--inner_size=32", "--n_layers=1",
    "--MAX_ITEM_LIST_LENGTH=8", "--train_batch_size=16", "--topk=[5]", "--valid_metric=NDCG@5", "--use_gpu=False",
    "--show_progress=False", "--scheduler=none", "--space=space.yaml", "--stopping_step=1000",
]  # fmt: skip
# nodes and drivers of a cluster share a token; this one does not touch the token of the user
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
PATIENCE = 240  # seconds to wait for an expected event


def wait_for(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def start(words: list[str], folder: Path) -> subprocess.Popen:
    # Ray's low default priority stops the trials on a busy machine
    environment = {**os.environ, **TOKEN, "RAY_worker_niceness": "0", "PYTHONPATH": str(ROOT)}
    with open(folder / "output.txt", "a") as output:
        return subprocess.Popen(
            words, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )


def tune(folder: Path, *more: str) -> subprocess.Popen:
    return start([sys.executable, "-m", "recbole_ext", "tune", *more], folder)


def records(folder: Path) -> list[dict]:
    lines = [line for file in folder.glob("tune_results/*/trials.jsonl") for line in file.read_text().splitlines()]
    return [json.loads(line) for line in lines]


@pytest.fixture
def folder(tmp_path: Path, write_events, random_events) -> Path:
    """A folder with a data set below a relative path and a small search space."""
    write_events(random_events())
    (tmp_path / "space.yaml").write_text("learning_rate: {loguniform: [1e-3, 1e-2]}\n")
    return tmp_path


def test_resume_after_a_killed_driver_repeats_no_ended_trial(folder):
    begun = tune(folder, *SMALL, "--data_path=data", "--epochs=4", "--num_samples=4", "--max_concurrent=1")
    wait_for(lambda: records(folder) or begun.poll() is not None, "no trial ended")
    processes = [begun, *psutil.Process(begun.pid).children(recursive=True)]
    begun.kill()
    assert begun.wait() == -signal.SIGKILL, (folder / "output.txt").read_text()
    before = records(folder)
    wait_for(lambda: not any(psutil.pid_exists(process.pid) for process in processes[1:]), "Ray outlived its driver")
    assert 0 < len(before) < 4

    again = tune(folder, "--resume", "--json=result.json")
    assert again.wait(PATIENCE) == 0, (folder / "output.txt").read_text()
    after = records(folder)
    assert after[: len(before)] == before
    assert sorted(record["trial"] for record in after) == [1, 2, 3, 4]
    result = json.loads((folder / "result.json").read_text())
    assert result["best_valid_score"] == max(record["best_score"] for record in after)
    assert Path(result["checkpoint"]).is_file()


def test_sigterm_ends_the_search_with_one_sentence(folder):
    begun = tune(folder, *SMALL, "--data_path=data", "--epochs=500", "--num_samples=2")
    wait_for(lambda: "starting the search" in (folder / "output.txt").read_text(), "no search began")
    begun.terminate()
    assert begun.wait(PATIENCE) == 143, (folder / "output.txt").read_text()
    assert "recbole-ext: terminated" in (folder / "output.txt").read_text()
    assert list(folder.glob("tune_results/*/search.yaml"))


@pytest.fixture
def cluster(folder) -> Iterator[tuple[str, Callable[[], None]]]:
    """Two nodes of one CPU each; gives the address and a function that kills the second."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    ray_command = shutil.which("ray", path=str(Path(sys.executable).parent)) or "ray"
    shared = ["--block", "--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats"]
    nodes: list[subprocess.Popen] = []

    def kill(node: subprocess.Popen) -> None:
        family = [node, *psutil.Process(node.pid).children(recursive=True)] if node.poll() is None else []
        for process in family:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        node.wait()

    try:
        port = address.partition(":")[2]
        head = ["--head", f"--port={port}", "--node-ip-address=127.0.0.1", "--include-dashboard=false"]
        nodes.append(start([ray_command, "start", *head, *shared], folder))
        wait_for(lambda: "Ray runtime started" in (folder / "output.txt").read_text(), "no head node")
        worker = [f"--address={address}", "--node-ip-address=127.0.0.2"]
        nodes.append(start([ray_command, "start", *worker, *shared], folder))
        wait_for(lambda: (folder / "output.txt").read_text().count("Ray runtime started") == 2, "no second node")
        yield address, lambda: kill(nodes[1])
    finally:
        for node in nodes[::-1]:
            kill(node)


def test_search_on_two_nodes_continues_after_the_loss_of_one(folder, cluster):
    address, kill_worker = cluster
    # trials take longer than the start of a process, or one node would run all of them
    asked = ["--data_path=data", "--epochs=60", "--num_samples=5", f"--address={address}", "--json=result.json"]
    driver = tune(folder, *SMALL, *asked)

    def both_have_ended_one() -> bool:
        return len({record["node"] for record in records(folder)}) == 2 or driver.poll() is not None

    wait_for(both_have_ended_one, "no trial ended on one of the nodes")
    assert driver.poll() is None, (folder / "output.txt").read_text()
    before = records(folder)
    assert len(before) < 5
    kill_worker()
    assert driver.wait(PATIENCE) == 0, (folder / "output.txt").read_text()
    after = records(folder)
    assert after[: len(before)] == before
    assert sorted(record["trial"] for record in after) == list(range(1, 6))
    assert {record["status"] for record in after} == {"finished"}
