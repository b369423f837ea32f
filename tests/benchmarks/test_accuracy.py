"""The accuracy tables: runs that finish once, resume, and become a page; the documentation has the same figures."""

import itertools
import json
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
