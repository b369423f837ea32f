"""The pages of docs/: code runs, links work, tables of keys match the property files, the site builds.

Code runs unchanged on 60 users of ml-100k, for one epoch unless it sets another number.
"""

import contextlib
import glob
import importlib.util
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import recbole_ext
from recbole_ext import MODELS
from recbole_ext.cli.entry import main
from recbole_ext.config import config
from tests import small_data
from tests.key_tables import with_tables
from tests.snippets import PAGES, README, ROOT, Snippet, arguments, links, run, run_shell, snippets, write_tables

pytestmark = pytest.mark.slow

MARK = re.compile(
    r"(?P<kind>command|python): docs(?:, needs (?P<module>\w+))?(?P<alone>, alone)?"  # alone: it changes the process
)
NOT_RUN = re.compile(r"not run: .{10,}")
ALL = [snippet for page in PAGES for snippet in snippets(page)]
RUN = [snippet for snippet in ALL if MARK.fullmatch(snippet.mark or "")]
TRAINING = re.compile(r"^(?:python run_recbole_ext\.py|recbole-ext)(?= --(?!help|version))(?!.* --(?:epochs|resume)\b)")
LISTED = re.compile(r"\$\(ls ([^()]+)\)")
SHELL = re.compile(r"[$|<>;&`]|^(?!python run_recbole_ext\.py |recbole-ext )")  # more than a call of ours


@pytest.fixture
def on_small_data(small: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """ml-100k is the small data set in this process; random numbers and RecBole's warnings stay as they were."""
    monkeypatch.setattr(config, "dataset_dir", small_data.finder(small))
    state = torch.get_rng_state(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_rng_state(state[0])
    torch.use_deterministic_algorithms(state[1])


def words_of(command: str) -> list[str]:
    """The arguments of a command of ours, files that it lists filled in as the shell would."""
    return arguments(LISTED.sub(lambda match: " ".join(sorted(glob.glob(match[1]))), command))


def one_epoch(command: str) -> str:
    """A command with `--epochs=1` where it trains and names no number of epochs."""
    return TRAINING.sub(r"\g<0> --epochs=1", command)


@pytest.mark.parametrize("snippet", RUN, ids=str)
def test_code_of_the_documentation_runs(
    snippet: Snippet, small: Path, on_small_data: None, tmp_path: Path, no_waiting: None
) -> None:
    mark = MARK.fullmatch(snippet.mark or "")
    assert mark is not None
    if mark["module"]:
        pytest.importorskip(mark["module"])
    write_tables(tmp_path)
    if snippet.language == "python":
        assert mark["kind"] == "python"
        if mark["alone"]:
            run([sys.executable, "-c", small_data.code_with(small, snippet.code)], tmp_path)
            return
        exec(compile(snippet.code, str(snippet), "exec"), {"__name__": "__main__"})
        return
    assert mark["kind"] == "command"
    for command in map(one_epoch, snippet.commands()):
        if SHELL.search(LISTED.sub("", command)):
            run_shell(command, tmp_path, small_data.command_with(small, []))
            continue
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            status = main(words_of(command))
        assert status == 0, f"{command}: {said.getvalue()[-3000:]}"


def test_every_fence_of_code_is_run_or_says_why_not() -> None:
    for snippet in ALL:
        assert snippet.mark is not None, f"{snippet} has no mark on the line above it"
        assert MARK.fullmatch(snippet.mark) or NOT_RUN.fullmatch(snippet.mark), f"{snippet}: {snippet.mark}"


@pytest.mark.parametrize(
    "page", [README, ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_every_file_and_folder_that_a_page_links_to_exists(page: Path) -> None:
    for target in filter(None, links(page)):
        assert (page.parent / target).exists(), target


def test_tables_of_keys_are_those_of_the_property_files() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert text == with_tables(text), f"run python -m tests.key_tables: {page} is behind the property files"


@pytest.mark.parametrize("model", MODELS)
def test_every_model_has_a_page_with_its_keys(model: str) -> None:
    page = ROOT / "docs" / "models" / f"{model.lower()}.md"
    assert f"<!-- keys: model/{model}.yaml -->" in page.read_text(encoding="utf-8")


def test_reference_lists_every_public_name() -> None:
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    names = re.findall(r"^::: recbole_ext\.(\w+)$", text, flags=re.MULTILINE)
    assert sorted([*names, "MODELS"]) == sorted(recbole_ext.__all__)
    assert "`recbole_ext.MODELS`" in text


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("material", "mkdocstrings"))), reason="the extra docs is not installed"
)
def test_the_site_builds_and_every_link_and_anchor_leads_somewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "true"}
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, env=environment)
    assert built.returncode == 0, built.stdout + built.stderr
    text = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "site").rglob("*.html"))
    assert not re.search(r"<(?:link|script|img)[^>]+(?:href|src)=\"https?://", text), "the site asks the network"
