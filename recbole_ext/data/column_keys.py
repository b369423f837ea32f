"""Checks of keys that name columns, against the headers of a data set's files, before the files are read."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from recbole.utils import ModelType

from recbole_ext.data.files.atomic_file import read_header
from recbole_ext.errors import InputError
from recbole_ext.utils.wording import nearest

TOKEN, TOKENS, FLOAT, FLOATS = "token", "token_seq", "float", "float_seq"
NUMBERS, IDS, SEQUENCES = (FLOAT, FLOATS), (TOKEN, TOKENS), (TOKENS, FLOATS)


@dataclass(frozen=True)
class Rule:
    """The columns that a key may name.

    Attributes:
        types: their types; empty for all.
        suffix: of the file that contains them; empty for any file.
    """

    types: tuple[str, ...] = ()
    suffix: str = ""


RULES = {
    "threshold": Rule((FLOAT,), "inter"), "val_interval": Rule((TOKEN, FLOAT)), "normalize_field": Rule(NUMBERS),
    "numerical_features": Rule(NUMBERS), "discretization": Rule(NUMBERS), "seq_len": Rule(SEQUENCES),
    "alias_of_user_id": Rule(IDS), "alias_of_item_id": Rule(IDS), "alias_of_entity_id": Rule(IDS),
    "alias_of_relation_id": Rule(IDS), "selected_features": Rule((TOKEN, TOKENS, FLOAT, FLOATS), "item"),
    "item_attribute": Rule(IDS, "item"), "context_features": Rule((TOKEN, TOKENS, FLOAT), "inter"),
    "history_features": Rule((TOKEN, FLOAT), "inter"), "cross_features": Rule((TOKEN,)),
}  # fmt: skip


def check_column_keys(config: Any) -> None:
    """Check that every column named by a key is loaded and has a type that the key can use.

    Raises:
        InputError: the message names the key, the column and the existing columns.
    """
    files = _Files(config)
    for key in ("load_col", "unload_col"):
        for suffix, names in (config[key] or {}).items() if key in getattr(config, "user_keys", ()) else ():
            files.check_listed(key, suffix, names)
    for suffix, names in (config["unused_col"] or {}).items():
        files.check_unused(suffix, names)
    for key, rule in RULES.items():
        for name in _names(config[key]):
            if key == "history_features" and config["threshold"] and name == config["LABEL_FIELD"]:
                continue  # RecBole makes it
            files.check(key, name, rule)
    for key, suffix, kind in _required(config):
        files.check(key, config[key], Rule((kind,), suffix))
    _check_together(config, files)


def _names(value: Any) -> Iterator[str]:
    """The columns in the value of a key: a string, members of a list, or keys of a mapping."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for member in value:
            yield from _names(member)


def _required(config: Any) -> Iterator[tuple[str, str, str]]:
    """Keys whose columns must exist, with the file and the type of the column.

    `check_label_column` checks labels, which only training and evaluation need.
    """
    kind, order = config["MODEL_TYPE"], config["eval_args"]
    if kind not in (ModelType.CONTEXT, ModelType.DECISIONTREE):
        yield from (("USER_ID_FIELD", "inter", TOKEN), ("ITEM_ID_FIELD", "inter", TOKEN))
    if order["order"] == "TO" or "TS" in order["split"] or kind == ModelType.SEQUENTIAL:
        yield "TIME_FIELD", "inter", FLOAT
    if config["inter_matrix_type"] == "rating":
        yield "RATING_FIELD", "inter", FLOAT
    if kind == ModelType.KNOWLEDGE:
        for part in ("HEAD_ENTITY", "TAIL_ENTITY", "RELATION"):
            yield f"{part}_ID_FIELD", "kg", TOKEN
        yield from (("ITEM_ID_FIELD", "link", TOKEN), ("ENTITY_ID_FIELD", "link", TOKEN))


def _check_together(config: Any, files: "_Files") -> None:
    """Refuse keys that contradict each other."""
    for name, interval in (config["val_interval"] or {}).items():
        kind = files.type_of(name)
        if (kind == TOKEN) != isinstance(interval, list):
            expected = "a list of values" if kind == TOKEN else "an interval such as '[3,inf)'"
            raise InputError(f"val_interval has {interval!r} for '{name}', a {kind}; it should be {expected}.")
    for name, options in (config["discretization"] or {}).items():
        if name not in config["numerical_features"]:
            raise InputError(f"discretization names '{name}', which is missing in numerical_features; add it there.")
        if "method" not in options:
            raise InputError(f"discretization has no method for '{name}'; it should be ED, with a bucket, or LD.")
        if options["method"] == "ED" and "bucket" not in options:
            raise InputError(
                f"discretization has the method ED for '{name}' without bucket, the number of buckets; add it."
            )
    for name in config["selected_features"] or ():
        if files.type_of(name) in NUMBERS and name not in config["numerical_features"]:
            raise InputError(
                f"selected_features names '{name}', a {files.type_of(name)} that is missing in numerical_features; add "
                f"it there."
            )
    if config["normalize_field"] and config["normalize_all"]:
        raise InputError("normalize_field and normalize_all are both set; leave one of them out.")
    ids = {config[f"{part.upper()}_ID_FIELD"]: f"alias_of_{part}_id" for part in ("user", "item")}
    key_of: dict[str, str] = {}
    for key in ("alias_of_user_id", "alias_of_item_id", "alias_of_entity_id", "alias_of_relation_id"):
        for name in config[key] or ():
            if ids.get(name, key) != key:
                field = ids[name].removeprefix("alias_of_").upper() + "_FIELD"
                raise InputError(
                    f"{key} names '{name}', but so does {field}; a column can share the tokens of one id only."
                )
            if (other := key_of.setdefault(name, key)) != key:
                raise InputError(f"{other} and {key} both name '{name}'; a column can share the tokens of one id only.")


