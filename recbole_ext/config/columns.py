"""Which columns of the atomic files are read: adds the columns that other keys name, and refuses contradictions."""

from logging import getLogger
from typing import Any

from recbole.utils import ModelType

from recbole_ext.config.negative_sampling import evaluation_modes
from recbole_ext.errors import InputError
from recbole_ext.utils.wording import nearest

EVENT_FIELDS = ("USER_ID_FIELD", "ITEM_ID_FIELD", "TIME_FIELD")  # sequential models need all three
USER_ITEM_KEYS = ("rm_dup_inter", "user_inter_num_interval", "item_inter_num_interval")  # need both ids
COLUMN_KEYS = (
    "threshold", "val_interval", "normalize_field", "numerical_features", "discretization", "alias_of_user_id",
    "alias_of_item_id",
)  # fmt: skip


def resolve_columns(settings: dict[str, Any], user_keys: set[str], model_class: Any) -> None:
    """Choose the columns of the `.inter` file, or check the user's choice against the other keys.

    RecBole reads `[user_id, item_id]` by default; the columns that other keys name are added.

    Args:
        settings: all keys and their values; changed in place.
        user_keys: the keys that the user set.
        model_class: class of the model.

    Raises:
        InputError: a column that a sequential model needs has no name, is left out, or is used twice.
    """
    required = _required_columns(settings, model_class)
    load_col = settings.get("load_col")
    if load_col is None:  # all columns are read
        return
    if "load_col" not in user_keys:
        load_col.update(dict.fromkeys(settings.get("unload_col") or {}, "*"))  # RecBole allows one of the two
    load_col.update({suffix: "*" for suffix, names in load_col.items() if names == ["*"]})
    loaded = load_col.get("inter") or []
    if loaded == "*":
        return
    missing = {name: key for name, key in required.items() if name not in loaded}
    in_any_file = {name for names in load_col.values() if names != "*" for name in names or []}
    in_any_file |= set(settings.get("preload_weight") or {})  # read from the file of pretrained vectors
    if "*" not in load_col.values():  # otherwise the columns of a file are known only when it is read
        missing |= {name: key for key in COLUMN_KEYS for name in settings.get(key) or [] if name not in in_any_file}
    if "load_col" not in user_keys:
        if model_class.type != ModelType.SEQUENTIAL:
            _hide(settings, missing.keys() & required.keys())
        if loaded == ["user_id", "item_id"]:  # RecBole's default; the user's fields may have other names
            loaded = [settings["USER_ID_FIELD"], settings["ITEM_ID_FIELD"]]
        load_col["inter"] = list(dict.fromkeys([*loaded, *missing]))
    elif missing:
        name, key = next(iter(missing.items()))
        near = nearest(name, in_any_file)
        if near and key not in EVENT_FIELDS:
            raise InputError(f"{key} names '{name}', which load_col does not list; did you mean '{near}'?")
        raise InputError(f"load_col lists {loaded} for the .inter file, without '{name}', which {key} names; add it.")


def _required_columns(settings: dict[str, Any], model_class: Any) -> dict[str, str]:
    """Columns of the `.inter` file that the model or the split needs, with the keys that name them."""
    if model_class.type == ModelType.SEQUENTIAL:
        required = {settings.get(key) or "": key for key in EVENT_FIELDS}
        _check_events(settings, required)
        return required
    _check_ids(settings, model_class)
    eval_args, time = settings["eval_args"], settings.get("TIME_FIELD")
    split = eval_args.get("split") or {}
    dates = "date" in split and not settings.get("benchmark_filename")
    if not (eval_args.get("order") == "TO" or "TS" in split or dates):
        return {}
    if not time:
        raise InputError("TIME_FIELD is empty, but eval_args splits in order of time; name the column of times.")
    return {time: "TIME_FIELD"}


