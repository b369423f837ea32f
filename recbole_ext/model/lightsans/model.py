"""LightSANs: Low-Rank Decomposed Self-Attention Networks for Next-Item Recommendation.

Xinyan Fan, Zheng Liu, Jianxun Lian, Wayne Xin Zhao, Xing Xie, Ji-Rong Wen, SIGIR 2021 (doi 10.1145/3404835.3462978).

How this differs from the paper:
- The position embeddings pass a layer norm before they are projected, as in the authors' code.
- The softmax of the loss runs over the items; the authors' code counts the padding id as one more class.
- `position: relative` and `attention: full | linformer | performer | linear | synthesizer` replace one part each:
  ablations and the attentions it is compared with.

How this differs from RecBole 1.2.1's class: see `recbole_compat.py`; `recbole_compat: True` computes what that does.

B batch, T positions of a batch (longest history), L positions at most, H hidden size, C candidates, V items.
"""

from typing import Any

import torch
from recbole.model.abstract_recommender import SequentialRecommender
from torch import Tensor, nn
from torch.nn import functional as F

from recbole_ext.model.batching import clamped, map_length_buckets, newest_positions, unique_consecutive_rows
from recbole_ext.model.contract import AttentionWeights, Head, Interests
from recbole_ext.model.cross_entropy import cross_entropy_over_items
from recbole_ext.model.layers import (
    Dropout,
    gather_positions,
    load_item_vectors,
    recorded_inputs,
)
from recbole_ext.model.lightsans import efficient_attention
from recbole_ext.model.lightsans.attention import (
    Attention,
    Block,
    DecoupledPositions,
    FullAttention,
    LowRankAttention,
    RelativePositions,
)
from recbole_ext.model.lightsans.options import VALIDATORS, LightSANsOptions
from recbole_ext.model.lightsans.recbole_compat import RecBoleAttention
from recbole_ext.model.losses import choose_loss, item_loss


