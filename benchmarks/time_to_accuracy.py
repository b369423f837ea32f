"""Seconds of training until MEANTIME reaches the accuracy of RecTools' SASRec on ml-100k, on the same processor.

    python benchmarks/time_to_accuracy.py --rectools PYTHON [--goal VALUE] [--epochs 30] [--repeats 3] [--threads 2]

PYTHON is that of another environment, with `pip install "rectools[torch]==0.19.0"`. RecTools' SASRec has the defaults
of its class, except for histories of 200 and the number of epochs; MEANTIME has the preset MEANTIME-next. Both learn
from the same events (leave-one-out in time order) and rank all items that the user has not had. Trainings alternate.
After each epoch the test data are measured, outside of the timed part: the test is only watched, and chooses nothing.
All trainings keep freed memory (glibc's MALLOC_ settings): RecTools' large tensors are slow without it.
Writes `benchmarks/results/time_to_accuracy.md`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from benchmarks import measure  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "time_to_accuracy.md"
HISTORY, TOPK = 200, 10
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**34)}
ROWS = {
    "rectools": "RecTools' SASRec, softmax",
    "known": "MEANTIME, `MEANTIME-next`, time of the target known",
    "unknown": "MEANTIME, `MEANTIME-next`, time of the target unknown",
}
Curve = list[tuple[float, float]]  # after each epoch: seconds of training so far, and NDCG@10 on the test data


def main() -> None:
    parser = measure.arguments(__doc__.splitlines()[0], repeats=3, epochs=30)
    parser.add_argument("--rectools", help="a Python with RecTools")
    parser.add_argument(
        "--goal", type=float, help="NDCG@10 to reach; by default the best that RecTools' SASRec reaches"
    )
    parser.add_argument(
        "--data", help=argparse.SUPPRESS
    )  # ml-100k.inter, for RecTools' environment, which lacks RecBole
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.measure:
        curve = train_rectools(options) if options.measure == "rectools" else train_meantime(options)
        print(json.dumps(curve))
        return
    curves: dict[str, list[Curve]] = {name: [] for name in ROWS}
    for repeat in range(options.repeats):
        for name, found in curves.items():
            found.append(curve_of(name, options))
            print(f"{repeat + 1}: {ROWS[name]}: {found[-1]}", file=sys.stderr)
    path = options.output or RESULTS
    options.rectools = "PYTHON"  # results name no paths
    del options.data
    path.write_text(page(curves, options.goal) + "\n" + measure.provenance(__file__, options), encoding="utf-8")
    print(path.read_text(encoding="utf-8"))


def curve_of(name: str, options: Any) -> Curve:
    """The curve of a training in a process of its own."""
    import recbole

    data = Path(recbole.__file__).parent / "dataset_example" / "ml-100k" / "ml-100k.inter"
    command = [options.rectools if name == "rectools" else sys.executable, __file__, f"--measure={name}"]
    command += [f"--data={data}", *(f"--{key}={getattr(options, key)}" for key in ("epochs", "threads", "seed"))]
    environment = {**os.environ, **KEEP_MEMORY, "OMP_NUM_THREADS": str(options.threads)}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return [(seconds, value) for seconds, value in json.loads(done.stdout.splitlines()[-1])]


def page(curves: dict[str, list[Curve]], goal: float | None) -> str:
    """The table of the results."""
    best = {
        name: statistics.median(max(value for _, value in curve) for curve in found) for name, found in curves.items()
    }
    goals = [best["rectools"], *([] if goal is None else [goal])]
    names = ["model", *(f"epochs to {one:.4f} | seconds to {one:.4f}" for one in goals)]
    lines = [
        "# Time to the accuracy of RecTools' SASRec on ml-100k (NDCG@10 on the test data)\n",
        f"| {' | '.join(names)} | seconds of an epoch | epochs | the best of them |",
        f"|---|{'---:|---:|' * len(goals)}---:|---:|---:|",
    ]
    for name, found in curves.items():
        cells = [cell for one in goals for cell in time_to(one, found)]
        epoch = statistics.median(curve[-1][0] / len(curve) for curve in found)
        lines.append(f"| {ROWS[name]} | {' | '.join(cells)} | {epoch:.1f} | {len(found[0])} | {best[name]:.4f} |")
    count = len(curves["rectools"])
    lines.append(f"\nMedians of {count} alternating trainings each, all with the same seed." if count > 1 else "")
    return "\n".join(lines)


def time_to(goal: float, found: list[Curve]) -> tuple[str, str]:
    """Median numbers of epochs and of seconds until a value is reached."""
    reached = [first_at(goal, curve) for curve in found]
    if None in reached:
        return "not reached", "–"
    seconds = statistics.median(curve[count - 1][0] for curve, count in zip(found, reached, strict=True))
    return f"{statistics.median(reached):g}", f"{seconds:.0f}"


def first_at(goal: float, curve: Curve) -> int | None:
    """The first epoch, counted from 1, that reaches a value."""
    return next((epoch for epoch, (_, value) in enumerate(curve, 1) if value >= goal), None)


# -------------------------------------------------------------------- trainings


def train_meantime(options: Any) -> Curve:
    from recbole_ext import Config, create_dataset, data_preparation, get_trainer
    from recbole_ext.model.registry import find_model

    keys = {
        "seed": options.seed, "epochs": options.epochs, "stopping_step": options.epochs, "use_gpu": False,
        "show_progress": False, "query_time": {"known": "target", "unknown": "last"}[options.measure],
    }  # fmt: skip
    config = Config("MEANTIME", "ml-100k", ["MEANTIME-next"], keys, argv=[])
    assert config["MAX_ITEM_LIST_LENGTH"] == HISTORY
    torch.manual_seed(options.seed)
    train_data, _, test_data = data_preparation(config, create_dataset(config))
    model = find_model("MEANTIME")(config, train_data.dataset)
    seconds: list[float] = []

    class Timed(get_trainer(config)):  # type: ignore[misc]
        def _train_epoch(self, *args: Any, **keys: Any) -> Any:
            begin = time.perf_counter()
            losses = super()._train_epoch(*args, **keys)
            seconds.append(time.perf_counter() - begin)
            return losses

    values: list[float] = []
    trainer = Timed(config, model)
    trainer.fit(train_data, test_data, saved=False, callback_fn=lambda epoch, value: values.append(value))
    return [(sum(seconds[: epoch + 1]), value) for epoch, value in enumerate(values)]


def train_rectools(options: Any) -> Curve:
    import pandas as pd
    from pytorch_lightning import Callback, Trainer, seed_everything
    from rectools.dataset import Dataset
    from rectools.models import SASRecModel

    events = pd.read_csv(options.data, sep="\t", names=["user_id", "item_id", "weight", "datetime"], skiprows=1)
    events = events.sort_values("datetime", kind="stable")
    events["datetime"] = pd.to_datetime(events["datetime"], unit="s")
    events["newest"] = events.groupby("user_id").cumcount(ascending=False)
    seconds: list[float] = []
    weights: list[dict[str, torch.Tensor]] = []

    class Epochs(Callback):
        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            self.begin = time.perf_counter()

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            seconds.append(time.perf_counter() - self.begin)
            weights.append({name: value.clone() for name, value in module.torch_model.state_dict().items()})

    def trainer() -> Trainer:
        return Trainer(
            max_epochs=options.epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, callbacks=[Epochs()],
        )  # fmt: skip

    columns = ["user_id", "item_id", "weight", "datetime"]
    seed_everything(options.seed)
    model = SASRecModel(session_max_len=HISTORY, loss="softmax", epochs=options.epochs, get_trainer_func=trainer)
    model.fit(Dataset.construct(events.loc[events["newest"] > 1, columns]))
    histories = Dataset.construct(events.loc[events["newest"] > 0, columns])
    targets = events.loc[events["newest"] == 0, ["user_id", "item_id"]]
    curve, spent = [], 0.0
    for taken, state in zip(seconds, weights, strict=True):
        model.lightning_model.torch_model.load_state_dict(state)
        ranked = model.recommend(targets["user_id"].to_numpy(), histories, k=TOPK, filter_viewed=True)
        ranks = targets.merge(ranked, on=["user_id", "item_id"])["rank"]
        spent += taken
        curve.append((spent, float((1 / torch.log2(1 + torch.tensor(ranks.to_numpy(float)))).sum() / len(targets))))
    return curve


if __name__ == "__main__":
    main()
