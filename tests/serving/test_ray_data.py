"""The example of docs/serving.md for Ray Data: as it stands, on a table that needs many batches and two workers."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from recbole_ext import Recommender
from tests.snippets import ROOT, snippets

pytest.importorskip("ray")
pytestmark = pytest.mark.ray

NAMES = ["user_id", "item_id", "timestamp"]
SIZE = 4  # users in a batch
# Writes a line for the load of the checkpoint and for each batch, in a file for each process. Batches take no time:
# one worker would be done with all of them, so each waits for the second batch of the other.
COUNTED = """
import glob
import os
import time


class Recommend(Recommend):
    def note(self, text):
        with open(os.path.join(FOLDER, f"{os.getpid()}.calls"), "a") as file:
            file.write(text + "\\n")

    def __init__(self, path):
        super().__init__(path)
        self.note("loaded")
        self.batches, self.patience = 0, 120

    def __call__(self, histories):
        self.note(f"{len(histories)} {torch.get_num_threads()}")
        self.batches += 1
        while self.batches == 2 and self.patience > 0 and self.workers_with_two_batches() < 2:
            time.sleep(0.1)
            self.patience -= 0.1
        return super().__call__(histories)

    def workers_with_two_batches(self):
        return sum(len(open(path).readlines()) > 2 for path in glob.glob(os.path.join(FOLDER, "*.calls")))


"""


def the_example(checkpoint: str, folder: Path, *changes: tuple[str, str]) -> str:
    """The example without the lines that make its checkpoint and table, for those of the test."""
    (code,) = (snippet.code for snippet in snippets(ROOT / "docs" / "serving.md") if "ray.data" in snippet.code)
    pool = ("size=2", "size=2, max_tasks_in_flight_per_actor=1")  # else the first worker may be given all of them
    for old, new in (("batch_size=1000", f"batch_size={SIZE}"), pool, *changes):
        assert code.count(old) == 1, old
        code = code.replace(old, new)
    lines = [line for line in code.splitlines() if line.startswith(("import ", "from "))]
    definitions, start, pipeline = ("class Recommend" + code.partition("class Recommend")[2]).partition("ray.init(")
    values = f"checkpoint, FOLDER = {checkpoint!r}, {str(folder)!r}\n"
    return "\n".join([*lines, values, definitions]) + COUNTED + start + pipeline


@pytest.mark.parametrize("stored_as", ["events", "rows with lists"])
def test_ray_data_recommends_what_recommend_does(make_config, make_checkpoint, tmp_path, random_events, stored_as):
    checkpoint = make_checkpoint(make_config("MEANTIME", tie_break="item", epochs=1))
    events = random_events(users=50, seed=1)
    events += [(f"u{user}", "i3", time) for user, _, time in (("7", 0, 1.6e9), ("8", 0, 1.6e9))]
    events += [("u7", "i5", 1.6e9), ("u9", "unknown", 1.7e9)]  # a tie; an unknown item that is the last event
    strangers = [("lost", "unknown", 1.6e9), ("lost", "nothing", 1.6e9)]
    table = pd.DataFrame([*events, *strangers], columns=NAMES)
    order = np.random.default_rng(0).permutation(len(table))
    table = table.iloc[order].reset_index(drop=True)

    (tmp_path / "events.parquet").mkdir()
    if stored_as == "events":  # those of a user lie in several files
        for part in range(6):
            table.iloc[part::6].to_parquet(tmp_path / "events.parquet" / f"{part}.parquet", row_group_size=10)
        changes = [('.groupby("user_id")', '.groupby("user_id", num_partitions=8)')]  # 200 tasks take minutes
    else:
        rows = table.groupby("user_id", as_index=False).agg(list)
        rows = pd.concat([rows, pd.DataFrame({"user_id": ["new"], "item_id": [[]], "timestamp": [[]]})])
        for part in range(3):
            rows.iloc[part::3].to_parquet(tmp_path / "events.parquet" / f"{part}.parquet")
        rows_as_they_are = ".repartition(8)"  # else one block, as the table is small
        changes = [('.groupby("user_id").map_groups(to_row, batch_format="pandas")', rows_as_they_are)]

    code = the_example(checkpoint, tmp_path, *changes)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]

    found = pd.read_parquet(tmp_path / "recommended")
    expected = Recommender.load(checkpoint, "cpu").recommend(table[table["user_id"] != "lost"], k=10)
    assert found.dtypes.to_dict() == expected.dtypes.to_dict()
    found, expected = (
        frame.sort_values(["user_id", "rank"], ignore_index=True) for frame in (found, expected)
    )  # the users come in any order, each one's items in theirs
    pd.testing.assert_frame_equal(found.drop(columns="score"), expected.drop(columns="score"))
    np.testing.assert_allclose(found["score"], expected["score"], rtol=1e-5, atol=1e-6)

    workers = [path.read_text().splitlines() for path in tmp_path.glob("*.calls")]
    assert len(workers) == 2
    for loaded, *batches in workers:
        assert loaded == "loaded"
        assert len(batches) > 1
        assert all(int(batch.split()[0]) <= SIZE and batch.split()[1] == "1" for batch in batches)
    assert sum(int(batch.split()[0]) for _, *batches in workers for batch in batches) == (
        table["user_id"].nunique() + (stored_as != "events")
    )
