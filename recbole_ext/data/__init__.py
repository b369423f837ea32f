"""Data: RecBole's atomic files to loaders, on the event log."""

import importlib
from logging import getLogger

import recbole.data
from recbole.utils import ModelType

from recbole_ext.config.checks import check_catalogue, limit_eval_batch
from recbole_ext.data.event_log import EventLogDataset
from recbole_ext.errors import InputError

__all__ = ["EventLogDataset", "create_dataset", "data_preparation"]


def create_dataset(config):
    """The data set for the model of `config`.

    Sequential models get the event log, RecBole's own included, unless RecBole has a data set class made for them
    (DIEN, KSR, GRU4RecKG). All others get RecBole's.

    Raises:
        InputError: the files or the filters are wrong; `topk` exceeds the catalogue.
    """
    own = importlib.import_module("recbole.data.dataset")
    if config["MODEL_TYPE"] == ModelType.SEQUENTIAL and not hasattr(own, config["model"] + "Dataset"):
        if config["save_dataset"] or config["dataset_save_path"]:
            getLogger().warning(
                "save_dataset and dataset_save_path are ignored: the event log is read anew in seconds."
            )
        dataset = EventLogDataset(config)
    else:
        try:
            dataset = recbole.data.create_dataset(config)
        except ValueError as error:
            raise InputError(str(error)) from error
    check_catalogue(config, dataset.item_num)
    limit_eval_batch(config, dataset.item_num)
    return dataset


def data_preparation(config, dataset):
    """RecBole's `data_preparation`: training, validation and test loaders, as `eval_args` says."""
    return recbole.data.data_preparation(config, dataset)
