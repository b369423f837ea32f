"""MkDocs: pages link to files of the repository as they do on GitHub, and the site has copies of those files.

`[figures](../README.md)` on a page below docs/ works in the repository as it stands. On the site, the files and folders
in `COPIED` lie below `repository/` under their own paths; links to source code and to folders become plain text.
"""

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, InclusionLevel

COPIED = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "benchmarks/results",
    "properties",
    "tests/golden/README.md",
    "setup.cfg",
)
FOLDER = "repository"
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```)", flags=re.DOTALL | re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    """Add the files of the repository that pages may link to."""
    root = Path(config.config_file_path).parent
    for start in map(root.joinpath, COPIED):
        for path in sorted(start.rglob("*")) if start.is_dir() else [start]:
            if path.is_file() and "__pycache__" not in path.parts:
                name = f"{FOLDER}/{path.relative_to(root).as_posix()}"
                files.append(File.generated(config, name, abs_src_path=str(path), inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links between the files of the repository into links between those of the site."""
    root = Path(config.config_file_path).parent
    source = Path(page.file.abs_src_path)

    def site_link(match: re.Match[str]) -> str:
        image, text, target = match.groups()
        path, hash_, anchor = target.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return match[0]
        name = os.path.relpath(source.parent / path, root).replace(os.sep, "/")
        if (root / name).is_dir() or name.endswith(".py"):
            return text
        on_site = name.removeprefix("docs/") if name.startswith("docs/") else f"{FOLDER}/{name}"
        relative = posixpath.relpath(on_site, posixpath.dirname(page.file.src_uri) or ".")
        return f"{image}[{text}]({relative}{hash_}{anchor})"

    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(site_link, part) for part in parts)
