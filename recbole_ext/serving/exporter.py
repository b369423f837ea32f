"""A trained model as one file that torch alone can serve: graph, weights, tokens of items, units of inputs."""

import io
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from recbole.data.interaction import Interaction
from recbole.utils import FeatureType
from torch import Tensor

from recbole_ext.data.files.time_units import seconds_per_unit
from recbole_ext.errors import InputError
from recbole_ext.serving.program import INTEGER, ExportedScorer
from recbole_ext.utils.atomic_write import write_whole
from recbole_ext.utils.paths import writable_file
from recbole_ext.utils.versions import versions

if TYPE_CHECKING:
    from recbole_ext.serving.recommender import Recommender

FORMAT = 1
FACTS = "serving.json"  # inside the file
# of the largest score, at least 1: what the order of additions may change
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
ROWS = (1, 2, 7)
CANDIDATES = 50  # of the comparison, beside one and all
MEANING = {
    "items": "ids of the history, oldest first, then 0",
    "lengths": "events of each history",
    "times": "times of the history, seconds since 1970",
    "at": "time of the request, seconds since 1970",
    "candidates": "ids of the items to score",
}


def target_file(path: Any) -> str:
    """The path of the file to write, after trying whether its folder lets us; `InputError` if it does not."""
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
    if not name.endswith(".pt2") or os.path.basename(name) == ".pt2" or os.path.isdir(name):
        raise InputError(f"the file to export to is {path!r}; it should be the name of a file that ends in .pt2.")
    return writable_file(name, "the exported model")


def write(recommender: "Recommender", path: str) -> float:
    """Trace the model, compare the program with the model as it is read back, and write it.

    The program is saved to memory first: torch's writer aborts the process when a disk is full.

    Returns:
        the largest difference between scores of the program and of the model.

    Raises:
        InputError: the model cannot be exported, or the program differs; what was at `path` before stays there.
        OSError: the file cannot be written.
    """
    scores = ExportedScorer(recommender.model, recommender.catalogue).eval()
    saved = io.BytesIO()
    facts = {FACTS: json.dumps(_facts(scores, recommender))}
    torch.export.save(_traced(scores, recommender), saved, extra_files=facts)
    saved.seek(0)
    difference = _compared(torch.export.load(saved).module(), scores, recommender)
    with write_whole(path) as file:
        file.write(saved.getbuffer())
    return difference


@torch.no_grad()
def _traced(scores: ExportedScorer, recommender: "Recommender") -> Any:
    generator = torch.Generator().manual_seed(0)
    # sizes that nothing else has: torch takes those that agree with a constant, and 1, for that constant
    example = _batch(scores, recommender, 3, min(4, scores.longest - scores.any_width), 5, generator)
    dims = {"B": torch.export.Dim("B"), "C": torch.export.Dim("C")}
    if scores.any_width:
        dims["T"] = torch.export.Dim("T", min=1, max=scores.longest)

    def dynamic(input: Any) -> dict:
        if isinstance(input, dict):
            return {name: dynamic(column) for name, column in input.items()}
        _, axes = input
        return {place: dims[axis] for place, axis in enumerate(axes) if axis in dims}

    shapes = {name: dynamic(input) for name, input in scores.inputs().items()}
    try:
        return torch.export.export(scores, (), example, dynamic_shapes=shapes, strict=False)
    except Exception as error:  # whatever torch has no graph for
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise InputError(f"torch {torch.__version__} cannot export {type(scores.model).__name__} as it is configured: "
                         f"{reason}.") from error  # fmt: skip


def _facts(scores: ExportedScorer, recommender: "Recommender") -> dict[str, Any]:
    """What a client needs beside the program, as plain values."""
    config, catalogue = recommender.config, recommender.catalogue

    def described(name: str, input: Any) -> dict[str, Any]:
        dtype, axes = input
        sizes = {"T": "T" if scores.any_width else scores.longest, "S": catalogue.field2seqlen.get(name)}
        shape = [sizes.get(axis, axis) for axis in axes]
        return {"dtype": str(dtype).removeprefix("torch."), "shape": shape}

    inputs: dict[str, Any] = {}
    for name, input in scores.inputs().items():
        if name in MEANING:
            inputs[name] = {**described(name, input), "meaning": MEANING[name]}
    features = {}
    for name, input in scores.inputs().get("features", {}).items():
        features[name] = {**described(name, input), "type": scores.features[name].value}
        if input[0] == INTEGER:
            features[name]["tokens"] = [str(token) for token in catalogue.field2id_token[name]]
    if features:
        inputs["features"] = features
    return {
        "format": FORMAT,
        "model": type(scores.model).__name__,
        "items": [str(token) for token in recommender.items.tokens],
        "inputs": inputs,
        "output": ["B", "C"] if scores.by_candidates else ["B", len(recommender.items.tokens)],
        "longest_history": scores.longest,
        "shortest_history": scores.shortest,
        "history": config["history"],
        "time_origin": scores.origin if scores.reads_times else None,
        "time_unit": config["time_unit"],
        "seconds_per_unit": seconds_per_unit(config["time_unit"]),
        "device": str(config["device"]),
        "versions": versions(),
    }


