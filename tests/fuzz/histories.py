"""Random histories for `recommend`, in every form, whose requests the oracle knows."""

import csv
import datetime
import importlib.util
import io
import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from tests.fuzz import oracle
from tests.fuzz.judging import Finding, agree, attempt, command, workspace
from tests.fuzz.oracle import Refused, Request, Unclear
from tests.fuzz.small_models import Served, served
from tests.fuzz.values import BASE, ITEMS, ODD_NUMBERS, ODD_TOKENS, chance, in_unit, mostly


@dataclass(frozen=True)
class HistoryCase:
    """Events as columns of Python values, how they are handed over, and the options of the request."""

    model: str
    form: str  # frame, inter, csv or parquet
    columns: dict[str, tuple[str, tuple]]  # name: (dtype, values)
    options: dict[str, Any]
    files: dict[str, bytes] = field(default_factory=dict)  # of --users and --items
    fault: str = ""
    newline: str = "\n"
    target: str = "csv"


FORMS = ["frame", "inter", "csv"] + ["parquet"] * (importlib.util.find_spec("pyarrow") is not None)
FAULTS = {
    "frame": ["column twice", "column missing", "no frame"],
    "inter": ["column missing", "column twice", "field too many", "field missing", "NUL", "bytes", "empty"],
    "csv": ["column missing", "column twice", "field too many", "field missing", "trailing comma",
            "one more everywhere", "NUL", "bytes", "empty"],
    "parquet": ["column missing", "column twice", "bytes", "empty"],
}  # fmt: skip
ZONES = [datetime.timezone.utc, datetime.timezone(datetime.timedelta(hours=5, minutes=30))]


def ids(usual: list[str], text: bool) -> st.SearchStrategy:
    """Dtype and values of a column of tokens, as a function of the number of rows."""
    token = mostly(st.sampled_from(usual), ODD_TOKENS)
    whole = mostly(st.integers(1, 4), st.integers(-(2**63), 2**63 - 1))
    kinds = {"text": token}
    if not text:
        kinds |= {
            "string": token, "category": token, "mixed": st.one_of(token, whole), "int": whole, "Int64": whole,
            "float": st.integers(1, 4).map(float), "missing": st.one_of(st.none(), token), "bool": st.booleans(),
        }  # fmt: skip
    return st.sampled_from(sorted(kinds)).map(lambda kind: (kind, kinds[kind]))


def times(unit: str, form: str) -> st.SearchStrategy:
    """Dtype and values of a column of times."""
    second = st.integers(0, 8).map(lambda number: BASE + number * 3600)
    day = st.integers(0, 8).map(lambda number: datetime.date(2020, 9, 1) + datetime.timedelta(days=number))
    moment = second.map(lambda value: pd.Timestamp(value, unit="s"))
    number = second.map(lambda value: in_unit(value, unit))
    kinds = {"text": mostly(number, ODD_NUMBERS, 2)}
    if form != "inter":
        kinds |= {"iso": st.one_of(day.map(str), moment.map(lambda value: value.strftime("%Y-%m-%dT%H:%M:%SZ"))),
                  "slashes": st.sampled_from(["01/02/2020", "2/1/2020"])}  # fmt: skip
    if form in ("frame", "parquet"):
        kinds |= {
            "int": number.map(int),
            "float": mostly(number.map(float), st.sampled_from([1.7e308, -1.7e308, float("nan")]), 2),
            "datetime": moment, "zoned": moment.map(lambda value: value.tz_localize("UTC")), "dates": day,
            "category": number, "iso category": day.map(str), "bool": st.booleans(), "objects": moment,
            "duration": st.integers(0, 9).map(lambda days: pd.Timedelta(days=days)),
        }  # fmt: skip
    if form == "frame":
        kinds["zones"] = st.tuples(moment, st.sampled_from(ZONES)).map(lambda pair: pair[0].tz_localize(pair[1]))
    return st.sampled_from(sorted(kinds)).flatmap(lambda kind: st.just((kind, kinds[kind])))


