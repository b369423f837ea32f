"""Clicks of KuaiRand-Pure, 14 days: BST, BST without time gaps, and RecBole's DIN and WideDeep, by the same command.

    python benchmarks/kuairand.py --data_path FOLDER --work FOLDER [--seeds 2020 2021 2022] [--models BST] [--threads 2]

The same columns, events and split for all (`properties/dataset/kuairand-pure-14d.yaml`). Writes
`benchmarks/results/kuairand.md`.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import accuracy  # noqa: E402

RESULTS = accuracy.ROOT / "benchmarks" / "results" / "kuairand.md"
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


def main() -> None:
    parser = accuracy.arguments(__doc__.splitlines()[0], RUNS)
    parser.add_argument("--data_path", required=True, type=os.path.abspath)
    options = parser.parse_args()
    results = accuracy.run_all(RUNS, [f"--data_path={options.data_path}", *COMMON], options)
    table = accuracy.table(results, ["AUC", "GAUC", "LogLoss"], "AUC", RUNS)
    RESULTS.write_text(
        f"# Clicks of KuaiRand-Pure, 14 days\n\n{table}\n\nCommon arguments: `{' '.join(COMMON)}`\n\n"
        f"{accuracy.provenance(__file__, results, options, ' --data_path FOLDER')}"
    )


if __name__ == "__main__":
    main()
