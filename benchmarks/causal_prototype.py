"""A causal next-item transformer in plain PyTorch, to try settings before they become part of the package.

Every slot of a window predicts the next event; all slots are trained in one pass. Evaluation is leave-one-out: the last
event of each user is the test target, the previous one the validation target. All unseen items are ranked.

`python benchmarks/causal_prototype.py --data beauty --work FOLDER --name first` trains and writes FOLDER/first.pt, from
which `--resume` continues, and FOLDER/first.json with the figures. Defaults are SASRec as RecTools and
eSASRec train it.

B users of a batch, M slots in use, T slots of a group of users of like length, H hidden, V items, K negatives.
"""

import argparse
import itertools
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from recbole_ext import Config
from recbole_ext.data import create_dataset
from recbole_ext.model.layers import Dropout
from recbole_ext.model.meantime.attention import MixedAttention, TemporalContext
from recbole_ext.model.meantime.kernels import TABULATED, GapTable, SinPhases

DATA = {"beauty": "amazon-beauty", "ml-100k": "ml-100k", "ml-1m": "ml-1m"}
DAY = 86_400


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--data", choices=DATA, default="beauty")
    add("--data_path", help="folder of the data sets; RecBole's own by default")
    add("--ties", choices=["file", "item"], default="file", help="order of a user's events of one time: file, item id")
    add("--work", type=Path, required=True), add("--name", required=True), add("--resume", action="store_true")
    add("--norm", choices=["sasrec", "pre", "ligr"], default="sasrec")
    add("--sink", type=int, default=1, help="attend to the padding too, as peers without a padding mask do")
    add("--scale", type=int, default=0, help="multiply the items' input embeddings by sqrt(hidden)")
    add("--init", default="xavier", help="xavier, or the standard deviation of all weights")
    add("--kernels", default="position", help="position (added to the input), or position_kernel,day,sin,log")
    add("--query_time", choices=["target", "last"], default="last"), add("--loss", choices=["ce", "ssm"], default="ssm")
    add("--share", choices=["position", "batch"], default="position", help="what has negatives of its own")
    add("--sampler", choices=["uniform", "popularity", "in_batch", "mixed"], default="uniform")
    add("--effective", type=int, help="weigh the negatives as if there were so many")
    numbers = {"length": 50, "blocks": 1, "heads": 1, "hidden": 64, "negatives": 256, "logq": 0, "batch": 128}
    numbers |= {"epochs": 200, "patience": 50, "every": 1, "seed": 2020, "threads": 1}  # every: epochs to a validation
    for name, value in numbers.items():
        add(f"--{name}", type=int, default=value)
    numbers = {"inner": 1.0, "dropout": 0.2, "lr": 1e-3, "wd": 0.0, "minutes": 1e9}  # inner: in units of hidden
    for name, value in {**numbers, "temperature": 0.0, "ema": 0.0}.items():  # of cosines; of the weights, a step
        add(f"--{name}", type=float, default=value)
    return parser.parse_args()


