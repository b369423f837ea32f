"""What is right, in plain Python and pandas, after docs/data.md, docs/evaluation.md and docs/serving.md.

Nothing here calls the code that it judges. Where the documentation leaves the outcome open, `Unclear` says so.
"""

import codecs
import csv
import datetime
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

PADDING = "[PAD]"  # RecBole's token of id 0
PRIVATE_USE = "\ue000"  # a character that no token of the strategies has


SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "D": 86400.0}
YEAR = 365.25 * 86400
MISSING = {"", "nan", "NaN", "NA", "N/A", "null", "NULL", "None"}
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
LARGEST = 3.4e38


class Refused(Exception):
    """The input must be refused.

    Args:
        reason: for the report.
        line: whether the sentence has to name file and line.
    """

    def __init__(self, reason: str, line: bool = False):
        super().__init__(reason)
        self.line = line


class Unclear(Exception):
    """The input may be refused or accepted."""


# -------------------------------------------------------------------- atomic files


def tables(data: bytes, encoding: str, separator: str, may_be_empty: bool = False) -> list[pd.DataFrame]:
    """The readings of an atomic file that count as right, all values as text, columns named `name:type`.

    There are several only where quotes leave it open whether the file is a CSV table.
    """
    try:
        text = data.decode(encoding).removeprefix("\ufeff")
    except UnicodeError:
        raise Refused("encoding", line=True) from None
    if "\0" in text:
        raise Refused("NUL", line=data[:3] != codecs.BOM_UTF8 or encoding == "utf-8")  # else the header is wrong, too
    lines = [line for line in re.split(r"\r\n|\n|\r", text) if line.strip(" ")]
    if not lines:
        raise Refused("empty file")
    if len(separator) > 1:  # the csv module takes one character
        lines, separator = [line.replace(separator, PRIVATE_USE) for line in lines], PRIVATE_USE
    header = lines[0].split(separator)
    plain = [line.split(separator) for line in lines[1:]]
    if '"' not in text:
        return [_table(header, plain, may_be_empty)]
    quoted = [next(csv.reader([line], delimiter=separator)) for line in lines]
    readings = [quoted[1:]] if _is_csv(lines, separator) else [plain, quoted[1:]]
    found, refusal = [], None
    for rows in readings:
        try:
            found.append(_table(header, rows, may_be_empty))
        except Refused as error:
            refusal = error
    if not found:
        raise refusal or Refused("fields")
    return found


def _is_csv(lines: list[str], separator: str) -> bool:
    """Whether every field is quoted as a whole, with inner quotes doubled, or has no quote."""
    part = re.escape(separator)
    field = rf'(?:"(?:[^"]|"")*"|[^"{part}]*)'
    return all(re.fullmatch(rf"{field}(?:{part}{field})*", line) for line in lines)


def _table(header: list[str], rows: list[list[str]], may_be_empty: bool) -> pd.DataFrame:
    names = [field.partition(":")[0] for field in header]
    kinds = [field.partition(":")[2] for field in header]
    if not all(names) or len(set(names)) < len(names) or set(kinds) - {"token", "float", "token_seq", "float_seq"}:
        raise Refused("header")
    if any(len(row) != len(header) for row in rows):
        raise Refused("number of fields", line=True)
    if not rows and not may_be_empty:
        raise Refused("no rows")
    return pd.DataFrame(rows, columns=header, dtype=object)


def columns_of(table: pd.DataFrame, seq_separator: str, ids: Iterable[str]) -> pd.DataFrame:
    """The columns by name with their values; lines without one of the `ids` are left out."""
    found = {}
    for field in table:
        name, _, kind = field.partition(":")
        texts = table[field]
        if kind == "token":
            found[name] = [text or None for text in texts]
        elif kind == "float":
            found[name] = [None if text in MISSING else _number(text) for text in texts]
        else:
            words = [tuple(word for word in text.split(seq_separator) if word) for text in texts]
            found[name] = words if kind == "token_seq" else [tuple(map(_number, row)) for row in words]
        if "token" in kind and any(PADDING in (value if kind == "token_seq" else [value]) for value in found[name]):
            raise Refused("the token of the padding", line=True)
    frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in found.items()})
    for name in ids:
        if f"{name}:token" not in table:
            raise Refused(f"{name} is not a token column")
    frame = frame[frame[list(ids)].notna().all(axis=1)].reset_index(drop=True)
    if frame.empty and len(table):
        raise Refused("no line has its ids")
    return frame


def _number(text: str) -> float:
    if text != text.strip() and NUMBER.fullmatch(text.strip()):
        raise Unclear
    if not NUMBER.fullmatch(text) or abs(float(text)) > LARGEST:
        raise Refused(f"{text!r} is no number", line=True)
    return float(text)


