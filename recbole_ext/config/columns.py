"""Which columns of the atomic files are read: adds those that other keys name, and refuses contradictions."""

from typing import Any

from recbole.utils import ModelType

from recbole_ext.config.negative_sampling import evaluation_modes
from recbole_ext.errors import InputError
from recbole_ext.utils.wording import nearest

FIELDS = ("USER_ID_FIELD", "ITEM_ID_FIELD", "TIME_FIELD")  # of an event; sequential models need all three
COUNTING = ("rm_dup_inter", "user_inter_num_interval", "item_inter_num_interval")  # of users and items
NAMING = (
    "threshold", "val_interval", "normalize_field", "numerical_features", "discretization", "alias_of_user_id",
    "alias_of_item_id",
)  # fmt: skip


def resolve_columns(final: dict[str, Any], given: set[str], model_class: Any) -> None:
    """Choose the columns of the `.inter` file, or check the user's choice against the other keys.

    RecBole reads `[user_id, item_id]` by default; the columns that other keys name are added.

    Raises:
        InputError: a column that a sequential model needs has no name, is left out, or is used twice.
    """
    needed: dict[str, str] = {}
    eval_args = final["eval_args"]
    if eval_args.get("order") == "TO" or "TS" in (eval_args.get("split") or {}):
        needed = {final.get("TIME_FIELD") or "": "TIME_FIELD"}
    if model_class.type == ModelType.SEQUENTIAL:
        needed = {final.get(key) or "": key for key in FIELDS}
        _check_events(final, needed)
    else:
        _check_ids(final, model_class)
    if not needed and _splits_in_order_of_time(final):
        if not final.get("TIME_FIELD"):
            raise InputError("TIME_FIELD is empty, but eval_args splits in order of time; name the column of times.")
        needed = {final["TIME_FIELD"]: "TIME_FIELD"}
    columns = final.get("load_col")
    if columns is None:  # everything is read
        return
    for suffix in final.get("unload_col") or {}:
        if "load_col" not in given:
            columns[suffix] = "*"  # all but those left out; RecBole takes one of the two lists
    columns.update({suffix: "*" for suffix, names in columns.items() if names == ["*"]})
    here = columns.get("inter") or []
    if here == "*":
        return
    anywhere = {name for names in columns.values() if names != "*" for name in names or []}
    unknown = "*" in columns.values()  # some other file is read whole: what it holds shows when it is read
    missing = {name: key for name, key in needed.items() if name not in here}
    anywhere |= set(final.get("preload_weight") or {})  # the file of pretrained vectors has a reader of its own
    missing |= {name: key for key in NAMING for name in final.get(key) or [] if name not in anywhere and not unknown}
    if "load_col" not in given:
        if model_class.type != ModelType.SEQUENTIAL:
            _hide(final, missing.keys() & needed.keys())
        if here == ["user_id", "item_id"]:  # RecBole's default, whatever the columns are called here
            here = [final["USER_ID_FIELD"], final["ITEM_ID_FIELD"]]
        columns["inter"] = list(dict.fromkeys([*here, *missing]))
    elif missing:
        name, key = next(iter(missing.items()))
        near = nearest(name, anywhere)
        if near and key not in FIELDS:
            raise InputError(f"{key} names '{name}', which load_col does not list; did you mean '{near}'?")
        raise InputError(f"load_col lists {here} for the .inter file, without '{name}', which {key} names; add it.")


