"""Ways to hold an item table in several processes: bytes sent, memory, and time of a training step with each.

    python benchmarks/sharded_items.py [--processes 2] [--hidden 64] [--length 50] [--negatives 256] [--repeats 6]
                                       [--items 1000000 4000000 16000000] [--batches 64 512] [--memory 4]

- whole: as recbole_ext trains with `sparse_updates`: a table in each process; the gradients of the touched rows go to
  all processes.
- rows: each process owns a range of rows, as in TorchRec's row-wise sharding. It asks the owners for the rows of its
  share of the batch, sends their gradients back, and the owner updates its rows.
- FSDP2: torch's `fully_shard` on the embedding, with Adam.

The three do the same steps in turns, in the same processes, over three batches with uniformly drawn items: sampled
softmax with negatives that a batch shares, without and with two transformer layers. For times, tables start as zeros
that take memory only where they are touched, so that large ones fit. Peaks are measured with tables that are filled,
each in processes of its own. What would take more than `--memory` GiB in all processes is left out. Writes
`benchmarks/results/sharded_items.md`.
"""

import argparse
import contextlib
import json
import mmap
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402

from benchmarks.measure import arguments, provenance, resident  # noqa: E402
from recbole_ext.distributed import processes  # noqa: E402
from recbole_ext.distributed.gradients import sum_gradients  # noqa: E402
from recbole_ext.training.lazy_adam import LazyAdam  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "sharded_items.md"
BATCHES = 3  # that the steps take in turns
GIB = 2**30


def lazy_zeros(*shape: int) -> Tensor:
    """Zeros that take memory only where they are written."""
    numbers = shape[0] * shape[1]
    return torch.frombuffer(mmap.mmap(-1, 4 * numbers), dtype=torch.float32, count=numbers).view(shape)


class Whole:
    """The whole table in each process."""

    def __init__(self, items: int, hidden: int) -> None:
        self.weight = nn.Parameter(lazy_zeros(items, hidden))
        self.first = 0  # row
        self.optimizer = LazyAdam([self.weight])
        self.optimizer.state[self.weight] = {
            "step": torch.tensor(0.0), "exp_avg": lazy_zeros(items, hidden), "exp_avg_sq": lazy_zeros(items, hidden)
        }  # fmt: skip

    @property
    def tensors(self) -> list[Tensor]:
        """Weights and moments of this process."""
        state = self.optimizer.state[self.weight]
        return [self.weight.data, state["exp_avg"], state["exp_avg_sq"]]

    def read(self, items: Tensor) -> Tensor:
        """[N] items -> [N, H] vectors."""
        return nn.functional.embedding(items, self.weight, sparse=True)

    def update(self) -> None:
        """The optimizer's step with the gradients of all processes."""
        sum_gradients([self.weight])
        self.optimizer.step()
        self.optimizer.zero_grad()


