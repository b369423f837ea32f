"""Export: a trained model as one file that torch alone can serve, with a description of its inputs."""

import io
import json
from collections.abc import Iterator
from typing import Any

import torch
from recbole.data.interaction import Interaction
from recbole.utils import FeatureType
from torch import Tensor

from recbole_ext.data.files.time_units import seconds_per_unit
from recbole_ext.errors import InputError
from recbole_ext.serving.program import INTEGER, ExportedScorer
from recbole_ext.serving.served_model import ServedModel
from recbole_ext.utils.atomic_write import write_whole
from recbole_ext.utils.paths import check_suffix, writable_file
from recbole_ext.utils.versions import versions

EXPORT_FORMAT = 1
DESCRIPTION = "serving.json"  # name inside the file
# allowed difference relative to the largest score, at least 1: the order of additions may differ
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
COMPARED_ROWS = (1, 2, 7)
COMPARED_CANDIDATES = 50
MEANING = {
    "items": "ids of the history, oldest first, then 0",
    "lengths": "events of each history",
    "times": "times of the history, seconds since 1970",
    "at": "time of the request, seconds since 1970",
    "users": "ids of the users, 0 for unknown ones",
    "candidates": "ids of the items to score",
}


def program_file(path: Any) -> str:
    """The absolute path of the file to write; `InputError` if its name is wrong or its folder is not writable."""
    check_suffix(path, (".pt2",), "the file to export to")
    return writable_file(path, "the exported model")


def write(served: ServedModel, path: str) -> float:
    """Trace the model, compare the saved program with the model, and write it.

    The program is first saved to memory, because torch's writer aborts the process when a disk is full.

    Returns:
        the largest difference between scores of the program and of the model.

    Raises:
        InputError: the model cannot be exported, or the program differs from it; an existing file stays as it was.
        OSError: the file cannot be written.
    """
    scorer = ExportedScorer(served.model, served.description).eval()
    saved = io.BytesIO()
    extra_files = {DESCRIPTION: json.dumps(_description(scorer, served))}
    torch.export.save(_trace(scorer, served), saved, extra_files=extra_files)
    saved.seek(0)
    difference = _compare(torch.export.load(saved).module(), scorer, served)
    with write_whole(path) as file:
        file.write(saved.getbuffer())
    return difference


@torch.no_grad()
def _trace(scorer: ExportedScorer, served: ServedModel) -> Any:
    generator = torch.Generator().manual_seed(0)
    # distinct sizes: torch treats a size as a constant if it is 1 or equals a constant of the model
    example = _random_batch(scorer, served, 3, min(4, scorer.longest - scorer.any_width), 5, generator)
    dims = {"B": torch.export.Dim("B"), "C": torch.export.Dim("C")}
    if scorer.any_width:
        dims["T"] = torch.export.Dim("T", min=1, max=scorer.longest)

    def dynamic(input: Any) -> dict:
        if isinstance(input, dict):
            return {name: dynamic(column) for name, column in input.items()}
        _, axes = input
        return {index: dims[axis] for index, axis in enumerate(axes) if axis in dims}

    shapes = {name: dynamic(input) for name, input in scorer.inputs().items()}
    try:
        return torch.export.export(scorer, (), example, dynamic_shapes=shapes, strict=False)
    except Exception as error:  # torch raises many types for what it cannot trace
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise InputError(
            f"torch {torch.__version__} cannot export {type(scorer.model).__name__} as it is configured: {reason}."
        ) from error


def _description(scorer: ExportedScorer, served: ServedModel) -> dict[str, Any]:
    """What a client needs to know to call the program, as plain values."""
    config, description = served.config, served.description

    def describe(name: str, input: Any) -> dict[str, Any]:
        dtype, axes = input
        sizes = {"T": "T" if scorer.any_width else scorer.longest, "S": description.field2seqlen.get(name)}
        shape = [sizes.get(axis, axis) for axis in axes]
        return {"dtype": str(dtype).removeprefix("torch."), "shape": shape}

    inputs: dict[str, Any] = {}
    for name, input in scorer.inputs().items():
        if name in MEANING:
            inputs[name] = {**describe(name, input), "meaning": MEANING[name]}
    for group in ("event_features", "features"):
        columns = scorer.inputs().get(group, {})
        for name, input in columns.items():
            kind = description.field2type[name]
            facts = inputs.setdefault(group, {})[name] = {**describe(name, input), "type": kind.value}
            if input[0] == INTEGER:
                facts["tokens"] = [str(token) for token in description.field2id_token[name]]
    return {
        "format": EXPORT_FORMAT,
        "model": type(scorer.model).__name__,
        "items": [str(token) for token in served.items.tokens],
        **({"users": [str(token) for token in served.users.tokens]} if scorer.reads_user_id else {}),
        "inputs": inputs,
        "output": ["B", "C"] if scorer.by_candidates else ["B", len(served.items.tokens)],
        "longest_history": scorer.longest,
        "shortest_history": scorer.shortest,
        "history": config["history"],
        "time_origin": scorer.origin if scorer.reads_times else None,
        "time_unit": config["time_unit"],
        "seconds_per_unit": seconds_per_unit(config["time_unit"]),
        "device": str(config["device"]),
        "versions": versions(),
    }


# -------------------------------------------------------------------- comparison of the program with the model


