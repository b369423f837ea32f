"""A trained model ready to answer requests; recommend, explain and export share it."""

import os
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from recbole.data.interaction import Interaction
from recbole.data.transform import construct_transform
from recbole.utils import ModelType

from recbole_ext.checkpoint import file as checkpoint_file
from recbole_ext.checkpoint.restore import (
    build,
    build_config,
    load_weights,
    naming_checkpoint,
    resolve_class,
    set_device,
)
from recbole_ext.config.config import OfflineConfig
from recbole_ext.config.metrics import for_serving
from recbole_ext.data.description import DatasetDescription
from recbole_ext.data.files.item_files import ITEM_NAME, resolve_item_names
from recbole_ext.errors import InputError
from recbole_ext.serving.columns import Vocabulary
from recbole_ext.serving.histories import HistoryReader
from recbole_ext.serving.requests import Requests
from recbole_ext.serving.scoring import Scorer, make_scorer
from recbole_ext.utils import random_state

Served = TypeVar("Served", bound="ServedModel")


class ServedModel:
    """A sequential model in evaluation mode with its vocabularies, reader and scorer. V items.

    Attributes:
        config: the configuration of the training.
        model: the network.
        description: sizes, vocabularies and features of the training data.
        user_field, item_field, time_field (str): names of the columns of histories.
        items, users (Vocabulary): the items and users of the training.
        item_names: display names by item id, object [V + 1], or None; see `load`.
        reader: reads histories for this model.
        scorer: scores items in bounded memory.
        path: of the checkpoint, or None.
        checkpoint: what the checkpoint holds, without weights; empty without a checkpoint.
    """

    def __init__(self, config: Any, model: Any, description: DatasetDescription, item_names: Any = None):
        self.config, self.model, self.description = config, model.eval(), description
        self.user_field: str = description.uid_field
        self.item_field: str = description.iid_field
        self.time_field: str = description.time_field
        self.items = Vocabulary(description.field2id_token[self.item_field])
        self.users = Vocabulary(description.field2id_token[self.user_field])
        self.item_names = self._resolve_item_names(item_names)
        self.reader = HistoryReader(description, self.items, self.users, model)
        self.scorer: Scorer = make_scorer(model, (config["eval_memory_mb"] or 1024) * 2**20, description.item_feat)
        self.path: str | os.PathLike | None = None
        self.checkpoint: dict[str, Any] = {}
        self._transform = construct_transform(config)

    @classmethod
    def load(
        cls: type[Served],
        path: str | os.PathLike,
        device: str | torch.device | None = None,
        model: type | None = None,
        item_names: str | os.PathLike | Mapping[Any, str] | bool | None = None,
    ) -> Served:
        """Rebuild the model of a checkpoint; neither data set nor atomic files are needed.

        Args:
            path: a checkpoint of this package.
            device: of the model; `None` means the device that its configuration selects on this machine.
            model: the class, for a model that comes neither from this package nor from RecBole.
            item_names: display names of items, such as titles. `None` takes the names in the checkpoint (training key
                `item_names`), if there are any. Otherwise a file with two columns, items and names; a mapping; or the
                name of the column that the names in the checkpoint come from. `False` leaves names out.

        Raises:
            InputError: the checkpoint cannot be read, is not of a sequential model, or lacks data needed to rebuild
                it; the item names cannot be read, or do not belong to any item of the model.
        """
        state = checkpoint_file.load(path)
        state["optimizer"] = {}  # twice the size of the weights, and not needed here
        model_class = resolve_class(state, model, str(path))
        with naming_checkpoint(path):
            config = build_config(OfflineConfig, {**state, "config": for_serving(state["config"])}, model_class, {})
        if config["MODEL_TYPE"] != ModelType.SEQUENTIAL:
            raise InputError(
                f"checkpoint {path} is of {state['model']}, which is not a sequential model: it does not use histories."
            )
        set_device(config, device)
        with naming_checkpoint(path):
            network, description = _rebuild(config, state, path)
        load_weights(network, state, path)
        served = cls(config, network, description, item_names)
        served.path = path
        served.checkpoint = {key: value for key, value in state.items() if key not in ("state_dict", "optimizer")}
        return served

    def _resolve_item_names(self, item_names: Any) -> np.ndarray | None:
        names = resolve_item_names(item_names, self.description.item_names, self.items.tokens)
        if names is not None and ITEM_NAME in (self.user_field, self.item_field):
            raise InputError(
                f"item_names adds a column '{ITEM_NAME}', which is also the column of users or items here; set "
                f"item_names to False."
            )
        return names

    def trained_items(self) -> np.ndarray:
        """Which items have training events, by id: bool [V + 1], False for the padding.

        An item has one if it occurs in the training part of the data, as an event to predict or in a history.

        Raises:
            InputError: the checkpoint is of a version that did not store it.
        """
        trained = self.description.trained_items
        if trained is None:
            raise InputError(
                f"trained_items_only needs to know which items had training events, which this checkpoint does not "
                f"hold; train {type(self.model).__name__} anew."
            )
        return trained.numpy()

    def prepare(self, requests: Requests, rows: slice) -> Any:
        """The item-independent part of scoring some of the requests; `scorer.score` takes it."""
        device = self.config["device"]
        user_features = {name: values[rows].to(device) for name, values in requests.user_features.items()}
        return self.scorer.prepare(self.model_input(requests.examples[rows].gather()), user_features)

    def model_input(self, batch: Interaction) -> Interaction:
        """Gathered examples with stored user features and RecBole's transform, on the device of the model."""
        batch.update(self.description.user_feat[batch[self.user_field]])
        return self._transform(self.description, batch).to(self.config["device"])


def _rebuild(config: Any, state: dict[str, Any], path: str | os.PathLike) -> tuple[Any, DatasetDescription]:
    """The model without its weights, and the description of its data. The caller's random state does not change."""
    if not isinstance(state.get("data"), dict):
        raise InputError(
            f"checkpoint {path} does not describe its data; train {state['model']} anew, or use load_data_and_model."
        )
    try:
        with random_state.preserved():
            description = DatasetDescription(config, state["data"], state["tokens"], state["time_origin"])
            return build(config, description), description
    except InputError:
        raise
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(
            f"checkpoint {path} does not describe its data well enough for {state['model']} ({error}); use "
            f"load_data_and_model."
        ) from error
