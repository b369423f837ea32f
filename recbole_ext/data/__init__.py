"""Data: RecBole's atomic files to loaders, on the event log."""

import importlib
import os
from logging import getLogger

import recbole.data
from recbole.utils import ModelType

from recbole_ext.config.checks import check_catalogue, limit_eval_batch
from recbole_ext.data.event_log import EventLogDataset
from recbole_ext.data.presplit import PreSplitDataset
from recbole_ext.errors import InputError

__all__ = ["EventLogDataset", "create_dataset", "data_preparation"]

NO_FILE = os.path.join(os.devnull, "loaders")
PICKLES = ("save_dataset", "dataset_save_path", "save_dataloaders", "dataloaders_save_path")


def create_dataset(config):
    """The data set for the model of `config`.

    Sequential models get the event log, RecBole's own included, unless RecBole has a data set class made for them
    (DIEN, KSR, GRU4RecKG). All others get RecBole's.

    Raises:
        InputError: the files or the filters are wrong; `topk` exceeds the catalogue.
    """
    own = importlib.import_module("recbole.data.dataset")
    try:
        if config["MODEL_TYPE"] == ModelType.SEQUENTIAL and not hasattr(own, config["model"] + "Dataset"):
            ignored = [key for key in PICKLES if config[key]]
            if ignored:
                getLogger().warning(f"{', '.join(ignored)}: ignored, the event log is read anew in seconds.")
            dataset = (PreSplitDataset if config["benchmark_filename"] else EventLogDataset)(config)
        else:
            dataset = recbole.data.create_dataset(config)
    except InputError:
        raise
    except ValueError as error:  # RecBole's own refusals
        raise InputError(str(error)) from error
    check_catalogue(config, dataset.item_num)
    limit_eval_batch(config, dataset.item_num)
    return dataset


def data_preparation(config, dataset):
    """RecBole's `data_preparation`: training, validation and test loaders, as `eval_args` says.

    Raises:
        InputError: the data cannot be split or sampled from in that way.
    """
    given = {key: config[key] for key in ("save_dataloaders", "dataloaders_save_path")}
    if isinstance(dataset, EventLogDataset):
        # RecBole would take up the pickled loaders of an earlier run, though keys of ours may have changed since
        config["save_dataloaders"], config["dataloaders_save_path"] = False, NO_FILE
    try:
        return recbole.data.data_preparation(config, dataset)
    except InputError:
        raise
    except (ValueError, NotImplementedError) as error:
        raise InputError(str(error)) from error
    finally:
        for key, value in given.items():
            config[key] = value
