"""From RecBole's atomic files to loaders with reproducible random draws."""

import contextlib
import hashlib
import importlib
import os
from collections.abc import Iterator
from functools import cache, partial
from logging import getLogger
from typing import Any

import numpy as np
import recbole.data
import torch
from recbole.data.dataloader import KnowledgeBasedDataLoader
from recbole.utils import ModelType

from recbole_ext.config.checks import check_evaluation, check_item_count, limit_eval_batch
from recbole_ext.data.column_keys import check_column_keys
from recbole_ext.data.event_log_dataset import EventLogDataset
from recbole_ext.data.files.atomic_file import download
from recbole_ext.data.prepared_copy import with_prepared_copy
from recbole_ext.data.presplit import PreSplitDataset
from recbole_ext.data.splits import recbole_dataset_class
from recbole_ext.data.target_sampler import limit_targets
from recbole_ext.data.unseen_candidates import with_unseen_candidates
from recbole_ext.errors import InputError, recbole_errors_as_input_error
from recbole_ext.utils.random_state import fixed_seed
from recbole_ext.utils.signals import leave_to_parent

PICKLE_KEYS = ("save_dataset", "dataset_save_path", "save_dataloaders", "dataloaders_save_path")
NO_FILE = os.path.join(os.devnull, "none")  # a path that cannot exist


def create_dataset(config):
    """Read the data set for the model of `config`.

    Sequential models, including RecBole's, use the event log, except models with their own data set class in RecBole
    (DIEN, KSR, GRU4RecKG). All other models use RecBole's data set.

    The result does not depend on the keys of evaluation, so several runs can share a data set.

    Raises:
        InputError: the files or the filters are wrong.
    """
    recbole_datasets = importlib.import_module("recbole.data.dataset")
    ignored = [key for key in PICKLE_KEYS if config[key]]
    if ignored:
        getLogger().warning(f"{', '.join(ignored)}: ignored; the atomic files are read instead.")
    with _pickling_disabled(config), _recbole_errors_named(config):
        if not os.path.exists(config["data_path"]):
            download(config)
        check_column_keys(config)
        if config["MODEL_TYPE"] == ModelType.SEQUENTIAL and not hasattr(recbole_datasets, config["model"] + "Dataset"):
            return with_prepared_copy(config, partial(_event_log_dataset, config))
        if config["item_names"]:
            raise InputError(
                f"item_names is '{config['item_names']}', but checkpoints of {config['model']} do not store item "
                f"names, as they cannot be served without the data set; leave it out."
            )
        dataset = recbole_dataset_class(config)(config)
    dataset.digest = data_digest(dataset)  # for checkpoints; the parts of a split have it as well
    return dataset


def _event_log_dataset(config):
    dataset: Any = (PreSplitDataset if config["benchmark_filename"] else EventLogDataset)(config)
    dataset.digest = data_digest(dataset)  # of the events in the order of the file
    dataset.sort_events()
    return dataset


def data_preparation(config, dataset):
    """RecBole's `data_preparation`: training, validation and test loaders, split by `eval_args`.

    Random draws (negatives, masks, candidates) depend on `seed` and not on `worker`. Every pass over validation or test
    data has the same candidates.

    Raises:
        InputError: evaluation keys contradict each other or the model; `topk` exceeds the number of items; the data
            cannot be split or sampled as configured.
    """
    check_evaluation(config)
    for sentence in getattr(config, "changed_defaults", ()):
        getLogger().warning(sentence)
    if dataset.iid_field:  # without items, events have labels only and nothing is ranked
        check_item_count(config, dataset.item_num)
        limit_eval_batch(config, dataset.item_num)
    dataset.makes_loaders = True
    with _pickling_disabled(config), _recbole_errors_named(config):
        loaders = recbole.data.data_preparation(config, dataset)
    loaders = with_unseen_candidates(loaders, dataset, config)
    loaders = tuple(seeded(loader, evaluates=number > 0) for number, loader in enumerate(loaders))
    limit_targets(loaders[0], config)
    for loader in loaders:
        _check_draws(getattr(loader, "_sampler", None))
        if config["transform"] == "mask_itemseq":
            _check_masks(loader._dataset)
    for part, loader in zip(("valid", "test"), loaders[1:], strict=True):
        if config["eval_args"]["mode"][part] == "labeled" and loader is not None:
            check_classes(loader._dataset, f"the {part} data", config)
    return loaders


