"""BST: Behavior Sequence Transformer for E-commerce Recommendation in Alibaba.

Qiwei Chen, Huan Zhao, Wei Li, Pipei Huang, Wenwu Ou, DLP-KDD 2019 (arXiv 1905.06874).

Differences from the paper: the user's id is a feature only with `user_id_feature`, and new users can be scored with it,
too. The paper does not say how time gaps are embedded; see `features.gap_index`.

B batch, T events of a history (at most L), C candidates, W size of a position's vector, V items.
"""

import copy
from logging import getLogger
from typing import NamedTuple

import torch
from recbole.model.abstract_recommender import SequentialRecommender
from recbole.utils import InputType
from torch import Tensor, nn
from torch.nn import functional as F

from recbole_ext.errors import InputError
from recbole_ext.model.batching import (
    MAX_POSITIONS,
    clamped,
    group_equal_rows,
    map_length_buckets,
    newest_positions,
    rows_of,
    used_length,
)
from recbole_ext.model.bst.block import TargetBlock, flatten_positions
from recbole_ext.model.bst.features import (
    Crosses,
    Features,
    FeatureTable,
    PastFeatures,
    check_event_columns,
    feature_columns,
    gap_index,
    gap_rows,
    key_of,
    trained_users,
    without_bucket,
)
from recbole_ext.model.bst.options import VALIDATORS, BSTOptions
from recbole_ext.model.contract import AttentionWeights, Head
from recbole_ext.model.host_copies import with_copies
from recbole_ext.model.layers import Dropout, check_times, load_item_vectors


class EncodedRequests(NamedTuple):
    """The item-independent part of scoring a batch of requests."""

    history: Tensor  # [B, T, W]
    mask: Tensor  # True for events, False for padding, bool [B, T]
    columns: dict[str, Tensor]  # of users and context, [B, 1, ...]
    hidden: Tensor  # bias, users and context through the first MLP layer, [B, 1, sizes[1]] or [sizes[1]]