# -------------------------------------------------------------------- histories and targets


@dataclass(frozen=True, order=True)
class Example:
    """A target and its history, as tokens and seconds since the first event."""

    user: str
    time: float
    item: str
    items: tuple[str, ...]
    times: tuple[float, ...]
    extras: tuple[Any, ...] = ()


def events_of(table: pd.DataFrame, keys: dict[str, Any]) -> pd.DataFrame:
    """The events of a table that hold what the keys ask for, in the file's order."""
    if "timestamp:float" not in table:
        raise Refused("no timestamp:float")
    frame = columns_of(table, keys["seq_separator"], ["user_id", "item_id"])
    needs_label = keys.get("history") == "positive" or "labeled" in str(keys.get("eval_args"))
    if any(field.startswith("label:") and field != "label:float" for field in table):
        raise Refused("label is no number")
    if needs_label and "label" not in frame:
        raise Refused("no label")
    for name in {"timestamp", "label"} & set(frame):
        if frame[name].isna().any():
            raise Refused(f"{name} is missing", line=True)
    if needs_label and not frame["label"].isin([0, 1]).all():
        raise Refused("a label is neither 0 nor 1", line=True)
    for field in table:
        name, _, kind = field.partition(":")
        if kind == "float" and len(frame) and frame[name].isna().all():
            raise Refused(f"{name} holds no number")
    return frame


def filtered(events: pd.DataFrame, keys: dict[str, Any], items: set[str] | None) -> pd.DataFrame:
    """The events that RecBole's filters keep; `items` are those of the `.item` file, if there is one."""
    keep = keys.get("rm_dup_inter")
    if keep:
        by_time = events.sort_values("timestamp", kind="stable", key=lambda column: column.astype(float))
        events = events[~by_time.duplicated(["user_id", "item_id"], keep=keep).sort_index()]
    for name, interval in (keys.get("val_interval") or {}).items():
        if name not in events:
            raise Refused("val_interval names no column")
        if events[name].isna().any():
            raise Unclear("a filter on a missing value")
        events = events[events[name].astype(float) >= float(interval.strip("[]()").split(",")[0])]
    if items is not None:
        events = events[events["item_id"].isin(items)]
    least = {key: int(str(keys.get(f"{key[:4]}_inter_num_interval", "[0"))[1:].split(",")[0])
             for key in ("user_id", "item_id")}  # fmt: skip
    while len(events):
        enough = [events.groupby(name)[name].transform("size") >= count for name, count in least.items()]
        if (enough[0] & enough[1]).all():
            break
        events = events[enough[0] & enough[1]]
    if events.empty:
        raise Refused("no event is left")
    return events.reset_index(drop=True)


def in_seconds(events: pd.DataFrame, unit: str) -> pd.DataFrame:
    """The events with seconds since the first one; a span of centuries is refused."""
    times = events["timestamp"].astype(float)
    years = 1970 + np.array([times.min(), times.max()]) * SECONDS[unit] / YEAR
    if years[1] - years[0] > 200 or years[0] < 1500 or years[1] > 2500:
        raise Refused("a span of centuries")
    return events.assign(timestamp=(times - times.min()) * SECONDS[unit])


def examples_of(events: pd.DataFrame, width: int, least: int, positive: bool, extras: list[str]) -> list[Example]:
    """Every event of a user with `least` events before it, with the newest `width` of these."""
    found = []
    for _, rows in events.sort_values("timestamp", kind="stable").groupby("user_id", sort=False):
        for position, event in enumerate(rows.itertuples(index=False)):
            past = rows.iloc[:position]
            if positive:
                past = rows[(rows["label"] == 1) & (rows["timestamp"] < event.timestamp)]
            if len(past) >= least:
                found.append(_example(event, past.tail(width) if width else past.head(0), extras))
    return found


def _example(event: Any, past: pd.DataFrame, extras: list[str]) -> Example:
    return Example(
        event.user_id, round(event.timestamp, 6), event.item_id, tuple(past["item_id"]),
        tuple(past["timestamp"].astype(float).round(6)), tuple(getattr(event, name) for name in extras),
    )  # fmt: skip


def windows_of(
    events: pd.DataFrame, train: list[Example], width: int, step: int, least: int, extras: list[str]
) -> list[Example]:
    """MEANTIME's windows: they end at a user's last training event and every `step` before it, while they are full."""
    count = pd.Series([example.user for example in train]).value_counts()
    found = []
    for user, rows in events.sort_values("timestamp", kind="stable").groupby("user_id", sort=False):
        rows = rows.head(count.get(user, 0) + least)  # a user's first events are no targets
        for end in range(len(rows) if user in count else 0, 0, -step):
            if end == len(rows) or end >= width:
                window = rows.iloc[max(0, end - width) : end]
                (event,) = window.tail(1).itertuples(index=False)
                found.append(_example(event, window.iloc[:-1], extras))
    return found


