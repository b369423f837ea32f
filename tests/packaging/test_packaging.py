"""What is shipped: built from the sources without a network, unpacked, and used from another folder."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import recbole_ext

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FILES = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "run_recbole_ext.py")
PARTS = (*FILES, "recbole_ext", "properties", "tests", "benchmarks")
# What an interpreter does at its start for an editable install in its own folder, ahead of one that may be there.
USE_EDITABLE = """
import site, sys
before = list(sys.path)
site.addsitedir({0!r})
sys.path[:] = [path for path in sys.path if path not in before] + before
"""
READ_A_KEY = """
from recbole_ext import Config, properties_file
print(properties_file("MEANTIME"))
print(Config("MEANTIME", "ml-100k", argv=[])["kernel_freq"])
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    """A copy of the sources: a build leaves folders behind."""
    folder = tmp_path_factory.mktemp("sources")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, folder)
    return folder


def build(kind: str, sources: Path, target: Path) -> Path:
    """Build a wheel (`kind` is `wheel` or `editable`) and unpack it into `target`."""
    code = f"from setuptools import build_meta; build_meta.build_{kind}({str(target.parent)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=sources, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = target.parent.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


@pytest.fixture(scope="module")
def wheel(sources, tmp_path_factory) -> Path:
    """The unpacked wheel."""
    return build("wheel", sources, tmp_path_factory.mktemp("wheel") / "site")


@pytest.fixture(scope="module")
def distribution(wheel) -> importlib.metadata.Distribution:
    (folder,) = wheel.glob("*.dist-info")
    return importlib.metadata.Distribution.at(folder)


@pytest.fixture(scope="module")
def requirements(distribution) -> dict[str, Requirement]:
    """What installing the wheel asks for, extras left out."""
    parsed = [Requirement(line) for line in distribution.requires or ()]
    return {plain(one.name): one for one in parsed if "extra" not in str(one.marker)}


def plain(name: str) -> str:
    return name.lower().replace("_", "-")


def run(*command: str, folder: Path, path: Path | None = None) -> list[str]:
    """Lines that a command prints in `folder`, with only `path` besides what is installed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_wheel_holds_the_package_its_templates_and_property_files_and_nothing_else(sources, wheel):
    package = {
        file.relative_to(sources).as_posix()
        for pattern in ("*.py", "*.html")
        for file in (sources / "recbole_ext").rglob(pattern)
    }
    properties = {
        f"recbole_ext/{file.relative_to(sources).as_posix()}" for file in sources.glob("properties/**/*.yaml")
    }
    files = {file.relative_to(wheel).as_posix() for file in wheel.rglob("*") if file.is_file()}
    assert "recbole_ext/properties/model/MEANTIME.yaml" in properties
    assert "recbole_ext/utils/templates/base.html" in package
    assert {file for file in files if ".dist-info/" not in file} == (
        package | properties | {"recbole_ext/py.typed", "run_recbole_ext.py"}
    )


def test_the_wheel_carries_licence_and_description(wheel, distribution):
    assert [file.read_text() for file in wheel.rglob("LICENSE")] == [(ROOT / "LICENSE").read_text()]
    assert distribution.metadata["License"] == "MIT"
    assert distribution.metadata["Requires-Python"] == "<3.14,>=3.10"


def test_versions_agree(distribution):
    assert distribution.metadata["Name"] == "recbole_ext"
    assert distribution.version == recbole_ext.__version__
    assert recbole_ext.__version__ in (ROOT / "CHANGELOG.md").read_text()


def test_the_command_is_the_command_line(wheel, distribution):
    (script,) = distribution.entry_points
    assert (script.group, script.name) == ("console_scripts", "recbole-ext")
    call = f"import sys; from {script.module} import {script.attr} as main; sys.argv[1:] = ['--version']; main()"
    assert run("-c", call, folder=wheel.parent, path=wheel) == [f"recbole_ext {recbole_ext.__version__}"]


def test_the_extras_are_there(distribution):
    assert set(distribution.metadata.get_all("Provides-Extra")) == {"tune", "test", "docs", "dev"}


def test_recbole_is_no_requirement_but_all_that_it_imports_is(requirements):
    theirs = [Requirement(line) for line in importlib.metadata.requires("recbole") or ()]
    wanted = {plain(one.name) for one in theirs if "extra" not in str(one.marker)}
    assert "torch" in wanted
    assert wanted - set(requirements) == {"ray"}
    assert "recbole" not in requirements


def test_every_requirement_has_a_lower_bound_and_is_met_here(requirements):
    for name, one in requirements.items():
        assert ">=" in str(one.specifier), name
        if one.marker is None or one.marker.evaluate():
            assert one.specifier.contains(importlib.metadata.version(name)), str(one)


def test_an_installed_wheel_finds_its_property_files(wheel, tmp_path):
    file, value = run("-c", READ_A_KEY, folder=tmp_path, path=wheel)[-2:]
    assert Path(file) == wheel / "recbole_ext" / "properties" / "model" / "MEANTIME.yaml"
    assert float(value) == 10000


def test_an_editable_install_finds_the_property_files_of_the_sources(sources, tmp_path):
    editable = build("editable", sources, tmp_path / "site")
    (tmp_path / "elsewhere" / "recbole_ext").mkdir(parents=True)  # as beside a clone of that name
    file, value = run("-c", USE_EDITABLE.format(str(editable)) + READ_A_KEY, folder=tmp_path / "elsewhere")[-2:]
    assert Path(file) == sources / "properties" / "model" / "MEANTIME.yaml"
    assert float(value) == 10000


def test_a_checkout_runs_from_another_folder(tmp_path):
    (line,) = run(str(ROOT / "run_recbole_ext.py"), "--version", folder=tmp_path)
    assert line == f"recbole_ext {recbole_ext.__version__}"
