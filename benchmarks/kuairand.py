"""Clicks of KuaiRand-Pure, 14 days: BST, BST without time gaps, and RecBole's DIN and WideDeep, by the same command.

    python benchmarks/kuairand.py --data_path FOLDER --work FOLDER [--seeds 2020 2021 2022] [--models BST] [--threads 2]

The same columns, events and split for all (`properties/dataset/kuairand-pure-14d.yaml`). Writes
`benchmarks/results/kuairand.md`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import accuracy  # noqa: E402

COMMON = [
    "--dataset=kuairand-pure-14d", "--embedding_size=16", "--train_batch_size=1024", "--eval_batch_size=8192",
    "--epochs=10", "--stopping_step=3",
]  # fmt: skip
HISTORIES = ["--min_history=0", "--MAX_ITEM_LIST_LENGTH=20"]
CONTEXT = "--context_features=[tab, duration_ms]"
# name in the table -> arguments; DIN and WideDeep choose their columns themselves
RUNS = {
    "BST": ["--model=BST", *HISTORIES, CONTEXT],
    "BST without time gaps": ["--model=BST", *HISTORIES, CONTEXT, "--time_gap=none"],
    "DIN": ["--model=DIN", *HISTORIES],
    "WideDeep": ["--model=WideDeep"],
}

if __name__ == "__main__":
    accuracy.measure(__file__, "Clicks of KuaiRand-Pure, 14 days", RUNS, COMMON, ["AUC", "GAUC", "LogLoss"], "AUC")