class _Files:
    """The headers of a data set's files, and the columns that are loaded from them."""

    def __init__(self, config: Any):
        self.config, self.name = config, config["dataset"]
        split_names = config["benchmark_filename"]
        for suffix in {"inter", "user", "item"} & set(config["additional_feat_suffix"] or ()):
            raise InputError(f"additional_feat_suffix names '{suffix}', a file that is always read; leave it out.")
        suffixes = {"inter": f"{split_names[0]}.inter" if split_names else "inter"}
        suffixes |= {suffix: suffix for suffix in ("user", "item", *(config["additional_feat_suffix"] or ()))}
        if config["MODEL_TYPE"] == ModelType.KNOWLEDGE:
            suffixes |= {"kg": "kg", "link": "link"}
        self.paths = {name: self.path(suffix) for name, suffix in suffixes.items()}
        self.headers: dict[str, dict[str, str]] = {}
        for suffix, path in self.paths.items():
            if os.path.isfile(path):
                header = read_header(path, config["field_separator"], config["encoding"] or "utf-8")
                self.headers[suffix] = {name: kind.value for name, kind in header.items()}
            elif suffix in (config["additional_feat_suffix"] or ()):
                raise InputError(f"additional_feat_suffix names '{suffix}', but there is no file {path}.")
        self.loaded = {suffix: self._loaded(suffix) for suffix in self.headers}

    def path(self, suffix: str) -> str:
        return os.path.join(self.config["data_path"], f"{self.name}.{suffix}")

    def _loaded(self, suffix: str) -> dict[str, str]:
        """The columns that RecBole reads, and those of pretrained vectors."""
        columns, left_out = self.config["load_col"], (self.config["unload_col"] or {}).get(suffix) or ()
        listed = "*" if columns is None else columns.get(suffix) or ()
        loaded = {name for name in self.headers[suffix] if (listed == "*" or name in listed) and name not in left_out}
        loaded |= {name for pair in (self.config["preload_weight"] or {}).items() for name in pair}
        return {name: kind for name, kind in self.headers[suffix].items() if name in loaded}

    def type_of(self, name: str) -> str:
        return next((columns[name] for columns in self.loaded.values() if name in columns), "")

    def check(self, key: str, name: Any, rule: Rule) -> None:
        """`InputError` unless a column is loaded and follows the rule of the key that names it."""
        suffixes = [rule.suffix] if rule.suffix else list(self.headers)
        suffix = next((suffix for suffix in suffixes if name in self.loaded.get(suffix, {})), None)
        if suffix is None:
            raise self._missing(key, name, suffixes)
        kind = self.loaded[suffix][name]
        if rule.types and kind not in rule.types:
            verb = "is" if key.endswith("_FIELD") else "is named by"
            expected = " or ".join(f"{name}:{kind}" for kind in rule.types)
            raise InputError(f"{self.paths[suffix]} line 1: '{name}:{kind}' {verb} {key}; it should be {expected}.")

    def _missing(self, key: str, name: Any, suffixes: list[str]) -> InputError:
        """The error for a column that is not loaded, with the reason and the existing columns."""
        headers = {suffix: self.headers[suffix] for suffix in suffixes if suffix in self.headers}
        if not headers:
            return InputError(f"{key} names {name!r}, but there is no file {self.paths[suffixes[0]]}.")
        for suffix, header in headers.items():
            if name in header:
                loaded = ", ".join(self.loaded[suffix]) or "none"
                return InputError(
                    f"{key} names '{name}', a column of {self.paths[suffix]} that is not loaded; add it to load_col, "
                    f"under {suffix} (loaded: {loaded})."
                )
        columns = [column for header in headers.values() for column in header]
        similar = nearest(str(name), columns)
        hint = f": write {similar}" if similar else ""
        if len(headers) == 1:
            path = self.paths[next(iter(headers))]
            return InputError(f"{path} has no column {name!r}, which {key} names; it has {', '.join(columns)}{hint}.")
        return InputError(f"{key} names {name!r}; the columns are {', '.join(columns)}{hint}.")

    def check_listed(self, key: str, suffix: str, names: Any) -> None:
        """`InputError` for a file or a column in `load_col` or `unload_col` that does not exist."""
        names = [] if names == "*" else [name for name in names if name != "*"]
        if not names or suffix in ("kg", "link", "net"):  # read for some models of RecBole only
            return
        if suffix not in self.headers:
            raise InputError(f"{key} names {names[0]!r} of '{suffix}', but there is no file {self.path(suffix)}.")
        for name in names:
            if name not in self.headers[suffix]:
                raise self._missing(key, name, [suffix])

    def check_unused(self, suffix: str, names: Any) -> None:
        """`InputError` for a column in `unused_col` that is neither loaded nor made from loaded columns."""
        if suffix not in self.loaded:
            raise InputError(f"unused_col has columns of '{suffix}', but there is no file {self.path(suffix)}.")
        made = set()
        if suffix == "inter":
            made = {name + self.config["LIST_SUFFIX"] for name in self.loaded[suffix]}
            made |= {self.config["ITEM_LIST_LENGTH_FIELD"], self.config["LABEL_FIELD"]}
        for name in names:
            if name not in made | self.loaded[suffix].keys():
                raise self._missing("unused_col", name, [suffix])