class LightSANs(SequentialRecommender):
    """Items attend to K latent interests, positions to positions, and the last item's state ranks all items.

    Interactions need `item_id_list` [B, L] and `item_length` [B]; BPR needs `neg_item_id` too.

    Raises:
        InputError: a key is out of range.
    """

    reads_times = False  # the order of events is enough
    structural_keys = ("n_heads", "attention", "position", "hidden_act", "recbole_compat")
    validators = VALIDATORS
    check_config = LightSANsOptions

    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        choose_loss(config, self.n_items)
        options = LightSANsOptions(config)
        self.compat, self.loss_type = options.compat, options.loss_type
        # scores that depend on the padding, or weights for each position
        self.needs_full_width = self.compat or options.attention in ("linformer", "synthesizer")
        hidden, eps, dropout = config["hidden_size"], config["layer_norm_eps"], config["hidden_dropout_prob"]

        sparse = bool(config["sparse_updates"])
        self.item_embedding = nn.Embedding(self.n_items, hidden, padding_idx=0, sparse=sparse)
        self.position_embedding = None
        if options.position in ("decoupled", "absolute"):
            self.position_embedding = nn.Embedding(self.max_seq_length, hidden)
        self.added = options.position == "absolute"  # to the item vectors
        self.norm, self.dropout = nn.LayerNorm(hidden, eps=eps), Dropout(dropout)
        kind = RecBoleAttention if self.compat else Attention
        self.blocks = nn.ModuleList(
            Block(
                kind(hidden, self._item_attention(config, options), self._position_attention(config, options)),
                hidden, config["inner_size"], dropout, config["hidden_act"], eps,
            )
            for _ in range(config["n_layers"])
        )  # fmt: skip
        if self.compat:  # so that weights of one variant do not load into the other
            self.register_buffer("recbole_compat", torch.tensor(True))
        self.loss = None if self.loss_type == "BPR" else item_loss(config, dataset, self.n_items)
        self._initialise(config["initializer_range"])
        load_item_vectors(self.item_embedding, "hidden_size", config, dataset)

    def _item_attention(self, config, options: LightSANsOptions) -> nn.Module:
        hidden, heads, rank = config["hidden_size"], options.heads, config["k_interests"]
        length, dropout = self.max_seq_length, config["attn_dropout_prob"]
        match options.attention:
            case "low_rank":
                return LowRankAttention(hidden, heads, rank, dropout)
            case "full":
                return FullAttention(hidden, heads, dropout)
            case "linformer":
                return efficient_attention.Linformer(hidden, heads, length, rank, dropout)
            case "performer":
                return efficient_attention.Performer(hidden, heads, config["random_features"])
            case "linear":
                return efficient_attention.LinearAttention(hidden, heads)
            case _:
                return efficient_attention.Synthesizer(hidden, heads, length, dropout)

    def _position_attention(self, config, options: LightSANsOptions) -> nn.Module | None:
        match options.position:
            case "decoupled":
                return DecoupledPositions(self.position_embedding, options.heads, config["layer_norm_eps"])
            case "relative":
                return RelativePositions(self.max_seq_length, options.heads)
            case _:
                return None

    def _initialise(self, deviation: float) -> None:
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=deviation)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        if not self.compat:  # there, the padding has a random vector
            with torch.no_grad():
                self.item_embedding.weight[0] = 0

    # ---------------------------------------------------------------- the network

    def encode(self, items: Tensor, length: Tensor) -> Tensor:
        """States [B, H] of the last items of histories [B, T] of the given lengths [B]."""
        x = self.item_embedding(items)
        if self.added:
            x = x + self.position_embedding.weight[: items.shape[1]]
        x = self.dropout(self.norm(x))
        mask = torch.arange(items.shape[1], device=items.device) < length.unsqueeze(1)
        last = (length - 1).unsqueeze(1)
        *blocks, last_block = self.blocks
        for block in blocks:
            x = block(x, mask)
        return last_block(x, mask, last).squeeze(1)

    def forward(self, items: Tensor, length: Tensor) -> Tensor:
        """States [B, H] of the last items, computed once for equal histories and in buckets of similar length.

        In training on a GPU, equal histories are not looked for, as that would wait for the GPU.

        Args:
            items: ids, 0 in the padding on the right, [B, any width]; only the newest L of a history are used.
            length: events of each history, [B].
        """
        if self.compat:
            return self.encode(items, length)
        run = None
        if items.device.type == "cpu" or not self.training:
            first, run = unique_consecutive_rows(items, length)
            items, length = items[first], length[first]
        limit, width = self.max_seq_length, items.shape[1]
        if width > limit:
            items = items.gather(1, newest_positions(length, limit, limit, width)[0])
            length = clamped(length, limit)
        states = map_length_buckets(
            length, lambda rows, slots: self.encode(items[rows, :slots], length[rows]), pairwise=False
        )
        return states if run is None else states[run]

    # ---------------------------------------------------------------- training and scoring

    def calculate_loss(self, interaction) -> Tensor:
        """The mean loss of the targets; BPR: -log sigmoid of the score minus that of a negative of the target's own."""
        users = self.forward(interaction[self.ITEM_SEQ], interaction[self.ITEM_SEQ_LEN])
        positive, table = interaction[self.POS_ITEM_ID], self.item_embedding.weight
        if self.loss_type == "BPR":
            negative = self.item_embedding(interaction[self.NEG_ITEM_ID])
            difference = (users * (self.item_embedding(positive) - negative)).sum(-1)
            return -F.logsigmoid(difference).mean()
        if self.compat and self.loss_type == "CE":  # there, the padding is a class
            return cross_entropy_over_items(users, table, None, positive)
        return self.loss(users, table, None, positive)

    def predict(self, interaction) -> Tensor:
        """Scores of the items of the interaction, [B]."""
        users = self.forward(interaction[self.ITEM_SEQ], interaction[self.ITEM_SEQ_LEN])
        return (users * self.item_embedding(interaction[self.ITEM_ID])).sum(-1)

    def full_sort_predict(self, interaction) -> Tensor:
        """Scores of all items, [B, V + 1]; ignore column 0, the padding item."""
        return self.score_items(self.prepare(interaction), slice(self.n_items))

    def prepare(self, interaction) -> Tensor:
        """The item-independent part of scores: states of the last items, [B, H]."""
        return self.forward(interaction[self.ITEM_SEQ], interaction[self.ITEM_SEQ_LEN])

    def score_items(self, prepared: Tensor, items: Tensor | slice) -> Tensor:
        """Scores of items, ids [C], for each prepared request: [B, C]."""
        return F.linear(prepared, self.item_table()[0][items])

    def attention_weights(self, interaction, item: Tensor, user_features: dict[str, Tensor]) -> AttentionWeights | None:
        """Attention of the last event, in every layer; the same for every item.

        The context of the last event is a weighted mean of interests, which are weighted means of events. So the weight
        of an event is the product of both, summed over the interests.

        Returns:
            `None` for `recbole_compat`, whose weights do not sum to 1 over the events. Linformer's projections are no
            weights of events; with it, there are only weights of positions.
        """
        if self.compat:
            return None
        heads: list[Head] = []
        interests: list[Interests] = []
        with recorded_inputs(block.attention for block in self.blocks) as calls:
            self.prepare(interaction)
        for layer, (module, (x, mask, *_)) in enumerate(calls, 1):
            last = torch.full((1, 1), x.shape[1] - 1, device=x.device)
            if isinstance(module.items, LowRankAttention):
                interests.append(_interests(layer, module, x, mask, last))
                values, use = interests[-1].values, interests[-1].use
                heads += _heads(layer, "items", use @ values)
            elif not isinstance(module.items, efficient_attention.Linformer):
                heads += _heads(layer, "items", _by_gradient(module, x, mask, last))
            if module.position is not None:
                weights: list[Tensor] = []
                module.position(x, mask, module.value, last, weights)
                heads += _heads(layer, "positions", weights[0][0, :, 0])
        return AttentionWeights("", heads, interests) if heads else None

    def item_table(self) -> tuple[Tensor, None]:
        """Item vectors [V + 1, H], and None for biases: a score is `prepare`'s vector times the item's."""
        return self.item_embedding.weight, None


# -------------------------------------------------------------------- attention weights of one layer


def _heads(layer: int, name: str, weights: Tensor) -> list[Head]:
    return [Head(layer, f"{name}_{number}", row) for number, row in enumerate(weights, 1)]


def _interests(layer: int, module: Any, x: Tensor, mask: Tensor, last: Tensor) -> Interests:
    weights: list[Tensor] = []
    module.items(gather_positions(x, last), x, mask, module.value, weights)
    aggregation, interaction = weights  # [1, 2K, T] and [1, n, K, 1]
    keys, values = aggregation[0].chunk(2)
    return Interests(layer, keys, values, interaction[0, :, :, 0])


def _by_gradient(module: Any, x: Tensor, mask: Tensor, last: Tensor) -> Tensor:
    """Weights [n, T] of an attention that never computes them as a matrix.

    A feature of the context is the weighted mean of that feature of the values, so the weights are its derivative. The
    first feature of each head is enough.
    """
    with torch.enable_grad():
        values = torch.zeros_like(x, requires_grad=True)
        context = module.items(gather_positions(x, last), x, mask, lambda _: values)  # [1, 1, H]
        width = x.shape[-1] // module.items.heads
        (gradient,) = torch.autograd.grad(context[..., ::width].sum(), values)
    return gradient[0, :, ::width].T
