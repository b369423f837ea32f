"""MkDocs: pages link to files of the repository as they do on GitHub, and the site has copies of those files.

`[figures](../README.md)` on a page below docs/ works in the repository as it stands. For the site, README.md becomes
the page `repository/overview.md`, other files outside docs/ lie below `repository/` under their own paths, and links to
folders become plain text.
"""

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, InclusionLevel

FOLDERS = (
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
    "benchmarks/results",
    "properties",
    "tests/golden/README.md",
    "setup.cfg",
)
BELOW = "repository"
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```)", flags=re.DOTALL | re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    """Add the files of the repository that pages may link to."""
    root = Path(config.config_file_path).parent
    for start in map(root.joinpath, FOLDERS):
        for path in sorted(start.rglob("*")) if start.is_dir() else [start]:
            if path.is_file() and "__pycache__" not in path.parts:
                name = path.relative_to(root).as_posix()
                listed = InclusionLevel.INCLUDED if name == "README.md" else InclusionLevel.NOT_IN_NAV
                files.append(File.generated(config, _on_site(name), abs_src_path=str(path), inclusion=listed))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links between the files of the repository into links between those of the site."""
    root = Path(config.config_file_path).parent
    source = Path(page.file.abs_src_path)

    def moved(match: re.Match[str]) -> str:
        image, text, target = match.groups()
        path, hash_, anchor = target.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return match[0]
        name = os.path.relpath(source.parent / path, root).replace(os.sep, "/")
        if (root / name).is_dir():
            return text
        to = posixpath.relpath(_on_site(name), posixpath.dirname(page.file.src_uri) or ".")
        return f"{image}[{text}]({to}{hash_}{anchor})"

    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in parts)


def _on_site(name: str) -> str:
    """Where a file of the repository lies among the sources of the site."""
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return f"{BELOW}/overview.md" if name == "README.md" else f"{BELOW}/{name}"
