"""Load the weights of a reference file into our MEANTIME in float64 and measure how far apart the two are."""

import torch
from torch import Tensor, nn

from recbole_ext.errors import InputError
from recbole_ext.model import MEANTIME
from tests.golden.reference import DAY, BadReference, Reference
from tests.oracles.bare import bare_meantime


def build(reference: Reference) -> MEANTIME:
    """Our model with the file's weights in float64.

    Raises:
        BadReference: the file's weights or kernels do not make a model.
    """
    sizes, hidden = reference.sizes, reference.sizes["hidden_size"]
    days = 1
    if "day" in reference.absolute:
        days = len(reference.arrays["param/" + reference.parameters["kernel_embeddings.day.weight"]])
    try:
        model = bare_meantime(
            sizes["n_items"], days, absolute_kernels=reference.absolute, relative_kernels=reference.relative,
            hidden_size=hidden, inner_size=4 * hidden, n_layers=sizes["n_layers"],
            MAX_ITEM_LIST_LENGTH=sizes["max_len"], pad_class=True,
        ).double()  # fmt: skip
    except InputError as error:
        raise BadReference(f"its config makes no model: {error}") from error
    load(model, reference)
    if "day" in reference.absolute:
        model.first_second = first_second(reference)
    return model


def load(model: nn.Module, reference: Reference) -> None:
    """Copy the file's weights into a model with our names."""
    parameters = dict(model.named_parameters())
    if set(parameters) != set(reference.parameters):
        raise AssertionError(f"no reference value for {set(parameters) ^ set(reference.parameters)}")
    with torch.no_grad():
        for ours, theirs in reference.parameters.items():
            values, parameter = reference.arrays[f"param/{theirs}"], parameters[ours]
            if values.numel() != parameter.numel():
                raise BadReference(f"param/{theirs} is {list(values.shape)}; it should be {list(parameter.shape)}.")
            parameter.copy_(values.reshape(parameter.shape))


def first_second(reference: Reference) -> float:
    """Seconds after the beginning of day 0 that time 0 of the file is: its days may begin at any hour."""
    real = reference.arrays["in/tokens"] != 0
    time, day = reference.arrays["in/timestamps"].double(), reference.arrays["in/days"]
    since = (time / DAY - day)[real]  # days since the beginning of day 0, plus less than a day
    if float(since.max() - since.min()) >= 1:
        raise BadReference("in/days are not the days of in/timestamps.")
    return -float(since.min() + since.max() - 1) / 2 * DAY  # as far from both midnights as can be


def compare(reference: Reference) -> dict[str, float]:
    """Largest absolute errors of hidden states, scores, loss, attention of layer 0 (if given) and gradients."""
    arrays, model = reference.arrays, build(reference)
    there = arrays["in/tokens"] != 0  # [B, N], on the right; ours lie on the left
    length = there.sum(1)
    here = there.flip(1)

    def aligned(values: Tensor) -> Tensor:
        moved = torch.zeros_like(values)
        moved[here] = values[there]
        return moved

    tokens, answers = aligned(arrays["in/tokens"]), aligned(arrays["in/labels"])
    time = aligned(arrays["in/timestamps"].double())
    weights: list[Tensor] = []
    hidden = model.encode(tokens, time, length, weights=weights)
    newest = hidden[torch.arange(len(length)), length - 1]
    scores = model.represent(newest) @ model.item_embedding.weight[: model.n_items].T + model.item_bias
    loss = model.cloze_loss(tokens, time, length, answers, answers != 0)
    loss.backward()

    errors = {
        "hidden": distance(hidden[here], arrays["out/hidden"][there]),
        "scores": distance(scores, arrays["out/scores"]),
        "loss": distance(loss.reshape(1), arrays["out/loss"]),
    }
    if "out/attn_0" in arrays:
        ours, theirs = _pairs(torch.stack(weights, dim=1), here), _pairs(arrays["out/attn_0"], there)
        errors["attention"] = distance(ours, theirs)
    errors["gradients"] = gradient_distance(model, reference)
    return errors


def gradient_distance(model: nn.Module, reference: Reference) -> float:
    """The largest error of any gradient."""
    apart = []
    for ours, theirs in reference.parameters.items():
        gradient, right = model.get_parameter(ours).grad, reference.arrays[f"grad/{theirs}"]
        gradient = torch.zeros(right.shape, dtype=right.dtype) if gradient is None else gradient
        apart.append(distance(gradient.reshape(right.shape), right))
    return float(torch.tensor(apart).max())  # unlike Python's max, never hides a NaN


def _pairs(attention: Tensor, real: Tensor) -> Tensor:
    """The attention [B, heads, N, N] between real slots."""
    both = real.unsqueeze(1).unsqueeze(-1) & real.unsqueeze(1).unsqueeze(1)
    return attention[both.expand_as(attention)]


def distance(ours: Tensor, theirs: Tensor) -> float:
    return float((ours.detach() - theirs).abs().max())
