"""Click rates alone as scores for clicks of KuaiRand, to see what a model's AUC and GAUC consist of:

    python benchmarks/click_rates.py --data FOLDER

Each rate is the smoothed share of clicks as log-odds, from the events of the training data or, where a row says
`earlier`, from all events at an earlier time than the scored one, test events included. Prints a table.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from recbole_ext.evaluation.per_user import gauc  # noqa: E402

DATASET = "kuairand-pure-14d"
TRAIN, VALID = 0.35, 0.0635  # shares of the events, as in properties/dataset
PSEUDO = {"user_id": 10, "item_id": 20, "tab": 20}  # events of average rate that are added to each count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help=f"folder that contains {DATASET}")
    events = pd.read_csv(parser.parse_args().data / DATASET / f"{DATASET}.inter", sep="\t")
    events.columns = [name.partition(":")[0] for name in events.columns]
    events = events.sort_values("timestamp", kind="stable", ignore_index=True)
    train, valid = int(len(events) * TRAIN), int(len(events) * (TRAIN + VALID))
    item, tab, user = (training_rate(events, train, name) for name in ("item_id", "tab", "user_id"))
    scores = {
        "item": item, "item + tab": item + tab, "item + tab + user": item + tab + user,
        "item + tab + user, earlier": item + tab + earlier_rate(events, train, "user_id"),
        "item, earlier + tab": earlier_rate(events, train, "item_id") + tab,
        "user, earlier": earlier_rate(events, train, "user_id"),
    }  # fmt: skip
    print("| sum of log-odds | valid AUC | valid GAUC | test AUC | test GAUC |\n|---|---:|---:|---:|---:|")
    for name, score in scores.items():
        figures = [*measured(events, score, slice(train, valid)), *measured(events, score, slice(valid, None))]
        print(f"| {name} | {' | '.join(f'{figure:.4f}' for figure in figures)} |")


def training_rate(events: pd.DataFrame, train: int, column: str) -> np.ndarray:
    """Log-odds from training events, [N]."""
    counts = events[:train].groupby(column)["label"].agg(["sum", "count"]).reindex(events[column]).fillna(0)
    return log_odds(counts["sum"].to_numpy(), counts["count"].to_numpy(), events, train, column)


def earlier_rate(events: pd.DataFrame, train: int, column: str) -> np.ndarray:
    """Log-odds from all events at an earlier time, [N]."""
    by_time = events.groupby([column, "timestamp"])["label"].agg(["sum", "count"])  # sorted by time within each value
    before = by_time.groupby(level=0).cumsum() - by_time
    before = before.loc[pd.MultiIndex.from_frame(events[[column, "timestamp"]])]
    return log_odds(before["sum"].to_numpy(), before["count"].to_numpy(), events, train, column)


def log_odds(clicks: np.ndarray, count: np.ndarray, events: pd.DataFrame, train: int, column: str) -> np.ndarray:
    added = PSEUDO[column]
    rate = (clicks + added * events["label"][:train].mean()) / (count + added)
    return np.log(rate / (1 - rate))


def measured(events: pd.DataFrame, score: np.ndarray, rows: slice) -> tuple[float, float]:
    """AUC of all pairs of events, and GAUC."""
    user, label, score = events["user_id"].to_numpy()[rows], events["label"].to_numpy()[rows], score[rows]
    return gauc(np.zeros_like(user), label, score), gauc(user, label, score)


if __name__ == "__main__":
    main()
