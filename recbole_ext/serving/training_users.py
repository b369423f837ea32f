"""Histories of everyone in the data that a model was trained on."""

from dataclasses import replace
from logging import getLogger
from typing import Any

import numpy as np
import torch

from recbole_ext.checkpoint import file as checkpoint
from recbole_ext.checkpoint.restore import build_config, compare_data, naming_checkpoint, resolve_class
from recbole_ext.config import Config
from recbole_ext.data import create_dataset
from recbole_ext.data.examples import EventLog, Examples, Ranges
from recbole_ext.errors import InputError
from recbole_ext.model import contract
from recbole_ext.serving.histories import Requests
from recbole_ext.utils.wording import counted


def training_user_requests(path: str, changes: dict[str, Any], context: list[str]) -> Requests:
    """A request for each user of the training data, just after their last event, validation and test data included.

    Args:
        path: of the checkpoint.
        changes: keys to change, e.g. `data_path` where the data has moved.
        context: columns that the model takes from a user's last event.

    Raises:
        InputError: the data is missing or is not what it was, or its files hold histories of their own.
    """
    state = checkpoint.load(path)
    network_class = resolve_class(state, None, path)
    with naming_checkpoint(path, changes):
        config = build_config(Config, state, network_class, changes)
        dataset = create_dataset(config)
    compare_data(state, dataset, config["data_path"], path)
    frame = dataset.inter_feat  # every event, those included that histories and targets leave out
    users, items = (frame[name].to_numpy() for name in (dataset.uid_field, dataset.iid_field))
    last = frame.iloc[np.lexsort((frame[dataset.time_field].to_numpy(), users))].groupby(dataset.uid_field).tail(1)
    last = dataset._dataframe_to_interaction(last[[dataset.uid_field, dataset.time_field, *context]])
    dataset.build()
    past = dataset.inter_feat.history
    if dataset.uid_field not in past.columns:
        raise InputError("benchmark_filename has histories of its own, of which no user is sure; give --histories.")
    asked = _requests(dataset, last.interaction, past)
    ids = asked.examples[dataset.uid_field].numpy()
    if len(ids) < dataset.user_num - 1:
        getLogger().warning(
            f"{counted(dataset.user_num - 1 - len(ids), 'user')} without an event for a history left out."
        )
    order = np.argsort(users, kind="stable")
    order = order[np.isin(users[order], ids)]
    first = np.searchsorted(users[order], np.append(ids, np.iinfo(np.int64).max))
    return replace(asked, seen_first=first, seen=items[order])


def _requests(dataset: Any, last: dict[str, torch.Tensor], past: EventLog) -> Requests:
    """A request behind the last event of each user; what they have seen is left open.

    Args:
        dataset: what the events are of.
        last: user, time and context of each user's last event, in the order of users. [n]
        past: the events that may stand in a history, sorted by user and time.
    """
    config, user, item, time = dataset.config, dataset.uid_field, dataset.iid_field, dataset.time_field
    ids, owner = last[user].numpy(), past.columns[user].numpy()
    first, end = np.searchsorted(owner, ids, side="left"), np.searchsorted(owner, ids, side="right")
    able = end - first >= contract.min_history(config.model_class)
    ids, first, end = ids[able], first[able], end[able]
    columns = {name: values[torch.from_numpy(able)] for name, values in last.items()}
    log = EventLog({name: past.columns[name] for name in (item, time)}, (item, time))
    ranges = Ranges(np.maximum(first, end - config["MAX_ITEM_LIST_LENGTH"]), end, np.arange(len(ids)))
    names = config["LIST_SUFFIX"], config["ITEM_LIST_LENGTH_FIELD"]
    examples = Examples(EventLog(columns), log, ranges, *names, config["MAX_ITEM_LIST_LENGTH"])
    tokens = np.array([str(token) for token in dataset.field2id_token[user][ids]], dtype=object)
    nothing = np.zeros(0, dtype=np.int64)
    return Requests(tokens, examples, {}, nothing, nothing)
