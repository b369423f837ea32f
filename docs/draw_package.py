"""Draw the parts of the package and their imports: `python docs/draw_package.py` writes docs/images/package.svg.

A part is a folder or a top-level module of recbole_ext. Imports are read from the source, so that the drawing shows the
code as it is; imports for type checking only are left out, and so are `__init__.py` and `__main__.py` of the package,
which only hand names to users.
"""

import ast
import html
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "recbole_ext"
DRAWING = ROOT / "docs" / "images" / "package.svg"

# From top to bottom: a part imports from lower floors, or from its own floor where that makes no circle.
FLOORS = [
    {"cli": "the commands and their options"},
    {"tuning": "search with Ray Tune", "comparison": "runs, intervals, p-values"},
    {"quick_start": "run_recbole"},
    {"training": "trainer, logs, resuming", "serving": "recommend, explain, export"},
    {"evaluation": "GAUC, metrics of each user", "checkpoint": "read, write and check files"},
    {"data": "files, event log, loaders", "registration": "register our models with RecBole"},
    {"config": "keys: defaults and checks"},
    {"model": "MEANTIME, LightSANs, BST, TiSASRec"},
    {"distributed": "several processes, one training"},
    {"utils": "files, literals, validators"},
    {"errors": "InputError, SearchError"},
]
FLOOR_OF = {part: floor for floor, parts in enumerate(FLOORS) for part in parts}

WIDTH, BOX_WIDTH, BOX_HEIGHT, FLOOR_HEIGHT, GAP, MARGIN = 640, 244, 48, 92, 90, 18
STYLE = """
text { font: 13px sans-serif; fill: #222 } .name { font-weight: bold; font-size: 15px }
rect { fill: #eef2fb; stroke: #3f51b5; stroke-width: 1.2 } path { fill: none; stroke: #7a86a8; stroke-width: 1.1 }
marker path { fill: #7a86a8; stroke: none }
"""


def imports() -> set[tuple[str, str]]:
    """Pairs (part, part that it imports from), read from all modules of the package."""
    pairs = set()
    for path in PACKAGE.rglob("*.py"):
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if part not in ("__init__", "__main__"):
            pairs |= {(part, target) for target in imported_parts(path) if target != part}
    return pairs


def imported_parts(path: Path) -> Iterator[str]:
    """Parts that one module imports from; `recbole_ext` stands for an import from the package itself."""
    for node in runtime_nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == PACKAGE.name:
            names = [f"{PACKAGE.name}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        else:
            continue
        for name in names:
            package, _, rest = name.partition(".")
            if package == PACKAGE.name:
                part = rest.partition(".")[0]
                yield part if (PACKAGE / part).is_dir() or (PACKAGE / f"{part}.py").is_file() else PACKAGE.name


def runtime_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a syntax tree but those below `if TYPE_CHECKING:`."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from runtime_nodes(child)


def draw() -> str:
    """The drawing as SVG.

    An arrow is left out where a chain of other arrows leads to the same part: cli -> utils is implied, for example.

    Raises:
        KeyError: a part is missing in `FLOORS`.
    """
    boxes = []
    for parts in FLOORS:
        for index, (part, meaning) in enumerate(parts.items()):
            x, y = corner(part, index)
            boxes.append(
                f'<rect x="{x:.0f}" y="{y:.0f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>'
                f'<text class="name" x="{x + BOX_WIDTH / 2:.0f}" y="{y + 20:.0f}" text-anchor="middle">{part}</text>'
                f'<text x="{x + BOX_WIDTH / 2:.0f}" y="{y + 38:.0f}" text-anchor="middle">{html.escape(meaning)}</text>'
            )
    arrows = [arrow(source, target) for source, target in sorted(direct(imports()))]
    height = MARGIN * 2 + FLOOR_HEIGHT * (len(FLOORS) - 1) + BOX_HEIGHT
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
    marker = (
        '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z"/></marker>'
    )
    background = '<rect width="100%" height="100%" style="fill: #fff; stroke: none"/>'
    return "\n".join([head, f"<style>{STYLE}</style><defs>{marker}</defs>{background}", *arrows, *boxes, "</svg>\n"])


def direct(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The imports that no chain of other imports implies (the transitive reduction)."""
    below: dict[str, set[str]] = {}
    for source, target in pairs:
        below.setdefault(source, set()).add(target)

    def reachable(part: str) -> set[str]:
        return {last for target in below.get(part, set()) for last in (target, *reachable(target))}

    return {
        (source, target)
        for source, target in pairs
        if not any(target in reachable(between) for between in below[source] - {target})
    }


def corner(part: str, index: int) -> tuple[float, float]:
    """Left and top of the box of a part, the boxes of a floor centred."""
    floor = FLOOR_OF[part]
    total = len(FLOORS[floor]) * (BOX_WIDTH + GAP) - GAP
    return (WIDTH - total) / 2 + index * (BOX_WIDTH + GAP), MARGIN + floor * FLOOR_HEIGHT


def arrow(source: str, target: str) -> str:
    """A line from a box to a box on a lower floor, or to its neighbour on the same floor."""
    (x1, y1), (x2, y2) = (corner(part, list(FLOORS[FLOOR_OF[part]]).index(part)) for part in (source, target))
    if y1 == y2:
        start, end = (x1 + BOX_WIDTH, x2) if x1 < x2 else (x1, x2 + BOX_WIDTH)
        line = f"M{start:.0f},{y1 + BOX_HEIGHT / 2:.0f} L{end:.0f},{y2 + BOX_HEIGHT / 2:.0f}"
    else:
        top, bottom = y1 + BOX_HEIGHT, y2
        start = x1 + BOX_WIDTH / 2 + (x2 - x1) / 12
        end = x2 + BOX_WIDTH / 2 - (x2 - x1) / 12
        middle = (bottom - top) / 2
        line = f"M{start:.0f},{top} C{start:.0f},{top + middle:.0f} {end:.0f},{bottom - middle:.0f} {end:.0f},{bottom}"
    return f'<path d="{line}" marker-end="url(#head)"><title>{source} imports from {target}</title></path>'


if __name__ == "__main__":
    DRAWING.parent.mkdir(exist_ok=True)
    DRAWING.write_text(draw(), encoding="utf-8")
