"""The attention behind a score as tables; `Explanation` describes their columns. T events, K interests."""

import pandas as pd
import torch

from recbole_ext.model.contract import AttentionWeights


def attention_table(attention: AttentionWeights | None, tokens: list[str], item: str, item_field: str) -> pd.DataFrame:
    """The weight of each slot in each head, for `Explanation.attention`.

    Args:
        attention: of the model; `None` gives an empty table.
        tokens: items of the T events.
        item: token of the explained item.
        item_field: name of the column of items.
    """
    columns = ["layer", "head", "place", "slot", item_field, "weight"]
    if attention is None:
        return pd.DataFrame([], columns=columns)
    slots = [("event", token) for token in tokens]
    if attention.query_slot:
        slots.append((attention.query_slot, {"request": "[MASK]", "target": item}[attention.query_slot]))
    rows = [
        (head.layer, head.name, place, slot, token, weight)
        for head in attention.heads
        for place, ((slot, token), weight) in enumerate(zip(slots, head.weights.double().tolist(), strict=True))
    ]
    return pd.DataFrame(rows, columns=columns)


def interest_table(attention: AttentionWeights | None, tokens: list[str], item_field: str) -> pd.DataFrame:
    """The weight of each event in each interest of LightSANs, for `Explanation.interests`."""
    rows = [
        (layer.layer, interest, place, token, key, value)
        for layer in (attention.interests if attention else ())
        for interest, weights in enumerate(torch.stack([layer.keys, layer.values], -1).double().tolist(), 1)
        for place, (token, (key, value)) in enumerate(zip(tokens, weights, strict=True))
    ]
    return pd.DataFrame(rows, columns=["layer", "interest", "place", item_field, "key_weight", "value_weight"])


def interest_use_table(attention: AttentionWeights | None) -> pd.DataFrame:
    """The weight of each interest in each head of LightSANs, for `Explanation.interest_use`."""
    rows = [
        (layer.layer, head, interest, weight)
        for layer in (attention.interests if attention else ())
        for head, weights in enumerate(layer.use.double().tolist(), 1)
        for interest, weight in enumerate(weights, 1)
    ]
    return pd.DataFrame(rows, columns=["layer", "head", "interest", "weight"])
