"""What tests of data share: columns, keys, the histories a data set holds, and refusals of a request."""

from collections.abc import Callable
from typing import Any

import pytest

from recbole_ext import EventLogDataset, InputError

PLAIN = ("user_id:token", "item_id:token", "timestamp:float")
RATED = (*PLAIN, "rating:float")
LABELLED = (*PLAIN, "label:float")
ALL_COLUMNS = {"load_col": {"inter": "*", "user": "*", "item": "*"}}
TINY = {"topk": [1], "valid_metric": "NDCG@1"}  # for catalogues of a few items


def refused(load: Callable, sentence: str, *args: Any, **keys: Any) -> str:
    """The message with which `load` refuses: one sentence that matches `sentence`."""
    with pytest.raises(InputError, match=sentence) as refusal:
        load(*args, **keys)
    message = str(refusal.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


def histories(dataset: EventLogDataset) -> dict[str, list[str]]:
    """Items of each user in order, from the user's longest history and its target, as tokens."""
    users, items = dataset.field2id_token["user_id"], dataset.field2id_token["item_id"]
    columns = (dataset.inter_feat[name].tolist() for name in ("user_id", "item_id_list", "item_length", "item_id"))
    found: dict[str, list[str]] = {}
    for user, past, length, item in zip(*columns, strict=True):
        tokens = [str(items[index]) for index in [*past[:length], item]]
        if len(tokens) > len(found.get(str(users[user]), ())):
            found[str(users[user])] = tokens
    return found
