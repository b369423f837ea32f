"""The parts of the package: imports follow one direction, and the drawing shows them as they are."""

import importlib.util
from graphlib import TopologicalSorter

import pytest

from tests.snippets import ROOT

spec = importlib.util.spec_from_file_location("draw_package", ROOT / "docs" / "draw_package.py")
assert spec is not None
assert spec.loader is not None
draw_package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(draw_package)


def test_every_part_has_a_floor_and_a_row_on_the_page() -> None:
    parts = {
        path.name.removesuffix(".py")
        for path in draw_package.PACKAGE.iterdir()
        if path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py")))
    }
    assert parts - {"__init__", "__main__"} == set(draw_package.FLOOR_OF)
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    missing = [part for part in draw_package.FLOOR_OF if f"| `{part}" not in page]
    assert not missing


def test_no_import_goes_to_a_higher_floor() -> None:
    floor = {**draw_package.FLOOR_OF, draw_package.PACKAGE.name: -1}
    upwards = [pair for pair in draw_package.imports() if floor[pair[1]] < floor[pair[0]]]
    assert not upwards, f"imports against the direction of docs/architecture.md: {upwards}"


def test_imports_between_parts_make_no_circle() -> None:
    graph = TopologicalSorter()
    for source, target in draw_package.imports():
        graph.add(source, target)
    graph.prepare()  # raises CycleError


def test_drawing_is_up_to_date() -> None:
    assert draw_package.DRAWING.read_text(encoding="utf-8") == draw_package.draw(), "run python docs/draw_package.py"


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("import recbole_ext.utils.paths", ["utils"]),
        ("from recbole_ext.data.files import table", ["data"]),
        ("from recbole_ext import errors, Config", ["errors", "recbole_ext"]),
        ("def f():\n    from recbole_ext.cli import entry", ["cli"]),
        ("if TYPE_CHECKING:\n    from recbole_ext.cli import entry", []),
        ("import numpy", []),
    ],
)
def test_imports_are_read_from_the_source(line: str, parts: list[str], tmp_path) -> None:
    (tmp_path / "module.py").write_text(line)
    assert list(draw_package.imported_parts(tmp_path / "module.py")) == parts


def test_implied_arrows_are_left_out() -> None:
    assert draw_package.direct({("a", "b"), ("b", "c"), ("a", "c")}) == {("a", "b"), ("b", "c")}
