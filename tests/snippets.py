"""Code that the documentation shows, and how it is run: as it stands, but for `python`, which is this one."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
RUN = "python run_recbole_ext.py"
FENCE = re.compile(
    r"(?:<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<language>bash|python)\n(?P<code>.*?)^```", re.DOTALL | re.M
)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(?:#[^)\s]*)?\)")


@dataclass(frozen=True)
class Snippet:
    """A fence of shell or Python.

    Attributes:
        path: of the page.
        line: of the fence, from 1.
        mark: the comment on the line above it, or None.
        language: `bash` or `python`.
        code: what it holds.
    """

    path: Path
    line: int
    mark: str | None
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT).as_posix()}:{self.line}"

    def lines(self) -> list[str]:
        """Its lines that are not blank."""
        return [line for line in self.code.splitlines() if line.strip()]

    def commands(self) -> list[str]:
        """Its commands, one a line."""
        return [line for line in re.sub(r"\\\n\s*", "", self.code).splitlines() if line.strip()]


def snippets(path: Path, mark: str | None = None) -> list[Snippet]:
    """The fences of a page, in order: all of them, or those with a mark."""
    text = path.read_text(encoding="utf-8")
    found = [
        Snippet(path, text.count("\n", 0, match.start("code")), match["mark"], match["language"], match["code"])
        for match in FENCE.finditer(text)
    ]
    return found if mark is None else [snippet for snippet in found if snippet.mark == mark]


def links(path: Path) -> list[str]:
    """The files and folders of the repository that a page links to, as it spells them; its own anchors are ''."""
    return LINK.findall(path.read_text(encoding="utf-8"))


def arguments(command: str) -> list[str]:
    """The words of a command of ours behind the name of the program."""
    return shlex.split(command)[2 if command.startswith("python ") else 1 :]


def here(words: list[str]) -> list[str]:
    """The words of a command with this interpreter and this checkout in place of names that need an installation."""
    if words[0] == "recbole-ext":
        return [sys.executable, "-m", "recbole_ext", *words[1:]]
    assert words[:2] == RUN.split()
    return [sys.executable, str(ROOT / "run_recbole_ext.py"), *words[2:]]


def run(command: list[str], folder: Path) -> None:
    """Run a command in a folder; fails with what it said if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]


def run_shell(script: str, folder: Path, program: list[str] | None = None) -> None:
    """Run a script of the shell in which our command stands at the beginning of lines.

    Args:
        script: what to run; the first command that fails ends it.
        folder: where.
        program: what to start for `python run_recbole_ext.py` and `recbole-ext`; this checkout's if left out.
    """
    words = shlex.join(program or here(["recbole-ext"])).replace("\\", r"\\")
    script = re.sub(rf"^({re.escape(RUN)}|recbole-ext)(?= |$)", words, script, flags=re.MULTILINE)
    run(["bash", "-euo", "pipefail", "-c", script], folder)


def write_tables(folder: Path) -> None:
    """What pages take a reader to have: `events.csv`, the events of a shop, and `new.csv`, those of new customers."""
    header = "user_id,item_id,timestamp\n"
    events = (
        f"c{user},p{(user + 3 * step) % 17},{1.7e9 + 5000 * step + user}\n" for user in range(40) for step in range(9)
    )
    (folder / "events.csv").write_text(header + "".join(events))
    (folder / "new.csv").write_text(header + "kim,p3,1700100000\nlee,p5,1700100000\nkim,p6,1700105000\n")