class BST(SequentialRecommender):
    """The probability of a click: a transformer over history and target item, then an MLP.

    A position concatenates the vectors of an item, its features, the time gap to the target, and `history_features`,
    such as the labels of past events. Interactions need `user_id`, `item_id`, `timestamp` and `item_length` [B],
    `item_id_list` and `timestamp_list` [B, L], the columns of `context_features` [B], the lists of `history_features`
    [B, L], and `label` to train. Times are seconds since the first event of the data, float64.

    Raises:
        InputError: a key is out of range, or names a column that cannot be a feature.
    """

    input_type = InputType.POINTWISE
    min_history = 0  # the target alone is also a sequence
    predicts_probabilities = True
    reads_times = True  # also of the request: with query_time: last, an empty history has no other time
    structural_keys = (
        "n_heads", "time_gap", "output", "context_features", "history_features", "user_id_feature", "cross_features",
    )  # fmt: skip
    validators = VALIDATORS
    check_config = BSTOptions

    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        options = BSTOptions(config)
        self.LABEL, self.TIME = config["LABEL_FIELD"], config["TIME_FIELD"]
        self.TIME_SEQ = self.TIME + config["LIST_SUFFIX"]
        check_times(dataset, self.TIME_SEQ, "BST")
        self.time_gap, self.output, self.query_time = options.time_gap, options.output, options.query_time
        self.budget = (config["eval_memory_mb"] or 1024) * 2**20
        e = config["embedding_size"]

        items, users = dataset.get_item_feature(), dataset.get_user_feature()
        self.items = FeatureTable(items, [self.ITEM_ID, *feature_columns(items, self.ITEM_ID)])
        self.user_features = feature_columns(users, self.USER_ID)
        self.reads_user_id, self.user_id_dropout_prob = options.user_id_feature, options.user_id_dropout_prob
        columns, user_id = {name: users[name] for name in self.user_features}, {}
        if self.reads_user_id:
            user_id = {self.USER_ID: trained_users(dataset, self.USER_ID)}
        self.users = FeatureTable({**user_id, **columns}, [*user_id, *columns])
        self.context_features = check_event_columns("context_features", options.context_features, config, dataset)
        self.history_features = check_event_columns("history_features", options.history_features, config, dataset)
        self.item_features = Features(dataset, self.items.columns(), e)
        context = {name: dataset.inter_feat[name] for name in self.context_features}
        self.other_features = Features(dataset, {**self.users.columns(), **context}, e)
        self.past_features = PastFeatures(dataset, self.history_features, e, config["LIST_SUFFIX"])
        features = [*self.items.names, *self.users.names, *self.context_features]
        self.crosses = Crosses(dataset, features, options.cross_features, e, config["cross_buckets"], self.USER_ID)
        self.gap_embedding = nn.Embedding(gap_rows(self.time_gap, self.max_seq_length), config["gap_embedding_size"])

        width = self.item_features.width + self.past_features.width + config["gap_embedding_size"]
        heads = config["n_heads"]
        if width % heads:
            columns = len(self.items.names) + len(self.history_features)
            raise InputError(
                f"a position has {width} features ({columns} columns of embedding_size {e}, and "
                f"gap_embedding_size {config['gap_embedding_size']}), which n_heads {heads} does not divide."
            )
        self.blocks = nn.ModuleList(
            TargetBlock(width, heads, config["inner_size"], config["hidden_dropout_prob"], config["layer_norm_eps"])
            for _ in range(config["n_layers"])
        )
        sequence_width = width * (self.max_seq_length + 1 if self.output == "flatten" else 1)
        self.parts = [sequence_width, self.item_features.width, self.other_features.width, self.crosses.width]
        sizes = [sum(self.parts), *options.mlp_hidden_size, 1]
        self.mlp = nn.ModuleList(nn.Linear(*pair) for pair in zip(sizes, sizes[1:], strict=False))
        self.mlp_dropout = Dropout(config["mlp_dropout_prob"])
        self._initialise(config["initializer_range"])
        if self.reads_user_id:  # users begin as unknown ones
            nn.init.zeros_(self.other_features.embeddings[key_of(self.USER_ID)].weight)
        load_item_vectors(self.item_features.embeddings[key_of(self.ITEM_ID)], "embedding_size", config, dataset)
        getLogger().info(
            f"BST reads: sequence {', '.join([*self.items.names, *self.history_features])} and the time gap "
            f"({self.time_gap}); MLP {self.output}, "
            f"{', '.join([*features, *map(' x '.join, self.crosses.pairs)])}; learns {self.LABEL}"
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

    def _history(self, interaction) -> tuple[Tensor, Tensor]:
        """The newest L events of each history as vectors, [B, T, W], and the mask of `EncodedRequests`."""
        items, time, length = interaction[self.ITEM_SEQ], interaction[self.TIME_SEQ], interaction[self.ITEM_SEQ_LEN]
        used, width = clamped(length, self.max_seq_length), items.shape[1]
        index, mask = newest_positions(length, self.max_seq_length, max(used_length(used, width), 1), width)
        items, time = items.gather(1, index).masked_fill(~mask, 0), time.gather(1, index)
        target = interaction[self.TIME].to(time.dtype)
        if self.query_time == "last":
            last = time.gather(1, (used - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
            target = torch.where(used > 0, last, target)
        gap = self.gap_embedding(gap_index(self.time_gap, time.masked_fill(~mask, 0), target, used))
        parts = [self.item_features(self.items(items)), gap]
        if self.past_features.width:
            known = mask & (time < interaction[self.TIME].unsqueeze(1))  # an outcome is known only after its event
            parts.append(self.past_features.at(interaction, index) * known.unsqueeze(-1))
        return torch.cat(parts, dim=-1), mask

    def _history_of(self, interaction, rows: Tensor) -> tuple[Tensor, Tensor]:
        """`_history` of some rows; RecBole's own selection of rows would move them to the CPU."""
        names = (self.ITEM_SEQ, self.TIME_SEQ, self.ITEM_SEQ_LEN, self.TIME, *self.past_features.list_names)
        return self._history({name: with_copies(rows_of, interaction[name], rows) for name in names})

    def _targets(self, vectors: Tensor) -> Tensor:
        """Positions [..., W] of targets from their item vectors; the time gap is 0, past features are, too."""
        gap = self.gap_embedding.weight[0].expand(*vectors.shape[:-1], -1)
        return torch.cat([vectors, gap, vectors.new_zeros(*vectors.shape[:-1], self.past_features.width)], dim=-1)

    def _transform(self, target: Tensor, history: Tensor, mask: Tensor) -> Tensor:
        """The transformer's output for histories [B, T, W], each followed by a target [B, W]: [B, parts[0]]."""
        x = torch.cat([history, target.unsqueeze(1)], dim=1)
        mask = torch.cat([mask, mask.new_ones(mask.shape[0], 1)], dim=1)
        *blocks, last_block = self.blocks
        for block in blocks:
            x = block(x, x, mask)
        if self.output == "target":
            return last_block(x[:, -1:], x, mask).squeeze(1)
        return flatten_positions(last_block(x, x, mask) * mask.unsqueeze(-1), mask, self.max_seq_length)

    # ---------------------------------------------------------------- one target per history

    def forward(self, interaction) -> Tensor:
        """Logits [B] of the interaction's items."""
        values = self._values(interaction)
        vectors = self.item_features(values)
        # in training on a GPU, a search for equal histories would wait for it
        groups = self._shares_history() and (vectors.device.type == "cpu" or not self.training)
        transform = self._transform_groups if groups else self._transform_buckets
        inputs = [transform(self._targets(vectors), interaction), vectors]
        inputs += [module(values) for module in (self.other_features, self.crosses) if module.width]
        return self._deep(self.mlp[0](torch.cat(inputs, dim=-1)))

    def _transform_buckets(self, targets: Tensor, interaction) -> Tensor:
        """`_transform` of each row with its target, in buckets of similar length."""
        return map_length_buckets(
            with_copies(lambda length: length + 1, interaction[self.ITEM_SEQ_LEN]),
            lambda rows, _: self._transform(targets[rows], *self._history_of(interaction, rows)),
            pairwise=False,
        )

    def _transform_groups(self, targets: Tensor, interaction) -> Tensor:
        """The same result, with each history encoded once for all its targets in the batch."""
        length, time = interaction[self.ITEM_SEQ_LEN], interaction[self.TIME]
        history = interaction[self.ITEM_SEQ], interaction[self.TIME_SEQ], *self.past_features.lists(interaction)
        groups, index = group_equal_rows((interaction[self.USER_ID], time), time, length, *history)
        first, attend = groups[:, 0], self.blocks[0].attend_candidates
        output = map_length_buckets(
            length[first] + 1,
            lambda rows, _: attend(targets[groups[rows]], *self._history_of(interaction, first[rows])),
            pairwise=False,
        )
        return output.flatten(0, 1)[index]

    def _values(self, interaction) -> dict[str, Tensor]:
        """Columns [B] of the target, the user and the context."""
        users, items = self.users(interaction[self.USER_ID]), self.items(interaction[self.ITEM_ID])
        if self.training and self.user_id_dropout_prob:
            user_id = users[self.USER_ID]
            dropped = torch.rand(user_id.shape, device=user_id.device) < self.user_id_dropout_prob
            users[self.USER_ID] = user_id.masked_fill(dropped, 0)
        return {**self._context(interaction), **users, **items}

    def _context(self, interaction) -> dict[str, Tensor]:
        return {name: without_bucket(interaction[name], 1) for name in self.context_features}

    def _deep(self, x: Tensor) -> Tensor:
        """From the first layer's output to the logit: [..., sizes[1]] -> [...]."""
        for layer in self.mlp[1:]:
            x = layer(self.mlp_dropout(F.leaky_relu(x)))
        return x.squeeze(-1).to(torch.promote_types(x.dtype, torch.float32))  # float16 cannot tell 0.9999 from 1

    def calculate_loss(self, interaction) -> Tensor:
        """Mean binary cross entropy of the labels (eq. 8)."""
        logits = self.forward(interaction)
        return F.binary_cross_entropy_with_logits(logits, interaction[self.LABEL].to(logits.dtype))

    def predict(self, interaction) -> Tensor:
        """Probabilities of the interaction's items, [B]."""
        return self.forward(interaction).sigmoid()

    # ---------------------------------------------------------------- all items on each history

    def full_sort_predict(self, interaction) -> Tensor:
        """Probabilities of all items, [B, V + 1]; ignore column 0, the padding item.

        Equal to `predict` for each item. The memory of chunks of rows and items stays below `eval_memory_mb`.
        """
        length = interaction[self.ITEM_SEQ_LEN]
        slots = max(1, min(self.max_seq_length, used_length(length, self.max_seq_length)))
        rows = 1  # without padding, because each position is computed for each item
        if self._shares_history():
            rows = max(1, int(self.budget // (8 * slots * (self.item_features.numbers + self.blocks[0].heads))))
        starts = range(0, max(1, len(interaction)), rows)  # an empty batch is one empty chunk
        chunks = (interaction[begin : begin + rows] for begin in starts)
        return torch.cat([self.score_items(self.prepare(chunk), slice(self.n_items)) for chunk in chunks])

    def prepare(self, interaction, user_features: dict[str, Tensor] | None = None) -> EncodedRequests:
        """The item-independent part of scores: the histories, and users and context through the first MLP layer.

        Args:
            interaction: B requests.
            user_features: columns of their users, [B, ...] each; missing ones are those of the training data.
        """
        history, mask = self._history(interaction)
        features = dict(user_features or {})
        if self.reads_user_id or not features.keys() >= set(self.user_features):
            features = {**self.users(interaction[self.USER_ID]), **features}
        features = {**self._context(interaction), **features}
        columns = {name: value.unsqueeze(1) for name, value in features.items()}
        hidden = self.mlp[0].bias
        if self.other_features.width:
            hidden = self._first(2, self.other_features(columns)) + hidden
        return EncodedRequests(history, mask, columns, hidden)

    def score_items(self, prepared: EncodedRequests, items: Tensor | slice) -> Tensor:
        """Probabilities of items, ids [C], for each prepared request: [B, C]."""
        history, (rows, slots) = prepared.history, prepared.mask.shape
        if isinstance(items, slice):
            items = torch.arange(*items.indices(self.n_items), device=history.device)
        scores = torch.empty(rows, len(items), device=history.device, dtype=self.mlp[0].bias.dtype)
        chunk = self._chunk(rows, slots)
        for begin in range(0, len(items), chunk):
            scores[:, begin : begin + chunk] = self.score_candidates(prepared, items[begin : begin + chunk])
        return scores

    def score_candidates(self, prepared: EncodedRequests, items: Tensor) -> Tensor:
        """`score_items` without chunks: memory grows with B C."""
        history, mask, columns, hidden = prepared
        values = self.items(items)
        vectors = self.item_features(values)
        output = self._transform_candidates(self._targets(vectors), history, mask)  # [B, C, parts[0]]
        hidden = self._first(0, output) + self._first(1, vectors) + hidden
        if self.crosses.width:
            hidden = hidden + self._first(3, self.crosses({**columns, **values}))
        return self._deep(hidden).sigmoid()

    def attention_weights(self, interaction, item: Tensor, user_features: dict[str, Tensor]) -> AttentionWeights:
        """Attention of the target item, id [1], to the events and itself, in every block."""
        prepared = self.prepare(interaction, user_features)
        target = self._targets(self.item_features(self.items(item)))  # [1, W]
        x = torch.cat([prepared.history, target.unsqueeze(1)], dim=1)
        mask = torch.cat([prepared.mask, prepared.mask.new_ones(1, 1)], dim=1)
        heads = []
        for layer, block in enumerate(self.blocks, 1):
            weights = block.attention_weights(x[:, -1:], x, mask)[0, :, 0]  # [n, T + 1]
            heads += [Head(layer, f"head_{number}", row) for number, row in enumerate(weights, 1)]
            x = block(x, x, mask)
        return AttentionWeights("target", heads)

    def for_export(self) -> "BST":
        """The model without the features of training users: an exported program has them as inputs."""
        lighter = copy.copy(self)
        user_id = {self.USER_ID: self.users.column(self.USER_ID)} if self.reads_user_id else {}
        lighter._modules = {**self._modules, "users": FeatureTable(user_id, list(user_id))}
        return lighter

    def _chunk(self, rows: int, slots: int) -> int:
        """How many items fit into the memory budget for `rows` histories."""
        block = self.blocks[0]
        if self._shares_history():
            numbers = 3 * block.heads * (slots + 1) + 6 * self.parts[0] + 2 * block.inner.out_features
        else:
            numbers = (slots + 1) * (8 * block.inner.in_features + 2 * block.inner.out_features) + 2 * self.parts[0]
        numbers += 3 * max(layer.out_features for layer in self.mlp) + self.crosses.width + self.item_features.numbers
        limit = MAX_POSITIONS[self.gap_embedding.weight.device.type == "cpu"]
        limit //= 4 if self._shares_history() else slots + 1
        return max(1, int(min(self.budget // (4 * numbers), limit) // max(rows, 1)))

    def _shares_history(self) -> bool:
        """Whether a history is encoded once for all targets: with one block and only the target's output."""
        return len(self.blocks) == 1 and self.output == "target"

    def _transform_candidates(self, targets: Tensor, history: Tensor, mask: Tensor) -> Tensor:
        """`_transform` for all pairs of targets [C, W] and histories: [B, C, parts[0]]."""
        if self._shares_history():
            return self.blocks[0].attend_candidates(targets, history, mask)
        rows, count = history.shape[0], targets.shape[0]
        pairs = self._transform(
            targets.repeat(rows, 1), history.repeat_interleave(count, 0), mask.repeat_interleave(count, 0)
        )
        return pairs.unflatten(0, (rows, count))

    def _first(self, part: int, x: Tensor) -> Tensor:
        """One of the four `parts` of the input through the first MLP layer, without the bias."""
        return F.linear(x, self.mlp[0].weight.split(self.parts, dim=1)[part])
