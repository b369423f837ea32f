"""BST for one history and one target, without padding, from the paper's equations: slow, and plain to read.

`weights` are the model's, by name. Everything is float64.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tests.oracles.parts import linear, norm


@dataclass
class Case:
    """What a score depends on; features are those of RecBole's tables, by column.

    Attributes:
        items, times: of the history, oldest first.
        target, now: the item to score and the time of the request, in seconds.
        of_items: for each item column, the value of every item; the id is the item itself.
        others: user and context columns, in the model's order.
        pairs: crossed columns.
        past: `history_features` by column, of each item of the history; 0 for events that are not before `now`.
        user_id: the column of the user's id, which is 0 for an unknown user; such a user's crosses are 0.
    """

    items: list[int]
    times: list[float]
    target: int
    now: float
    of_items: dict[str, Tensor]
    others: dict[str, Tensor] = field(default_factory=dict)
    pairs: list[tuple[str, str]] = field(default_factory=list)
    past: dict[str, Tensor] = field(default_factory=dict)
    user_id: str = "user_id"


def leaky(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, 0.01 * x)


def feature(weights: dict[str, Tensor], prefix: str, name: str, value: Tensor) -> Tensor:
    table = weights[f"{prefix}.embeddings.of_{name}.weight"]
    if value.is_floating_point():
        mean, deviation = (weights[f"{prefix}.embeddings.of_{name}.{key}"] for key in ("mean", "deviation"))
        return (float(value) - mean) / deviation * table[:, 0] + weights[f"{prefix}.embeddings.of_{name}.bias"]
    if value.dim() == 0:
        return table[int(value)]
    tokens = [int(token) for token in value if token > 0]
    return sum((table[token] for token in tokens), torch.zeros_like(table[0])) / max(len(tokens), 1)


def item(weights: dict[str, Tensor], case: Case, number: int) -> Tensor:
    return torch.cat([feature(weights, "item_features", name, of[number]) for name, of in case.of_items.items()])


def gap_row(way: str, seconds: float, back: int) -> int:
    if way == "none":
        return 0
    if way == "position":
        return back
    if way == "day":
        return 1 + min(math.floor(seconds / 86400), 366)
    return 1 + min(math.floor(2 * math.log2(1 + seconds)), 64)


def block(weights: dict[str, Tensor], name: str, x: Tensor, heads: int, eps: float) -> Tensor:
    query, key, value = (linear(weights, f"{name}.{part}", x) for part in ("query", "key", "value"))
    d, context = x.shape[1] // heads, []
    for head in range(heads):
        own = slice(head * d, (head + 1) * d)
        logits = query[:, own] @ key[:, own].T / math.sqrt(d)
        context.append(logits.exp() / logits.exp().sum(-1, keepdim=True) @ value[:, own])
    x = norm(weights, f"{name}.attention_norm", x + linear(weights, f"{name}.output", torch.cat(context, 1)), eps)
    inner = linear(weights, f"{name}.outer", leaky(linear(weights, f"{name}.inner", x)))
    return norm(weights, f"{name}.feed_forward_norm", x + inner, eps)


def logit(
    weights: dict[str, Tensor], case: Case, length: int, heads: int, layers: int, output: str, gap: str, eps: float
) -> Tensor:
    """The logit of the case's target; histories of at most `length` items."""
    items, times = case.items[-length:], case.times[-length:]
    rows = [gap_row(gap, case.now - time, len(items) - place) for place, time in enumerate(times)]
    table = weights["gap_embedding.weight"]
    slots = [torch.cat([item(weights, case, one), table[row]]) for one, row in zip(items, rows, strict=True)]
    for place, time in enumerate(times, len(case.times) - len(times)):
        past = [feature(weights, "past_features", name, values[place]) for name, values in case.past.items()]
        slots.append(torch.cat([slots.pop(0), *(vector * (time < case.now) for vector in past)]))
    target = item(weights, case, case.target)
    unknown = table.new_zeros(len(case.past) * len(target) // len(case.of_items))  # as many as for item columns
    x = torch.stack([*slots, torch.cat([target, table[0], unknown])])
    for layer in range(layers):
        x = block(weights, f"blocks.{layer}", x, heads, eps)
    empty = x.new_zeros(length - len(items), x.shape[1])
    x = torch.cat([empty, x]).flatten() if output == "flatten" else x[-1]
    parts = [x, target, *(feature(weights, "other_features", name, value) for name, value in case.others.items())]
    values = {**case.others, **{name: of[case.target] for name, of in case.of_items.items()}}
    for number, (one, other) in enumerate(case.pairs):
        table = weights[f"crosses.embeddings.{number}.weight"]
        row = table[int(values[one]) * case_size(weights, other) + int(values[other])]
        parts.append(row * (case.user_id not in (one, other) or int(values[case.user_id]) > 0))
    x, depth = torch.cat(parts), 0
    while f"mlp.{depth}.weight" in weights:
        x = linear(weights, f"mlp.{depth}", leaky(x) if depth else x)
        depth += 1
    return x.squeeze(0)


def case_size(weights: dict[str, Tensor], name: str) -> int:
    """Rows of the table of a token column."""
    for prefix in ("item_features", "other_features"):
        if f"{prefix}.embeddings.of_{name}.weight" in weights:
            return len(weights[f"{prefix}.embeddings.of_{name}.weight"])
    raise KeyError(name)
