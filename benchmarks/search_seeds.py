"""The best points that searches of the paper's grid found on ml-100k, beside the defaults, with seeds none of them saw.

    python benchmarks/search_seeds.py --work FOLDER [--threads 1] [--seeds 2021 2022 2023] [--models defaults ...]

A search takes the best of many single runs of seed 2020, and some of them are lucky; the mean over other seeds is not.
Two calls with different `--models` share the work on two cores. Writes `benchmarks/results/search_seeds.md`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import accuracy  # noqa: E402

EXP_LOG = "--relative_kernels=['exp','log']"
# name in the table -> arguments beyond the defaults: the best point of a random search of 70 minutes, and the best one
# with other kernels than the defaults' of the search with Optuna in `results/search.md`
RUNS = {
    "defaults": [],
    "H 128, exp and log": ["--hidden_size=128", EXP_LOG, "--learning_rate=0.00100078", "--weight_decay=1e-5"],
    "H 64, exp and log": [EXP_LOG, "--learning_rate=0.00110761"],
}

if __name__ == "__main__":
    accuracy.measure(
        __file__,
        "The best points of the paper's grid on ml-100k, with seeds that the searches did not see",
        RUNS,
        ["--model=MEANTIME", "--dataset=ml-100k", "--valid_metric=NDCG@10"],
        ["NDCG@10", "Recall@10"],
        "NDCG@10",
    )
