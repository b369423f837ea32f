"""Ratings of 4 and more of ml-100k as labels: BST beside RecBole's DIN, with the same columns and the same command.

    python benchmarks/ml_100k_labels.py --work FOLDER [--seeds 2020 2021 2022] [--models BST DIN] [--threads 2]

Split in order of time over all users: 80 % to learn from, 10 % to choose the epoch, 10 % to test. Writes
`benchmarks/results/ml_100k_labels.md`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import accuracy  # noqa: E402

COMMON = [
    "--dataset=ml-100k", "--config_files=properties/setting/clicks.yaml properties/setting/ml-100k-features.yaml",
    "--mlp_hidden_size=[1024, 512, 256]", "--train_batch_size=256", "--threshold={'rating': 4}", "--epochs=10",
    "--stopping_step=3", "--learner=adam", "--learning_rate=0.001",
]  # fmt: skip
RUNS = {"BST": ["--model=BST"], "DIN": ["--model=DIN"]}

if __name__ == "__main__":
    accuracy.measure(__file__, "ml-100k: is a rating 4 or more", RUNS, COMMON, ["AUC", "GAUC", "LogLoss"], "AUC")
