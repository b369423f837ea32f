"""Which configuration keys a model reads, and the message for a key that it does not read.

RecBole ignores unknown keys, so a typo goes unnoticed. It has no complete list of a model's keys: its property files
omit some, and users' models have no such files. This module therefore searches the source code for `config["key"]`, in
the class of the model and in the classes and functions that it uses.
"""

import ast
import importlib
import inspect
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

import recbole
from recbole.utils import ModelType

from recbole_ext.config.paths import properties_dir
from recbole_ext.model import contract
from recbole_ext.utils.literals import read_yaml
from recbole_ext.utils.wording import listed, nearest

# RecBole derives these from other keys. Users cannot set them, and checkpoints do not store them.
DERIVED = {
    "MODEL_TYPE", "MODEL_INPUT_TYPE", "eval_type", "device", "single_spec", "local_rank", "valid_neg_sample_args",
    "test_neg_sample_args", "MASK_INDEX", "MASK_ITEM_SEQ", "POS_ITEMS", "NEG_ITEMS", "INVERSE_ITEM_SEQ",
    "CROP_ITEM_SEQ", "CROP_ITEM_SEQ_LEN", "REORDER_ITEM_SEQ",
}  # fmt: skip
# Read by RecBole's core for every model, but missing from its property files.
UNDOCUMENTED = {"model", "dataset", "config_files", "encoding", "nproc", "world_size", "tail_ratio"}
# Read only by the transformations of histories (key `transform`).
OF_TRANSFORMS = {"mask_itemseq": {"mask_ratio", "ft_ratio"}, "crop_itemseq": {"eta"}, "reorder_itemseq": {"beta"}}
OF_HISTORIES = {"history", "min_history"}
# These keys describe the files. Models share configuration files, so a key without effect only causes a warning.
OF_SEQUENTIAL_DATA = {"MAX_ITEM_LIST_LENGTH", "ITEM_LIST_LENGTH_FIELD", "LIST_SUFFIX", "POSITION_FIELD"}
OF_KNOWLEDGE_DATA = {
    "kg_reverse_r", "entity_kg_num_interval", "relation_kg_num_interval", "alias_of_entity_id", "alias_of_relation_id",
    "HEAD_ENTITY_ID_FIELD", "TAIL_ENTITY_ID_FIELD", "RELATION_ID_FIELD", "ENTITY_ID_FIELD",
}  # fmt: skip

# Old names of RecBole's keys and common guesses -> the right key.
RENAMED = {
    "eval_setting": "eval_args",
    "training_neg_sample_num": "train_neg_sample_args",
    "neg_sampling": "train_neg_sample_args",
    "split_ratio": "eval_args",
    "leave_one_num": "eval_args",
    "group_by_user": "eval_args",
    "config_file": "config_files",
    "config_file_list": "config_files",
    "max_seq_length": "MAX_ITEM_LIST_LENGTH",
    "batch_size": "train_batch_size",
    "lr": "learning_rate",
    "device": "use_gpu or gpu_id",
}
# Meaning -> the keys that different models use for it.
SYNONYMS = {
    "attention heads": ("n_heads", "num_heads", "num_attention_heads", "absolute_kernels", "relative_kernels"),
    "the size of vectors": (
        "hidden_size", "embedding_size", "hidden_dim", "embedding_dim", "emb_size", "latent_dimension",
    ),
    "dropout": (
        "hidden_dropout_prob", "attn_dropout_prob", "dropout_prob", "dropout", "dropout_rate", "dropout_probs",
        "drop_ratio", "drop_rate",
    ),
    "the number of layers": ("n_layers", "num_layers", "n_layer", "num_blocks", "n_blocks", "block_num"),
    "feed-forward layers": ("inner_size", "mlp_hidden_size", "intermediate_size", "ffn_size"),
    "the activation function": ("hidden_act", "mlp_activation", "activation", "act", "mlp_act_func"),
    "masking": ("mask_ratio", "mask_prob", "mask_probability", "mlm_probability"),
    "the spread of initial weights": ("initializer_range", "init_std", "init_range"),
    "penalising large weights": ("weight_decay", "reg_weight", "reg_weights", "l2_reg", "l2", "lambda"),
    "the loss function": ("loss_type", "loss", "loss_fn", "loss_function"),
}  # fmt: skip
NOTES = {"relative_kernels": " (one head for each kernel)"}
REASONS = {
    **dict.fromkeys(("local_rank", "ip", "port", "offset"), "torchrun and --nproc set it"),
    **dict.fromkeys((*OF_HISTORIES, "exclude_history"), "only sequential models on the event log read it"),
    "tie_break": "its data set class in RecBole sorts the events",
    "preload_weight": "it reads no pretrained vectors (MEANTIME, LightSANs, BST and TiSASRec read item vectors)",
}

