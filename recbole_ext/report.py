"""The result of a run for people, as a table, and for scripts, as JSON."""

import json
import math
from typing import Any

from recbole_ext.checkpoint import versions
from recbole_ext.config.values import plain
from recbole_ext.whole_file import write_whole


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


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def write_json(result: dict[str, Any], path: str) -> None:
    """Write the result and the versions it depends on, whole or not at all; what is no finite number becomes null."""
    text = json.dumps(_finite(plain({**result, "versions": versions()})), indent=2, allow_nan=False)
    with write_whole(path) as file:
        file.write(text.encode() + b"\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