class Events:
    """All events sorted by user and time; user u has the rows start[u] to end[u]. Items count from 1."""

    def __init__(self, options: argparse.Namespace):
        keys = {"load_col": {"inter": ["user_id", "item_id", "timestamp"]}, "time_unit": "s"}
        if options.data_path:
            keys["data_path"] = options.data_path
        dataset = create_dataset(Config("MEANTIME", DATA[options.data], config_dict=keys, argv=[]))
        parts = dataset.build()
        log = parts[0].inter_feat.targets.columns
        users, self.items, self.time = (log[name] for name in ("user_id", "item_id", "timestamp"))
        if options.ties == "item":  # as in the files that peers use: ids follow the raw file
            token = np.array([int(word) for word in dataset.id2token("item_id", self.items.numpy())])
            order = torch.from_numpy(np.lexsort((token, self.time.numpy(), users.numpy())))
            self.items, self.time = self.items[order], self.time[order]
        size = torch.bincount(users)[1:]
        self.end = size.cumsum(0)
        self.start, self.count = self.end - size, dataset.item_num
        for part, back in zip(parts[1:], (2, 1), strict=True):  # the package's own split is the same
            assert torch.equal(torch.from_numpy(part.inter_feat.ranges.target).sort().values, self.end - back)
        self.first_second = float(dataset.time_origin)
        train = torch.arange(len(users)) < (self.end - 2)[users - 1]  # the rows to learn from
        self.popularity = torch.bincount(self.items[train], minlength=self.count).double()
        self.days = int(self.day(self.time[train].max())) + 1

    def day(self, seconds: Tensor) -> Tensor:
        return ((seconds + self.first_second) // DAY - self.first_second // DAY).to(torch.int64)


class Batch:
    """The last N events of some users before the rows `end` [B], without padding, and when the next is asked for.

    Users are in order of length, so that a group of users of like length has its slots next to each other.
    """

    def __init__(self, events: Events, user: Tensor, end: Tensor, o: argparse.Namespace):
        begin = torch.maximum(events.start[user], end - o.length)
        self.order = (end - begin).argsort(stable=True)
        end, self.length = end[self.order], (end - begin)[self.order]  # [B]
        self.last = self.length.cumsum(0) - 1  # the newest slot of each user
        self.back = self.last.repeat_interleave(self.length) - torch.arange(int(self.length.sum()))  # 0: the newest
        rows = (end - 1).repeat_interleave(self.length) - self.back  # [M]
        self.items, self.next = events.items[rows], events.items[rows + 1]
        self.time, self.ask = events.time[rows], events.time[rows + (o.query_time == "target")]
        self.newest = self.ask[self.last].repeat_interleave(self.length)
        edges = torch.searchsorted(self.length, torch.tensor([0, 5, 9, 17, 33, 65, 129, 10**6])).unique().tolist()
        first = self.last + 1 - self.length
        self.groups = [Group(self.length[a:b], int(first[a])) for a, b in itertools.pairwise(edges)]


class Group:
    """Users of like length: their slots stand next to each other, from `start` on."""

    def __init__(self, length: Tensor, start: int):
        self.length, self.slots = length, slice(start, start + int(length.sum()))
        self.real = torch.arange(int(length.max())) < length.unsqueeze(1)  # [B, T]
        self.where = self.real.flatten().nonzero().squeeze(1)
        self.causal = torch.ones(self.real.shape[1], self.real.shape[1], dtype=torch.bool).tril()

    def pad(self, x: Tensor) -> Tensor:
        """The group's slots of x [M, ...] -> [B, T, ...]."""
        x = x[self.slots]
        return x.new_zeros(self.real.numel(), *x.shape[1:]).index_copy(0, self.where, x).unflatten(0, self.real.shape)


class PlainAttention(nn.Module):
    """Causal attention; with `sink`, to slots of padding too, whose key and value are the biases."""

    def __init__(self, o: argparse.Namespace):
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(o.hidden, o.hidden) for _ in range(4))
        self.heads, self.width, self.sink, self.dropout = o.heads, o.length, o.sink, Dropout(o.dropout)

    def forward(self, rows: Tensor, slots: Tensor, batch: Batch, when: list[TemporalContext]) -> Tensor:
        packed, found = (self.query(rows), self.key(slots), self.value(slots)), []
        for group in batch.groups:
            q, k, v = (group.pad(part.unflatten(-1, (self.heads, -1))).transpose(1, 2) for part in packed)
            logits = (q @ k.transpose(2, 3)).mul(q.shape[-1] ** -0.5).masked_fill(~group.causal, -torch.inf)
            if self.sink:
                bias_k, bias_v = (layer.bias.view(self.heads, 1, -1) for layer in (self.key, self.value))
                empty = (q * bias_k).sum(-1, keepdim=True) * q.shape[-1] ** -0.5
                empty = empty + (self.width - group.length).log().view(-1, 1, 1, 1)
                logits, v = torch.cat([logits, empty], -1), torch.cat([v, bias_v.expand(len(v), -1, -1, -1)], 2)
            mixed = self.dropout(logits.softmax(-1)) @ v
            found.append(mixed.transpose(1, 2).flatten(2).flatten(0, 1)[group.where])
        return self.output(torch.cat(found))