def data_digest(dataset: Any) -> str:
    """The SHA-256 digest of the events, which depends on every value of the loaded columns and on their order.

    The table is in the order of the file, so the digest also depends on `tie_break`.

    Args:
        dataset: the result of `create_dataset`, before it is split.
    """
    digest = hashlib.sha256(repr(getattr(dataset, "time_origin", None)).encode())
    if dataset.config["tie_break"] == "item":
        digest.update(b"tie_break: item")
    for field in sorted(dataset.inter_feat):
        digest.update(field.encode())
        values = dataset.inter_feat[field]
        if values.dtype == object:  # sequences
            digest.update(np.array([len(value) for value in values]).tobytes())
            values = np.concatenate([np.ravel(value) for value in values])
        digest.update(np.asarray(values, dtype=np.float64).tobytes())
    return digest.hexdigest()


@contextlib.contextmanager
def _pickling_disabled(config) -> Iterator[None]:
    """Prevent RecBole from writing pickled data and from reading them from `checkpoint_dir`.

    Unpickling can run code, and RecBole would use an old file even if keys of this package have changed.
    """
    before = {key: config[key] for key in PICKLE_KEYS}
    for key in PICKLE_KEYS:
        config[key] = NO_FILE if key.endswith("path") else False
    try:
        yield
    finally:
        for key, value in before.items():
            config[key] = value


def _recbole_errors_named(config) -> contextlib.AbstractContextManager[None]:
    return recbole_errors_as_input_error(f"data set '{config['dataset']}' with these keys")


# -------------------------------------------------------------------- checks before the first epoch


def _check_draws(sampler) -> None:
    """Refuse negatives by popularity if no item is left to draw, for which RecBole would loop forever.

    RecBole draws from the items of all targets, without those of the user (for sequential models, without the target).
    """
    if getattr(sampler, "distribution", "") != "popularity":
        return
    popular = sampler.prob.keys()
    nothing_left = any(len(popular) <= len(used) and popular <= used for used in sampler.used_ids)
    if nothing_left or len(popular) < 2:
        raise InputError(
            f"negatives are drawn by popularity from the {len(popular)} items of the targets, and a user has had all "
            f"of these; draw them uniformly: distribution uniform, mode uniN."
        )


def _check_masks(dataset) -> None:
    """Refuse histories that contain every item: RecBole would loop forever to draw another item for a mask."""
    item_count = dataset.item_num - 1
    lengths = dataset.inter_feat[dataset.item_list_length_field]
    for row in (lengths >= item_count).nonzero().flatten().tolist():
        example = dataset.inter_feat[[row]]
        items = example[dataset.iid_field + dataset.config["LIST_SUFFIX"]]
        if len(items[items > 0].unique()) == item_count:
            user = dataset.id2token(dataset.uid_field, int(example[dataset.uid_field][0]))
            raise InputError(
                f"transform mask_itemseq draws an item that is not in the history, but a history of user '{user}' "
                f"contains all {item_count} items; lower MAX_ITEM_LIST_LENGTH below {item_count}."
            )


