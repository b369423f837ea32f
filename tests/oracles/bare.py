"""MEANTIME and TiSASRec without a data set, a plain counterpart, and sequences."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recbole_ext.config import properties_file
from recbole_ext.model import MEANTIME, TiSASRec
from recbole_ext.utils.literals import read_yaml
from tests.oracles.meantime import PlainMeantime

DAY = 86400.0
FIELDS = {
    "USER_ID_FIELD": "user_id", "ITEM_ID_FIELD": "item_id", "TIME_FIELD": "timestamp", "LIST_SUFFIX": "_list",
    "ITEM_LIST_LENGTH_FIELD": "item_length", "NEG_PREFIX": "neg_", "device": torch.device("cpu"),
    "preload_weight": None,
}  # fmt: skip


class _Data(SimpleNamespace):
    """As much of a data set as the models look at."""

    def num(self, field: str) -> int:
        return self.items


def bare_config(model: str, keys: dict[str, Any]) -> dict[str, Any]:
    """The default keys of a model except those given, and no dropout."""
    no_dropout = {"hidden_dropout_prob": 0.0, "attn_dropout_prob": 0.0}
    return {**read_yaml(properties_file(model)), **no_dropout, **FIELDS, **keys}


def bare_tisasrec(items: int = 40, **keys: Any) -> TiSASRec:
    """TiSASRec for `items` items."""
    return TiSASRec(bare_config("TiSASRec", keys), _Data(items=items + 1))


def bare_meantime(items: int = 40, days: int = 30, **keys: Any) -> MEANTIME:
    """MEANTIME for `items` items and `days` days."""
    config = bare_config("MEANTIME", keys)
    times = torch.tensor([0.0, days * DAY - 1], dtype=torch.float64)
    return MEANTIME(config, _Data(items=items + 1, time_origin=0.0, inter_feat={"timestamp": times}))


def plain_like(
    model: MEANTIME, content_bias: bool = False, dropout: float = 0.0, freq: float | None = None
) -> PlainMeantime:
    """The plain model with the settings and (copies of the) weights of `model`; `freq` unless it is the default."""
    table = model.kernel_embeddings["day"].num_embeddings if "day" in model.absolute else 1
    freq = freq or read_yaml(properties_file("MEANTIME"))["kernel_freq"]
    block = model.blocks[0]
    plain = PlainMeantime(
        model.n_items, model.max_seq_length, table, model.absolute, model.relative,
        model.item_embedding.embedding_dim, block.feed_forward.inner.out_features, len(model.blocks),
        getattr(model, "first_second", 0.0), content_bias, model.pad_class, freq, model.tau,
        block.attention_norm.eps, dropout, dropout, model.is_sasrec,
    )  # fmt: skip
    plain.to(model.item_bias.device, model.item_bias.dtype).load_state_dict(model.state_dict())
    return plain


def randomise(model: nn.Module, deviation: float = 0.2, seed: int = 0) -> None:
    """Weights large enough that every part of the model shows in its output."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            noise = torch.randn(weights.shape, generator=generator, dtype=torch.float64) * deviation
            weights.copy_(1 + noise if name.endswith("norm.weight") else noise)


def sequences(lengths: list[int], items: int = 40, span: float = 20 * DAY, seed: int = 0) -> tuple[Tensor, ...]:
    """Sequences padded on the right: ids [B, T], times in whole seconds float64 [B, T], lengths [B].

    The first times of a sequence are equal, a second and a minute apart; the others lie anywhere within `span`.
    """
    random = np.random.default_rng(seed)
    slots = max(lengths)
    tokens, times = np.zeros((len(lengths), slots), dtype=np.int64), np.zeros((len(lengths), slots))
    for row, length in enumerate(lengths):
        tokens[row, :length] = random.integers(1, items + 1, length)
        start = np.floor(random.uniform(0, span / 2))
        late = np.floor(random.uniform(start + 60, span, max(length - 4, 0)))
        times[row, :length] = np.sort(np.concatenate([start + np.array([0, 0, 1, 60])[:length], late]))[:length]
    return torch.from_numpy(tokens), torch.from_numpy(times), torch.tensor(lengths)