@st.composite
def strategy(draw) -> HistoryCase:
    model = draw(st.sampled_from(["MEANTIME", "LightSANs", "BST"]))
    form = draw(st.sampled_from(FORMS))
    unit, text = "ms" if model == "LightSANs" else "s", form in ("inter", "csv")
    count = draw(mostly(st.integers(1, 9), st.just(0), 3))
    kinds = {
        "user_id": draw(ids(["a", "b", "u1", "1"], text)), "item_id": draw(ids(list(ITEMS), text)),
        "timestamp": draw(times(unit, form)),
    }  # fmt: skip
    if not draw(chance(35)):  # the likeliest dtypes: with three odd ones, next to everything is refused
        odd = draw(st.sampled_from(sorted(kinds)))
        usual = {"user_id": ("text", st.sampled_from(["a", "b", "u1"])), "item_id": ("text", st.sampled_from(ITEMS)),
                 "timestamp": ("text", st.integers(0, 8).map(lambda n: in_unit(BASE + n * 3600, unit)))}  # fmt: skip
        kinds = {name: kinds[name] if name == odd else usual[name] for name in kinds}
    if model == "BST":
        kinds["device"] = ("text", mostly(st.sampled_from(["phone", "desk"]), ODD_TOKENS))
        if draw(st.booleans()):
            kinds["label"] = ("text", st.sampled_from(["0", "1"]))
    if draw(chance(20)):
        kinds["note"] = ("text", ODD_TOKENS)
    columns = {
        name: (kinds[name][0], tuple(draw(st.lists(kinds[name][1], min_size=count, max_size=count))))
        for name in draw(st.permutations(sorted(kinds)))
    }
    options, given = draw(requests(unit, form == "frame"))
    fault = draw(mostly(st.just(""), st.sampled_from(FAULTS[form]), 12))
    return HistoryCase(
        model, form, columns, options, given, fault, draw(st.sampled_from(["\n", "\r\n"])),
        draw(st.sampled_from(["csv", "jsonl", "parquet"][: len(FORMS) - 1])),
    )  # fmt: skip


