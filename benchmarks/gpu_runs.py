"""The measurements of `gpu.py`, one function for each; all return plain numbers.

B batch, V items, H hidden size.
"""

import argparse
import copy
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from recbole.data.interaction import Interaction
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import measure
from recbole_ext import Config, create_dataset, data_preparation, get_trainer
from recbole_ext.model import contract
from recbole_ext.training.device_batches import BatchesOnDevice

LABELS = {"threshold": {"rating": 4}, "metrics": ["AUC"], "valid_metric": "AUC", "eval_args": {"mode": "labeled"}}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "MEANTIME cloze": ("MEANTIME", {"loss_type": "CE"}),
    "MEANTIME next": ("MEANTIME", {"loss_type": "CE", "objective": "next"}),
    "MEANTIME next, gap_kernel triton": (
        "MEANTIME", {"loss_type": "CE", "objective": "next", "gap_kernel": "triton"},
    ),
    "LightSANs": ("LightSANs", {"loss_type": "CE"}),
    "TiSASRec": ("TiSASRec", {"loss_type": "CE"}),
    "BST": ("BST", {**LABELS, "train_neg_sample_args": None}),
}  # fmt: skip
COMPARED = ("loss", "gradients", "scores")
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
UNITS = {"copy": "GB/s", "float32": "TFLOP/s", "bfloat16": "TFLOP/s"}
SHARES = (
    "Product rate: the operations of all matrix products of a step over its time. Bandwidth, of models with item "
    "vectors: item vectors, user vectors and scores, each moved once, over the time of scoring all items."
)
BLOCKS = 5  # timed one after the other; the median counts


def measure_model(name: str, options: argparse.Namespace, rates: dict[str, float]) -> dict[str, dict[str, float]]:
    """All measurements of one model, by kind."""
    config, train, requests = data(name, options)
    torch.manual_seed(options.seed)
    model = config.model_class(config, train._dataset)
    batch = next(iter(train))
    few = requests[:32]  # enough to compare, where a CPU scores all items
    found = {"results": differences(name, model, batch, few, options.device)}
    model.to(options.device)
    length_field = config["ITEM_LIST_LENGTH_FIELD"]
    (batch,) = BatchesOnDevice([batch], torch.device(options.device), length_field)
    requests = requests.to(options.device)
    for kind, dtype in TYPES.items():
        found[kind] = times(model, batch, requests, dtype, options, rates)
    found["epoch"] = epoch(config, model, train, batch, options)
    return found


def data(name: str, options: argparse.Namespace) -> tuple[Config, Any, Interaction]:
    """The configuration of a model, its training loader, and requests of as many rows as a batch."""
    model, keys = MODELS[name]
    hidden = {"embedding_size": options.hidden} if model == "BST" else {"hidden_size": options.hidden}
    with tempfile.TemporaryDirectory() as folder:
        write_events(Path(folder), options)
        config = Config(model, "generated", None, {
            "data_path": folder, "checkpoint_dir": folder, "show_progress": False, "state": "warning", "use_gpu": False,
            "MAX_ITEM_LIST_LENGTH": options.length, "train_batch_size": options.batch, "seed": options.seed,
            "eval_batch_size": options.batch, "epochs": 1, "eval_memory_mb": 8192, **hidden, **keys,
        }, argv=[])  # fmt: skip
        train, _, test = data_preparation(config, create_dataset(config))
    return config, train, next(iter(test))[0][: options.batch]