class KernelAttention(MixedAttention):
    """MEANTIME's attention under a causal mask."""

    def forward(self, rows: Tensor, slots: Tensor, batch: Batch, when: list[TemporalContext]) -> Tensor:
        packed, found = (self.query(rows) * self.d**-0.5, self.key(slots), self.value(slots)), []
        for group, times in zip(batch.groups, when, strict=True):
            query, key, value = (self._heads(group.pad(part)) for part in packed)
            mixed = []
            for head in range(self.heads):
                logits = self._logits(head, query[head], key[head], times).masked_fill(~group.causal, -torch.inf)
                mixed.append(self.dropout(logits.softmax(-1)) @ value[head])
            found.append(torch.cat(mixed, -1).flatten(0, 1)[group.where])
        return self.output(torch.cat(found))


class Block(nn.Module):
    """Attention and feed-forward layer with the residuals and norms that `norm` names."""

    def __init__(self, o: argparse.Namespace, attention: nn.Module):
        super().__init__()
        inner, self.norm, self.attention = int(o.inner * o.hidden), o.norm, attention
        self.norm1, self.norm2 = nn.LayerNorm(o.hidden), nn.LayerNorm(o.hidden)
        self.inner, self.outer = nn.Linear(o.hidden, inner), nn.Linear(inner, o.hidden)
        self.dropout = Dropout(o.dropout)
        if o.norm == "ligr":
            self.gate = nn.Linear(o.hidden, inner)
            self.gates = nn.ModuleList(nn.Linear(o.hidden, o.hidden) for _ in range(2))

    def feed_forward(self, x: Tensor) -> Tensor:
        inner = F.silu(self.gate(x)) * self.inner(x) if self.norm == "ligr" else F.relu(self.inner(x))
        return self.dropout(self.outer(self.dropout(inner)))

    def forward(self, x: Tensor, batch: Batch, when: list[TemporalContext]) -> Tensor:
        asked = self.norm1(x)
        if self.norm == "sasrec":  # the residual starts from the normed input, and keys and values are not normed
            x = self.norm2(asked + self.attention(asked, x, batch, when))
            return x + self.feed_forward(x)
        x = x + self.gate_of(0, x) * self.dropout(self.attention(asked, asked, batch, when))
        return x + self.gate_of(1, x) * self.feed_forward(self.norm2(x))

    def gate_of(self, part: int, x: Tensor) -> Tensor | int:
        return self.gates[part](x).sigmoid() if self.norm == "ligr" else 1