def check_classes(dataset, part: str, config, remedy: str = "another threshold or another split") -> None:
    """Refuse labels for which AUC or GAUC is undefined, if one of them is measured.

    Args:
        dataset: validation or test data.
        part: its name in the message.
        config: of the run.
        remedy: what to change besides the metric.

    Raises:
        InputError: all labels are equal; or no user has both, which GAUC needs.
    """
    if not {"AUC", "GAUC"} & set(config["metrics"]):
        return
    field, metric = config["LABEL_FIELD"], "AUC" if "AUC" in config["metrics"] else "GAUC"
    if len(dataset.inter_feat) == 0 or field not in dataset.inter_feat:  # the trainer checks that there are labels
        return
    label = dataset.inter_feat[field]
    if len(labels := set(label.tolist())) < 2:
        raise InputError(
            f"metrics has {metric}, but in {part} every '{field}' is {labels.pop():g}; {metric} needs labels of 0 and "
            f"of 1: choose LogLoss, {remedy}."
        )
    if "GAUC" not in config["metrics"]:
        return
    user = dataset.inter_feat[config["USER_ID_FIELD"]]
    if not set(user[label > 0].tolist()) & set(user[label == 0].tolist()):
        raise InputError(f"metrics has GAUC, but in {part} no user has events of both labels; choose AUC, {remedy}.")


# -------------------------------------------------------------------- random draws of loaders


class SeededLoader:
    """A mixin for RecBole's loaders that draws each batch with its own seed; see `seeded`.

    Every batch seeds the generators of Python, NumPy and torch, and restores them afterwards. Worker processes, which
    torch seeds differently, therefore draw the same as the main process.
    """

    generator: torch.Generator
    config: Any
    evaluates: bool
    pass_seed: int

    def __iter__(self):
        # each pass advances the generator, whose state is in the checkpoint: a resumed run draws the same
        state = self.generator.get_state().numpy()
        self.pass_seed = self.config["seed"] if self.evaluates else _hash(state)
        return super().__iter__()

    def collate_fn(self, index):
        """RecBole's batch of the examples `index`, drawn with a seed that depends on the pass and these examples."""
        with fixed_seed(_hash(self.pass_seed, index)):
            return super().collate_fn(index)

    def _neg_sampling(self, events):
        if not self.evaluates:
            return super()._neg_sampling(events)
        # RecBole passes one user at a time: with a seed per user, candidates do not depend on eval_batch_size
        id_fields = [self.config[key] for key in ("USER_ID_FIELD", "ITEM_ID_FIELD")]
        with fixed_seed(_hash(self.config["seed"], *(events[name] for name in id_fields if name in events))):
            return super()._neg_sampling(events)

    def __reduce__(self):  # spawned worker processes get a copy
        return _empty_copy, (type(self).__mro__[2],), self.__dict__


def seeded(loader: Any, evaluates: bool) -> Any:
    """A replacement of `loader` whose draws do not depend on the number of worker processes.

    Args:
        loader: a loader of RecBole.
        evaluates: whether every pass draws the same; otherwise, each pass draws new values.
    """
    if isinstance(loader, KnowledgeBasedDataLoader):  # a pair of loaders
        loader.general_dataloader = seeded(loader.general_dataloader, evaluates)
        loader.kg_dataloader = seeded(loader.kg_dataloader, evaluates)
        return loader
    attributes = {name: value for name, value in loader.__dict__.items() if name != "collate_fn"}  # a bound method
    copy = _empty_copy(type(loader))
    copy.__dict__.update(attributes, evaluates=evaluates, pass_seed=loader.config["seed"])
    copy.worker_init_fn = leave_to_parent
    return copy


def _hash(*values: Any) -> int:
    """A hash of numbers and arrays, 63 bits, which is the same in every process."""
    digest = hashlib.blake2b(digest_size=8)
    for value in values:
        array = np.asarray(value)
        digest.update(str(array.shape).encode() + array.tobytes())
    return int.from_bytes(digest.digest(), "little") >> 1


@cache
def _with_seeds(base: type) -> type:
    return type(base.__name__, (SeededLoader, base), {"__doc__": base.__doc__})


def _empty_copy(base: type) -> Any:
    return object.__new__(_with_seeds(base))
