"""Attentions that take the place of LightSANs' own, for one history at a time, without padding: slow, plain to read.

Every function takes the weights by name (the module's, its buffers, and the block's `value`), the T slots x [T, H] of
a history, and n heads; it returns the context of every slot, [T, H]. Everything is float64.
"""

import math

import torch
from torch import Tensor

from tests.oracles.lightsans import linear, softmax

Weights = dict[str, Tensor]


def per_head(x: Tensor, heads: int) -> list[Tensor]:
    d = x.shape[1] // heads
    return [x[:, head * d : (head + 1) * d] for head in range(heads)]


def projected(weights: Weights, names: list[str], x: Tensor, heads: int) -> list[tuple[Tensor, ...]]:
    """For each head, the projections [T, d] of those names."""
    return list(zip(*(per_head(linear(weights, name, x), heads) for name in names), strict=True))


def full(weights: Weights, x: Tensor, heads: int) -> Tensor:
    """softmax(Q K^T / sqrt d) V (Vaswani et al., 2017, eq. 1)."""
    parts = projected(weights, ["query", "key", "value"], x, heads)
    return torch.cat([softmax(q @ k.T / math.sqrt(q.shape[1])) @ v for q, k, v in parts], 1)


def linformer(weights: Weights, x: Tensor, heads: int) -> Tensor:
    """softmax(Q (E K)^T / sqrt d) (F V) (Wang et al., 2020, eq. 7); slots behind the history have no keys and values.

    E [K, L] and F [K, L] are the same for all heads.
    """
    e, f = weights["key_slots"][:, : len(x)], weights["value_slots"][:, : len(x)]
    parts = projected(weights, ["query", "key", "value"], x, heads)
    return torch.cat([softmax(q @ (e @ k).T / math.sqrt(q.shape[1])) @ (f @ v) for q, k, v in parts], 1)


def kernel(weights: Weights, x: Tensor, heads: int, phi) -> Tensor:
    """sum_j phi(q_i) phi(k_j) v_j / sum_j phi(q_i) phi(k_j), over all pairs of slots (Katharopoulos et al., eq. 4)."""
    context = []
    for q, k, v in projected(weights, ["query", "key", "value"], x, heads):
        rows = []
        for query in q:
            similar = torch.stack([phi(query) @ phi(key) for key in k])
            rows.append((similar.unsqueeze(1) * v).sum(0) / similar.sum())
        context.append(torch.stack(rows))
    return torch.cat(context, 1)


def linear_attention(weights: Weights, x: Tensor, heads: int) -> Tensor:
    """phi(x) = elu(x) + 1 (Katharopoulos et al., 2020, eq. 7)."""
    return kernel(weights, x, heads, lambda one: torch.where(one > 0, one + 1, one.exp()))


def performer(weights: Weights, x: Tensor, heads: int) -> Tensor:
    """phi(x) = exp(w_1 x - |x|^2 / 2), ..., exp(w_m x - |x|^2 / 2) over sqrt m (Choromanski et al., 2021, lemma 1).

    Queries and keys are divided by the fourth root of d first, so that q k is q k / sqrt d.
    """
    directions = weights["directions"]

    def phi(one: Tensor) -> Tensor:
        one = one / len(one) ** 0.25
        features = [torch.exp(direction @ one - one @ one / 2) for direction in directions]
        return torch.stack(features) / math.sqrt(len(directions))

    return kernel(weights, x, heads, phi)


def synthesizer(weights: Weights, x: Tensor, heads: int) -> Tensor:
    """softmax(relu(x W_1 + b_1) W_2 + b_2) V (Tay et al., 2021, dense), over the slots of the history."""
    context = []
    for head, (inner, v) in enumerate(projected(weights, ["inner", "value"], x, heads)):
        logits = torch.where(inner > 0, inner, 0) @ weights["slots"][head] + weights["bias"][head]  # [T, L]
        context.append(softmax(logits[:, : len(x)]) @ v)
    return torch.cat(context, 1)