@st.composite
def requests(draw, unit: str, python: bool) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Options of a request, and the files of tokens that two of them name at the command line."""
    options: dict[str, Any] = {}
    if draw(st.booleans()):
        options["k"] = draw(mostly(st.integers(1, 12), st.sampled_from([0, -1, 2.5, True, None, "x", 10**6]), 8))
    if draw(chance(30)):
        options["exclude_seen"] = draw(mostly(st.booleans(), st.sampled_from([0, "x", None]), 5))
    if draw(chance(30)):
        number = st.integers(0, 9).map(lambda count: in_unit(BASE + count * 3600 - 1, unit))
        times = [number, number.map(int) if python else number, st.sampled_from(["2020-09-14", "2020-09-13T15:00:00Z"])]
        if python:
            times += [st.just(pd.Timestamp("2020-09-14", tz="UTC")), st.just(datetime.date(2020, 9, 14)),
                      st.fixed_dictionaries(dict.fromkeys(["a", "b", "u1", "1"], number))]  # fmt: skip
        odd = st.sampled_from([True, "soon", "1e308", 5, [], float("nan"), "01/02/2020"])
        options["at"] = draw(mostly(st.one_of(times), odd, 10))
    given = {}
    for option, usual in (("users", ["a", "b", "u1"]), ("items", list(ITEMS))):
        if draw(chance(30)):
            tokens = draw(
                st.lists(mostly(st.sampled_from(usual), ODD_TOKENS, 5), max_size=6, unique=not draw(chance(10)))
            )
            options[option] = tokens
            newline = draw(st.sampled_from(["\n", "\r\n", "\n\n"]))
            mark = draw(mostly(st.just(""), st.just("\ufeff"), 10))
            odd = st.sampled_from([b"\xff\xfe\xfa", b"\0", b""])
            given[option] = (mark + newline.join(tokens)).encode() + draw(mostly(st.just(b""), odd, 5))
    return options, {} if python else given


# -------------------------------------------------------------------- the check


def check(case: HistoryCase) -> str:
    """`recommend` ranks what the oracle asks of the model, or refuses as the oracle does."""
    model = served(case.model)
    with workspace() as folder:
        try:
            expected: Any = expected_requests(case, model)
        except Refused as error:
            expected = error
        except Unclear:
            expected = None
        outcome, found = _recommended(case, model, folder)
        agree(outcome, found, expected, lambda right: _is_ranking(found, right, case, model))
        return outcome if expected is not None else f"unclear, {outcome}"


def expected_requests(case: HistoryCase, model: Served) -> list[Request]:
    """The requests that a case means."""
    options, python = case.options, case.form == "frame"
    _check_options(options, python)
    if case.fault:
        last = list(case.columns)[-1]
        unread = last == "note" or (last == "timestamp" and case.model == "LightSANs")
        if case.fault == "column missing" and (unread or last == "label"):  # without labels, all events count
            raise Unclear
        of_a_line = ("field too many", "field missing", "trailing comma", "NUL", "bytes")
        raise Refused(case.fault, line=case.fault in of_a_line and case.form in ("csv", "inter"))
    open_question, in_file = False, not python
    columns: dict[str, list] = {}
    for name, (kind, values) in case.columns.items():
        if name == "timestamp":
            if kind in ("slashes", "bool", "duration") and values:
                raise Refused(f"times: {kind}", line=in_file)
            open_question |= kind == "iso" and len({len(value) for value in values}) > 1
            open_question |= kind in ("category", "iso category")
            dates = {bool(re.match(r"\d+-\d+-\d", str(value))) for value in values}
            if len(dates) > 1 and kind in ("text", "mixed"):
                raise Refused("numbers and dates", line=in_file)
            try:
                columns[name] = [oracle.seconds_of(value, model.unit) for value in values]
            except Refused as error:
                raise Refused(f"times: {error}", line=in_file) from None
        elif name in ("user_id", "item_id"):
            if any(value is None for value in values) or (not python and kind == "text" and "" in values):
                raise Refused(f"{name}: missing", line=in_file)
            texts = [str(int(value)) if isinstance(value, float) else str(value) for value in values]
            open_question |= kind == "bool" or (kind == "mixed" and case.form == "parquet")
            open_question |= any(set(text) & set('\n\r\0"') or text != text.strip() or not text for text in texts)
            columns[name] = texts
        else:
            open_question |= name == "note" and not python and any(set(value) & set('\n\r\0"') for value in values)
            columns[name] = list(values)
    read = [name for name in case.columns if name != "note" or case.form in ("csv", "inter")]  # a text file as a whole
    if any("\0" in str(value) for name in read for value in case.columns[name][1]):
        raise Refused("NUL")
    if case.form == "inter" and any(
        set("\t\n\r") & set(str(value)) for _, values in case.columns.values() for value in values
    ):
        raise Unclear
    events = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
    if "device" in events:
        open_question |= any(
            set(value) & set('\n\r\0"') or value != value.strip() or not value for value in events["device"]
        )
    events["timestamp"] = events["timestamp"].astype(float)
    if "label" in events:
        events["label"] = events["label"].astype(float)
    if events.empty:
        raise Unclear
    if (events["timestamp"].max() - events["timestamp"].min()) / oracle.YEAR > 200:
        raise Refused("a span of centuries")
    asked = _tokens(case, "users")
    at = options.get("at")
    if isinstance(at, dict):
        at = {name: oracle.seconds_of(value, model.unit) for name, value in at.items()}
    elif at is not None:
        at = oracle.seconds_of(at, model.unit)
    positive = model.state["config"]["history"] == "positive"
    least = model.state["config"]["min_history"] if positive else 1
    found = oracle.requests_of(events, asked, at, set(model.tokens[1:]), set(model.users[1:]), least, positive)
    if case.model == "BST" and any(request.last is None for request in found):
        raise Refused("a user without an event for the context")
    items = _tokens(case, "items")
    if items is not None and not set(items) & set(model.tokens[1:]):
        raise Refused("no known item")
    if open_question:
        raise Unclear
    return found


def _check_options(options: dict[str, Any], python: bool) -> None:
    k, seen, at = options.get("k", 1), options.get("exclude_seen", True), options.get("at", 0)
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise Refused(f"k: {k!r}")
    if not isinstance(seen, bool):
        raise Refused("exclude_seen")
    if isinstance(at, (bool, list)) or (isinstance(at, float) and not math.isfinite(at)) or at == "01/02/2020":
        raise Refused("at")


def _tokens(case: HistoryCase, option: str) -> list[str] | None:
    """The tokens of --users or --items; None if the option is not given."""
    if option not in case.options:
        return None
    tokens = [str(token) for token in case.options[option]]
    if case.form == "frame":
        if any(not token or token != token.strip() for token in tokens):
            raise Unclear
        return tokens
    data = case.files[option]
    if b"\0" in data:
        raise Refused(f"NUL in --{option}")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise Refused(f"--{option} is no text") from None
    if any(token != token.strip() or set("\n\r\ufeff") & set(token) for token in tokens):
        raise Unclear
    return [line for line in text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n") if line.strip()]


def _recommended(case: HistoryCase, model: Served, folder: Path) -> tuple[str, Any]:
    names = [*case.columns, "histories", *case.options, "--", "user", "item_id", "timestamp"]
    if case.form == "frame":
        frame = _frame(case)
        return attempt(lambda: model.recommender.recommend(frame, **case.options), names)
    path, out = folder / f"h.{case.form}", folder / f"out.{case.target}"
    _write(case, path)
    argv = ["recommend", f"--checkpoint={model.path}", f"--histories={path}", f"--out={out}", "--device=cpu"]
    for name, value in case.options.items():
        if name in case.files:
            (folder / f"{name}.txt").write_bytes(case.files[name])
            value = folder / f"{name}.txt"
        argv.append(f"--{name}={value}")
    outcome, found = command(argv, [*names, str(path)])
    if outcome != "right":
        if out.exists():
            raise Finding("a file is left by a refusal", found)
        return outcome, found
    return outcome, _read(out)


def _read(out: Path) -> pd.DataFrame:
    if out.suffix == ".parquet":
        return pd.read_parquet(out)
    if out.suffix == ".csv":
        frame = pd.read_csv(out, dtype=str, keep_default_na=False)
        return frame.astype({"rank": int, "score": float})
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").split("\n") if line]
    rows = [
        {"user_id": line["user_id"], "rank": rank, "item_id": item, "score": score}
        for line in lines
        for rank, (item, score) in enumerate(zip(line["item_id"], line["score"], strict=True), 1)
    ]
    return pd.DataFrame(rows, columns=["user_id", "rank", "item_id", "score"])


def _is_ranking(found: pd.DataFrame, requests: list[Request], case: HistoryCase, model: Served) -> bool:
    wanted, k = _tokens(case, "items"), case.options.get("k", 10)
    blocks = dict(list(found.groupby("user_id", sort=False)))
    order = []
    for request in requests:
        scores = model.scores(request)
        candidates = scores.keys() & set(wanted if wanted is not None else scores)
        if case.options.get("exclude_seen", True):
            candidates = candidates - request.seen
        best = sorted((scores[item] for item in candidates), reverse=True)[:k]
        if not best:
            continue
        order.append(request.user)
        if request.user not in blocks:
            return False
        block = blocks[request.user]
        items = list(block["item_id"])
        if (
            len(set(items)) < len(items)
            or not set(items) <= candidates
            or list(block["rank"]) != list(range(1, len(best) + 1))
        ):
            return False
        if not np.allclose(block["score"], best, atol=1e-4) or not np.allclose(
            block["score"], [scores[item] for item in items], atol=1e-4
        ):
            return False
    return list(blocks) == order


def _column(kind: str, values: tuple) -> pd.Series:
    if kind in ("string", "category", "Int64"):
        return pd.Series(list(values), dtype=object).astype(kind)
    if kind in ("text", "mixed", "iso", "slashes", "dates", "objects", "zones", "missing"):
        return pd.Series(list(values), dtype=object)
    if kind == "iso category":
        return pd.Series(list(values), dtype=object).astype("category")
    dtype = {"int": "int64", "float": "float64", "bool": bool, "datetime": "datetime64[ns]",
             "zoned": "datetime64[ns, UTC]", "duration": "timedelta64[ns]"}[kind]  # fmt: skip
    return pd.Series(list(values), dtype=dtype)


def _frame(case: HistoryCase) -> Any:
    frame = pd.DataFrame({name: _column(*column) for name, column in case.columns.items()})
    if case.fault == "column missing":
        frame = frame.drop(columns=frame.columns[-1])
    if case.fault == "column twice":
        frame = pd.concat([frame, frame[frame.columns[-1:]]], axis=1)
    return frame.to_dict("list") if case.fault == "no frame" else frame


def _write(case: HistoryCase, path: Path) -> None:
    if case.fault == "empty":
        path.write_bytes(b"")
        return
    if case.form == "parquet":
        _write_parquet(case, path)
        return
    kinds = {"timestamp": ":float", "label": ":float"}
    header = [name + (kinds.get(name, ":token") if case.form == "inter" else "") for name in case.columns]
    rows = [list(row) for row in zip(*(values for _, values in case.columns.values()), strict=True)]
    if case.fault == "column missing":
        header, rows = header[:-1], [row[:-1] for row in rows]
    if case.fault == "column twice":
        header, rows = [*header, header[-1]], [[*row, row[-1]] for row in rows]
    if case.fault == "field too many":
        rows.append([*(rows[-1] if rows else map(str, header)), "junk"])
    if case.fault == "field missing":
        rows.append((rows[-1] if rows else header)[:-1])
    if case.fault in ("trailing comma", "one more everywhere"):
        more = "" if case.fault == "trailing comma" else "z"
        rows = [[*row, more] for row in rows] or [[*header, more]]
    if case.fault == "NUL":
        rows.append(["a\0b"] * len(header))
    text = io.StringIO()
    if case.form == "csv":
        csv.writer(text, lineterminator=case.newline).writerows([header, *rows])
    else:
        text.write("".join("\t".join(line) + case.newline for line in [header, *rows]))
    path.write_bytes(text.getvalue().encode() + (b"\xff\xfe\xfa" if case.fault == "bytes" else b""))


def _write_parquet(case: HistoryCase, path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    if case.fault == "bytes":
        path.write_bytes(b"PAR1 and so on")
        return
    arrays = {}
    for name, (kind, values) in case.columns.items():
        column = _column(kind, values)
        arrays[name] = pyarrow.array(column.map(str) if kind == "mixed" else column, from_pandas=True)
    names, columns = list(arrays), list(arrays.values())
    if case.fault == "column missing":
        names, columns = names[:-1], columns[:-1]
    if case.fault == "column twice":
        names, columns = [*names, names[-1]], [*columns, columns[-1]]
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(columns, names=names), path)
