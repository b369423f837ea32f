"""The part of `benchmarks/soak.py` that recommends: one process, for as long as the rounds of stops go on."""

import logging
import time
from multiprocessing.synchronize import Event
from typing import Any

import numpy as np
import pandas as pd
import torch

from recbole_ext import InputError, Recommender

HISTORIES = 50  # of each model, with different arguments; the answers to them are kept
PAUSE = 0.02  # seconds after a request, for the other processes


def history(generator: np.random.Generator, unknown: bool = False) -> pd.DataFrame:
    """Histories of up to three users with items of `faults.write_data`; also an item that no model knows."""
    count = int(generator.integers(1, 30))
    items = [f"i{number}" for number in generator.integers(0, 20, count)]
    users = [f"u{number}" for number in generator.integers(0, 3, count)]
    if unknown:
        users, items = [*users, users[0]], [*items, f"unknown{generator.integers(10**9)}"]
    times = generator.uniform(1.6e9, 1.603e9, len(users))
    return pd.DataFrame({"user_id": users, "item_id": items, "timestamp": times})


def request(seed: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A history and arguments of `recommend`, the same ones for the same seed."""
    generator = np.random.default_rng(seed)
    more: dict[str, Any] = {"k": int(generator.integers(1, 25)), "exclude_seen": bool(generator.integers(2))}
    if generator.integers(2):
        more["items"] = [f"i{number}" for number in generator.permutation(20)[:8]]
    return history(generator), more


def wrong_request(generator: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """Input that has to be refused; the text in it is always new."""
    events, text = history(generator), f"text{generator.integers(10**9)}"
    choices: list[tuple[Any, dict[str, Any]]] = [
        (events, {"k": text}), (events, {"k": -int(generator.integers(10**9))}), (events, {"users": [text]}),
        (events, {"at": text}), (events, {"items": text}), (text, {}),
        (events.rename(columns={"item_id": text}), {}), (events.assign(item_id=None), {}),
        (events.assign(timestamp=text), {}), (events.assign(timestamp=float("nan")), {}),
        (events.assign(user_id=None), {}),
    ]  # fmt: skip
    return choices[int(generator.integers(len(choices)))]


def serve(checkpoints: list[str], seed: int, counts: Any, stop: Event, failures: Any) -> None:
    """Recommend until `stop` is set.

    Args:
        checkpoints: one of each model.
        seed: of the order of the requests.
        counts: shared integers: requests, and wrong requests that were refused.
        stop: ends this.
        failures: a queue for sentences about answers that differ from the first one, and wrong input that was taken.
    """
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)  # unknown items are a warning
    generator = np.random.default_rng(seed)
    models = [Recommender.load(path, device="cpu") for path in checkpoints]
    first: dict[tuple[int, int], pd.DataFrame] = {}
    while not stop.is_set():
        place = int(generator.integers(len(models)))
        kind = generator.random()
        if kind < 0.2:
            events, more = wrong_request(generator)
            try:
                models[place].recommend(events, **more)
                failures.put(f"{checkpoints[place]} took wrong input: {events}, {more}")
            except InputError:
                counts[1] += 1
            except Exception as error:
                failures.put(f"{checkpoints[place]} failed with {error!r} for wrong input: {events}, {more}")
        elif kind < 0.4:
            models[place].recommend(history(generator, unknown=True))
        else:
            number = int(generator.integers(HISTORIES))
            events, more = request(1000 * place + number)
            answer = models[place].recommend(events, **more)
            if not answer.equals(first.setdefault((place, number), answer)):
                failures.put(f"{checkpoints[place]} answers request {number} otherwise than at first")
        counts[0] += 1
        time.sleep(PAUSE)
