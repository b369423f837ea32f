"""Random atomic files, whose histories and targets the oracle knows."""

import csv
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from recbole_ext import Config, Recommender, create_dataset, data_preparation, run_recbole
from tests.fuzz import oracle
from tests.fuzz.judging import agree, attempt, workspace
from tests.fuzz.keys import KEY_NAMES
from tests.fuzz.oracle import SECONDS, Example, Refused, Unclear
from tests.fuzz.small_models import QUICK, SMALL
from tests.fuzz.values import BASE, ODD_NUMBERS, ODD_TOKENS, chance, in_unit, mostly

COMPARED = ("tag", "words")  # columns of the target that are compared, beside user, item and time


@dataclass(frozen=True)
class DataCase:
    """Files of the data set `toy` by their names, and the keys to read them with."""

    model: str
    files: dict[str, bytes]
    keys: dict[str, Any]
    train: bool


@dataclass(frozen=True)
class Layout:
    separator: str
    seq_separator: str
    newline: str
    mark: str
    encoding: str
    declared: str
    quotes: bool


LAYOUTS = st.builds(
    Layout,
    separator=st.sampled_from(["\t", ",", "|", ";", "::", "||", "\x01", "@#"]),
    seq_separator=st.sampled_from([" ", "/", "--"]),
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    mark=mostly(st.just(""), st.just("\ufeff"), 10),
    encoding=mostly(st.just("utf-8"), st.sampled_from(["utf-16", "latin-1", "gbk", "cp1252"]), 15),
    declared=st.just(""),
    quotes=chance(15),
)
KEYS = {"user_id": "token", "item_id": "token", "timestamp": "float"}
EXTRAS = {"rating": "float", "tag": "token", "words": "token_seq", "vec": "float_seq"}


def texts_of(kind: str, seq_separator: str) -> st.SearchStrategy:
    """The text of one field of a feature."""
    number = mostly(st.sampled_from(["1", "2", "3.5", "-4", "1e2", ".5"]), ODD_NUMBERS)
    word = mostly(st.sampled_from(["red", "new", "NA", "7"]), ODD_TOKENS)
    return {
        "token": word, "float": number,
        "token_seq": st.lists(word, max_size=3).map(seq_separator.join),
        "float_seq": st.lists(number, max_size=3).map(seq_separator.join),
    }[kind]  # fmt: skip