class Rows(Whole):
    """A range of rows in each process."""

    def __init__(self, items: int, hidden: int) -> None:
        self.each = items // processes.size()
        super().__init__(self.each, hidden)
        self.first = processes.rank() * self.each

    def read(self, items: Tensor) -> Tensor:
        asked, place = items.unique(return_inverse=True)  # sorted: by owner
        counts = torch.bincount(asked // self.each, minlength=processes.size())
        self.asked = counts.tolist()
        self.wanted = _exchanged(counts, [1] * len(counts), [1] * len(counts)).tolist()  # by the others, of this one
        self.rows = _exchanged(asked, self.asked, self.wanted) - self.first
        vectors = _exchanged(self.weight.detach()[self.rows], self.wanted, self.asked)
        self.vectors = vectors.requires_grad_()
        return nn.functional.embedding(place, self.vectors)

    def update(self) -> None:
        values = _exchanged(self.vectors.grad, self.asked, self.wanted)
        place = self.rows.unsqueeze(0)
        self.weight.grad = torch.sparse_coo_tensor(place, values, self.weight.shape, check_invariants=False)
        self.optimizer.step()
        self.optimizer.zero_grad()


def _exchanged(tensor: Tensor, sent: list[int], received: list[int]) -> Tensor:
    """Send so many rows to each process, and receive so many."""
    result = tensor.new_empty(sum(received), *tensor.shape[1:])
    dist.all_to_all_single(result, tensor, received, sent)
    return result


class FSDP2:
    """torch's `fully_shard`; it does not take sparse gradients."""

    def __init__(self, items: int, hidden: int) -> None:
        self.module = nn.Embedding(items, hidden, device="meta")
        fully_shard(self.module, mesh=init_device_mesh("cpu", (processes.size(),)))
        self.module.set_gradient_divide_factor(1.0)  # a sum, no mean
        self.module.set_force_sum_reduction_for_comms(True)
        nn.init.zeros_(self.module.to_empty(device="cpu").weight)
        self.first = processes.rank() * (items // processes.size())
        self.optimizer = torch.optim.Adam(self.module.parameters())

    @property
    def tensors(self) -> list[Tensor]:
        return [self.module.weight.to_local().detach()]

    def read(self, items: Tensor) -> Tensor:
        return self.module(items)

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


TABLES: dict[str, Any] = {"whole": Whole, "rows": Rows, "FSDP2": FSDP2}


def held(name: str, items: int, hidden: int, count: int) -> float:
    """GiB of a process: weights and two moments; for FSDP2 also all weights and all gradients while it computes."""
    table = items * hidden * 4 / GIB
    return {"whole": 3 * table, "rows": 3 * table / count, "FSDP2": 3 * table / count + 2 * table}[name]


class Training:
    """Steps with a table: layers (none or two), the losses of this process's share, and the dense optimizer."""

    def __init__(self, table: Any, hidden: int, layers: int) -> None:
        torch.manual_seed(0)
        self.table, self.encoder = table, None
        if layers:
            layer = nn.TransformerEncoderLayer(hidden, 2, 4 * hidden, 0.0, batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
            self.optimizer = torch.optim.Adam(self.encoder.parameters())

    def step(self, windows: Tensor, negatives: Tensor) -> None:
        """[B, L] items of the whole batch, each the target of those before, and [N] negatives."""
        share = windows.chunk(processes.size())[processes.rank()]
        vectors = self.table.read(torch.cat([share.flatten(), negatives]))
        sequences = vectors[: share.numel()].view(*share.shape, -1)
        states, targets = sequences[:, :-1], sequences[:, 1:]
        if self.encoder:
            causal = nn.Transformer.generate_square_subsequent_mask(states.shape[1])
            states = self.encoder(states, mask=causal, is_causal=True)
        own = (states * targets).sum(-1, keepdim=True)
        scores = torch.cat([own, states @ vectors[share.numel() :].T], -1)
        loss = (scores.logsumexp(-1) - own.squeeze(-1)).sum() / (len(windows) * states.shape[1])
        loss.backward()
        self.table.update()
        if self.encoder:
            sum_gradients(self.encoder.parameters())
            self.optimizer.step()
            self.optimizer.zero_grad()


@contextlib.contextmanager
def counted() -> Iterator[list[int]]:
    """In this context, a list gets the bytes of each call with which this process sends a table's rows or gradients.

    What all processes gather or reduce goes around a ring: each passes on the parts of all but one.
    """
    sent: list[int] = []
    own, others = processes.rank(), processes.size() - 1
    sizes = {
        "all_gather": lambda parts, tensor, *group: others * tensor.nbytes,
        "all_gather_single": lambda output, input, **keys: others * input.nbytes,
        "reduce_scatter_single": lambda output, input, **keys: others * output.nbytes,
        "all_to_all_single": lambda output, input, received, rows: (sum(rows) - rows[own]) * input[:1].nbytes,
    }

    def counting(function: Any, size: Any) -> Any:
        def call(*arguments: Any, **keys: Any) -> Any:
            sent.append(size(*arguments, **keys))
            return function(*arguments, **keys)

        return call

    with contextlib.ExitStack() as patches:
        for name, size in sizes.items():
            patches.enter_context(mock.patch.object(dist, name, counting(getattr(dist, name), size)))
        yield sent


def drawn(batch: int, options: argparse.Namespace, items: int) -> list[tuple[Tensor, Tensor]]:
    """Batches, the same in all processes: windows and negatives."""
    source = torch.Generator().manual_seed(options.seed)
    shapes = (batch, options.length), (options.negatives,)
    return [tuple(torch.randint(items, shape, generator=source) for shape in shapes) for _ in range(BATCHES)]


def timed(names: list[str], items: int, batch: int, layers: int, options: argparse.Namespace) -> dict:
    """Median seconds of a step with each table, and the bytes that the first process sends in a step on average."""
    runs = {name: Training(TABLES[name](items, options.hidden), options.hidden, layers) for name in names}
    batches = drawn(batch, options, items)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    sent = dict.fromkeys(names, 0.0)
    for turn in range(BATCHES + options.repeats):
        for name, run in runs.items():
            processes.total(0)  # all begin together
            begin = time.perf_counter()
            with counted() as bytes_sent:
                run.step(*batches[turn % BATCHES])
                processes.total(0)  # the last one has ended
            if turn < BATCHES:  # to warm up
                sent[name] += sum(bytes_sent) / BATCHES
            else:
                seconds[name].append(time.perf_counter() - begin)
    return {name: (statistics.median(seconds[name]), sent[name]) for name in names}


def peak(name: str, items: int, batch: int, options: argparse.Namespace) -> float:
    """GiB that a filled table and two steps add at most to a process."""
    before = resident("VmRSS")
    training = Training(TABLES[name](items, options.hidden), options.hidden, 0)
    for tensor in training.table.tensors:
        tensor.fill_(0.0)
    for windows, negatives in drawn(batch, options, items)[:2]:
        training.step(windows, negatives)
    return (resident("VmHWM") - before) / 1024


def sent_by_many(count: int, batch: int, options: argparse.Namespace) -> str:
    """A line with the MiB that a process sends in a step, on average, by count; FSDP2 for a million items."""
    windows, negatives = drawn(batch, options, max(options.items))[0]
    rows = [len(torch.cat([share.flatten(), negatives]).unique()) for share in windows.chunk(count)]
    each, vector, others = statistics.mean(rows), 4 * options.hidden, count - 1
    sent = [
        each * (8 + vector) * others,  # rows and gradients go to all others
        each * (8 + 2 * vector) * others / count,  # rows go to the owners, vectors come back, gradients go there
        2 * 1_000_000 * vector * others / count,  # all weights, all gradients
    ]
    cells = [str(count), f"{batch:,}", *(f"{value / 2**20:,.2f}" for value in sent)]
    return f"| {' | '.join(cells)} |"


def largest() -> list[str]:
    """A table of the items whose weights and moments fill a device."""
    lines = ["| device | H = 64 | H = 128 |", "|---|---:|---:|"]
    for gib in (16, 80, 141):
        cells = [f"{gib * GIB / (3 * hidden * 4) / 1e6:,.0f} million" for hidden in (64, 128)]
        lines.append(f"| {gib} GiB | {' | '.join(cells)} |")
    return lines


def together(count: int, threads: int, function: Any, *arguments: Any) -> Any:
    """Call a function in new processes that know each other; returns the result of the first."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_child, (count, threads, folder, function, arguments), count)
        return json.loads((Path(folder) / "result").read_text())


def _child(rank: int, count: int, threads: int, folder: str, function: Any, arguments: tuple) -> None:
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(count),
        GLOO_SOCKET_IFNAME="lo", RECBOLE_EXT_STORE=str(Path(folder) / "store"),
    )  # fmt: skip
    torch.set_num_threads(threads)
    with processes.joined():
        result = function(*arguments)
        processes.wait()
    if rank == 0:
        (Path(folder) / "result").write_text(json.dumps(result))


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], 6, processes=2, hidden=64, length=50, negatives=256, memory=4)
    parser.set_defaults(threads=1)
    parser.add_argument("--items", type=int, nargs="+", default=[1_000_000, 4_000_000, 16_000_000])
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 512])
    options = parser.parse_args()
    count, hidden = options.processes, options.hidden
    lines = [
        "| items | batch | table | held by a process | peak | sent in a step | step, no layers | step, two layers |",
        "|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    for items in options.items:
        fits = [name for name in TABLES if count * held(name, items, hidden, count) <= options.memory]
        names = [name for name in TABLES if name != "FSDP2" or name in fits]
        smallest = min(options.batches)
        peaks = {name: together(count, options.threads, peak, name, items, smallest, options) for name in fits}
        for batch in options.batches:
            what = names, items, batch
            bare, deep = (together(count, options.threads, timed, *what, layers, options) for layers in (0, 2))
            for name in TABLES:
                memory = f"{held(name, items, hidden, count):.2f} GiB"
                if name in names:
                    sent = f"{bare[name][1] / 2**20:,.2f} MiB"
                    ratios = [f"{run[name][0] / run['whole'][0]:.2f}" for run in (bare, deep)]
                else:  # the weights go out and the gradients come back
                    sent, ratios = f"({8 * items * hidden * (count - 1) / count / 2**20:,.2f} MiB)", ["", ""]
                measured = f"{peaks[name]:.2f} GiB" if name in peaks and batch == smallest else ""
                cells = [f"{items:,}", batch, name, memory, measured, sent, *ratios]
                lines.append(f"| {' | '.join(map(str, cells))} |")
                print(lines[-1], flush=True)
    lines += [
        "", "MiB that a process sends in a step, by count:", "",
        "| processes | batch | whole | rows | FSDP2, a million items |", "|---:|---:|---:|---:|---:|",
        *(sent_by_many(many, batch, options) for many in (2, 8, 64) for batch in options.batches if batch >= many),
        "", "Items whose weights and two moments fill a device, in float32:", "", *largest(),
    ]  # fmt: skip
    options.items, options.batches = (" ".join(map(str, numbers)) for numbers in (options.items, options.batches))
    text = "\n".join(["# Sharded item tables", "", *lines, "", provenance(__file__, options)])
    (options.output or RESULTS).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