EXTERNAL = {"builtins", "torch", "numpy", "scipy", "pandas", *sys.stdlib_module_names}
CORE = re.compile(r"recbole(_ext)?\.(config|data|evaluator|quick_start|sampler|trainer|utils)\b")
CONFIG = re.compile(r"conf|cfg", re.IGNORECASE)  # variables that hold a configuration


# ---------------------------------------------------------------- keys that are read


def known_keys(model_class: Any, defaults: Iterable[str] = (), transform: str | None = None) -> set[str]:
    """All keys that have an effect on a model's runs: those of its source code, its property files, and RecBole's core.

    Args:
        model_class: the model.
        defaults: keys of its property files.
        transform: the value of the key `transform`; some transformations read further keys.
    """
    keys = {*defaults, *_documented(), *UNDOCUMENTED}
    keys -= OF_HISTORIES | {"exclude_history", "preload_weight"}
    keys |= read_by(model_class) | contract.validators(model_class).keys() | OF_TRANSFORMS.get(str(transform), set())
    if contract.input_type(model_class) is None:
        keys.add("loss_type")  # RecBole derives the input type from it
    if model_class.type == ModelType.SEQUENTIAL:
        keys.add("exclude_history")
        if _recbole_class("data.dataset", model_class, "Dataset") is None:  # its data set is an event log
            keys |= OF_HISTORIES
        else:
            keys.discard("tie_break")
    return keys - DERIVED


def without_effect(model_class: Any) -> set[str]:
    """Keys about data that a model does not use; allowed because models share configuration files."""
    keys = set() if model_class.type == ModelType.SEQUENTIAL else OF_SEQUENTIAL_DATA
    keys = keys if model_class.type == ModelType.KNOWLEDGE else keys | OF_KNOWLEDGE_DATA
    dataset = _recbole_class("data.dataset", model_class, "Dataset")
    return keys - read_by(model_class) - (read_by(dataset) if dataset else set())


@cache
def _documented() -> frozenset[str]:
    """The keys of the property files for all models, RecBole's and this package's."""
    theirs = Path(recbole.__file__).parent / "properties"
    files = (theirs / "overall.yaml", theirs / "dataset" / "sample.yaml", properties_dir() / "overall.yaml")
    return frozenset(key for file in files for key in read_yaml(str(file)))


@cache
def read_by(cls: type) -> frozenset[str]:
    """The keys that the source of a class reads, and of the classes and functions that it uses.

    RecBole's core, which all models share, is skipped, except a trainer or data set for this model only.
    """
    helpers = (_recbole_class("trainer", cls, "Trainer"), _recbole_class("data.dataset", cls, "Dataset"))
    queue: list[Any] = [*cls.__mro__, *(helper for helper in helpers if helper is not None)]
    roots, seen, keys = set(queue), set(), set()
    while queue:
        definition = queue.pop()
        module = getattr(definition, "__module__", None) or "builtins"
        external = module.partition(".")[0] in EXTERNAL or (CORE.match(module) and definition not in roots)
        if definition in seen or external:
            continue
        seen.add(definition)
        nodes = _syntax_trees(module, definition.__name__)
        keys |= {key for node in nodes for key in _keys_in(node)} if nodes else _string_constants(definition)
        queue += [used for node in nodes for used in _used_by(node, vars(sys.modules[module]))]
    return frozenset(keys)


def _recbole_class(package: str, cls: type, suffix: str) -> Any:
    """RecBole's trainer or data set for a model of that name, or None."""
    return getattr(importlib.import_module(f"recbole.{package}"), cls.__name__ + suffix, None)


