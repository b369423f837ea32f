"""Next items of ml-100k: our models beside RecBole's, all through the same command.

    python benchmarks/ml_100k.py --work FOLDER [--seeds 2020 2021 2022] [--models MEANTIME SASRec ...] [--threads 2]

Leave-one-out in exact time order, ranking over all items, seen items kept. Writes `benchmarks/results/ml_100k.md`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import accuracy  # noqa: E402

# RecBole's models learn from one example per event, MEANTIME from windows: with histories of 20 and 10 epochs they take
# the time that MEANTIME takes, and twice that
SHORT = ["--MAX_ITEM_LIST_LENGTH=20", "--train_batch_size=256", "--epochs=10"]
# name in the table -> arguments beyond the data set's and models' defaults
RUNS = {
    "MEANTIME, time of the target known": ["--model=MEANTIME"],
    "MEANTIME, time of the target unknown": ["--model=MEANTIME", "--query_time=last"],
    "SASRec": ["--model=SASRec", *SHORT],
    "BERT4Rec": ["--model=BERT4Rec", *SHORT],
    "LightSANs": ["--model=LightSANs", *SHORT],
    "LightSANs of RecBole": ["--model=recbole.LightSANs", *SHORT],
    "BST, features of users and items": [
        "--model=BST", "--epochs=10",
        "--config_files=properties/setting/BST-next-item.yaml properties/setting/ml-100k-features.yaml",
    ],
}  # fmt: skip

if __name__ == "__main__":
    accuracy.measure(
        __file__,
        "ml-100k: next item, leave-one-out, all items ranked",
        RUNS,
        ["--dataset=ml-100k"],
        ["NDCG@10", "Recall@10", "MRR@10"],
        "NDCG@10",
    )