class Network(nn.Module):
    """Items and times of windows to one vector per slot, and item vectors to compare it with."""

    def __init__(self, o: argparse.Namespace, events: Events):
        super().__init__()
        self.options, self.day = o, events.day
        self.items = nn.Embedding(events.count, o.hidden)
        kernels = [] if o.kernels == "position" else o.kernels.replace("position_kernel", "position").split(",")
        self.absolute = [name for name in kernels if name in ("position", "day")]
        relative = [name for name in kernels if name not in self.absolute]
        sizes = {"position": o.length, "day": events.days}
        self.tables = nn.ModuleDict({name: nn.Embedding(sizes[name], o.hidden) for name in self.absolute})
        self.position = None if kernels else nn.Embedding(o.length, o.hidden)
        self.sin = SinPhases(o.hidden, 10000.0) if "sin" in relative else None
        tabulated = [name for name in relative if name in TABULATED]
        self.gaps = GapTable(tabulated, o.hidden, 10000.0, 1.0) if tabulated else None
        mixed = (o.hidden, len(self.absolute), relative, o.dropout, False, self.gaps)
        layers = (KernelAttention(*mixed) if kernels else PlainAttention(o) for _ in range(o.blocks))
        self.blocks = nn.ModuleList(Block(o, attention) for attention in layers)
        self.dropout, self.final = Dropout(o.dropout), nn.LayerNorm(o.hidden)
        for name, weights in self.named_parameters():
            if weights.dim() > 1 and o.init == "xavier":
                nn.init.xavier_normal_(weights)
            elif weights.dim() > 1:
                nn.init.normal_(weights, std=float(o.init))
            elif name.endswith("bias"):
                nn.init.zeros_(weights)

    def when(self, batch: Batch) -> list[TemporalContext]:
        """Times for the kernels: keys stand at their event's time, queries at the time that is asked for."""
        places = {"position": (batch.back, batch.back), "day": (self.day(batch.time), self.day(batch.ask))}
        slots, rows = [], []
        for name in self.absolute:
            table = self.tables[name]
            sides = [self.dropout(table(index.clamp(0, table.num_embeddings - 1))) for index in places[name]]
            slots.append(sides[0]), rows.append(sides[1])
        times = []
        for group in batch.groups:
            key, ask = (group.pad(seconds - batch.newest) for seconds in (batch.time, batch.ask))
            sin = (self.sin(ask, torch.float32), self.sin(key, torch.float32)) if self.sin else None
            gaps = self.gaps.locate(ask, key, torch.float32) if self.gaps else None
            side = ([group.pad(part) for part in parts] for parts in (slots, rows))
            times.append(TemporalContext(*side, sin, gaps, group.real))
        return times

    def forward(self, batch: Batch) -> Tensor:
        """Vectors of the slots, [M, H]."""
        o, x = self.options, self.items(batch.items)
        x = x * o.hidden**0.5 if o.scale else x
        if self.position is not None:
            x = x + self.position(batch.back)
        x, when = self.dropout(x), [] if o.kernels == "position" else self.when(batch)
        for block in self.blocks:
            x = block(x, batch, when)
        x = self.final(x)
        return F.normalize(x, dim=-1) if o.temperature else x

    def scores(self, vectors: Tensor, items: Tensor | slice) -> Tensor:
        """Scores of the same items [K] for all vectors [M, H], or of each vector's own items [M, K]."""
        table = self.items.weight[items] if isinstance(items, slice) else F.embedding(items, self.items.weight)
        if self.options.temperature:
            table = F.normalize(table, dim=-1) / self.options.temperature
        return vectors @ table.T if table.dim() == 2 else (table @ vectors.unsqueeze(-1)).squeeze(-1)


def loss_of(network: Network, batch: Batch, chance: Tensor) -> Tensor:
    """Full or sampled softmax cross entropy; `chance` [V] is that of an item to be drawn as a negative."""
    o, vectors, target = network.options, network(batch), batch.next
    if o.loss == "ce":
        return F.cross_entropy(network.scores(vectors, slice(1, None)), target - 1)
    shape = (o.negatives,) if o.share == "batch" else (len(target), o.negatives)
    if o.sampler == "in_batch":
        drawn = target[torch.randint(len(target), shape)]
    else:
        drawn = torch.searchsorted(chance.cumsum(0), torch.rand(shape, dtype=torch.float64)).clamp(1, len(chance) - 1)
    right, wrong = network.scores(vectors, target.unsqueeze(1)), network.scores(vectors, drawn)
    if o.logq:
        wrong = wrong - (o.negatives * chance).log().float()[drawn]
    if o.effective:
        wrong = wrong + math.log(o.effective / o.negatives)
    wrong = wrong.masked_fill(drawn == target.unsqueeze(1), -torch.inf)
    return F.cross_entropy(torch.cat([right, wrong], 1), torch.zeros_like(target))


def chances(events: Events, sampler: str) -> Tensor:
    """The chance of each item to be drawn, float64 [V]."""
    uniform = (torch.arange(events.count) > 0).double() / (events.count - 1)
    popular = events.popularity / events.popularity.sum()
    part = {"uniform": 0.0, "mixed": 0.5}.get(sampler, 1.0)
    return part * popular + (1 - part) * uniform


