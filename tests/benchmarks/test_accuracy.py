"""The accuracy tables: runs that finish once, resume, and become a page; the documentation has the same figures."""

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import accuracy
from benchmarks.accuracy_tables import TABLES
from benchmarks.counted_pairs import count_pairs
from tests import small_data
from tests.snippets import README, ROOT

FIGURES = re.compile(r"<!-- figures: (\S+) -->\n((?:\|.*\n)+)")
NUMBER = re.compile(r"\d\.\d{4}(?: ± \d\.\d{4})?")
PAGES = (README, ROOT / "docs" / "index.md", ROOT / "docs" / "results.md")
MARKED = [(page, *match.groups()) for page in PAGES for match in FIGURES.finditer(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("page", "file", "table"), MARKED, ids=[f"{page.stem} {file}" for page, file, _ in MARKED])
def test_figures_of_the_documentation_are_those_of_a_results_file(page: Path, file: str, table: str) -> None:
    measured = [NUMBER.findall(line) for line in (accuracy.RESULTS / file).read_text(encoding="utf-8").splitlines()]
    rows = table.splitlines()[2:]
    assert rows
    for row in rows:
        shown = NUMBER.findall(row)
        assert shown, row
        assert any(set(shown) <= set(figures) for figures in measured), f"{page.name}: {row}"


def test_readme_and_results_have_marked_tables() -> None:
    assert {page.name for page, _, _ in MARKED} == {"README.md", "index.md", "results.md"}


@pytest.mark.parametrize("name", TABLES)
def test_rows_have_folders_of_their_own(name: str, tmp_path: Path) -> None:
    rows = TABLES[name].rows
    folders = {accuracy.folder_of(tmp_path, row, 1) for row in rows}
    assert len(folders) == len(rows)
    stems = [accuracy.folder_of(tmp_path, row, 0).name.removesuffix("0") for row in rows]
    assert not [pair for pair in itertools.permutations(stems, 2) if pair[0].startswith(pair[1])]


def test_pairs_are_counted_within_users_and_by_distance() -> None:
    counted = count_pairs(np.array([1, 1, 1, 2, 2]), np.array([1, 2, 3, 3, 1]), 4).toarray()
    expected = np.zeros((4, 4))
    expected[1, 2] = expected[2, 3] = expected[3, 1] = 1
    expected[1, 3] = 2**-0.5
    np.testing.assert_allclose(counted, expected)


def called(monkeypatch, capsys, *arguments: object) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["accuracy.py", *map(str, arguments)])
    with pytest.raises(SystemExit) as error:
        accuracy.main()
    return error.value.code, capsys.readouterr().err


def test_rows_that_do_not_exist_are_an_error(monkeypatch, capsys, tmp_path: Path) -> None:
    status, said = called(monkeypatch, capsys, "--table=kuairand", "--work", tmp_path, "--rows", "DIN", "FM")
    assert (status, said) == (2, "accuracy.py: no row of kuairand begins with 'FM'; the rows are 'BST', "
                                 "'BST with user ids', 'BST without time gaps', 'DIN', 'WideDeep', "
                                 "'WideDeep, regularised'.\n")  # fmt: skip


@pytest.mark.parametrize("content", ["", '{"config"', "[]", '{"config": {}}'])
def test_a_damaged_result_is_named(content: str, monkeypatch, capsys, tmp_path: Path) -> None:
    path = tmp_path / "kuairand" / "DIN-1" / "result.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    arguments = ("--table=kuairand", "--work", tmp_path, "--output", tmp_path, "--finished")
    status, said = called(monkeypatch, capsys, *arguments)
    assert (status, said) == (2, f"accuracy.py: {path} is damaged; remove it, and call again to resume its run.\n")
    path.parent.rename(path.parent.with_name("DIN-old"))
    assert called(monkeypatch, capsys, *arguments)[1].startswith("accuracy.py: there is no finished run in")


def test_a_run_that_fails_names_its_log(monkeypatch, tmp_path: Path) -> None:
    options = argparse.Namespace(epochs=None, data_path=None, threads=1)
    table = accuracy.Table("", [], {"DIN": ["--model=none"]})
    with pytest.raises(SystemExit, match=r"DIN, seed 1 failed with status 2; see .*DIN-1/log\.txt$"):
        accuracy.run(table, "DIN", 1, tmp_path, options)


def test_a_run_whose_caller_was_killed_is_left_to_its_training(capsys, tmp_path: Path) -> None:
    place = accuracy.folder_of(tmp_path, "DIN", 1)
    place.mkdir()
    with accuracy.locked(place) as lock:
        assert lock is not None
        training = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[lock])
    try:  # the lock of this process is released, but the training has inherited it
        accuracy.run(TABLES["kuairand"], "DIN", 1, tmp_path, argparse.Namespace())
        assert capsys.readouterr().out == "DIN, seed 1: another process is at it\n"
    finally:
        training.communicate(b"\n")
    with accuracy.locked(place) as lock:
        assert lock is not None


def test_the_time_of_a_killed_part_counts_until_its_last_line(tmp_path: Path) -> None:
    for name, at in (("begun", 1000), ("log.txt", 1090)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (at, at))
    for _ in range(2):  # once
        accuracy.add_seconds(tmp_path)
    assert (tmp_path / "seconds").read_text() == "90.0\n"


@pytest.mark.slow
def test_a_table_is_made_once_and_an_interrupted_run_is_resumed(tmp_path: Path) -> None:
    small_data.written(tmp_path / "data")
    command = [
        sys.executable, str(ROOT / "benchmarks" / "accuracy.py"), "--table=ml-100k", "--work=work", "--data_path=data",
        "--seeds", "1", "--rows", "counted pairs, f", "popularity", "LightSANs", "--epochs=1", "--threads=1",
        "--output=.",
    ]  # fmt: skip

    def call() -> str:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900)
        logs = "".join(path.read_text()[-1500:] for path in (tmp_path / "work").rglob("log.txt"))
        assert done.returncode == 0, done.stderr + logs
        return done.stdout

    assert call().count(": started") == 3
    page = (tmp_path / "accuracy_ml_100k.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith(("| LightSANs", "| counted", "| popularity"))]
    assert len(rows) == 6  # in the table of results, and in that of differences
    assert "60 test users" in page
    assert "`python benchmarks/accuracy.py --table=ml-100k" in page
    assert all(word in rows[0] for word in ("not read", "1, 1", "of ", "--model=LightSANs"))

    (result,) = (tmp_path / "work").rglob("LightSANs-1/result.json")
    before = json.loads(result.read_text())
    result.unlink()
    out = call()
    assert (out.count(": resumed"), out.count(": started")) == (1, 0)
    after = json.loads(result.read_text())
    assert after["test_result"] == before["test_result"]
    assert after["benchmark"]["seconds"] > before["benchmark"]["seconds"]
    assert len((result.parent / "seconds").read_text().splitlines()) == 2
