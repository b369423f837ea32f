"""Load the weights of a reference file into our MEANTIME in float64 and measure how far apart the two are."""

import json
from types import SimpleNamespace

import numpy as np
import torch

from recbole_ext.config.values import read_yaml
from recbole_ext.config import properties_file
from recbole_ext.model import MEANTIME

ABSOLUTE = {"p": "position", "d": "day", "c": "constant"}
RELATIVE = {"s": "sin", "e": "exp", "l": "log"}
TOLERANCE = {"sin": 1e-7, "exp": 1e-5, "log": 1e-5}
DAY = 86400.0


def kernels(file: str) -> tuple[list[str], list[str]]:
    given = json.loads(str(np.load(file)["config"]))
    absolute = [ABSOLUTE[word] for word in given["absolute_kernels"].split("-") if word]
    return absolute, [RELATIVE[word] for word in given["relative_kernels"].split("-") if word]


def tolerance(file: str) -> float:
    """1e-9 for the absolute kernels, 1e-7 with sin, 1e-5 with a tabulated kernel."""
    return max([1e-9, *(TOLERANCE[name] for name in kernels(file)[1])])


class _Data(SimpleNamespace):
    """As much of a data set as MEANTIME looks at."""

    def num(self, field):
        return self.items


def build(file: str) -> tuple[MEANTIME, dict[str, str]]:
    """Our model with the file's weights in float64, and which parameter of the file each of ours came from."""
    given = json.loads(str(np.load(file)["config"]))
    absolute, relative = kernels(file)
    config = {
        **read_yaml(properties_file("MEANTIME")),
        "absolute_kernels": absolute, "relative_kernels": relative, "hidden_size": given["hidden_size"],
        "inner_size": 4 * given["hidden_size"], "n_layers": given["n_layers"], "pad_class": True,
        "MAX_ITEM_LIST_LENGTH": given["max_len"], "hidden_dropout_prob": 0.0, "attn_dropout_prob": 0.0,
        "USER_ID_FIELD": "user_id", "ITEM_ID_FIELD": "item_id", "TIME_FIELD": "timestamp", "LIST_SUFFIX": "_list",
        "ITEM_LIST_LENGTH_FIELD": "item_length", "NEG_PREFIX": "neg_", "device": torch.device("cpu"),
    }  # fmt: skip
    days = torch.tensor([0.0, given["n_days"] * DAY - 1], dtype=torch.float64)
    data = _Data(items=given["n_items"] + 1, time_origin=0.0, inter_feat={"timestamp": days})
    model = MEANTIME(config, data).double()
    source = names(absolute, relative, given["n_layers"])
    stored = np.load(file)
    with torch.no_grad():
        for ours, theirs in source.items():
            values = torch.from_numpy(stored[f"param/{theirs}"])
            parameter = model.get_parameter(ours)
            parameter.copy_(values.reshape(parameter.shape))
    missing = set(dict(model.named_parameters())) - set(source)
    assert not missing, f"parameters without a reference value: {missing}"
    return model, source


def names(absolute: list[str], relative: list[str], layers: int) -> dict[str, str]:
    pairs = {"item_embedding.weight": "token_embedding.emb.weight", "item_bias": "head.bias"}
    for part in ("weight", "bias"):
        pairs[f"head.{part}"] = f"head.out.0.{part}"
        pairs[f"head_norm.{part}"] = f"head.out.2.{part}"
    for index, name in enumerate(absolute):
        pairs[f"kernel_embeddings.{name}.weight"] = f"absolute_kernel_embeddings_list.{index}.emb.weight"
    for layer in range(layers):
        ours, theirs = f"blocks.{layer}", f"body.transformer_blocks.{layer}"
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
        for mine, reference in modules.items():
            for part in ("weight", "bias"):
                pairs[f"{ours}.{mine}.{part}"] = f"{theirs}.{reference}.{part}"
        for index in range(len(relative)):
            weight = f"{theirs}.attention.rel_position_key_linear_layers.{index}.weight"
            pairs[f"{ours}.attention.gap_key.{index}.weight"] = weight
        if relative:
            pairs[f"{ours}.attention.gap_bias"] = f"{theirs}.attention.rel_position_bias"
    return pairs


def compare(file: str) -> dict[str, float]:
    """Largest absolute errors of hidden states, scores, loss, attention of layer 0 and gradients."""
    stored = np.load(file)
    model, source = build(file)
    tokens, labels = torch.from_numpy(stored["in/tokens"]), torch.from_numpy(stored["in/labels"])
    length = (tokens != 0).sum(1)
    slots = tokens.shape[1]
    left = slots - length  # the file pads on the left, RecBole on the right
    source_slot = (torch.arange(slots) + left.unsqueeze(1)).clamp(max=slots - 1)
    real = torch.arange(slots) < length.unsqueeze(1)

    def aligned(values):
        return torch.where(real, values.gather(1, source_slot), 0)

    time = torch.from_numpy(stored["in/timestamps"]).double()
    if "day" in model.absolute:  # the file's days begin at an hour of their own
        begin = (time / DAY - torch.from_numpy(stored["in/days"]))[tokens != 0]
        if float(begin.max() - begin.min()) >= 1:
            raise ValueError(f"{file}: in/days are no days of in/timestamps")
        model.first_second = 1e-3 - float(begin.min()) * DAY
    weights: list[torch.Tensor] = []
    hidden = model.encode(aligned(tokens), aligned(time), length, weights=weights)
    last = hidden.gather(1, (length - 1).view(-1, 1, 1).expand(-1, 1, hidden.shape[-1])).squeeze(1)
    scores = model.represent(last) @ model.item_embedding.weight[: model.n_items].T + model.item_bias
    answers = aligned(labels)
    loss = model.loss_at(aligned(tokens), aligned(time), length, answers, answers != 0)
    loss.backward()

    errors = {
        "hidden": _distance(hidden[real], stored["out/hidden"][tokens.numpy() != 0]),
        "scores": _distance(scores, stored["out/scores"]),
        "loss": _distance(loss.reshape(1), stored["out/loss"]),
    }
    attention = torch.stack(weights, dim=1)  # [B, heads, T, T], rows and columns on the left
    pairs = real.unsqueeze(1).unsqueeze(-1) & real.unsqueeze(1).unsqueeze(1)
    pairs = pairs.expand_as(attention)
    there = torch.from_numpy(stored["in/tokens"] != 0)
    there = (there.unsqueeze(1).unsqueeze(-1) & there.unsqueeze(1).unsqueeze(1)).expand_as(attention)
    if "out/attn_0" in stored:
        errors["attention"] = _distance(attention[pairs], stored["out/attn_0"][there.numpy()])
    worst = 0.0
    for ours, theirs in source.items():
        gradient = model.get_parameter(ours).grad
        reference = stored[f"grad/{theirs}"]
        gradient = torch.zeros(reference.shape).double() if gradient is None else gradient
        worst = max(worst, _distance(gradient.reshape(reference.shape), reference))
    errors["gradients"] = worst
    return errors


def _distance(ours: torch.Tensor, theirs: np.ndarray) -> float:
    return float((ours.detach() - torch.from_numpy(theirs)).abs().max())
