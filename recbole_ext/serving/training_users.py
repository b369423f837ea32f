"""A request for each user of the data that a model was trained on."""

from logging import getLogger
from typing import Any

import numpy as np
import torch

from recbole_ext.checkpoint.restore import build_config, compare_data, naming_checkpoint, resolve_class
from recbole_ext.config import Config
from recbole_ext.data import create_dataset
from recbole_ext.data.examples import EventLog, Examples
from recbole_ext.data.ranges import Ranges
from recbole_ext.errors import InputError
from recbole_ext.serving.histories import HistoryReader
from recbole_ext.serving.requests import Requests
from recbole_ext.serving.served_model import ServedModel
from recbole_ext.utils.wording import counted


def training_user_requests(served: ServedModel, changes: dict[str, Any]) -> Requests:
    """A request for each user just after the user's last event, including validation and test data.

    N events, n users with a history.

    Args:
        served: a model loaded from a checkpoint.
        changes: config keys to change, e.g. `data_path` if the data has moved.

    Raises:
        InputError: the data is missing or has changed, or its files hold ready-made histories.
    """
    dataset = _training_data(served, changes)
    events, user_field = dataset.inter_feat, dataset.uid_field  # all events, also those that no history contains
    event_user, event_item = (events[name].to_numpy() for name in (user_field, dataset.iid_field))
    last_events = events.iloc[dataset.event_order(events)].groupby(user_field).tail(1)
    columns = [user_field, dataset.time_field, *served.reader.context_features]
    requests = dataset._dataframe_to_interaction(last_events[columns]).interaction
    if served.reader.history_features:  # just after the last event, when its outcome is known
        time = requests[dataset.time_field]
        requests[dataset.time_field] = time.nextafter(torch.full_like(time, torch.inf))
    dataset.build()
    history = dataset.inter_feat.history
    if user_field not in history.columns:
        raise InputError("benchmark_filename has ready-made histories, which do not name users; give --histories.")

    examples = _examples(dataset, requests, history, served.reader)
    user_id = examples[user_field].numpy()
    skipped = dataset.user_num - 1 - len(user_id)
    if skipped:
        getLogger().warning(f"{counted(skipped, 'user')} without an event for a history left out.")
    by_user = np.argsort(event_user, kind="stable")
    by_user = by_user[np.isin(event_user[by_user], user_id)]
    seen_start = np.searchsorted(event_user[by_user], np.append(user_id, np.iinfo(np.int64).max))
    tokens = np.array([str(token) for token in dataset.field2id_token[user_field][user_id]], dtype=object)
    return Requests(tokens, examples, {}, event_item[by_user], seen_start)


def _training_data(served: ServedModel, changes: dict[str, Any]) -> Any:
    """The data set of the training before it is split."""
    path = str(served.path)
    with naming_checkpoint(path, changes):
        config = build_config(Config, served.checkpoint, resolve_class(served.checkpoint, None, path), changes)
        dataset = create_dataset(config)
    compare_data(served.checkpoint, dataset, config["data_path"], path)
    return dataset


def _examples(dataset: Any, requests: dict[str, torch.Tensor], history: EventLog, reader: HistoryReader) -> Examples:
    """One example for each user with enough events.

    Args:
        dataset: the data set of the events.
        requests: user, time and context of each user's last event, in the order of users.
        history: the events that a history may contain, sorted by user and time.
        reader: of the model, which says what a history must have.
    """
    config, item, time = dataset.config, dataset.iid_field, dataset.time_field
    user_id, event_user = requests[dataset.uid_field].numpy(), history.columns[dataset.uid_field].numpy()
    start, end = np.searchsorted(event_user, user_id, side="left"), np.searchsorted(event_user, user_id, side="right")
    enough = end - start >= reader.min_history
    start, end = start[enough], end[enough]
    columns = {name: values[torch.from_numpy(enough)] for name, values in requests.items()}
    lists = (item, time, *reader.history_features)
    events = EventLog({name: history.columns[name] for name in lists}, lists)
    ranges = Ranges(np.maximum(start, end - config["MAX_ITEM_LIST_LENGTH"]), end, np.arange(len(start)))
    names = config["LIST_SUFFIX"], config["ITEM_LIST_LENGTH_FIELD"]
    return Examples(EventLog(columns), events, ranges, *names, config["MAX_ITEM_LIST_LENGTH"])