@torch.inference_mode()
def _compare(program: Any, scorer: ExportedScorer, served: ServedModel) -> float:
    """The largest difference between program and model for random requests; `InputError` if it is too large."""
    largest = 0.0
    for batch in _comparison_batches(scorer, served):
        expected, scores = _model_scores(scorer, served, batch), program(**batch)
        if "candidates" not in batch:  # the column of the padding has no meaning
            expected, scores = expected[:, 1:], scores[:, 1:]
        difference = float((scores - expected).abs().max())
        tolerance = TOLERANCE[expected.dtype] * max(1.0, float(expected.abs().max()))
        if not difference <= tolerance:  # also true for NaN
            raise InputError(
                f"the exported {type(scorer.model).__name__} differs from the model by {difference:.1e}, more than "
                f"{tolerance:.1e}, for {len(scores)} histories in {batch['items'].shape[1]} slots; it was not written."
            )
        largest = max(largest, difference)
    return largest


def _comparison_batches(scorer: ExportedScorer, served: ServedModel) -> Iterator[dict[str, Any]]:
    """Random requests of several sizes."""
    generator = torch.Generator().manual_seed(1)
    longest, item_count = scorer.longest, served.model.n_items
    widths = sorted({1, (longest + 1) // 2, longest} if scorer.any_width else {longest})
    candidate_counts = sorted({1, min(COMPARED_CANDIDATES, item_count)} if scorer.by_candidates else {0})
    for rows in COMPARED_ROWS:
        for slots in widths:
            for candidates in candidate_counts:
                yield _random_batch(scorer, served, rows, slots, candidates, generator)


def _random_batch(
    scorer: ExportedScorer, served: ServedModel, rows: int, slots: int, candidates: int, generator: torch.Generator
) -> dict[str, Any]:
    """Random requests in the form that a client sends, with histories of all lengths."""
    description, device = served.description, served.config["device"]

    def integers(low: int, end: int, *shape: int) -> Tensor:
        return torch.randint(low, end, shape, generator=generator)

    lengths = integers(scorer.shortest, slots + 1, rows)
    lengths[-1] = slots
    padding = torch.arange(slots) >= lengths.unsqueeze(1)
    latest = description.inter_feat[description.time_field].max() if scorer.reads_times else torch.tensor(1.0)
    times = (torch.rand(rows, slots + 1, generator=generator, dtype=torch.float64) * latest).sort().values.floor()
    times = times + scorer.origin
    batch = {
        "items": integers(1, served.model.n_items, rows, slots).masked_fill(padding, 0), "lengths": lengths,
        "times": times[:, :-1].masked_fill(padding, 0.0), "at": times[:, -1],
        "candidates": integers(1, served.model.n_items, candidates),
    }  # fmt: skip
    event_features = {}
    for name, kind in scorer.event_features.items():
        if kind == FeatureType.FLOAT:
            low, high = scorer.ranges.get(name, _value_range(description, name))
            values = low + torch.rand(rows, slots, generator=generator, dtype=torch.float64) * (high - low)
        else:
            values = integers(0, description.num(name), rows, slots)
        event_features[name] = values.masked_fill(padding, 0)
    features = {}
    for name, kind in scorer.features.items():
        if kind == FeatureType.FLOAT:
            low, high = scorer.ranges.get(name, _value_range(description, name))
            features[name] = low + torch.rand(rows, generator=generator, dtype=torch.float64) * (high - low)
        else:
            width = [description.field2seqlen[name]] if kind == FeatureType.TOKEN_SEQ else []
            features[name] = integers(0, description.num(name), rows, *width)
    batch["users"] = integers(0, description.user_num, rows)
    on_device: dict[str, Any] = {name: values.to(device) for name, values in batch.items()}
    on_device["features"] = {name: values.to(device) for name, values in features.items()}
    on_device["event_features"] = {name: values.to(device) for name, values in event_features.items()}
    return {name: on_device[name] for name in scorer.inputs()}


def _value_range(description: Any, name: str) -> tuple[float, float]:
    values = description.user_feat[name] if name in description.user_feat else description.inter_feat[name]
    return float(values.min()), float(values.max())


def _model_scores(scorer: ExportedScorer, served: ServedModel, batch: dict[str, Any]) -> Tensor:
    """Scores of the same requests as `recommend` computes them, in lists of the training width."""
    model, description, items = served.model, served.description, batch["items"]

    def padded(values: Tensor) -> Tensor:
        return torch.nn.functional.pad(values, (0, scorer.longest - values.shape[1]))

    columns = {
        model.ITEM_SEQ: padded(items),
        model.ITEM_SEQ_LEN: batch["lengths"],
        model.USER_ID: batch.get("users", items.new_zeros(len(items))),
    }
    if "times" in batch:
        columns[scorer.time_list_field] = padded(batch["times"] - description.time_origin)
    if "at" in batch:
        columns[scorer.time_field] = batch["at"] - description.time_origin
    for name, values in batch.get("event_features", {}).items():
        columns[name + scorer.list_suffix] = padded(scorer.scale(name, values))
    features = {name: scorer.scale(name, values) for name, values in batch.get("features", {}).items()}
    columns |= {name: features.pop(name) for name in scorer.context_features}
    prepared = served.scorer.prepare(Interaction(columns), features)
    return served.scorer.score(prepared, batch.get("candidates", slice(model.n_items)))
