"""Keys of the property files with odd values: as arguments, in a file, or in Python."""

import datetime
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import recbole
import yaml
from hypothesis import strategies as st

from recbole_ext import run_recbole
from recbole_ext.config.paths import properties_dir
from tests.fuzz.judging import Finding, attempt, command, workspace
from tests.fuzz.small_models import QUICK, SMALL, write_small_data
from tests.fuzz.values import chance, mostly


@dataclass(frozen=True)
class KeyCase:
    """Keys with odd values: as arguments, in a file, or in Python."""

    model: str
    channel: str  # argument, file or python
    keys: tuple[tuple[str, Any], ...]


MODELS = ("MEANTIME", "LightSANs", "BST", "TiSASRec", "SASRec", "GRU4Rec", "SASRecF", "BPR", "Pop", "DIN")
NO_PATH = st.characters(exclude_categories=["Cs"], exclude_characters="/\\~.")  # nothing is written elsewhere
RECBOLE = Path(recbole.__file__).parent / "properties"
OWN = {file.stem: set(yaml.safe_load(file.read_text())) for file in (properties_dir() / "model").glob("*.yaml")}
COMMON = {
    key for file in (RECBOLE / "overall.yaml", RECBOLE / "dataset" / "sample.yaml", properties_dir() / "overall.yaml")
    for key in yaml.safe_load(file.read_text())
}  # fmt: skip
OTHER = {
    key for name in MODELS if (file := RECBOLE / "model" / f"{name}.yaml").is_file()
    for key in yaml.safe_load(file.read_text()) or {}
}  # fmt: skip
# not here: workers are processes, which take seconds each to start
OPTIONS = ["resume", "saved", "config_files", "json"]
KEY_NAMES = sorted((set().union(*OWN.values()) | COMMON | OTHER) - {"worker"}) + OPTIONS
NESTED = st.sampled_from(
    [("eval_args", name) for name in ("split", "group_by", "order", "mode")]
    + [("train_neg_sample_args", name) for name in ("distribution", "sample_num", "alpha", "dynamic", "candidate_num")]
    + [("clip_grad_norm", name) for name in ("max_norm", "norm_type", "error_if_nonfinite")]
    + [("eval_args.split", name) for name in ("LS", "RS", "TS")]
)
COLUMN_NAMES = ["user_id", "item_id", "timestamp", "rating", "label", "tag", "words", "vec", "colour", "price"]
TEXTS = [
    "", " ", "~", "None", "true", "0", "1", "2", "7", "-1", "0.5", "2.5", "1e308", "-1e308", "1e400", "inf", "nan",
    ".inf", "007", "1_000", "0x10", "1:30", "2020-01-01", "x", "é", "😀", "a b", "a\tb", "[", "{", "]", "'", '"',
    "[1, 2", "[]", "{}", "[[]]", "[None]", "{'inter': None}", "{inter: [x]}", "{'a': {'b': {'c': 1}}}", "[1, x]",
    "[0.8, 0.1, 0.1]", "{'rating': 4}", "{'rating': '[2,inf)'}", "{'rating': None}", "[3,inf)", "(5,1]",
    "__import__('os').getcwd()", "lambda: 1", "9" * 20, "9" * 5000, "%s", "*", "&a", "!x", "@", "-", "--", ":",
    "a: b", "#", "uni5", "pop3", "labeled", "positive", "full", "TO", "RO", "LS", "[AUC]", "[LogLoss]", "NDCG@3", "CE",
    "BPR", "uniform", "popularity", "mask_itemseq", "{'LS': 'valid_only'}", "{'TS': [0.8, 0.1, 0.1]}", "utf-8",
    "utf-16", "rot13", "hex", *COLUMN_NAMES,
]  # fmt: skip
YAML_TEXTS = [
    "!!int ''", "!!int x", "!!bool maybe", "!!timestamp soon", "!!float x", "!!binary x", "!!set {a, b}", "!!null x",
    "!!python/name:os.system", "!!omap [a: 1]", "!!str 5", "!!pairs [a: 1]", "&a [*a]", "*a", "<<: 1", "{a: 1, a: 2}",
    "? x", "|\n  x", "{[1]: 2}", "{<<: 1}", "2020-01-01T00:00:00Z", "1e3", "0o7", "yes",
]  # fmt: skip
ODD_OBJECTS = [
    None, True, False, 0, 1, 2, 7, -1, 0.5, 2.5, 1e308, float("inf"), float("nan"), 10**30, "", "x", "é", "\0", "a\nb",
    b"x", 1j, (), [], {}, set(), frozenset("a"), [None], {"a": None}, {1: 2}, {None: 1}, object, print, range(3),
    datetime.date(2020, 1, 1), Path("x"), pd.Timestamp(0), pd.NA, pd.NaT, *COLUMN_NAMES,
]  # fmt: skip
OBJECTS = st.one_of(
    st.sampled_from(ODD_OBJECTS),
    st.recursive(st.one_of(st.none(), st.booleans(), st.integers(-2, 7), st.sampled_from(COLUMN_NAMES)),
                 lambda inner: st.one_of(st.lists(inner, max_size=3),
                                         st.dictionaries(st.sampled_from([*COLUMN_NAMES, "inter", "item"]), inner,
                                                         max_size=2)),
                 max_leaves=4),
)  # fmt: skip


