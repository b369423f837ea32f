"""Layers that the plain formulations share; `weights` are a model's, by name."""

from torch import Tensor


def linear(weights: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def norm(weights: dict[str, Tensor], name: str, x: Tensor, eps: float) -> Tensor:
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
    return (x - mean) / (variance + eps).sqrt() * weights[f"{name}.weight"] + weights[f"{name}.bias"]
