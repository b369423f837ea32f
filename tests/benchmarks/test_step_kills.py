"""The benchmark of kills within an epoch, with a few kills of a short epoch."""

import subprocess
import sys

import pytest

from tests.snippets import ROOT


@pytest.mark.slow
def test_a_training_that_is_killed_within_its_epoch_ends_as_one_that_is_not(tmp_path):
    page = tmp_path / "page.md"
    options = ["--kills", "4", "--users", "200", "--minutes", "0.01", "--output", str(page)]
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "step_kills.py"), *options], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = page.read_text(encoding="utf-8")
    assert "the same, bit for bit" in text
    assert "Failures: 0." in text
    assert "FAILED" not in text