def write_events(folder: Path, options: argparse.Namespace) -> None:
    """Events of users with L / 4 to L events each, popular items more often."""
    random = np.random.default_rng(options.seed)
    (folder / "generated").mkdir()
    with open(folder / "generated" / "generated.inter", "w", encoding="utf-8") as file:
        file.write("user_id:token\titem_id:token\ttimestamp:float\trating:float\n")
        for user in range(options.users):
            count = int(random.integers(max(options.length // 4, 4), options.length + 2))
            items = (options.items * random.random(count) ** 2).astype(int)
            seconds = np.sort(random.integers(0, 1000 * 86400, count)) + 1_500_000_000
            ratings = random.integers(1, 6, count)
            file.writelines(f"u{user}\ti{i}\t{s}\t{r}\n" for i, s, r in zip(items, seconds, ratings, strict=True))


# -------------------------------------------------------------------- the same results


def differences(
    name: str, model: nn.Module, batch: Interaction, requests: Interaction, device: str
) -> dict[str, float]:  # fmt: skip
    """How far the device is from the CPU, relative to the largest value, in float32 and without dropout."""
    with torch.no_grad():  # as if trained: all parts matter
        for weights in model.parameters():
            weights.add_(torch.randn_like(weights) * 0.02)
    right = results(name, copy.deepcopy(model), batch, requests)
    found = results(name, copy.deepcopy(model).to(device), batch.to(device), requests.to(device))
    return {part: relative(found[part], right[part]) for part in COMPARED}


def results(name: str, model: Any, batch: Interaction, requests: Interaction) -> dict[str, Tensor]:
    """Loss, gradients and scores, on the CPU."""
    for module in model.modules():
        if isinstance(getattr(module, "p", None), float):
            module.p = 0.0
    model.train()
    if name == "MEANTIME cloze":  # whose masks are drawn
        items, time_of, length = model.training_window(batch)
        chosen = torch.arange(items.shape[1], device=items.device) % 5 == 0
        chosen = chosen & (torch.arange(items.shape[1], device=items.device) < length.unsqueeze(1))
        loss = model.cloze_loss(items.masked_fill(chosen, model.mask_id), time_of, length, items, chosen)
    else:
        loss = model.calculate_loss(batch)
    loss.backward()
    gradients = torch.cat([weights.grad.flatten() for weights in model.parameters() if weights.grad is not None])
    with torch.no_grad():
        scores = model.eval().full_sort_predict(requests).view(len(requests), -1)[:, 1:]
    return {"loss": loss.detach().cpu(), "gradients": gradients.cpu(), "scores": scores.cpu()}


def relative(found: Tensor, right: Tensor) -> float:
    """The largest difference, as a share of the largest value."""
    return float((found - right).abs().max() / right.abs().max().clamp(min=1e-12))


# -------------------------------------------------------------------- times


def rates(device: str) -> dict[str, float]:
    """What the device reaches: a copy in GB/s, read and written; products of square matrices in TFLOP/s."""
    large = device != "cpu"
    source = torch.ones(2**30 if large else 2**20, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    found = {"copy": 2 * len(source) / seconds(lambda: target.copy_(source), 10, device) / 1e9}
    size = 8192 if large else 256
    for name, dtype in TYPES.items():
        a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
        found[name] = 2 * size**3 / seconds(lambda a=a, b=b: a @ b, 10, device) / 1e12  # type: ignore[misc]
    return found


def times(
    model: Any, batch: Interaction, requests: Interaction, dtype: torch.dtype, options: argparse.Namespace,
    rates: dict[str, float],
) -> dict[str, float]:  # fmt: skip
    """Seconds of a training step and of scoring all items, and the shares that `SHARES` describes."""
    device = options.device
    kind = next(name for name, value in TYPES.items() if value == dtype)
    precision = nullcontext() if dtype == torch.float32 else torch.autocast(device, dtype=dtype)

    def loss() -> Tensor:
        with precision:
            return model.calculate_loss(batch)

    def score() -> None:
        with torch.no_grad(), precision:
            model.full_sort_predict(requests)

    step = measure.training_step(loss, model)
    with FlopCounterMode(display=False) as counter:
        step()
    found = {"step": seconds(step, options.repeats, device)}
    found["product_share"] = counter.get_total_flops() / found["step"] / (rates[kind] * 1e12)
    model.eval()
    found["scoring"] = seconds(score, options.repeats, device)
    found["bandwidth_share"] = 0.0
    if contract.has_item_table(model):
        rows, (items, hidden) = len(requests), model.item_table()[0].shape
        numbers = items * hidden + rows * hidden + rows * items
        found["bandwidth_share"] = numbers * dtype.itemsize / found["scoring"] / (rates["copy"] * 1e9)
    return found


def seconds(run: Callable[[], object], repeats: int, device: str) -> float:
    """Seconds of a run: the median of some blocks of runs, each block timed until the device is done."""
    run(), run()
    taken = []
    for _ in range(BLOCKS):
        wait(device)
        begin = time.perf_counter()
        for _ in range(max(repeats // BLOCKS, 1)):
            run()
        wait(device)
        taken.append((time.perf_counter() - begin) / max(repeats // BLOCKS, 1))
    return statistics.median(taken)


def wait(device: str) -> None:
    """Wait until the device has done everything."""
    if device != "cpu":
        torch.cuda.synchronize()


# -------------------------------------------------------------------- the loader


def epoch(
    config: Config, model: Any, train: Any, batch: Interaction, options: argparse.Namespace
) -> dict[str, float]:  # fmt: skip
    """Seconds of a step of an epoch with its loader, and how many steps on one batch take as long.

    `waits` is how often a step waits for a result of the device, the read of the loss included; -1 where torch does not
    report it.
    """
    config["device"] = torch.device(options.device)
    trainer = get_trainer(config)(config, model)
    steps = Steps(train, 3 * options.repeats)
    trainer._train_epoch(Steps(train, 3), 0)
    found: dict[str, float] = {}
    for name, batches in (("loaded", steps), ("same", Steps([batch] * len(steps), len(steps)))):
        wait(options.device)
        begin = time.perf_counter()
        trainer._train_epoch(batches, 0)
        wait(options.device)
        found[name] = (time.perf_counter() - begin) / len(batches)
    return {"step": found["loaded"], "ratio": found["loaded"] / found["same"], "waits": waits(trainer, train, options)}


def waits(trainer: Any, train: Any, options: argparse.Namespace) -> float:
    """How often the CPU waits for the device in a step, as torch warns about it."""
    if options.device == "cpu":
        return -1.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            trainer._train_epoch(Steps(train, 2), 0)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing" in str(warning.message) for warning in caught) / 2


class Steps:
    """The first batches of a loader, as a loader."""

    def __init__(self, loader: Any, count: int):
        self.loader, self.count = loader, min(count, len(loader))

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Any:
        return (batch for batch, _ in zip(self.loader, range(self.count), strict=False))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["loader"], name)
