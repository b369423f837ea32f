"""The tables of keys in the documentation, made of the property files.

`python -m tests.key_tables` writes them anew into the pages, between `<!-- keys: FILE -->` and `<!-- end of keys -->`.
"""

import re
from pathlib import Path

from recbole_ext.config.paths import properties_dir
from tests.snippets import PAGES

LINE = re.compile(r"(?P<key>\w+): (?P<value>.*?) +# \((?P<type>\w+)\) (?P<meaning>.+)")
MARKED = re.compile(r"(<!-- keys: (?P<file>[\w./-]+) -->\n).*?(<!-- end of keys -->)", re.DOTALL)


def table(file: str) -> str:
    """The table of a property file, by its path below `properties`; `ValueError` for a line that describes no key."""
    rows = ["| key | default | type | meaning |", "|---|---|---|---|"]
    for line in (properties_dir() / file).read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        found = LINE.fullmatch(line)
        if found is None:
            raise ValueError(f"{file}: '{line}' should read `key: value  # (type) meaning`.")
        value = "None" if found["value"] == "~" else found["value"]
        meaning = re.sub(r"[|<]", lambda sign: {"|": "\\|", "<": "&lt;"}[sign[0]], found["meaning"])
        rows.append(f"| `{found['key']}` | `{value}` | {found['type']} | {meaning} |")
    return "\n".join(rows)


def with_tables(text: str) -> str:
    """A page with the tables as the property files have them now."""
    return MARKED.sub(lambda match: f"{match[1]}\n{table(match['file'])}\n\n{match[3]}", text)


def write(page: Path) -> None:
    """Bring the tables of a page up to date."""
    page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    for page in PAGES:
        write(page)