@torch.no_grad()
def evaluate(network: Network, events: Events, back: int) -> dict[str, float]:
    """Recall@10 and NDCG@10 of each user's event number `back` from the end, ranked among all unseen items."""
    network.eval()
    gain = []
    for user in torch.arange(len(events.end)).split(512):
        batch = Batch(events, user, events.end[user] - back, network.options)
        user = user[batch.order]
        end, begin = events.end[user] - back, events.start[user]
        scores, target = network.scores(network(batch)[batch.last], slice(None)), events.items[end].unsqueeze(1)
        wanted = scores.gather(1, target)
        past = torch.cat([events.items[a:b] for a, b in zip(begin, end, strict=True)])
        scores[torch.repeat_interleave(torch.arange(len(user)), end - begin), past] = -torch.inf
        scores[:, 0] = -torch.inf
        rank = (scores > wanted).sum(1)
        gain.append(torch.where(rank < 10, 1 / (rank + 2).log2(), 0))
    gain = torch.cat(gain)
    return {"recall": (gain > 0).float().mean().item(), "ndcg": gain.mean().item()}


def main() -> None:
    """Train, stop when validation no longer improves, test the best epoch."""
    o = arguments()
    torch.set_num_threads(o.threads)
    o.work.mkdir(parents=True, exist_ok=True)
    events, saved = Events(o), o.work / f"{o.name}.pt"
    torch.manual_seed(o.seed)
    network, chance = Network(o, events), chances(events, o.sampler)
    optimizer = torch.optim.Adam(network.parameters(), o.lr, (0.9, 0.98), weight_decay=o.wd, fused=True)
    average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(o.ema)) if o.ema else None
    shown = average.module if average else network
    learners = torch.nonzero(events.end - events.start > 3).squeeze(1)  # two events or more to learn from
    epoch, seconds, best, curve = 0, 0.0, {"ndcg": -1.0, "epoch": 0}, []
    if o.resume and saved.exists():
        state = torch.load(saved, weights_only=True)
        network.load_state_dict(state["network"]), optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        if average:
            average.load_state_dict(state["average"])
        epoch, seconds, best, curve = state["epoch"], state["seconds"], state["best"], state["curve"]
    begun = time.time()
    while epoch < o.epochs and epoch - best["epoch"] < o.patience and time.time() - begun < o.minutes * 60:
        network.train()
        epoch, started, total = epoch + 1, time.time(), 0.0
        parts = learners[torch.randperm(len(learners))].split(o.batch)
        for user in parts:
            optimizer.zero_grad()
            value = loss_of(network, Batch(events, user, events.end[user] - 3, o), chance)
            value.backward()
            optimizer.step()
            if average:
                average.update_parameters(network)
            total += value.item()
        seconds += time.time() - started
        if epoch % o.every == 0:
            valid = evaluate(shown, events, 2)
            curve.append([epoch, round(valid["recall"], 4), round(valid["ndcg"], 4)])
            print(f"{curve[-1]} loss {total / len(parts):.4f} {time.time() - started:.0f} s", flush=True)
            if valid["ndcg"] > best["ndcg"]:
                best = {**valid, "epoch": epoch}
                torch.save(shown.state_dict(), saved.with_suffix(".best"))
        state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}
        state["average"] = average.state_dict() if average else None
        torch.save({**state, "epoch": epoch, "seconds": seconds, "best": best, "curve": curve}, saved)
    shown.load_state_dict(torch.load(saved.with_suffix(".best"), weights_only=True))
    keys = {key: value for key, value in vars(o).items() if key not in ("work", "data_path", "resume")}
    result = {"valid": best, "test": evaluate(shown, events, 1), "epochs": epoch, "seconds": seconds / max(epoch, 1)}
    print(json.dumps(result))
    result |= {"curve": curve, "keys": keys, "torch": torch.__version__}
    saved.with_suffix(".json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