@st.composite
def files(draw, layout: Layout, columns: dict[str, str], fields: dict[str, st.SearchStrategy], most: int) -> bytes:
    """An atomic file with a line for each event, user or item; now and then a line or the header is wrong."""
    names = draw(st.permutations(sorted(columns)))
    header = [f"{name}:{columns[name]}" for name in names]
    if draw(chance(2)):
        header[draw(st.integers(0, len(header) - 1))] = draw(
            st.sampled_from(
                [header[0], "user_id:token", "user_id:float", "timestamp:token", "x", "x:int", ":token", ""]
            )
        )
    count = draw(mostly(st.integers(most // 3, most), st.integers(0, 1), 5))
    rows = draw(st.lists(st.tuples(*(fields[name] for name in names)), min_size=count, max_size=count))
    lines = [layout.separator.join(header)]
    for row in rows:
        if layout.quotes and len(layout.separator) == 1:
            text = io.StringIO()
            csv.writer(text, delimiter=layout.separator, lineterminator="", quoting=csv.QUOTE_ALL).writerow(row)
            lines.append(text.getvalue())
        else:
            lines.append(layout.separator.join(row))
    for number in range(len(lines)):
        lines[number] += draw(mostly(st.just(""), st.sampled_from([layout.newline, layout.separator, " "]), 1))
    text = layout.mark + layout.newline.join(lines) + draw(st.sampled_from([layout.newline, ""]))
    try:
        return text.encode(layout.encoding)
    except UnicodeError:
        return text.encode()


@st.composite
def strategy(draw) -> DataCase:
    layout, unit = draw(LAYOUTS), draw(st.sampled_from(sorted(SECONDS)))
    model = draw(st.sampled_from(["SASRec", "MEANTIME", "BST"]))
    labelled = model == "BST" and draw(st.booleans())
    extras = draw(st.lists(st.sampled_from(sorted(EXTRAS)), unique=True))
    columns = KEYS | {name: EXTRAS[name] for name in extras} | ({"label": "float"} if labelled else {})
    pace = draw(st.sampled_from([1, 0.5, 60, 86400, 1e6]))
    time = st.integers(0, 5).map(lambda number: in_unit(BASE + number * pace, unit))
    user = st.sampled_from(["a", "b", "c"])
    item = st.sampled_from(["x", "y", "z", "10", "010"])
    fields = {
        "user_id": mostly(user, ODD_TOKENS), "item_id": mostly(item, ODD_TOKENS),
        "timestamp": mostly(time, ODD_NUMBERS, 1), "label": mostly(st.sampled_from(["0", "1", "1.0"]), ODD_NUMBERS, 1),
        **{name: texts_of(EXTRAS[name], layout.seq_separator) for name in extras},
    }  # fmt: skip
    parts = draw(mostly(st.just(None), st.just(["train", "valid", "test"]), 15))
    names = [f"toy.{part}.inter" for part in parts] if parts else ["toy.inter"]
    found = {name: draw(files(layout, columns, fields, 12)) for name in names}
    if draw(chance(25)):
        features = draw(st.lists(st.sampled_from(["colour:token", "price:float", "tags:token_seq", "size:float_seq"]),
                                 unique=True))  # fmt: skip
        kinds = dict(feature.split(":") for feature in features)
        found["toy.item"] = draw(
            files(layout, {"item_id": "token"} | kinds,
                  {"item_id": mostly(item, ODD_TOKENS)}
                  | {name: texts_of(kind, layout.seq_separator) for name, kind in kinds.items()}, 7)
        )  # fmt: skip
    declared = draw(mostly(st.just(layout.encoding), st.sampled_from(["utf-8", "latin-1", "utf-16"]), 3))
    keys = {
        "field_separator": layout.separator, "seq_separator": layout.seq_separator, "encoding": declared,
        "time_unit": unit, "MAX_ITEM_LIST_LENGTH": draw(st.integers(1 + (model == "MEANTIME"), 5)),
        "min_history": draw(mostly(st.none(), st.integers(1, 3), 30)), "load_col": None,
        "benchmark_filename": parts, "eval_args": draw(eval_args()),
    }  # fmt: skip
    if model == "MEANTIME":
        keys["train_window"] = draw(st.integers(1, 4))
    if labelled:
        keys |= {"metrics": ["LogLoss"], "valid_metric": "LogLoss", "train_neg_sample_args": None,
                 "history": draw(st.sampled_from(["all", "positive"]))}  # fmt: skip
        keys["eval_args"] = keys["eval_args"] | {"mode": "labeled"}
        if keys["history"] == "positive":
            keys["min_history"] = draw(st.sampled_from([None, 0, 1]))
    if parts is None and draw(chance(40)):
        keys |= draw(filters("rating" in extras))
    return DataCase(model, found, keys, draw(chance(10)))


def eval_args() -> st.SearchStrategy:
    ratios = st.sampled_from([[0.8, 0.1, 0.1], [0.5, 0.25, 0.25], [2, 1, 1], [1, 0, 0], [0.6, 0, 0.4], [0, 0, 1]])
    splits = st.one_of(
        st.sampled_from(["valid_and_test", "valid_only", "test_only"]).map(lambda how: {"LS": how}),
        ratios.map(lambda how: {"RS": how}),
    )
    return st.builds(
        lambda how, group: {"split": how, "group_by": group, "order": "TO", "mode": "full"},
        splits, st.sampled_from(["user", "none"]),
    )  # fmt: skip


def filters(rated: bool) -> st.SearchStrategy:
    least = st.sampled_from(["[0,inf)", "[2,inf)", "[3,inf)"])
    choices = {"rm_dup_inter": st.sampled_from(["first", "last"]), "user_inter_num_interval": least,
               "item_inter_num_interval": least}  # fmt: skip
    if rated:
        choices["val_interval"] = st.just({"rating": "[2,inf)"})
    return st.fixed_dictionaries({}, optional=choices)


# -------------------------------------------------------------------- the check


def check(case: DataCase) -> str:
    """A data set has the histories and targets of the oracle, or is refused as the oracle refuses it."""
    with workspace() as folder:
        (folder / "toy").mkdir()
        for name, data in case.files.items():
            (folder / "toy" / name).write_bytes(data)
        keys = QUICK | SMALL[case.model] | case.keys | {"data_path": str(folder)}
        names = ["toy", *KEY_NAMES, "timestamp", "user_id", "item_id"]
        try:
            expected = expected_parts(case)
        except Refused as error:
            expected = error
        except Unclear:
            expected = None
        outcome, found = attempt(lambda: _found_parts(case.model, keys), names)
        agree(outcome, found, expected, lambda right: found in right)
        if outcome == "right" and case.train:
            outcome, result = attempt(lambda: run_recbole(case.model, "toy", None, keys, argv=[]), names)
            if outcome == "right":
                attempt(lambda: Recommender.load(result["checkpoint"], device="cpu"), names)
        return outcome if expected is not None else f"unclear, {outcome}"


def expected_parts(case: DataCase) -> list[Any]:
    """What `_found_parts` may return, by the oracle; several where quotes leave it open."""
    keys, files = case.keys, sorted(case.files)
    inters = [f"toy.{part}.inter" for part in keys["benchmark_filename"] or []] or ["toy.inter"]
    readings = [
        oracle.tables(case.files[name], keys["encoding"], keys["field_separator"], number > 0)
        for number, name in enumerate(inters)  # files of validation and test events may hold a header alone
    ]
    items = None
    if "toy.item" in files:
        tables = oracle.tables(case.files["toy.item"], keys["encoding"], keys["field_separator"])
        if len(tables) > 1:  # quotes leave open what the file says
            raise Unclear
        features = [oracle.columns_of(table, keys["seq_separator"], ["item_id"]) for table in tables]
        if features[0]["item_id"].duplicated().any():
            raise Unclear
        for table in tables:
            for field in table:
                name, _, kind = field.partition(":")
                if kind == "float" and features[0][name].isna().all():
                    raise Refused(f"{name} holds no number")
        items = set(features[0]["item_id"])
    if any(len(tables) > 1 for tables in readings):
        if len(readings) > 1:
            raise Unclear
        found = []
        for table in readings[0]:
            try:
                found.append(_parts_of([table], items, case))
            except Refused as error:
                refusal = error
        if not found:
            raise refusal
        if len(found) < len(readings[0]):
            raise Unclear
        return found
    return [_parts_of([tables[0] for tables in readings], items, case)]


def _parts_of(tables: list[pd.DataFrame], items: set[str] | None, case: DataCase) -> list[list[Example]]:
    keys = case.keys
    if any(set(table) != set(tables[0]) for table in tables):
        raise Refused("files with other columns")
    numbered = [oracle.events_of(table, keys).assign(file=number) for number, table in enumerate(tables)]
    events = pd.concat(numbered, ignore_index=True)
    presplit = keys["benchmark_filename"] is not None
    if not presplit:
        events = oracle.filtered(events, keys, items)
    elif items is not None and not events["item_id"].isin(items).all():
        raise Unclear
    events = oracle.in_seconds(events, keys["time_unit"])
    positive = keys.get("history") == "positive"
    least = keys["min_history"]
    least = (0 if positive else 1) if least is None else least
    width, extras = keys["MAX_ITEM_LIST_LENGTH"], [name for name in COMPARED if name in events]
    if presplit:
        parts: Any = []
        for file in range(3):
            known = events[events["file"] <= file]
            marked = known.assign(mark=range(len(known)))
            whole = oracle.examples_of(marked, width, least, positive, [*extras, "file"])
            own = [example for example in whole if example.extras[-1] == file]
            parts.append([Example(*_fields(example)[:5], example.extras[:-1]) for example in own])
        train_events = events[events["file"] == 0]
    else:
        whole = oracle.examples_of(events, width, least, positive, extras)
        whole.sort(key=lambda example: example.time)
        global_split = keys["eval_args"]["group_by"] == "none" and "RS" in keys["eval_args"]["split"]
        if global_split and len({example.time for example in whole}) < len(whole):
            raise Unclear  # which of the events of one time comes first, among users
        parts = list(oracle.split(whole, keys["eval_args"]))
        train_events = events
    if not any(parts) or not parts[0]:
        raise Refused("nothing to train on")
    if (
        case.model == "BST"
        and "labeled" not in keys["eval_args"]["mode"]
        and len(set(events["item_id"]) | (items or set())) < 2
    ):
        raise Unclear  # there is no negative to draw
    if case.model == "MEANTIME":
        parts[0] = oracle.windows_of(train_events, parts[0], width, keys["train_window"], least, extras)
    return [_sorted(part) for part in parts]


def _fields(example: Example) -> tuple:
    return example.user, example.time, example.item, example.items, example.times, example.extras


def _sorted(examples: list[Example]) -> list[Example]:
    return sorted(examples, key=lambda example: repr(_fields(example)))


def _found_parts(model: str, keys: dict[str, Any]) -> list[list[Example]]:
    """The examples of the training, validation and test data, as tokens."""
    config = Config(model, "toy", None, keys, argv=[])
    dataset = create_dataset(config)
    loaders = data_preparation(config, dataset)
    parts = []
    for loader in loaders:
        part = loader._dataset
        parts.append(_sorted(_examples(part[np.arange(len(part))], dataset)) if len(part) else [])
    for loader in loaders[1:]:
        for _ in loader:
            break
    return parts


def _examples(batch: Any, dataset: Any) -> list[Example]:
    def words(name: str, ids: Any) -> Any:
        return str(dataset.field2id_token[name][ids]) if ids else None

    found = []
    for row in range(len(batch)):
        length = int(batch["item_length"][row])
        extras: list[Any] = []
        for name in COMPARED:
            if name in batch:
                ids = batch[name][row].tolist()
                extras.append(
                    tuple(words(name, one) for one in ids if one) if isinstance(ids, list) else words(name, ids)
                )
        found.append(
            Example(
                words("user_id", int(batch["user_id"][row])),
                round(float(batch["timestamp"][row]), 6),
                words("item_id", int(batch["item_id"][row])),
                tuple(words("item_id", one) for one in batch["item_id_list"][row][:length].tolist()),
                tuple(round(time, 6) for time in batch["timestamp_list"][row][:length].tolist()),
                tuple(extras),
            )  # fmt: skip
        )
    return found
