"""The soak, for a round or two: nothing fails, and the page says what was done."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.snippets import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.ray]


def test_a_short_soak_has_no_failures(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    page = tmp_path / "soak.md"
    command = [sys.executable, "benchmarks/soak.py", "--minutes=0.1", "--seed=1", f"--output={page}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    text = page.read_text(encoding="utf-8")
    assert "Failures: 0." in text
    assert sum(map(int, re.findall(r"^\| (?:training, [a-z ]+|search) \| (\d+) \|$", text, re.MULTILINE))) >= 1
    assert re.search(r"answered [\d,]+ requests, [1-9]", text)
    assert str(tmp_path) not in text


def test_memory_that_grows_is_seen() -> None:
    processes = pytest.importorskip("benchmarks.soak_processes")
    memory = processes.Memory.__new__(processes.Memory)
    memory.samples = [(second / 3600, 100 + max(0, second - 100) / 60) for second in range(301)]
    slope, grown = memory.second_half()
    assert slope == pytest.approx(60)
    assert grown == pytest.approx(2.5)


def test_epochs_that_are_lost_or_trained_twice_are_failures() -> None:
    soak = pytest.importorskip("benchmarks.soak")
    check = soak.Soak.__new__(soak.Soak).check_epochs
    check([2, 3], "SIGKILL", [0.5, 0.4], [0.5, 0.4, 0.3])
    for trained, how, before, now in (
        ([2, 3], "SIGTERM", [0.5, 0.4], [0.5, 0.4, 0.3]),
        ([2, 3], "SIGKILL", [0.5, 0.4], [0.5, 0.4]),
        ([1, 2], "SIGKILL", [0.5, 0.4], [0.5, 0.4, 0.3]),
        ([2], "SIGKILL", [0.5, 0.4], [0.5, 0.3]),
    ):
        with pytest.raises(soak.Failure):
            check(trained, how, before, now)
