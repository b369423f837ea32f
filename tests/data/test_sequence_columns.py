"""Columns of sequences: in events, of users and of items; of different lengths, and empty."""

import numpy as np
import pandas as pd
import pytest

from recbole_ext import Recommender, load_data_and_model, run_recbole

pytestmark = pytest.mark.slow

EVENTS = ["user_id", "item_id", "timestamp"]
COLUMNS = {
    "numbers of events": {"inter": [*EVENTS, "vec"]},
    "tokens of events": {"inter": [*EVENTS, "tags"]},
    "tokens of items and users": {"inter": EVENTS, "item": ["item_id", "itags"], "user": ["user_id", "utags"]},
    "all of them": {"inter": [*EVENTS, "vec", "tags"], "item": "*", "user": "*"},
}


@pytest.fixture
def write_sequences(write_lines):
    """A data set with sequences of 0 to 3 numbers and tokens, or with empty ones alone; returns its `data_path`."""

    def write(longest: int) -> str:
        draw = np.random.default_rng(0).integers

        def numbers() -> str:
            return " ".join(map(str, draw(0, 9, draw(0, longest + 1))))

        def tokens() -> str:
            return " ".join(f"t{number}" for number in draw(0, 5, draw(0, longest + 1)))

        for suffix, count in (("user", 12), ("item", 9)):
            header = f"{suffix}_id:token\t{suffix[0]}vec:float_seq\t{suffix[0]}tags:token_seq"
            write_lines(suffix, header, *(f"{suffix[0]}{n}\t{numbers()}\t{tokens()}" for n in range(count)))
        rows = (
            f"u{user}\ti{draw(9)}\t{1_600_000_000 + user * 500 + day * 86_400}\t{numbers()}\t{tokens()}"
            for user in range(12)
            for day in range(5)
        )
        return write_lines(
            "inter", "user_id:token\titem_id:token\ttimestamp:float\tvec:float_seq\ttags:token_seq", *rows
        )

    return write


# BST takes every column of items and users for a feature, and refuses sequences of numbers among them
CASES = [
    *[(model, columns, 3, []) for model in ("MEANTIME", "SASRec", "BPR") for columns in COLUMNS],
    *[("BST", columns, 3, []) for columns in COLUMNS if columns != "all of them"],
    *[(model, "numbers of events", 3, ["vec"]) for model in ("MEANTIME", "SASRec", "BST")],
    *[(model, "all of them", 0, []) for model in ("MEANTIME", "SASRec", "BPR")],
    ("BST", "tokens of items and users", 0, []),
]


@pytest.mark.parametrize(("model", "columns", "longest", "numerical"), CASES)
def test_models_are_trained_stored_and_asked(no_waiting, write_sequences, model, columns, longest, numerical):
    keys = {
        "data_path": write_sequences(longest), "load_col": COLUMNS[columns], "epochs": 1, "topk": [3], "use_gpu": False,
        "valid_metric": "MRR@3", "show_progress": False, "numerical_features": numerical,
    }  # fmt: skip
    result = run_recbole(model, "toy", None, keys, argv=[])
    assert result["test_result"]["mrr@3"] >= 0
    network = load_data_and_model(result["checkpoint"])[1]
    if model != "BPR":
        past = pd.DataFrame({"user_id": ["a", "a"], "item_id": ["i1", "i2"], "timestamp": [1.6e9, 1.6e9 + 60]})
        recommender = Recommender.load(result["checkpoint"])
        assert len(recommender.recommend(past, k=3)) == 3
        assert type(recommender.model) is type(network)
