"""What README shows is run as it stands, except that training stops after an epoch and `python` is this one."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(mark: str) -> list[str]:
    return re.findall(rf"<!-- {re.escape(mark)} -->\n```\w+\n(.*?)```", README, flags=re.DOTALL)


def lines(mark: str) -> list[str]:
    return [line for block in blocks(mark) for line in block.splitlines() if line.strip()]


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment(), timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]


def environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}


def here(words: list[str]) -> list[str]:
    """The words of a command with this interpreter and this checkout in place of names that need an installation."""
    if words[0] == "recbole-ext":
        return [sys.executable, "-m", "recbole_ext", *words[1:]]
    assert words[:2] == ["python", "run_recbole_ext.py"]
    return [sys.executable, str(ROOT / "run_recbole_ext.py"), *words[2:]]


@pytest.mark.parametrize("line", lines("command: readme"))
def test_a_command_of_the_readme_runs(line: str, tmp_path: Path) -> None:
    run(here(shlex.split(line)), tmp_path)


def test_the_main_job_runs(tmp_path: Path) -> None:
    (line,) = lines("command: run")
    words = shlex.split(line)
    job = words[len(words) - words[::-1].index("&&") :]
    run([*here(job), "--epochs=1"], tmp_path)


@pytest.mark.parametrize("line", lines("command: search"))
def test_a_search_of_the_readme_runs(line: str, tmp_path: Path) -> None:
    pytest.importorskip("ray", minversion="2.45")
    short = ["--epochs=1", "--hidden_size=16", "--inner_size=16", "--MAX_ITEM_LIST_LENGTH=10"]
    words = [word for word in shlex.split(line) if not word.startswith(("--num_samples", "--cpus_per_trial"))]
    run([*here(words), *short, "--num_samples=2"], tmp_path)
    (report,) = tmp_path.glob("tune_results/*/report.html")
    assert report.stat().st_size > 10**6


def test_the_walk_from_a_table_to_recommendations(tmp_path: Path) -> None:
    header = "user_id,item_id,timestamp\n"
    events = (
        f"c{user},p{(user + 3 * step) % 17},{1.7e9 + 5000 * step + user}\n" for user in range(40) for step in range(9)
    )
    (tmp_path / "events.csv").write_text(header + "".join(events))
    (tmp_path / "new.csv").write_text(header + "kim,p3,1700100000\nlee,p5,1700100000\nkim,p6,1700105000\n")
    steps = [
        line.replace("python run_recbole_ext.py", shlex.join(here(["recbole-ext"]))) for line in lines("command: walk")
    ]
    assert len(steps) < 10
    run(["bash", "-euo", "pipefail", "-c", "\n".join(steps)], tmp_path)
    recommended = (tmp_path / "recs.csv").read_text().splitlines()
    assert [line.split(",")[:2] for line in recommended[1:]] == [
        [who, f"{k}"] for who in ("kim", "lee") for k in range(1, 6)
    ]
    assert len((tmp_path / "everyone.jsonl").read_text().splitlines()) == 40


@pytest.mark.parametrize("code", blocks("python: readme"))
def test_a_python_example_of_the_readme_runs(code: str, tmp_path: Path) -> None:
    run([sys.executable, "-c", code], tmp_path)


def test_every_command_of_the_readme_is_one_that_is_run() -> None:
    shown = re.findall(r"(?:<!-- (.*?) -->\n)?```(?:bash|python)\n", README)
    kinds = ("command: run", "command: test", "command: readme", "command: search", "command: walk", "python: readme")
    assert set(shown) <= set(kinds)


def test_every_key_file_and_folder_that_the_readme_links_to_exists() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
