"""A prepared copy of a large data set beside its files (`data_cache`): the next start maps it into memory.

A copy belongs to the content of the data set's files, to the value of every key that was read while the data set was
made, and to the versions of the libraries. If one of them differs, the files are read. Which keys count is not listed
anywhere: the configuration notes each key that is read.

Format: `MAGIC`, the length of the header, the header as JSON, a pickle, and the bytes of all arrays, each at a multiple
of `ALIGNMENT`, all of it with a digest. Processes on one machine share the memory of the arrays; what a process changes
stays its own. Reading a copy can only make objects of the classes in `ALLOWED`.
"""

import contextlib
import glob
import hashlib
import io
import json
import mmap
import os
import pickle
import re
from collections.abc import Callable, Iterator
from functools import cache
from logging import INFO, Handler, Logger, LogRecord, getLogger
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from recbole_ext.model.registry import is_known
from recbole_ext.utils import random_state
from recbole_ext.utils.atomic_write import remove_unfinished, write_whole
from recbole_ext.utils.versions import versions

MAGIC = b"recbole_ext prepared data 1\n"
LEAST_BYTES = 2**25  # of the files of a data set that gets a copy: smaller ones are read within seconds
MOST_COPIES = 4  # of one data set; the oldest are removed
PACKAGE = Path(__file__).resolve().parents[1]
ALIGNMENT = 64
KEY_LENGTH = 16  # hexadecimal digits in the name of a copy
LARGE_ARRAY = 2**12  # bytes; smaller arrays are part of the pickle
# keys that are read but have no effect on the data: where things are, and RecBole's pickles, which are switched off
WITHOUT_EFFECT = {
    "data_cache", "data_path", "checkpoint_dir", "save_dataset", "dataset_save_path", "save_dataloaders",
    "dataloaders_save_path",
}  # fmt: skip
DAMAGE = (
    OSError, ValueError, LookupError, TypeError, AttributeError, ImportError, EOFError, MemoryError, OverflowError,
    RecursionError, pickle.PickleError,
)  # fmt: skip
ALLOWED = {
    "builtins": {"set", "frozenset", "slice", "range", "int", "list", "dict"},
    "collections": {"Counter", "OrderedDict", "defaultdict"},
    "numpy": {"ndarray", "dtype"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"}, "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.numeric": {"_frombuffer"}, "numpy._core.numeric": {"_frombuffer"},
    "torch": {"from_numpy"},
    "recbole.utils.enum_type": {"FeatureType", "FeatureSource"},
    "recbole.data.interaction": {"Interaction"},
    "recbole_ext.data.event_log_dataset": {"EventLogDataset"}, "recbole_ext.data.presplit": {"PreSplitDataset"},
    "recbole_ext.data.examples": {"EventLog", "Examples"}, "recbole_ext.data.ranges": {"Ranges"},
    "recbole_ext.data.filter_log": {"FilterLog"}, "recbole_ext.data.prepared_copy": {"_frame"},
}  # fmt: skip


def with_prepared_copy(config: Any, make: Callable[[], Any]) -> Any:
    """The data set of `config`: from a prepared copy, or made and then copied.

    Small data sets, models that are not part of RecBole or this package, and `data_cache: False` get no copy.

    Args:
        config: of the run.
        make: reads the files.
    """
    files = _files(config)
    if not config["data_cache"] or not is_known(config.model_class) or sum(map(os.path.getsize, files)) < LEAST_BYTES:
        return make()
    try:
        source = _source(files, config)
    except OSError:
        return make()  # which says what is wrong with the file
    for path in _copies(config):
        with contextlib.suppress(*DAMAGE):
            found = _read(path, source, config)
            if found is not None:
                return found
    before = random_state.capture()
    with _reads_noted(config) as keys, _messages_noted() as messages:
        data = make()
    if not _equal(before, random_state.capture()):  # a copy would not draw what making the data set draws
        return data
    kept = {key: text for key, text in keys.items() if key not in WITHOUT_EFFECT}
    changed = any(repr(config[key]) != text for key, text in kept.items()) or _source(_files(config), config) != source
    if not changed:  # by making the data set, or by somebody in the meantime
        _write(data, {**source, "keys": kept, "messages": messages}, config)
    return data


def _source(files: list[str], config: Any) -> dict[str, Any]:
    """What a copy belongs to, besides keys: versions, the class of the model, and the content of files."""
    return {
        "versions": {**versions(), "code": _digest(*map(str, sorted(PACKAGE.rglob("*.py"))))},
        "model": f"{config.model_class.__module__}.{config.model_class.__qualname__}",
        "files": {os.path.basename(path): _digest(path) for path in files},
    }


def _files(config: Any) -> list[str]:
    """Paths of all files of a data set."""
    pattern = os.path.join(glob.escape(config["data_path"]), f"{glob.escape(config['dataset'])}.*")
    return sorted(path for path in glob.glob(pattern) if os.path.isfile(path))


def _copies(config: Any) -> list[str]:
    """Paths of the copies of a data set, newest first. Another process may remove one at any time."""
    is_copy = re.compile(rf"\.{re.escape(config['dataset'])}\.[0-9a-f]{{{KEY_LENGTH}}}\.prepared").fullmatch
    ages: dict[str, float] = {}
    with contextlib.suppress(OSError):
        for entry in os.scandir(config["data_path"]):
            with contextlib.suppress(OSError):
                if is_copy(entry.name) and entry.is_file():
                    ages[entry.path] = entry.stat().st_mtime
    return sorted(ages, key=ages.__getitem__, reverse=True)


def _digest(*paths: str) -> str:
    """A digest of the content of files."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            while part := file.read(2**20):
                digest.update(part)
    return digest.hexdigest()


# -------------------------------------------------------------------- what a data set depends on


@contextlib.contextmanager
def _reads_noted(config: Any) -> Iterator[dict[str, str]]:
    """Note each key of `config` that is read in the block, with its value as text."""
    reads: dict[str, str] = {}
    config_class: Any = type(config)
    config.__class__ = _noting(config_class)
    config.__dict__["noted_reads"] = reads
    try:
        yield reads
    finally:
        config.__class__ = config_class
        del config.__dict__["noted_reads"]


@cache
def _noting(config_class: Any) -> type:
    class Noting(config_class):
        def __getitem__(self, key):
            value = super().__getitem__(key)
            self.__dict__["noted_reads"].setdefault(key, repr(value))
            return value

        def __contains__(self, key):
            self[key]
            return super().__contains__(key)

        def __getattr__(self, name):  # RecBole's Config has its keys as attributes, too
            value = super().__getattr__(name)
            self.__dict__["noted_reads"].setdefault(name, repr(value))
            return value

    return Noting


@contextlib.contextmanager
def _messages_noted() -> Iterator[list[tuple[int, str]]]:
    """Note the level and text of each message to the log in the block, also of those that the log does not show."""
    messages: list[tuple[int, str]] = []

    class Notes(Handler):
        def emit(self, record: LogRecord) -> None:
            messages.append((record.levelno, record.getMessage()))

    logger, notes = getLogger(), Notes()
    shown, handlers = logger.level, [(handler, handler.level) for handler in logger.handlers]
    for handler, level in handlers:
        handler.setLevel(max(level, shown))
    logger.setLevel(min(shown, INFO))
    logger.addHandler(notes)
    try:
        yield messages
    finally:
        logger.removeHandler(notes)
        logger.setLevel(shown)
        for handler, level in handlers:
            handler.setLevel(level)


def _equal(states: Any, others: Any) -> bool:
    if isinstance(states, dict):
        return all(_equal(states[key], others[key]) for key in states)
    return torch.equal(states, others) if isinstance(states, torch.Tensor) else states == others


# -------------------------------------------------------------------- the file


class _Pickler(pickle.Pickler):
    """Tensors and frames as NumPy arrays, the bytes of large arrays to `buffers`; configuration and loggers by name."""

    def __init__(self, file: io.BytesIO, config: Any):
        super().__init__(file, protocol=5, buffer_callback=self.is_small)
        self.config, self.buffers = config, list[memoryview]()

    def is_small(self, buffer: pickle.PickleBuffer) -> bool:
        """Whether an array belongs into the pickle; otherwise it is now in `buffers`."""
        content = buffer.raw()
        if content.nbytes >= LARGE_ARRAY:
            self.buffers.append(content)
        return content.nbytes < LARGE_ARRAY

    def persistent_id(self, value: Any) -> str | None:
        return "config" if value is self.config else "logger" if isinstance(value, Logger) else None

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.from_numpy, (value.detach().contiguous().numpy(),)
        if isinstance(value, pd.DataFrame) and value.index.equals(pd.RangeIndex(len(value))):
            return _frame, ({name: value[name].to_numpy() for name in value},)
        return NotImplemented


class _Placeholder:
    """In the place of the configuration and of loggers while a copy is read: nothing in it can change them."""

    __slots__ = ()


def _frame(columns: dict[str, np.ndarray]) -> pd.DataFrame:
    return pd.DataFrame(columns, copy=False)


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, name: str) -> Any:
        return _Placeholder()

    def find_class(self, module: str, name: str) -> Any:
        if name not in ALLOWED.get(module, ()):
            raise pickle.UnpicklingError(f"{module}.{name} does not belong to a data set")
        return super().find_class(module, name)


def _write(data: Any, header: dict[str, Any], config: Any) -> None:
    """Write a copy and remove the oldest ones; without space or permission, say so and go on."""
    key = hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()[:KEY_LENGTH]
    path = os.path.join(config["data_path"], f".{config['dataset']}.{key}.prepared")
    try:
        file = io.BytesIO()
        pickler = _Pickler(file, config)
        pickler.dump(data)
        content = [file.getbuffer(), *pickler.buffers]
        header = {**header, "content": _content_digest(content), "sizes": [part.nbytes for part in content]}
        text = json.dumps(header).encode()
        with write_whole(path) as out:
            out.write(MAGIC + len(text).to_bytes(8, "little") + text)
            for part in content:
                out.write(bytes(-out.tell() % ALIGNMENT))
                out.write(part)
    except DAMAGE as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        getLogger().warning(f"Data: no prepared copy for the next start: {path}: {reason}.")
        return
    getLogger().info(f"Data: the next start reads the prepared copy {path} (data_cache: False reads the files)")
    for old in _copies(config)[MOST_COPIES:]:
        with contextlib.suppress(OSError):
            os.unlink(old)
    remove_unfinished(path)


def _content_digest(parts: list[memoryview]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _read(path: str, source: dict[str, Any], config: Any) -> Any:
    """The data set of a copy; None if it belongs to other files, keys or versions, or is damaged."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if file.read(len(MAGIC)) != MAGIC:
            return None
        length = int.from_bytes(file.read(8), "little")
        if length > size:
            return None
        header = json.loads(file.read(length))
        if any(header[name] != value for name, value in source.items()):
            return None
        if any(repr(config[key]) != text for key, text in header["keys"].items()):
            return None
        begins, end = [], file.tell()
        for part in header["sizes"]:
            begins.append(end + -end % ALIGNMENT)
            end = begins[-1] + part
        if size != end:
            return None
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    parts = [whole[begin : begin + part] for begin, part in zip(begins, header["sizes"], strict=True)]
    if _content_digest(parts) != header["content"]:
        return None
    data = _Unpickler(io.BytesIO(parts[0]), buffers=parts[1:]).load()
    data.config, data.logger, data.dataset_path = config, getLogger(), config["data_path"]
    if any(isinstance(value, _Placeholder) for value in vars(data).values()):
        return None
    getLogger().info(f"Data: read from the prepared copy {path} (data_cache: False reads the files)")
    for level, message in header["messages"]:
        getLogger().log(level, message)
    with contextlib.suppress(OSError):
        Path(path).touch()  # it is the newest now, and stays
    return data