def _check_ids(final: dict[str, Any], model_class: Any) -> None:
    """Events have users and items, or neither where a model learns labels from other columns alone."""
    user, item = final.get("USER_ID_FIELD"), final.get("ITEM_ID_FIELD")
    if user and item:
        return
    if user or item:
        empty, other = ("ITEM_ID_FIELD", "USER_ID_FIELD") if user else ("USER_ID_FIELD", "ITEM_ID_FIELD")
        raise InputError(f"{empty} is empty and {other} is '{user or item}'; name both columns, or neither.")
    modes, draws = evaluation_modes(final["eval_args"]), final.get("train_neg_sample_args")
    wrong = ""
    if model_class.type not in (ModelType.CONTEXT, ModelType.DECISIONTREE):
        wrong = f"{model_class.__name__} needs both"
    elif modes != {"labeled"}:
        wrong = f"eval_args mode {min(modes - {'labeled'})} ranks items; set it to labeled"
    elif draws:
        wrong = f"train_neg_sample_args is {draws}, which draws items; set it to None"
    elif "GAUC" in final["metrics"]:
        wrong = "metrics has GAUC, which is measured for each user; choose AUC"
    elif "LS" in (final["eval_args"].get("split") or {}) and not final.get("benchmark_filename"):
        wrong = "eval_args split LS leaves out events of each user; set it to RS"
    elif counted := next((key for key in COUNTING if final.get(key) not in (None, "[0,inf)")), None):
        wrong = f"{counted} is {final[counted]!r}, which is about users and items; leave it out"
    if wrong:
        raise InputError(f"USER_ID_FIELD and ITEM_ID_FIELD are empty, but {wrong}.")
    loaded = (final.get("load_col") or {}).get("inter")
    if isinstance(loaded, list) and not set(loaded) - {final["LABEL_FIELD"], *(final.get("threshold") or {})}:
        raise InputError(
            f"load_col lists {loaded} for the .inter file, which leaves {model_class.__name__} no column to learn "
            f"from; add those of features."
        )


def _splits_in_order_of_time(final: dict[str, Any]) -> bool:
    eval_args = final["eval_args"]
    split = eval_args.get("split") or {}
    return not final.get("benchmark_filename") and (eval_args.get("order") == "TO" or bool({"TS", "date"} & set(split)))


def _hide(final: dict[str, Any], names: set[str]) -> None:
    """Hide columns that only the split needs from models that use every column as a feature."""
    if names:
        unused = dict(final.get("unused_col") or {})
        final["unused_col"] = {**unused, "inter": list(dict.fromkeys([*(unused.get("inter") or []), *sorted(names)]))}


def _check_events(final: dict[str, Any], needed: dict[str, str]) -> None:
    if "" in needed:
        raise InputError(f"{needed['']} is empty; sequential models need the name of that column.")
    if len(needed) < len(FIELDS):
        raise InputError(f"two of {', '.join(FIELDS)} are the same; each should be a column of its own.")
    length, lists = final["ITEM_LIST_LENGTH_FIELD"], [name + final["LIST_SUFFIX"] for name in needed]
    if length in needed or length in lists:
        raise InputError(f"ITEM_LIST_LENGTH_FIELD is '{length}', a column of events or their list already.")
    items = final["ITEM_ID_FIELD"] + final["LIST_SUFFIX"]
    for name, what in ((length, "the length of histories"), (items, "the items of histories")):
        if name in ((final.get("unused_col") or {}).get("inter") or []):
            raise InputError(f"unused_col leaves out '{name}', {what}; sequential models need it.")
    for name in needed.keys() & (final.get("threshold") or {}).keys():
        raise InputError(f"threshold names '{name}', the {needed[name]}; labels come from another column.")
    for name, field in needed.items():
        for key in ("unload_col", "unused_col") if field != "TIME_FIELD" else ("unload_col",):
            if name in ((final.get(key) or {}).get("inter") or []):
                raise InputError(f"{key} leaves out '{name}', the {field}; sequential models need it.")
        if field == "TIME_FIELD" and name in (final.get("numerical_features") or []):
            raise InputError(f"numerical_features names '{name}', the TIME_FIELD; time is never discretised.")


def without_item_vectors(keys: dict[str, Any]) -> dict[str, Any]:
    """Keys of a run whose item vectors come from its checkpoint: the file of pretrained ones is not needed.

    Args:
        keys: of a model of this package, which reads no other additional files.
    """
    columns = keys.get("preload_weight")
    if not columns:
        return keys
    aliases = [name for name in keys.get("alias_of_item_id") or () if name not in columns]
    loaded = keys.get("load_col") or {}
    others = [
        suffix
        for suffix in keys.get("additional_feat_suffix") or ()
        if isinstance(loaded.get(suffix), list) and not set(columns) & set(loaded[suffix])
    ]
    return {
        **keys, "preload_weight": None, "alias_of_item_id": aliases or None, "additional_feat_suffix": others or None,
    }  # fmt: skip