# -------------------------------------------------------------------- comparison


@torch.inference_mode()
def _compared(program: Any, scores: ExportedScorer, recommender: "Recommender") -> float:
    """The largest difference between program and model on random requests; `InputError` if that is too much."""
    largest = 0.0
    for batch in _batches(scores, recommender):
        right, found = _eager(scores, recommender, batch), program(**batch)
        if "candidates" not in batch:  # the column of the padding means nothing
            right, found = right[:, 1:], found[:, 1:]
        difference = float((found - right).abs().max())
        most = TOLERANCE[right.dtype] * max(1.0, float(right.abs().max()))
        if not difference <= most:  # scores that are no numbers included
            raise InputError(
                f"the exported {type(scores.model).__name__} differs from the model by {difference:.1e}, more than "
                f"{most:.1e}, for {len(found)} histories in {batch['items'].shape[1]} slots; it was not written."
            )
        largest = max(largest, difference)
    return largest


def _batches(scores: ExportedScorer, recommender: "Recommender") -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(1)
    count = recommender.model.n_items
    for rows in ROWS:
        for slots in sorted({1, (scores.longest + 1) // 2, scores.longest} if scores.any_width else {scores.longest}):
            for some in sorted({1, min(CANDIDATES, count)} if scores.by_candidates else {0}):
                yield _batch(scores, recommender, rows, slots, some, generator)


def _batch(
    scores: ExportedScorer,
    recommender: "Recommender",
    rows: int,
    slots: int,
    candidates: int,
    generator: torch.Generator,
) -> dict[str, Any]:
    """Random requests as a client makes them, with histories of every length."""
    catalogue, device = recommender.catalogue, recommender.config["device"]

    def whole(low: int, end: int, *shape: int) -> Tensor:
        return torch.randint(low, end, shape, generator=generator)

    lengths = whole(scores.shortest, slots + 1, rows)
    lengths[-1] = slots
    padding = torch.arange(slots) >= lengths.unsqueeze(1)
    latest = catalogue.inter_feat[catalogue.time_field].max() if scores.reads_times else torch.tensor(1.0)
    times = (torch.rand(rows, slots + 1, generator=generator, dtype=torch.float64) * latest).sort().values.floor()
    times = times + scores.origin
    batch = {
        "items": whole(1, recommender.model.n_items, rows, slots).masked_fill(padding, 0), "lengths": lengths,
        "times": times[:, :-1].masked_fill(padding, 0.0), "at": times[:, -1],
        "candidates": whole(1, recommender.model.n_items, candidates),
    }  # fmt: skip
    columns = {}
    for name, kind in scores.features.items():
        if kind == FeatureType.FLOAT:
            low, high = scores.ranges.get(name, _extremes(catalogue, name))
            columns[name] = low + torch.rand(rows, generator=generator, dtype=torch.float64) * (high - low)
        else:
            width = [catalogue.field2seqlen[name]] if kind == FeatureType.TOKEN_SEQ else []
            columns[name] = whole(0, catalogue.num(name), rows, *width)
    moved: dict[str, Any] = {name: values.to(device) for name, values in batch.items()}
    moved["features"] = {name: values.to(device) for name, values in columns.items()}
    return {name: moved[name] for name in scores.inputs()}


def _extremes(catalogue: Any, name: str) -> tuple[float, float]:
    values = catalogue.user_feat[name] if name in catalogue.user_feat else catalogue.inter_feat[name]
    return float(values.min()), float(values.max())


def _eager(scores: ExportedScorer, recommender: "Recommender", batch: dict[str, Any]) -> Tensor:
    """What the recommender's way of scoring gives for the same requests, in lists as wide as in training."""
    model, catalogue, items = recommender.model, recommender.catalogue, batch["items"]

    def wide(values: Tensor) -> Tensor:
        return torch.nn.functional.pad(values, (0, scores.longest - values.shape[1]))

    columns = {
        model.ITEM_SEQ: wide(items),
        model.ITEM_SEQ_LEN: batch["lengths"],
        model.USER_ID: items.new_zeros(len(items)),
    }
    if "times" in batch:
        columns[scores.times_field] = wide(batch["times"] - catalogue.time_origin)
    if "at" in batch:
        columns[scores.time_field] = batch["at"] - catalogue.time_origin
    given = {name: scores._scaled(name, values) for name, values in batch.get("features", {}).items()}
    columns |= {name: given.pop(name) for name in scores.context}
    prepared = recommender.scorer.prepare(Interaction(columns), given)
    return recommender.scorer.score(prepared, batch.get("candidates", slice(model.n_items)))