@st.composite
def strategy(draw) -> KeyCase:
    channel = draw(st.sampled_from(["argument", "file", "python"]))
    value = {"argument": st.one_of(st.none(), st.sampled_from(TEXTS), st.text(NO_PATH, max_size=4)),
             "file": st.sampled_from(TEXTS + YAML_TEXTS), "python": OBJECTS}[channel]  # fmt: skip
    keys: dict[str, Any] = {}
    for _ in range(draw(mostly(st.just(1), st.just(2), 20))):
        if draw(chance(15)):
            key, name = draw(NESTED)
            inner = draw(value)
            nested = {name: inner} if channel == "python" else f"{{{name!r}: {inner}}}"
            if key == "eval_args.split":
                key, nested = "eval_args", {"split": nested} if channel == "python" else f"{{'split': {nested}}}"
            keys[key] = nested
        else:
            keys[draw(st.sampled_from(KEY_NAMES))] = draw(value)
    return KeyCase(draw(st.sampled_from(MODELS)), channel, tuple(keys.items()))


# -------------------------------------------------------------------- the check


def check(case: KeyCase) -> str:
    """A run with odd keys ends well and has used them, or is refused; so are keys that the model does not read."""
    with workspace() as folder:
        base = QUICK | SMALL[case.model] | {"data_path": write_small_data(folder), "MAX_ITEM_LIST_LENGTH": 4}
        if case.model in ("BST", "DIN"):
            base |= {"load_col": {"inter": ["user_id", "item_id", "timestamp", "label", "rating"]}}
        keys = dict(case.keys)
        names = [part for key in keys for part in (key, f"--{key}")] + ["toy", "argument '", "config file"]
        names += ["there is no checkpoint"] if "resume" in keys else []  # it names the file
        names += [
            "valid_metric",
            "metrics",
            "topk",
            "load_col",
            "eval_args",
            "loss_type",
            "threshold",
            "train_neg_sample_args",
        ]
        if case.channel == "python":
            special = {key: keys.pop(key) for key in OPTIONS if key in keys}
            arguments: dict[str, Any] = {"resume": special["resume"]} if "resume" in special else {}
            if isinstance(special.get("saved"), bool):
                arguments["saved"] = special["saved"]
            files = special.get("config_files")
            outcome, result = attempt(
                lambda: run_recbole(case.model, "toy", files, base | keys, argv=[], **arguments),
                [*names, "config_file_list"],
            )
        else:
            argv = _arguments(case, base, folder)
            outcome, result = command(argv, names)
            if outcome == "right" and "json" not in keys and (folder / "result.json").exists():
                result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        if outcome == "right":
            _check_unread(case)
            if isinstance(result, dict):
                _check_used(case, result)
        return outcome


def _arguments(case: KeyCase, base: dict[str, Any], folder: Path) -> list[str]:
    given = {key for key, _ in case.keys}
    argv = [f"--model={case.model}", "--dataset=toy"]
    argv += [f"--{key}={value}" for key, value in base.items() if key not in given]
    if "json" not in given:
        argv.append(f"--json={folder / 'result.json'}")
    if case.channel == "file":
        text = "".join(f"{key}: {value}\n" for key, value in case.keys)
        (folder / "odd.yaml").write_text(text, encoding="utf-8")
        return [*argv, f"--config_files={folder / 'odd.yaml'}"]
    return argv + [f"--{key}" if value is None else f"--{key}={value}" for key, value in case.keys]


def _check_unread(case: KeyCase) -> None:
    """A key of another model that this one has no word of is unknown to it."""
    given = {key for key, _ in case.keys}
    if case.model not in OWN or given & {"transform", "allow_unknown"}:
        return
    elsewhere = set().union(*OWN.values()) | OTHER
    for key in given & elsewhere - OWN[case.model] - COMMON:
        raise Finding(f"accepted: {key}, which {case.model} does not read", "")


def _check_used(case: KeyCase, result: dict[str, Any]) -> None:
    config = result["config"]
    for key, value in case.keys:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)) or key not in config:
            continue
        used = config[key] if config[key] is not None else "None"
        if (
            isinstance(value, (int, float))
            and isinstance(used, (int, float))
            and not math.isclose(used, value)
            and "batch_size" not in key
        ):
            raise Finding("a key has another value than was given", f"{key}: {value!r}, used {used!r}")
    for part in ("best_valid_result", "test_result"):
        if any(not math.isfinite(number) for number in (result[part] or {}).values()):
            raise Finding("a metric is not finite", str(result[part]))