def _check_ids(settings: dict[str, Any], model_class: Any) -> None:
    """Require users and items; a model that learns labels from other columns may do without both."""
    user, item = settings.get("USER_ID_FIELD"), settings.get("ITEM_ID_FIELD")
    if user and item:
        return
    if user or item:
        empty, other = ("ITEM_ID_FIELD", "USER_ID_FIELD") if user else ("USER_ID_FIELD", "ITEM_ID_FIELD")
        raise InputError(f"{empty} is empty and {other} is '{user or item}'; name both columns, or neither.")
    modes, negatives = evaluation_modes(settings["eval_args"]), settings.get("train_neg_sample_args")
    filters = [key for key in USER_ITEM_KEYS if settings.get(key) not in (None, "[0,inf)")]
    reason = ""
    if model_class.type not in (ModelType.CONTEXT, ModelType.DECISIONTREE):
        reason = f"{model_class.__name__} needs both"
    elif modes != {"labeled"}:
        reason = f"eval_args mode {min(modes - {'labeled'})} ranks items; set it to labeled"
    elif negatives:
        reason = f"train_neg_sample_args is {negatives}, which draws items; set it to None"
    elif "GAUC" in settings["metrics"]:
        reason = "metrics has GAUC, which is measured for each user; choose AUC"
    elif "LS" in (settings["eval_args"].get("split") or {}) and not settings.get("benchmark_filename"):
        reason = "eval_args split LS holds out events of each user; set it to RS"
    elif filters:
        reason = f"{filters[0]} is {settings[filters[0]]!r}, which needs users and items; leave it out"
    if reason:
        raise InputError(f"USER_ID_FIELD and ITEM_ID_FIELD are empty, but {reason}.")
    loaded = (settings.get("load_col") or {}).get("inter")
    if isinstance(loaded, list) and not set(loaded) - {settings["LABEL_FIELD"], *(settings.get("threshold") or {})}:
        raise InputError(
            f"load_col lists {loaded} for the .inter file, which leaves {model_class.__name__} no column to learn "
            f"from; add feature columns."
        )


def resolve_grouping(settings: dict[str, Any], user_eval_args: set[str]) -> None:
    """Do not split the events of each user where events have no users; warn if the user asks for it.

    Args:
        settings: all keys and their values; changed in place.
        user_eval_args: the keys of `eval_args` that the user set.
    """
    if settings.get("USER_ID_FIELD") or settings["eval_args"].get("group_by") != "user":
        return
    if "group_by" in user_eval_args:
        getLogger().warning("eval_args group_by is 'user', but USER_ID_FIELD is empty: all events are split together.")
    else:
        settings["eval_args"] = {**settings["eval_args"], "group_by": "none"}


def _hide(settings: dict[str, Any], names: set[str]) -> None:
    """Hide columns that only the split needs from models that use every column as a feature."""
    if names:
        unused = dict(settings.get("unused_col") or {})
        unused["inter"] = list(dict.fromkeys([*(unused.get("inter") or []), *sorted(names)]))
        settings["unused_col"] = unused


def _check_events(settings: dict[str, Any], required: dict[str, str]) -> None:
    """Refuse names and lists of columns that leave a sequential model without events or histories."""
    if "" in required:
        raise InputError(f"{required['']} is empty; sequential models need the name of that column.")
    if len(required) < len(EVENT_FIELDS):
        raise InputError(f"two of {', '.join(EVENT_FIELDS)} are the same; name three different columns.")
    length, histories = settings["ITEM_LIST_LENGTH_FIELD"], [name + settings["LIST_SUFFIX"] for name in required]
    if length in required or length in histories:
        raise InputError(f"ITEM_LIST_LENGTH_FIELD is '{length}', which already names events or their history.")
    items = settings["ITEM_ID_FIELD"] + settings["LIST_SUFFIX"]
    for name, meaning in ((length, "the length of histories"), (items, "the items of histories")):
        if name in ((settings.get("unused_col") or {}).get("inter") or []):
            raise InputError(f"unused_col leaves out '{name}', {meaning}; sequential models need it.")
    for name in required.keys() & (settings.get("threshold") or {}).keys():
        raise InputError(f"threshold names '{name}', the {required[name]}; make labels from another column.")
    for name, field in required.items():
        for key in ("unload_col", "unused_col") if field != "TIME_FIELD" else ("unload_col",):
            if name in ((settings.get(key) or {}).get("inter") or []):
                raise InputError(f"{key} leaves out '{name}', the {field}; sequential models need it.")
        if field == "TIME_FIELD" and name in (settings.get("numerical_features") or []):
            raise InputError(f"numerical_features names '{name}', the TIME_FIELD; time is never discretised.")


def without_item_vectors(keys: dict[str, Any]) -> dict[str, Any]:
    """Keys that no longer need the file of pretrained item vectors, because the checkpoint has the vectors.

    Args:
        keys: the keys of a model of this package, which reads no other additional files.
    """
    vectors = keys.get("preload_weight")
    if not vectors:
        return keys
    aliases = [name for name in keys.get("alias_of_item_id") or () if name not in vectors]
    load_col = keys.get("load_col") or {}
    suffixes = [
        suffix
        for suffix in keys.get("additional_feat_suffix") or ()
        if isinstance(load_col.get(suffix), list) and not set(vectors) & set(load_col[suffix])
    ]
    return {
        **keys, "preload_weight": None, "alias_of_item_id": aliases or None, "additional_feat_suffix": suffixes or None,
    }  # fmt: skip
