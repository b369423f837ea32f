"""BST: Behavior Sequence Transformer for E-commerce Recommendation in Alibaba.

Qiwei Chen, Huan Zhao, Wei Li, Pipei Huang, Wenwu Ou, DLP-KDD 2019 (arXiv 1905.06874).

How this differs from the paper, where the paper says anything:
- The user's id is no feature: users who were not trained on are scored as others are.
- How time gaps become rows of a table is ours (`gaps.py`).

B batch, T slots of a history, L slots at most, C candidates, W features of a slot, V items.
"""

import copy
from logging import getLogger
from typing import Any, NamedTuple

import torch
from recbole.model.abstract_recommender import SequentialRecommender
from recbole.utils import FeatureSource, InputType
from torch import Tensor, nn
from torch.nn import functional as F

from recbole_ext.errors import InputError
from recbole_ext.model.batching import SLOTS_AT_ONCE, groups, in_parts, longest
from recbole_ext.model.bst import time_gaps as gaps
from recbole_ext.model.bst.block import TargetBlock
from recbole_ext.model.bst.features import Crosses, Features, FeatureTable, key_of, without_bucket
from recbole_ext.model.bst.options import Options
from recbole_ext.model.contract import AttentionWeights, Head
from recbole_ext.model.layers import load_item_vectors
from recbole_ext.model.options import check_times


class Prepared(NamedTuple):
    """What of a batch of requests is the same for all items."""

    history: Tensor  # [B, T, W]
    real: Tensor  # which slots are no padding, [B, T]
    columns: dict[str, Tensor]  # of users and context, [B, 1]
    shared: Tensor  # the first layer's bias and its part of users and context, [B, 1, sizes[1]] or [sizes[1]]


