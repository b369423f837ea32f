"""Reference files: what one must hold, and how its names map to our parameters' names."""

import json
import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

ABSOLUTE = {"p": "position", "d": "day", "c": "constant"}
RELATIVE = {"s": "sin", "e": "exp", "l": "log"}
TOLERANCE = {"sin": 1e-7, "exp": 1e-5, "log": 1e-5}
SIZES = ("hidden_size", "max_len", "n_items", "n_layers")
DAY = 86400.0


class BadReference(ValueError):
    """A file that is no reference file; the message says in one sentence why."""


@dataclass(frozen=True)
class Reference:
    """The arrays of a file as tensors and what its `config` says.

    Attributes:
        arrays: by the file's names.
        absolute, relative: our names of the kernels, in the order of the heads.
        sizes: hidden_size, max_len, n_items, n_layers.
    """

    arrays: dict[str, Tensor]
    absolute: list[str]
    relative: list[str]
    sizes: dict[str, int]

    @property
    def tolerance(self) -> float:
        """1e-9 for the absolute kernels, 1e-7 with sin, 1e-5 with a tabulated kernel."""
        return max([1e-9, *(TOLERANCE[name] for name in self.relative)])

    @property
    def parameters(self) -> dict[str, str]:
        """The file's name of each of our parameters."""
        return _names(self.absolute, self.relative, self.sizes["n_layers"])


def read(file: str) -> Reference:
    """Read a reference file and see that nothing is missing.

    Raises:
        BadReference: the file cannot be read, lacks something, or its parts contradict each other.
    """
    try:
        with np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except OSError as error:
        raise BadReference(f"{file} cannot be read: {error.strerror or error}.") from error
    except (ValueError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise BadReference(f"{file} is not an .npz file of plain arrays.") from error
    config = _config(file, arrays)
    absolute = _kernels(file, config, "absolute_kernels", ABSOLUTE)
    relative = _kernels(file, config, "relative_kernels", RELATIVE)
    numbers = {name: torch.from_numpy(values) for name, values in arrays.items() if values.dtype.kind in "biuf"}
    reference = Reference(numbers, absolute, relative, {name: config[name] for name in SIZES})
    _check(file, reference)
    return reference


def _config(file: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    if "config" not in arrays:
        raise BadReference(f"{file} lacks 'config'.")
    try:
        config = json.loads(str(arrays["config"]))
    except json.JSONDecodeError as error:
        raise BadReference(f"{file}: config is not JSON: {error}.") from error
    for name in ("absolute_kernels", "relative_kernels", *SIZES):
        if not isinstance(config, dict) or name not in config:
            raise BadReference(f"{file}: config lacks '{name}'.")
    for name in SIZES:
        if not isinstance(config[name], int) or config[name] < 1:
            raise BadReference(f"{file}: config says {name} is {config[name]!r}; it should be a whole number above 0.")
    return config


def _kernels(file: str, config: dict[str, Any], key: str, known: dict[str, str]) -> list[str]:
    letters = [letter for letter in str(config[key] or "").split("-") if letter]
    for letter in letters:
        if letter not in known:
            raise BadReference(f"{file}: config says {key} is '{config[key]}'; its letters are {', '.join(known)}.")
    return [known[letter] for letter in letters]


def _check(file: str, reference: Reference) -> None:
    arrays, names = reference.arrays, reference.parameters.values()
    needed = ["in/tokens", "in/timestamps", "in/days", "in/labels", "out/hidden", "out/scores", "out/loss"]
    needed += [f"{kind}/{name}" for name in names for kind in ("param", "grad")]
    for name in needed:
        if name not in arrays:
            raise BadReference(f"{file} lacks '{name}'.")
    for name in names:
        if arrays[f"param/{name}"].shape != arrays[f"grad/{name}"].shape:
            raise BadReference(f"{file}: param/{name} and grad/{name} differ in shape.")
    shape = arrays["in/tokens"].shape
    if len(shape) != 2 or any(arrays[f"in/{name}"].shape != shape for name in ("timestamps", "days", "labels")):
        raise BadReference(f"{file}: in/tokens, in/timestamps, in/days and in/labels should have one shape [B, N].")
    if shape[1] > reference.sizes["max_len"]:
        raise BadReference(f"{file}: sequences have {shape[1]} slots, but max_len is {reference.sizes['max_len']}.")
    real = arrays["in/tokens"] != 0
    if not real[:, -1].all() or (real[:, :-1] & ~real[:, 1:]).any():
        raise BadReference(f"{file}: in/tokens should be padded with 0 on the left, and no row may be empty.")
    hidden, items = reference.sizes["hidden_size"], reference.sizes["n_items"]
    for name, most in (("in/tokens", items + 1), ("in/labels", items)):
        if int(arrays[name].min()) < 0 or int(arrays[name].max()) > most:
            raise BadReference(f"{file}: {name} should lie between 0 and {most}.")
    if not (arrays["in/labels"] != 0)[real].any():
        raise BadReference(f"{file}: in/labels has no label, so there is no loss to compare.")
    heads = len(reference.absolute) + len(reference.relative)
    outputs = {
        "out/hidden": (*shape, hidden), "out/scores": (shape[0], items + 1), "out/loss": (1,),
        "out/attn_0": (shape[0], heads, shape[1], shape[1]),
    }  # fmt: skip
    for name, expected in outputs.items():
        if name in arrays and tuple(arrays[name].shape) != expected:
            raise BadReference(f"{file}: {name} is {list(arrays[name].shape)}; it should be {list(expected)}.")


def _names(absolute: list[str], relative: list[str], layers: int) -> dict[str, str]:
    pairs = {"item_embedding.weight": "token_embedding.emb.weight", "item_bias": "head.bias"}
    for part in ("weight", "bias"):
        pairs[f"head.{part}"] = f"head.out.0.{part}"
        pairs[f"head_norm.{part}"] = f"head.out.2.{part}"
    for index, name in enumerate(absolute):
        pairs[f"kernel_embeddings.{name}.weight"] = f"absolute_kernel_embeddings_list.{index}.emb.weight"
    for layer in range(layers):
        pairs.update(_names_of_block(f"blocks.{layer}", f"body.transformer_blocks.{layer}", absolute, relative))
    return pairs


def _names_of_block(ours: str, theirs: str, absolute: list[str], relative: list[str]) -> dict[str, str]:
    modules = {
        "attention.query": "attention.content_linear_layers.0",
        "attention.key": "attention.content_linear_layers.1",
        "attention.value": "attention.content_linear_layers.2",
        "attention.output": "attention.output_linear",
        "feed_forward.inner": "feed_forward.w_1",
        "feed_forward.outer": "feed_forward.w_2",
        "attention_norm": "input_sublayer.norm",
        "feed_forward_norm": "output_sublayer.norm",
    }
    for index in range(len(absolute)):
        modules[f"attention.position_query.{index}"] = f"attention.abs_position_query_linear_layers.{index}"
        modules[f"attention.position_key.{index}"] = f"attention.abs_position_key_linear_layers.{index}"
    pairs = {f"{ours}.{m}.{part}": f"{theirs}.{r}.{part}" for m, r in modules.items() for part in ("weight", "bias")}
    for index in range(len(relative)):
        # its bias adds the same to all logits of a row, so that we have none
        pairs[f"{ours}.attention.gap_key.{index}.weight"] = (
            f"{theirs}.attention.rel_position_key_linear_layers.{index}.weight"
        )
    if relative:
        pairs[f"{ours}.attention.gap_bias"] = f"{theirs}.attention.rel_position_bias"
    return pairs