def split(examples: list[Example], eval_args: dict[str, Any]) -> tuple[list, list, list]:
    """Training, validation and test examples, of examples in the order of time.

    Validation and test get their share rounded down, at least one where there are enough; training keeps one.
    """
    ((kind, how),) = eval_args["split"].items()
    groups: dict[str, list[Example]] = {}
    for example in examples:
        groups.setdefault("" if eval_args["group_by"] == "none" and kind == "RS" else example.user, []).append(example)
    parts: tuple[list, list, list] = ([], [], [])
    for group in groups.values():
        if kind == "LS":
            wanted = {"valid_and_test": (1, 1), "valid_only": (1, 0), "test_only": (0, 1)}[how]
            test = min(wanted[1], len(group) - 1)
            valid = min(wanted[0], len(group) - 1 - test)
        else:
            shares = [part / sum(how) * len(group) for part in how]
            valid, test = int(shares[1]), int(shares[2])
            if len(group) - valid - test > 1 and 0 < shares[2] < 1:
                test += 1
            if len(group) - valid - test > 1 and 0 < shares[1] < 1:
                valid += 1
        ends = len(group) - valid - test, len(group) - test
        for part, members in zip(parts, (group[: ends[0]], group[ends[0] : ends[1]], group[ends[1] :]), strict=True):
            part.extend(members)
    return parts


# -------------------------------------------------------------------- requests of recommend


@dataclass(frozen=True)
class Request:
    """What a model is asked for one user: the history it may read, the time, and what the user has had."""

    user: str
    items: tuple[str, ...]
    times: tuple[float, ...]
    now: float
    seen: frozenset[str]
    last: Any = None  # the user's last event


def requests_of(
    events: pd.DataFrame,
    asked: list[str] | None,
    at: Any,
    known: set[str],
    known_users: set[str],
    least: int,
    positive: bool,
) -> list[Request]:
    """The requests of `recommend`, in the order asked.

    Args:
        events: user_id, item_id, timestamp in seconds since 1970, and label if there is one.
        asked: users; None means those of the events in the order they appear.
        at: seconds since 1970 for all, by user, or None: at the last event.
        known, known_users: items and users of the model.
        least: shortest history that the model takes.
        positive: whether histories hold labels of 1 only.
    """
    users = list(dict.fromkeys(events["user_id"])) if asked is None else asked
    if len(set(users)) < len(users):
        raise Refused("a user is asked for twice")
    found = []
    for user in users:
        rows = events[events["user_id"] == user].sort_values("timestamp", kind="stable")
        if isinstance(at, dict) and user not in at:
            raise Refused("no time for a user")
        now = at[user] if isinstance(at, dict) else at
        if now is not None:
            rows = rows[rows["timestamp"] <= now]
        past = rows[rows["item_id"].isin(known)]
        kept = past
        if positive and "label" in events:
            kept = kept[kept["label"] == 1]
        if positive and now is not None:
            kept = kept[kept["timestamp"] < now]
        if len(kept) < (least or user not in known_users):
            raise Refused("a user without a history")
        last = rows.iloc[-1] if len(rows) else None
        found.append(
            Request(
                user,
                tuple(kept["item_id"]),
                tuple(kept["timestamp"]),
                (rows["timestamp"].iloc[-1] if len(rows) else 0.0) if now is None else now,
                frozenset(past["item_id"]),
                last,
            )  # fmt: skip
        )
    return found


def seconds_of(value: Any, unit: str) -> float:
    """Seconds since 1970 of a number in the unit, or of a date, which is UTC unless it says so."""
    if isinstance(value, (bool, np.bool_, datetime.timedelta, pd.Timedelta)) or value is None or value is pd.NaT:
        raise Refused("no time")
    if isinstance(value, str):
        if NUMBER.fullmatch(value):
            value = float(value)
        elif re.fullmatch(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?)?", value):
            value = pd.Timestamp(value)
        else:
            raise Refused("no time")
    if isinstance(value, (datetime.date, pd.Timestamp, np.datetime64)):
        stamp = pd.Timestamp(value)
        stamp = stamp.tz_localize("UTC") if stamp.tz is None else stamp
        return (stamp - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(seconds=1)
    seconds = float(value) * SECONDS[unit]
    if not 1500 <= 1970 + seconds / YEAR <= 2500:
        raise Refused("centuries away")
    return seconds
