"""Write the sample checkpoints of this version, which later versions must still read.

    PYTHONPATH=. python tests/checkpoint/write_sample.py NAME

writes `NAME.pth` and `NAME.latest` to `tests/checkpoint/old_formats`. Do this once for every new format; never write
the files of an older one again. With the root of an older version as PYTHONPATH, the script writes the files of that
version: it uses nothing but `run_recbole`.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent / "old_formats"
USERS, ITEMS, EVENTS = 12, 10, 8  # events of each user
KEYS = {
    "data_path": "dataset", "checkpoint_dir": "saved", "use_gpu": False, "show_progress": False,
    "load_col": {"inter": ["user_id", "item_id", "timestamp"]}, "topk": [3], "valid_metric": "NDCG@3",
    "metrics": ["NDCG"], "train_batch_size": 16, "learning_rate": 0.05,
    "hidden_size": 8, "n_layers": 1, "inner_size": 8, "MAX_ITEM_LIST_LENGTH": 6,
}  # fmt: skip


def write_events(folder: Path) -> None:
    """Write the made-up data set `sample`, which all sample checkpoints were trained on."""
    lines = ["user_id:token\titem_id:token\ttimestamp:float"]
    for user in range(USERS):
        for step in range(EVENTS):
            item = (user * 7 + step * (1 + user % 3)) % ITEMS
            lines.append(f"u{user}\ti{item}\t{1_600_000_000 + 90_000 * step + 1_000 * user}")
    (folder / "sample").mkdir(parents=True)
    (folder / "sample" / "sample.inter").write_text("\n".join(lines) + "\n")


def main(name: str) -> None:
    from recbole_ext import run_recbole

    FOLDER.mkdir(exist_ok=True)
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            write_events(Path("dataset"))
            for seed in range(20):  # until the last epoch is not the best one, so that there are two files
                result = run_recbole("MEANTIME", "sample", config_dict={**KEYS, "epochs": 2, "seed": seed}, argv=[])
                latest = Path(result["checkpoint"]).with_suffix(".latest")
                if latest.exists():
                    shutil.copyfile(result["checkpoint"], FOLDER / f"{name}.pth")
                    shutil.copyfile(latest, FOLDER / f"{name}.latest")
                    return
        finally:
            os.chdir(before)
    raise SystemExit("the last epoch was the best one with each seed; change KEYS")


if __name__ == "__main__":
    main(*sys.argv[1:])
