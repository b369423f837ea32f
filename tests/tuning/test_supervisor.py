"""The parent process of a search: exit statuses, signals, crashes."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

import recbole_ext
from recbole_ext.tuning import supervisor as scratch

ROOT = Path(recbole_ext.__file__).resolve().parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")]
PROGRAM = """
import os, signal, subprocess, sys, time
from recbole_ext.utils.signals import graceful_signals
from recbole_ext.tuning.supervisor import supervised

def say(text):
    print(text, flush=True)

def finish(argv):
    say("done")
    return int(argv[0])

def finish_with_a_lock(argv):
    import multiprocessing
    global lock
    lock = multiprocessing.RLock()  # as tqdm's
    return 0

def crash(argv):
    os.kill(os.getpid(), signal.SIGSEGV)

def end_early(argv):
    os.kill(os.getpid(), int(argv[0]))

def wait(argv):
    with graceful_signals():
        try:
            say("ready")
            time.sleep(60)
        except BaseException as end:
            say("orderly end")
            return 143 if type(end).__name__ == "SigtermReceived" else 130

def hang(argv):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say("ready")
    time.sleep(60)

def crash_when_asked(argv):
    signal.signal(signal.SIGINT, lambda *_: os.kill(os.getpid(), signal.SIGSEGV))
    say("ready")
    time.sleep(60)

if __name__ == "__main__":
    sys.exit(supervised(globals()[sys.argv[1]], sys.argv[2:]))
"""


@pytest.fixture
def start(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    started = []

    def run(*words: str) -> subprocess.Popen:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            [sys.executable, "program.py", *words], cwd=tmp_path, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


def ready(process: subprocess.Popen) -> list[psutil.Process]:
    """The processes below, once the command runs."""
    assert process.stdout.readline() == "ready\n"
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.parametrize("status", [0, 1, 2])
def test_supervised_returns_the_exit_status_of_the_command(start, status):
    process = start("finish", str(status))
    assert process.communicate() == ("done\n", "")
    assert process.returncode == status


def test_supervised_prints_no_warning_about_a_lock(start):
    assert start("finish_with_a_lock").communicate() == ("", "")


def test_supervised_reports_a_crash_with_status_1(start):
    process = start("crash")
    assert "signal 11 has ended the process of the search" in process.communicate()[1]
    assert process.returncode == 1


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_the_search_alone_before_it_handles_signals(start, number, status):
    process = start("end_early", str(int(number)))
    assert "if the search had started, tune --resume continues it" in process.communicate()[1]
    assert process.returncode == status


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("command", ["wait", "hang", "crash_when_asked"])
def test_signal_ends_all_processes_with_its_exit_status(start, command, number, status):
    process = start(command)
    family = ready(process)
    os.killpg(process.pid, number)  # as a terminal does
    out, error = process.communicate(timeout=60)
    assert process.returncode == status
    assert (out == "orderly end\n") == (command == "wait")
    assert ("--resume continues it" in error) == (command != "wait")
    assert "Traceback" not in error
    assert not psutil.wait_procs(family, timeout=10)[1]


def test_second_signal_ends_at_once(start):
    process = start("hang")
    ready(process)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert time.monotonic() - begin < 4  # the first one alone would wait for 5 s


def test_command_ends_if_its_parent_is_killed(start):
    process = start("wait")
    family = ready(process)
    process.kill()
    assert not psutil.wait_procs(family, timeout=10)[1]


def test_scratch_folder_removes_those_of_killed_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    abandoned = tmp_path / f"{scratch.PREFIX}{ended.pid}-abc"
    alive = tmp_path / f"{scratch.PREFIX}{os.getppid()}-abc"
    for folder in (abandoned, alive):
        (folder / "inside").mkdir(parents=True)
    with scratch.scratch_folder() as own:
        assert Path(own).is_dir()
        assert not abandoned.exists()
        assert alive.is_dir()
    assert not Path(own).exists()