@cache
def _tree(module: str) -> ast.Module | None:
    try:
        source = inspect.getsource(sys.modules[module])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in RecBole's docstrings
            return ast.parse(source)
    except (OSError, TypeError, KeyError, SyntaxError):  # interactive session, or compiled module
        return None


def _syntax_trees(module: str, name: str) -> list[ast.AST]:
    tree = _tree(module)
    types = (ast.ClassDef, ast.FunctionDef)
    return [node for node in ast.walk(tree) if isinstance(node, types) and node.name == name] if tree else []


def _keys_in(tree: ast.AST) -> Iterator[str]:
    """Keys read as `config["key"]`, `"key" in config`, `config.get("key")`, `config.key`."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=base, slice=ast.Constant(value=str(key))) if _is_config(base):
                yield key
            case ast.Compare(left=ast.Constant(value=str(key)), comparators=[base]) if _is_config(base):
                yield key
            case ast.Call(func=ast.Attribute(value=base, attr="get"), args=[ast.Constant(value=str(key)), *_]):
                if _is_config(base):
                    yield key
            case ast.Attribute(value=base, attr="get_preload_weight"):
                yield "preload_weight"
            case ast.Attribute(value=base, attr=key) if _is_config(base):
                yield key


def _is_config(node: ast.AST) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return bool(CONFIG.search(name))


def _used_by(tree: ast.AST, names: dict[str, Any]) -> Iterator[Any]:
    """Classes and functions that a definition mentions, as `name` or as `module.name`."""
    for node in ast.walk(tree):
        used = None
        if isinstance(node, ast.Name):
            used = names.get(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = names.get(node.value.id)
            used = getattr(module, node.attr, None) if inspect.ismodule(module) else None
        if inspect.isclass(used) or inspect.isfunction(used):
            yield used


def _string_constants(definition: Any) -> set[str]:
    """All string constants of a class or function without source code; they include its keys."""
    members = vars(definition).values() if inspect.isclass(definition) else [definition]
    codes = [code for code in (getattr(member, "__code__", None) for member in members) if code is not None]
    texts: set[str] = set()
    while codes:
        constants = codes.pop().co_consts
        codes += [constant for constant in constants if isinstance(constant, CodeType)]
        texts |= {constant for constant in constants if isinstance(constant, str)}
    return texts


# ---------------------------------------------------------------- unknown keys


def unknown_key_sentence(key: str, known: Iterable[str], model: str) -> str:
    """The message that a model does not read a key, with the best correction there is."""
    known, problem = set(known), f"key '{key}' is not read by {model}"
    if key in RENAMED:
        return f"{problem}; write {RENAMED[key]}."
    if key in DERIVED and key not in REASONS:
        return f"key '{key}' is derived from other keys and cannot be set; leave it out."
    of_transform = [name for name, keys in OF_TRANSFORMS.items() if key in keys]
    for meaning, names in SYNONYMS.items():
        if key.lower() not in names:
            continue
        if synonyms := [name for name in names if name in known]:
            hint = "its key for {} is {}" if len(synonyms) == 1 else "its keys for {} are {}"
            return f"{problem}; {hint.format(meaning, listed(synonyms))}{NOTES.get(synonyms[-1], '')}."
        if not of_transform:
            return f"{problem}, which has no key for {meaning}; leave it out."
    if key in REASONS:
        return f"{problem}: {REASONS[key]}; leave it out."
    if of_transform:
        return f"{problem}; transform: {of_transform[0]} reads it."
    if models := _models_with(key):
        more = f" and {len(models) - 3} other models" if len(models) > 3 else ""
        return f"{problem}; it is a key of {', '.join(models[:3]) if more else listed(models)}{more}."
    near = nearest(key, known)
    hint = f"did you mean '{near}'?" if near else "no known key is similar."
    return f"{problem}; {hint} (Set allow_unknown: True to pass your own keys.)"


def _models_with(key: str) -> list[str]:
    """The models whose property file has a key: this package's, then RecBole's."""
    folders = properties_dir() / "model", Path(recbole.__file__).parent / "properties" / "model"
    files = [file for folder in folders for file in sorted(folder.glob("*.yaml"))]
    pattern = re.compile(rf"^{re.escape(key)}\s*:", re.MULTILINE)
    return list(dict.fromkeys(file.stem for file in files if pattern.search(file.read_text(encoding="utf-8"))))
