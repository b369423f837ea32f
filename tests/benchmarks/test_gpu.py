"""The benchmark for GPUs: complete on the CPU with tiny sizes, and one sentence where there is no GPU."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.snippets import ROOT

TINY = {"batch": 8, "length": 12, "hidden": 32, "users": 12, "items": 20, "repeats": 1, "threads": 1}


def start(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
def test_all_models_are_measured(tmp_path: Path) -> None:
    page = tmp_path / "gpu.md"
    options = [f"--{name}={value}" for name, value in TINY.items()]
    done = start(sys.executable, "benchmarks/gpu.py", "--device=cpu", f"--output={page}", *options)
    assert done.returncode == 0, done.stderr
    text = page.read_text(encoding="utf-8")
    for name in ("MEANTIME cloze", "MEANTIME next", "LightSANs", "TiSASRec", "BST"):
        assert text.count(f"| {name} |") == 4, name  # results, two types, epoch
    assert "Not begun" not in text
    assert "nan" not in text


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_one_sentence_says_so() -> None:
    done = start(sys.executable, "benchmarks/gpu.py")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert "there is no GPU" in done.stderr


@pytest.mark.slow
def test_without_recbole_one_sentence_says_so(tmp_path: Path) -> None:
    (tmp_path / "recbole.py").write_text("raise ImportError('No module named recbole', name='recbole')\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['gpu.py']; import runpy; "
    done = start(sys.executable, "-c", code + "runpy.run_path('benchmarks/gpu.py', run_name='__main__')")
    assert done.returncode == 3, done.stderr
    assert done.stderr == (
        "gpu.py: recbole is missing; install it, or put its wheel into .whl and start benchmarks/gpu.sh.\n"
    )


def test_the_script_for_a_machine_with_a_gpu_is_valid_bash() -> None:
    assert start("bash", "-n", "benchmarks/gpu.sh").returncode == 0
