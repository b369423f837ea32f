"""Data: RecBole's atomic files to loaders, on the event log."""

import contextlib
import hashlib
import importlib
import os
from collections.abc import Iterator
from logging import getLogger
from typing import Any

import numpy as np
import recbole.data
from recbole.utils import ModelType

from recbole_ext.config.checks import check_catalogue, limit_eval_batch
from recbole_ext.config.evaluation import check_evaluation
from recbole_ext.data.column_keys import check_column_keys
from recbole_ext.data.event_log import EventLogDataset
from recbole_ext.data.files.atomic_file import download
from recbole_ext.data.presplit import PreSplitDataset
from recbole_ext.data.recbole_dataset import dataset_class
from recbole_ext.data.seeded_loader import seeded
from recbole_ext.errors import InputError, recbole_errors_as_input_error

__all__ = ["EventLogDataset", "create_dataset", "data_preparation"]

NO_FILE = os.path.join(os.devnull, "none")  # there is never such a file
PICKLES = ("save_dataset", "dataset_save_path", "save_dataloaders", "dataloaders_save_path")


def create_dataset(config):
    """The data set for the model of `config`.

    Sequential models get the event log, RecBole's own included, unless RecBole has a data set class made for them
    (DIEN, KSR, GRU4RecKG). All others get RecBole's.

    Nothing depends on the keys of evaluation: one data set can serve several runs.

    Raises:
        InputError: the files or the filters are wrong.
    """
    own = importlib.import_module("recbole.data.dataset")
    ignored = [key for key in PICKLES if config[key]]
    if ignored:
        getLogger().warning(f"{', '.join(ignored)}: ignored, the files are read anew.")
    with _no_pickles(config), _recbole_reads(config):
        if not os.path.exists(config["data_path"]):
            download(config)
        check_column_keys(config)
        if config["MODEL_TYPE"] == ModelType.SEQUENTIAL and not hasattr(own, config["model"] + "Dataset"):
            dataset = (PreSplitDataset if config["benchmark_filename"] else EventLogDataset)(config)
        else:
            if config["item_names"]:
                raise InputError(
                    f"item_names is '{config['item_names']}', but checkpoints of {config['model']} hold no names of "
                    f"items: they cannot be served from alone; leave it out."
                )
            dataset = dataset_class(config)(config)
    dataset.digest = data_digest(dataset)  # for checkpoints; splits keep it
    return dataset


def data_preparation(config, dataset):
    """RecBole's `data_preparation`: training, validation and test loaders, as `eval_args` says.

    Whatever they draw (negatives, masks, candidates) depends on `seed` and not on `worker`. The candidates of an
    evaluation are the same on every pass.

    Raises:
        InputError: keys of evaluation contradict each other or the model; `topk` exceeds the number of items; the data
            cannot be split or sampled from in that way.
    """
    check_evaluation(config)
    for sentence in getattr(config, "changed_defaults", ()):
        getLogger().warning(sentence)
    if dataset.iid_field:  # otherwise there are labelled events without items, and nothing is ranked
        check_catalogue(config, dataset.item_num)
        limit_eval_batch(config, dataset.item_num)
    dataset.makes_loaders = True
    with _no_pickles(config), _recbole_reads(config):
        loaders = recbole.data.data_preparation(config, dataset)
    loaders = tuple(seeded(loader, number > 0) for number, loader in enumerate(loaders))
    for loader in loaders:
        _check_draws(getattr(loader, "_sampler", None))
        if config["transform"] == "mask_itemseq":
            _check_masks(loader._dataset)
    if {"AUC", "GAUC"} & set(config["metrics"]):
        for part, loader in zip(("valid", "test"), loaders[1:], strict=True):
            if config["eval_args"]["mode"][part] == "labeled" and loader is not None:
                _check_classes(loader._dataset, part, config)
    return loaders


def _check_draws(sampler) -> None:
    """Refuse popularity that leaves nothing to draw: RecBole would go on drawing for ever.

    Only items of targets are drawn, and never one that the user has had; of sequential models, never the target.
    """
    if getattr(sampler, "distribution", "") != "popularity":
        return
    popular = sampler.prob.keys()
    had = any(len(popular) <= len(used) and popular <= used for used in sampler.used_ids)
    if had or len(popular) < 2:
        raise InputError(
            f"negatives are drawn by popularity from the {len(popular)} items of the targets, of which some user has "
            f"had all; draw them uniformly: distribution uniform, mode uniN."
        )


def _check_masks(dataset) -> None:
    """Refuse histories that hold every item: RecBole would go on for ever to draw another one for a mask."""
    count = dataset.item_num - 1
    lengths = dataset.inter_feat[dataset.item_list_length_field]
    for row in (lengths >= count).nonzero().flatten().tolist():
        example = dataset.inter_feat[[row]]
        items = example[dataset.iid_field + dataset.config["LIST_SUFFIX"]]
        if len(items[items > 0].unique()) == count:
            user = dataset.id2token(dataset.uid_field, int(example[dataset.uid_field][0]))
            raise InputError(
                f"transform mask_itemseq draws an item that is not in the history, but a history of user '{user}' "
                f"holds all {count} items; lower MAX_ITEM_LIST_LENGTH below {count}."
            )


def _check_classes(dataset, part: str, config) -> None:
    """Refuse labels of which AUC cannot be computed, better now than after an epoch."""
    field, metric = config["LABEL_FIELD"], "AUC" if "AUC" in config["metrics"] else "GAUC"
    if len(dataset.inter_feat) == 0 or field not in dataset.inter_feat:  # the trainer refuses data without labels
        return
    label = dataset.inter_feat[field]
    if len(labels := set(label.tolist())) < 2:
        raise InputError(
            f"metrics has {metric}, but in the {part} data every '{field}' is {labels.pop():g}; {metric} needs labels "
            f"of 0 and of 1: choose LogLoss, another threshold or another split."
        )
    if "GAUC" not in config["metrics"]:
        return
    user = dataset.inter_feat[config["USER_ID_FIELD"]]
    if not set(user[label > 0].tolist()) & set(user[label == 0].tolist()):
        raise InputError(f"metrics has GAUC, but in the {part} data no user has events of both labels; choose AUC.")


@contextlib.contextmanager
def _no_pickles(config) -> Iterator[None]:
    """Keep RecBole from pickling data, and from unpickling a file that it finds in `checkpoint_dir`.

    Such a file could run code, and RecBole would take it though keys of ours may have changed since.
    """
    given = {key: config[key] for key in PICKLES}
    for key in PICKLES:
        config[key] = NO_FILE if key.endswith("path") else False
    try:
        yield
    finally:
        for key, value in given.items():
            config[key] = value


def _recbole_reads(config) -> contextlib.AbstractContextManager[None]:
    return recbole_errors_as_input_error(f"data set '{config['dataset']}' with these keys")


def data_digest(dataset: Any) -> str:
    """A number that changes with the events of a data set: any value of any column that is loaded, or their order.

    Args:
        dataset: as RecBole's `create_dataset` returns it, before it is split.
    """
    digest = hashlib.sha256(repr(getattr(dataset, "time_origin", None)).encode())
    for field in sorted(dataset.inter_feat):
        digest.update(field.encode())
        values = dataset.inter_feat[field]
        if values.dtype == object:  # sequences
            digest.update(np.array([len(value) for value in values]).tobytes())
            values = np.concatenate([np.ravel(value) for value in values])
        digest.update(np.asarray(values, dtype=np.float64).tobytes())
    return digest.hexdigest()
