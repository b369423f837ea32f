"""The code in README runs. It is unchanged, but trains for one epoch and uses this interpreter.

The main job and the search train on ml-100k, the other examples on 60 users of it.
"""

import shlex
import sys
from pathlib import Path

import pytest

from tests import small_data
from tests.snippets import README, ROOT, arguments, here, links, run, run_shell, snippets, write_tables

pytestmark = pytest.mark.slow


def lines(mark: str) -> list[str]:
    return [line for snippet in snippets(README, mark) for line in snippet.lines()]


@pytest.mark.parametrize("line", lines("command: readme"))
def test_a_command_of_the_readme_runs(line: str, small: Path, tmp_path: Path) -> None:
    run(small_data.command_with(small, arguments(line)), tmp_path)


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
    write_tables(tmp_path)
    (walk,) = snippets(README, "command: walk")
    assert len(walk.lines()) < 10
    run_shell(walk.code, tmp_path)
    recommended = (tmp_path / "recs.csv").read_text().splitlines()
    assert [line.split(",")[:2] for line in recommended[1:]] == [
        [who, f"{k}"] for who in ("kim", "lee") for k in range(1, 6)
    ]
    assert len((tmp_path / "everyone.jsonl").read_text().splitlines()) == 40


@pytest.mark.parametrize("snippet", snippets(README, "python: readme"), ids=str)
def test_a_python_example_of_the_readme_runs(snippet, small: Path, tmp_path: Path) -> None:
    run([sys.executable, "-c", small_data.code_with(small, snippet.code)], tmp_path)


def test_every_command_of_the_readme_is_one_that_is_run() -> None:
    kinds = ("command: run", "command: test", "command: readme", "command: search", "command: walk", "python: readme")
    assert {snippet.mark for snippet in snippets(README)} <= set(kinds)


def test_every_key_file_and_folder_that_the_readme_links_to_exists() -> None:
    for target in links(README):
        assert (ROOT / target).exists(), target