class BST(SequentialRecommender):
    """A transformer over the history and the target item behind it, then an MLP: the probability of a click.

    Slots are the vectors of an item and its features, and of the time gap to the target, side by side. Interactions
    need `user_id`, `item_id` and `timestamp` [B], `item_length` [B], `item_id_list` and `timestamp_list` [B, L] (times
    in seconds since the first event of the data, float64), the columns of `context_features`, and `label` to train.

    Raises:
        InputError: a key is out of range, or names a column that cannot be a feature.
    """

    input_type = InputType.POINTWISE
    min_history = 0  # the target alone is a sequence, too
    predicts_probabilities = True
    reads_times = True  # and the time of the request, even with query_time: last: histories may be empty
    structural_keys = ("n_heads", "time_gap", "output", "context_features", "cross_features")
    check_config = Options  # `Config` calls it, so that a contradiction is found before any data is read

    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        options = Options(config)
        self.LABEL, self.TIME = config["LABEL_FIELD"], config["TIME_FIELD"]
        self.TIME_SEQ = self.TIME + config["LIST_SUFFIX"]
        check_times(dataset, self.TIME_SEQ, "BST")
        self.gap, self.output, self.query_time = options.gap, config["output"], config["query_time"]
        self.budget = (config["eval_memory_mb"] or 1024) * 2**20
        e = config["embedding_size"]

        self.items = FeatureTable(
            dataset.get_item_feature(), _columns(dataset.get_item_feature(), self.ITEM_ID, first=True)
        )
        self.users = FeatureTable(dataset.get_user_feature(), _columns(dataset.get_user_feature(), self.USER_ID))
        self.user_features = list(self.users.names)
        self.context_features = _context(options.context, config, dataset)
        self.item_features = Features(dataset, self.items.columns(), e)
        context = {name: dataset.inter_feat[name] for name in self.context_features}
        self.other_features = Features(dataset, {**self.users.columns(), **context}, e)
        self.crosses = Crosses(dataset, options.crosses, e, config["cross_buckets"])
        known = {*self.items.names, *self.users.names, *self.context_features}
        for name in (name for pair in options.crosses for name in pair if name not in known):
            raise InputError(
                f"cross_features names '{name}', which is no feature; they are {', '.join(sorted(known))}."
            )
        self.gap_embedding = nn.Embedding(gaps.buckets(self.gap, self.max_seq_length), config["gap_embedding_size"])

        width, heads = self.item_features.width + config["gap_embedding_size"], config["n_heads"]
        if width % heads:
            raise InputError(
                f"a slot has {width} features ({len(self.items.names)} columns of embedding_size {e}, and "
                f"gap_embedding_size {config['gap_embedding_size']}), which n_heads {heads} does not divide."
            )
        self.blocks = nn.ModuleList(
            TargetBlock(width, heads, config["inner_size"], config["hidden_dropout_prob"], config["layer_norm_eps"])
            for _ in range(config["n_layers"])
        )
        taken = width * (self.max_seq_length + 1 if self.output == "flatten" else 1)
        self.parts = [taken, self.item_features.width, self.other_features.width, self.crosses.width]
        sizes = [sum(self.parts), *options.layers, 1]
        self.mlp = nn.ModuleList(nn.Linear(*pair) for pair in zip(sizes, sizes[1:], strict=False))
        self._initialise(config["initializer_range"])
        load_item_vectors(self.item_features.embeddings[key_of(self.ITEM_ID)], "embedding_size", config, dataset)
        getLogger().info(
            f"BST reads: slots {', '.join(self.items.names)} and the time gap ({self.gap}); MLP {self.output}, "
            f"{', '.join([*self.items.names, *self.users.names, *self.context_features])}"
            f"{''.join(f', {one} x {other}' for one, other in self.crosses.pairs)}; learns {self.LABEL}"
        )

    def _initialise(self, deviation: float) -> None:
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=deviation)
                if module.padding_idx is not None:
                    nn.init.zeros_(module.weight[module.padding_idx])
            elif isinstance(module, nn.Linear):
                nn.init.xavier_normal_(module.weight)
                nn.init.zeros_(module.bias)

    # ---------------------------------------------------------------- the sequence

    def _slots(self, interaction) -> tuple[Tensor, Tensor]:
        """Slots of the histories, [B, T, W], and which are no padding, [B, T]: of longer ones, the newest L."""
        items, time, length = interaction[self.ITEM_SEQ], interaction[self.TIME_SEQ], interaction[self.ITEM_SEQ_LEN]
        kept = length.clamp(max=self.max_seq_length)
        slot = torch.arange(max(longest(kept, items.shape[1]), 1), device=items.device)
        source = (slot + (length - kept).unsqueeze(1)).clamp(max=items.shape[1] - 1)
        real = slot < kept.unsqueeze(1)
        items, time = items.gather(1, source).masked_fill(~real, 0), time.gather(1, source)
        target = interaction[self.TIME].to(time.dtype)
        if self.query_time == "last":
            last = time.gather(1, (kept - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
            target = torch.where(kept > 0, last, target)
        place = gaps.bucket(self.gap, time.masked_fill(~real, 0), target, kept)
        return torch.cat([self.item_features(self.items(items)), self.gap_embedding(place)], dim=-1), real

    def _targets(self, vectors: Tensor) -> Tensor:
        """Slots of targets from their items' vectors, [..., W]: gap 0."""
        return torch.cat([vectors, self.gap_embedding.weight[0].expand(*vectors.shape[:-1], -1)], dim=-1)

    def _transform(self, target: Tensor, history: Tensor, real: Tensor) -> Tensor:
        """What the MLP takes of a history [B, T, W] with the target's slot [B, W] behind it: [B, parts[0]]."""
        x = torch.cat([history, target.unsqueeze(1)], dim=1)
        real = torch.cat([real, real.new_ones(real.shape[0], 1)], dim=1)
        *before, final = self.blocks
        for block in before:
            x = block(x, x, real)
        if self.output == "target":
            return final(x[:, -1:], x, real).squeeze(1)
        x = final(x, x, real) * real.unsqueeze(-1)
        # the newest item next to the target, whatever the length; L + 1 slots
        slots, length = x.shape[1] - 1, real[:, :-1].sum(1)
        slot = torch.arange(self.max_seq_length, device=x.device) - (self.max_seq_length - length.unsqueeze(1))
        index = slot.clamp(0, slots - 1).unsqueeze(-1).expand(-1, -1, x.shape[-1])
        aligned = x[:, :-1].gather(1, index) * (slot >= 0).unsqueeze(-1)
        return torch.cat([aligned, x[:, -1:]], dim=1).flatten(1)

    # ---------------------------------------------------------------- one target per history

    def forward(self, interaction) -> Tensor:
        """Logits [B] of the interaction's items."""
        values = self._values(interaction)
        vectors = self.item_features(values)
        attend = self._attend_in_groups if self._together() else self._attend
        pieces = [attend(self._targets(vectors), interaction), vectors]
        pieces += [part(values) for part in (self.other_features, self.crosses) if part.width]
        return self._deep(self.mlp[0](torch.cat(pieces, dim=-1)))

    def _attend(self, targets: Tensor, interaction) -> Tensor:
        """What the MLP takes of each history with its target: [B, parts[0]]."""
        length = interaction[self.ITEM_SEQ_LEN] + 1
        return in_parts(
            length, lambda part, _: self._transform(targets[part], *self._slots(interaction[part])), pairwise=False
        )

    def _attend_in_groups(self, targets: Tensor, interaction) -> Tensor:
        """The same, with each history encoded once for all the targets that the batch has for it."""
        length, time = interaction[self.ITEM_SEQ_LEN], interaction[self.TIME]
        past = interaction[self.ITEM_SEQ], interaction[self.TIME_SEQ]
        rows, place = groups((interaction[self.USER_ID], time), time, length, *past)
        one = rows[:, 0]
        output = in_parts(
            length[one] + 1,
            lambda part, _: self.blocks[0].of_candidates(targets[rows[part]], *self._slots(interaction[one[part]])),
            pairwise=False,
        )
        return output.flatten(0, 1)[place]

    def _values(self, interaction) -> dict[str, Tensor]:
        """Columns [B] of the target, the user and the context."""
        users, items = self.users(interaction[self.USER_ID]), self.items(interaction[self.ITEM_ID])
        return {**self._context_of(interaction), **users, **items}

    def _context_of(self, interaction) -> dict[str, Tensor]:
        return {name: without_bucket(interaction[name], 1) for name in self.context_features}

    def _deep(self, x: Tensor) -> Tensor:
        """From the first layer's output to the logit: [..., sizes[1]] -> [...]."""
        for layer in self.mlp[1:]:
            x = layer(F.leaky_relu(x))
        return x.squeeze(-1).to(torch.promote_types(x.dtype, torch.float32))  # probabilities near 1 need the digits

    def calculate_loss(self, interaction) -> Tensor:
        """Mean binary cross entropy of the labels (eq. 8)."""
        logits = self.forward(interaction)
        return F.binary_cross_entropy_with_logits(logits, interaction[self.LABEL].to(logits.dtype))

    def predict(self, interaction) -> Tensor:
        """Probabilities of the interaction's items, [B]."""
        return self.forward(interaction).sigmoid()

    # ---------------------------------------------------------------- all items on each history

    def full_sort_predict(self, interaction) -> Tensor:
        """Probabilities of all items, [B, V + 1]; the column of the padding item means nothing.

        The same as `predict` for each item, in chunks of items that keep to `eval_memory_mb`.
        """
        length = interaction[self.ITEM_SEQ_LEN]
        slots = max(1, min(self.max_seq_length, longest(length, self.max_seq_length)))
        rows = max(1, int(self.budget // (8 * slots * (self.item_features.numbers + self.blocks[0].heads))))
        if not self._together():  # every slot of every pair costs: no padding
            rows = 1
        every = slice(self.n_items)
        starts = range(0, max(1, len(interaction)), rows)  # an empty batch is one empty part
        parts = (interaction[begin : begin + rows] for begin in starts)
        return torch.cat([self.score_items(self.prepare(part), every) for part in parts])

    def prepare(self, interaction, user_features: dict[str, Tensor] | None = None) -> Prepared:
        """What scores of any items start from: the histories, and what the MLP makes of user and context.

        Args:
            interaction: B requests.
            user_features: of their users, [B] each, in place of those that the data has.
        """
        history, real = self._slots(interaction)
        columns = {name: value.unsqueeze(1) for name, value in self._context_of(interaction).items()}
        features = dict(user_features or {})
        if not features.keys() >= set(self.user_features):
            features = {**self.users(interaction[self.USER_ID]), **features}
        columns |= {name: value.unsqueeze(1) for name, value in features.items()}
        return Prepared(history, real, columns, self._first_of_user(columns))

    def score_items(self, prepared: Prepared, items: Tensor | slice) -> Tensor:
        """Probabilities of some items, ids [C], for each of the requests that were prepared: [B, C]."""
        history, (rows, slots) = prepared.history, prepared.real.shape
        if isinstance(items, slice):
            items = torch.arange(*items.indices(self.n_items), device=history.device)
        scores = torch.empty(rows, len(items), device=history.device, dtype=self.mlp[0].bias.dtype)
        done = 0
        for chunk in items.split(self._chunk(rows, slots)):
            scores[:, done : done + len(chunk)] = self.score_candidates(prepared, chunk)
            done += len(chunk)
        return scores

    def score_candidates(self, prepared: Prepared, items: Tensor) -> Tensor:
        """The same for ids [C] in one go: memory grows with B times C."""
        history, real, columns, shared = prepared
        values = self.items(items)
        vectors = self.item_features(values)
        output = self._of_candidates(self._targets(vectors), history, real)  # [B, C, parts[0]]
        first = self._first(0, output) + self._first(1, vectors) + shared
        if self.crosses.width:
            first = first + self._first(3, self.crosses({**columns, **values}))
        return self._deep(first).sigmoid()

    def attention_weights(self, interaction, item: Tensor, user_features: dict[str, Tensor]) -> AttentionWeights:
        """Attention of the target item, id [1], to the events and itself, in every block."""
        prepared = self.prepare(interaction, user_features)
        target = self._targets(self.item_features(self.items(item)))  # [1, W]
        x = torch.cat([prepared.history, target.unsqueeze(1)], dim=1)
        real = torch.cat([prepared.real, prepared.real.new_ones(1, 1)], dim=1)
        heads = []
        for layer, block in enumerate(self.blocks, 1):
            weights = block.attention_weights(x[:, -1:], x, real)[0, :, 0]  # [n, T + 1]
            heads += [Head(layer, f"head_{number}", row) for number, row in enumerate(weights, 1)]
            x = block(x, x, real)
        return AttentionWeights("target", heads)

    def for_export(self) -> "BST":
        """The model without its table of training users: an exported program takes user features as inputs."""
        lighter = copy.copy(self)
        lighter._modules = {**self._modules, "users": FeatureTable({}, [])}
        return lighter

    def _chunk(self, rows: int, slots: int) -> int:
        """Items whose work for a batch of `rows` histories fits the memory budget."""
        block = self.blocks[0]
        if self._together():
            numbers = 3 * block.heads * (slots + 1) + 6 * self.parts[0] + 2 * block.inner.out_features
        else:
            numbers = (slots + 1) * (8 * block.inner.in_features + 2 * block.inner.out_features) + 2 * self.parts[0]
        numbers += 3 * max(layer.out_features for layer in self.mlp) + self.crosses.width + self.item_features.numbers
        most = SLOTS_AT_ONCE[self.gap_embedding.weight.device.type == "cpu"]
        most //= 4 if self._together() else slots + 1
        return max(1, int(min(self.budget // (4 * numbers), most) // max(rows, 1)))

    def _together(self) -> bool:
        """Whether histories stay the same whatever the candidate: a single block, of which the target alone is used."""
        return len(self.blocks) == 1 and self.output == "target"

    def _of_candidates(self, targets: Tensor, history: Tensor, real: Tensor) -> Tensor:
        if self._together():
            return self.blocks[0].of_candidates(targets, history, real)
        rows, count = history.shape[0], targets.shape[0]
        each = self._transform(
            targets.repeat(rows, 1), history.repeat_interleave(count, 0), real.repeat_interleave(count, 0)
        )
        return each.unflatten(0, (rows, count))

    def _first(self, part: int, x: Tensor) -> Tensor:
        """The share of one part of the input in the first layer of the MLP, without the bias."""
        return F.linear(x, self.mlp[0].weight.split(self.parts, dim=1)[part])

    def _first_of_user(self, columns: dict[str, Tensor]) -> Any:
        if not self.other_features.width:
            return self.mlp[0].bias
        return self._first(2, self.other_features(columns)) + self.mlp[0].bias


def _columns(feature, own: str, first: bool = False) -> list[str]:
    """Columns of a table of users or items that are features: all but the id, which items alone keep.

    In the order of their names, since that of a file may change.
    """
    others = sorted(name for name in feature if name != own)
    return [own, *others] if first else others


def _context(names: list[str], config, dataset) -> list[str]:
    taken = {config[f"{key}_FIELD"] for key in ("USER_ID", "ITEM_ID", "TIME", "LABEL", "ITEM_LIST_LENGTH")}
    taken |= set(config["threshold"] or ()) | {name for name in names if name.endswith(config["LIST_SUFFIX"])}
    for name in names:
        if name in taken or dataset.field2source.get(name) != FeatureSource.INTERACTION:
            raise InputError(
                f"context_features names '{name}', which is no column of the .inter file that is known before the "
                f"event; name columns that load_col loads, without ids, time, label and histories."
            )
    return list(names)
