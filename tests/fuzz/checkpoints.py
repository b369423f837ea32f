"""Checkpoints with one value changed, or with one byte of the file changed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from hypothesis import strategies as st

from recbole_ext import Recommender, load_data_and_model
from tests.fuzz.judging import Finding, attempt, command, workspace
from tests.fuzz.small_models import Served, served
from tests.fuzz.values import BASE, chance, mostly


@dataclass(frozen=True)
class CheckpointCase:
    """A checkpoint with one leaf changed or removed, or with bytes of the file changed, and what reads it."""

    model: str
    use: str  # recommend, resume or data
    path: tuple  # keys and indexes from the top to the leaf
    value: Any = None  # "remove" takes the leaf out; "byte" changes a byte at `path[0]` thousandths of the file


VALUES = st.sampled_from(
    ["remove", None, True, 0, 1, -1, 3, 1.5, float("inf"), float("nan"), 10**19, "", "x", "recbole_ext", [], {}, [0],
     ["x", "x"], {"x": 1}, {"x": {"y": [1, {}]}}, "empty tensor", "whole tensor", "float tensor", "nan tensor"]
)  # fmt: skip


@st.composite
def strategy(draw) -> CheckpointCase:
    model = draw(st.sampled_from(["BST", "MEANTIME"]))
    paths = leaves(served(model).state)
    use = draw(mostly(st.just("recommend"), st.sampled_from(["resume", "data"]), 40))
    if draw(chance(10)):
        return CheckpointCase(model, use, (draw(st.integers(0, 999)),), "byte")
    top = draw(st.sampled_from(sorted({leaf[0] for leaf in paths})))
    by_top = draw(st.booleans())  # else the many leaves of the configuration would be next to all cases, or too few
    leaf = draw(st.sampled_from([leaf for leaf in paths if leaf[0] == top or not by_top]))
    return CheckpointCase(model, use, leaf[: draw(st.integers(1, len(leaf)))], draw(VALUES))


def leaves(value: Any, path: tuple = ()) -> list[tuple]:
    """The ways to the leaves of a checkpoint; of long lists, the first, the second and the last member."""
    if isinstance(value, dict) and value:
        return [leaf for key, member in value.items() for leaf in leaves(member, (*path, key))]
    if isinstance(value, list) and value:
        return [
            leaf
            for number in sorted({0, min(1, len(value) - 1), len(value) - 1})
            for leaf in leaves(value[number], (*path, number))
        ]
    return [path]


# -------------------------------------------------------------------- the check


def _edited(case: CheckpointCase, state: dict[str, Any]) -> dict[str, Any]:
    tensors = {"empty tensor": torch.zeros(0), "whole tensor": torch.arange(3), "float tensor": torch.rand(2, 2),
               "nan tensor": torch.full((2,), float("nan"))}  # fmt: skip
    value = tensors.get(case.value, case.value) if isinstance(case.value, str) else case.value

    def changed(inside: Any, path: tuple) -> Any:
        if not path:
            return value
        if isinstance(inside, dict):
            copy: Any = type(inside)(inside)
        else:
            copy = list(inside)
        if len(path) == 1 and case.value == "remove":
            del copy[path[0]]
        else:
            copy[path[0]] = changed(inside[path[0]], path[1:])
        return copy

    return changed(state, case.path)


def check(case: CheckpointCase) -> str:
    """An edited checkpoint is refused, or does its work: it recommends items that exist, with finite scores."""
    model = served(case.model)
    with workspace() as folder:
        path = folder / f"{case.model}-edited.pth"
        if case.value == "byte":
            data = bytearray(Path(model.path).read_bytes())
            data[len(data) * case.path[0] // 1000] ^= 0x55
            path.write_bytes(data)
        else:
            torch.save(_edited(case, model.state), path)
        names = ["checkpoint", str(path), "toy.inter", *map(str, case.path)]
        columns = {
            "user_id": ["a"] * 3,
            "item_id": ["1", "2", "NA"],
            "timestamp": [model.unit == "ms" and BASE * 1000 or BASE] * 3,
        }
        frame = pd.DataFrame(columns | ({"device": ["phone"] * 3} if case.model == "BST" else {}))
        if case.use == "recommend":
            outcome, found = attempt(lambda: Recommender.load(path, device="cpu").recommend(frame), names)
            if outcome == "right":
                _check_recommended(case, found, model, frame)
        elif case.use == "resume":
            outcome, found = command(["run", f"--resume={path}", "--epochs=2"], names)
        else:
            outcome, found = attempt(lambda: load_data_and_model(str(path), device="cpu") and None, names)
        return outcome


def _check_recommended(case: CheckpointCase, found: pd.DataFrame, model: Served, frame: pd.DataFrame) -> None:
    if case.value == "byte" and not found.equals(model.recommender.recommend(frame)):
        raise Finding("accepted: a changed byte that changes the result", str(found))
    names = [str(name) for name in found["item_id"]]
    if len(set(names)) < len(names):
        raise Finding("an item is recommended twice", str(found))
    if not np.isfinite(found["score"]).all():
        raise Finding("a score is not finite", str(found))
