"""LightSANs: Low-Rank Decomposed Self-Attention Networks for Next-Item Recommendation.

Xinyan Fan, Zheng Liu, Jianxun Lian, Wayne Xin Zhao, Xing Xie, Ji-Rong Wen, SIGIR 2021 (doi 10.1145/3404835.3462978).

How this differs from the paper:
- The position embeddings pass a layer norm before they are projected, as in the authors' code.
- The softmax of the loss runs over the items; the authors' code counts the padding id as one more class.
- `position: relative` and `attention: full | linformer | performer | linear | synthesizer` take the place of one part
  each: ablations and the models it is compared with.

How it differs from RecBole 1.2.1's class: see `lightsans_recbole.py`, and `recbole_compat: True` to have that one.

B batch, T slots of a batch (longest history), L slots at most, H hidden, V items.
"""

import torch
from recbole.model.abstract_recommender import SequentialRecommender
from torch import Tensor, nn
from torch.nn import functional as F

from recbole_ext.model.batching import distinct, in_parts
from recbole_ext.model.contract import AttentionWeights
from recbole_ext.model.layers import Dropout, cross_entropy_over_items, load_item_vectors, take
from recbole_ext.model.lightsans import efficient_attention, explain
from recbole_ext.model.lightsans import item_attention as attention
from recbole_ext.model.lightsans.block import Attention, Block
from recbole_ext.model.lightsans.options import Options
from recbole_ext.model.lightsans.position_attention import DecoupledPositions, RelativePositions
from recbole_ext.model.lightsans.recbole_compat import RecBoleAttention


class LightSANs(SequentialRecommender):
    """Items attend to K latent interests, positions to positions, and the last item's state ranks all items.

    Interactions need `item_id_list` [B, L] and `item_length` [B]; BPR needs `neg_item_id` too.

    Raises:
        InputError: a key is out of range.
    """

    reads_times = False  # the order of events is enough
    structural_keys = ("n_heads", "attention", "position", "hidden_act", "recbole_compat")
    check_config = Options  # `Config` calls it, so that a contradiction is found before any data is read

    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        options = Options(config)
        self.compat, self.loss_type = options.compat, config["loss_type"]
        # scores that depend on the padding, or weights of single slots: traced (`torch.export`) with all slots only
        self.needs_full_width = self.compat or options.attention in ("linformer", "synthesizer")
        hidden, eps, dropout = config["hidden_size"], config["layer_norm_eps"], config["hidden_dropout_prob"]

        self.item_embedding = nn.Embedding(self.n_items, hidden, padding_idx=0)
        self.position_embedding = None
        if options.position in ("decoupled", "absolute"):
            self.position_embedding = nn.Embedding(self.max_seq_length, hidden)
        self.added = options.position == "absolute"  # positions are part of the items' vectors
        self.norm, self.dropout = nn.LayerNorm(hidden, eps=eps), Dropout(dropout)
        kind = RecBoleAttention if self.compat else Attention
        self.blocks = nn.ModuleList(
            Block(
                kind(hidden, self._among_items(config, options), self._among_positions(config, options)),
                hidden, config["inner_size"], dropout, config["hidden_act"], eps,
            )
            for _ in range(config["n_layers"])
        )  # fmt: skip
        if self.compat:  # so that weights of the one are no weights of the other
            self.register_buffer("recbole_compat", torch.tensor(True))
        self._initialise(config["initializer_range"])
        load_item_vectors(self.item_embedding, "hidden_size", config, dataset)

    def _among_items(self, config, options: Options) -> nn.Module:
        hidden, heads, rank = config["hidden_size"], options.heads, config["k_interests"]
        length, dropout = self.max_seq_length, config["attn_dropout_prob"]
        match options.attention:
            case "low_rank":
                return attention.LowRankAttention(hidden, heads, rank, dropout)
            case "full":
                return attention.FullAttention(hidden, heads, dropout)
            case "linformer":
                return efficient_attention.Linformer(hidden, heads, length, rank, dropout)
            case "performer":
                return efficient_attention.Performer(hidden, heads, config["random_features"])
            case "linear":
                return efficient_attention.LinearAttention(hidden, heads)
            case _:
                return efficient_attention.Synthesizer(hidden, heads, length, dropout)

    def _among_positions(self, config, options: Options) -> nn.Module | None:
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
        real = torch.arange(items.shape[1], device=items.device) < length.unsqueeze(1)
        last = (length - 1).unsqueeze(1)
        *before, final = self.blocks
        for block in before:
            x = block(x, real)
        if self.compat:  # there, every row has a part in the weights of the others
            return take(final(x, real), last).squeeze(1)
        return final(x, real, last).squeeze(1)

    def forward(self, items: Tensor, length: Tensor) -> Tensor:
        """The same for a batch of any composition: items [B, any width], padded with 0 on the right, length [B].

        Of histories longer than L, the newest L items count.
        """
        if self.compat:
            return self.encode(items, length)
        first, run = distinct(items, length)
        items, length = self._newest(items[first], length[first])
        states = in_parts(length, lambda part, slots: self.encode(items[part, :slots], length[part]), pairwise=False)
        return states[run]

    def _newest(self, items: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        if items.shape[1] <= self.max_seq_length:
            return items, length
        kept = length.clamp(max=self.max_seq_length)
        slot = torch.arange(self.max_seq_length, device=items.device)
        return items.gather(1, slot + (length - kept).unsqueeze(1)), kept

    # ---------------------------------------------------------------- training and scoring

    def calculate_loss(self, interaction) -> Tensor:
        """CE: cross entropy over all items; BPR: -log sigmoid of the difference to the score of a negative item."""
        users = self.forward(interaction[self.ITEM_SEQ], interaction[self.ITEM_SEQ_LEN])
        positive, table = interaction[self.POS_ITEM_ID], self.item_embedding.weight
        if self.loss_type == "BPR":
            negative = self.item_embedding(interaction[self.NEG_ITEM_ID])
            difference = (users * (self.item_embedding(positive) - negative)).sum(-1)
            return -F.logsigmoid(difference).mean()
        if self.compat:
            return cross_entropy_over_items(users, table, None, positive)
        return cross_entropy_over_items(users, table[1:], None, positive - 1)

    def predict(self, interaction) -> Tensor:
        """Scores of the items of the interaction, [B]."""
        users = self.forward(interaction[self.ITEM_SEQ], interaction[self.ITEM_SEQ_LEN])
        return (users * self.item_embedding(interaction[self.ITEM_ID])).sum(-1)

    def full_sort_predict(self, interaction) -> Tensor:
        """Scores of all items, [B, V + 1]; the column of the padding item means nothing."""
        return self.score_items(self.prepare(interaction), slice(self.n_items))

    def prepare(self, interaction) -> Tensor:
        """What scores of any items start from: the users' states, [B, H]."""
        return self.forward(interaction[self.ITEM_SEQ], interaction[self.ITEM_SEQ_LEN])

    def score_items(self, prepared: Tensor, items: Tensor | slice) -> Tensor:
        """Scores of some items, ids [C], for each of the users that were prepared: [B, C]."""
        return F.linear(prepared, self.item_table()[0][items])

    def attention_weights(self, interaction, item: Tensor, user_features: dict[str, Tensor]) -> AttentionWeights | None:
        """Attention of the last event; the same for every item. See `explain.attention_weights`."""
        return explain.attention_weights(self, interaction)

    def item_table(self) -> tuple[Tensor, None]:
        """Item vectors [V + 1, H], and None for biases: a score is `prepare`'s vector times the item's."""
        return self.item_embedding.weight, None
