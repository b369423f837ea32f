"""The result of a run for people, as a table, and for scripts, as JSON."""

import json
import math
from typing import Any

from recbole_ext.utils.atomic_write import write_whole
from recbole_ext.utils.literals import to_builtin
from recbole_ext.utils.versions import versions


def table(result: dict[str, Any]) -> str:
    """The metrics of validation and test data side by side, and where the checkpoint lies."""
    from texttable import Texttable

    valid, test = result["best_valid_result"] or {}, result["test_result"] or {}
    sheet = Texttable()
    sheet.set_deco(Texttable.HEADER)
    sheet.set_cols_align(["l", "r", "r"])
    sheet.set_cols_dtype(["t", "t", "t"])
    names = [*valid, *(name for name in test if name not in valid)]
    rows = [[name, _number(valid.get(name)), _number(test.get(name))] for name in names]
    sheet.add_rows([["metric", "valid", "test"], *rows])
    lines = [sheet.draw()]
    if result["checkpoint"]:
        lines.append(f"checkpoint: {result['checkpoint']}")
    return "\n".join(lines)


def search_table(result: dict[str, Any]) -> str:
    """The best trial of a search: its keys, its metrics, and the folder of the search."""
    keys = "\n".join(f"  {key}: {value}" for key, value in result["keys"].items())
    best = f"best of {len(result['trials'])} trials: {result['trial']}"
    return f"{best}\n{keys}\n{table(result)}\nfolder: {result['folder']}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def publish(result: dict[str, Any], summary: str, path: str | None) -> None:
    """Print a summary of the result and write the JSON, if asked to; `-` prints the JSON instead."""
    if path == "-":
        print(as_json(result))
        return
    print(summary)
    if path is not None:
        write_json(result, path)


def write_json(result: dict[str, Any], path: str) -> None:
    """Write the JSON of a result, whole or not at all."""
    with write_whole(path) as file:
        file.write(as_json(result).encode() + b"\n")


def as_json(result: dict[str, Any]) -> str:
    """The result and the versions it depends on; what is no finite number becomes null."""
    return json.dumps(_finite(to_builtin({**result, "versions": versions()})), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
