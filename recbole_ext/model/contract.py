"""The contract of a model: everything that data, trainer, checkpoints, serving, explain and export read from it.

Every model is one of RecBole's recommenders and has its methods: `__init__(config, dataset)`, `calculate_loss`,
`predict` and `full_sort_predict`. All members of `Model` are optional. Other modules read them through the functions
below, which have the defaults for models without them, such as RecBole's. docs/add_a_model.md has an example.

B requests, C candidates, T events, V items, H size of a vector, n heads, K interests.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from recbole.model.abstract_recommender import AbstractRecommender
from recbole.utils import InputType, ModelType
from torch import Tensor

from recbole_ext.model.registry import is_known
from recbole_ext.utils.validators import Validator

Items = Tensor | slice  # ids [C], or a slice of ids

# RecBole's models whose `predict` ends with a sigmoid
CLICK_MODELS = (ModelType.CONTEXT, ModelType.DECISIONTREE)
PROBABILITY_MODELS = {"DIEN", "DIN", "DMF", "FISM", "NAIS", "NeuMF", "NNCF"}


@dataclass(frozen=True)
class Head:
    """Attention weights of one head of one layer.

    Attributes:
        layer: counted from 1.
        name: a column name, e.g. the kernel.
        weights: softmax weights of the events, oldest first, then of the query position if it is not the last event,
            [T] or [T + 1]; they sum to 1.
    """

    layer: int
    name: str
    weights: Tensor


@dataclass(frozen=True)
class Interests:
    """Latent interests of one layer of LightSANs.

    Attributes:
        layer: counted from 1.
        keys: weight of each event in the key of each interest, [K, T]; rows sum to 1.
        values: weight of each event in the value of each interest, [K, T]; rows sum to 1.
        use: attention weights of the last event over the interests, [n, K]; rows sum to 1.
    """

    layer: int
    keys: Tensor
    values: Tensor
    use: Tensor


@dataclass(frozen=True)
class AttentionWeights:
    """The attention behind one score.

    Attributes:
        query_slot: content of the query position after the events: `request` (MEANTIME's [MASK]) or `target` (BST's
            item); empty if the last event is the query.
        heads: of all layers, the first layer first.
        interests: of all layers, the first layer first.
    """

    query_slot: Literal["request", "target", ""]
    heads: list[Head]
    interests: list[Interests] = field(default_factory=list)


@runtime_checkable
class ItemScorer(Protocol):
    """A model that computes the item-independent part of a score once for each request."""

    def prepare(self, interaction: Any, user_features: dict[str, Tensor] | None = None) -> Any:
        """The item-independent part of B requests.

        Args:
            interaction: the requests, as for `predict` but without items; a plain dictionary when exported.
            user_features: the columns of `Model.user_features` that come with the histories, [B, ...] each. Only passed
                to models with user features.
        """

    def score_items(self, prepared: Any, items: Items) -> Tensor:
        """Scores of items for each prepared request, [B, C]."""


class Model(ItemScorer, Protocol):
    """Optional members of a model. Those above `takes_whole_batches` are attributes of the class."""

    example_kind: Literal["prefix", "window"]
    """`prefix` (default): every event is a training example, with the events before it. `window`: examples are windows
    of events (key `train_window`), and each window includes its target."""

    min_history: int
    """Shortest history that the model can score, in events; default 1."""

    reads_times: bool
    """Whether scores depend on the times of events. Default: False for RecBole's classes, True for others. If False,
    served histories need no times."""

    predicts_probabilities: bool
    """Whether `predict` returns the probability of label 1, which LogLoss, RMSE and MAE need."""

    structural_keys: tuple[str, ...]
    """Keys that change what weights mean but not their shapes. A resumed run must keep their values."""

    validators: dict[str, Validator]
    """Accepted values of the model's keys, in addition to those in `config/schema.py`; default none."""

    @staticmethod
    def check_config(config: Any) -> Any:
        """Raise `InputError` if the keys contradict each other. Called before any data is read. The result may have an
        attribute `without_effect`: names of keys that the other keys make useless."""

    takes_whole_batches: bool
    """Whether `calculate_loss` draws for all rows of a batch and takes its own ones afterwards (`own_rows` in
    `distributed/share.py`), so that several processes draw the same as one; default False: it gets its own rows."""

    context_features: Sequence[str]
    """Columns of the .inter file that a request takes from the user's last event; default none."""

    history_features: Sequence[str]
    """Columns of the .inter file that the model reads as lists, of the events of a history; default none."""

    user_features: Sequence[str]
    """Columns of the .user file that the model reads; default none."""

    reads_user_id: bool
    """Whether scores depend on the id of the user, 0 for an unknown one, which is then an input of an exported program;
    default False."""

    reads_request_time: bool
    """Whether scores depend on the time of the request; default `reads_times`."""

    needs_full_width: bool
    """Whether an exported program pads histories to MAX_ITEM_LIST_LENGTH; default False."""

    def item_table(self) -> tuple[Tensor, Tensor | None]:
        """Item vectors [V + 1, H] and biases [V + 1] or `None`: a score is the product with `prepare`'s vector, plus
        the bias. For models whose scores have that form."""

    def score_candidates(self, prepared: Any, items: Tensor) -> Tensor:
        """Scores [B, C] of items [C] without a loop over chunks. A model with this method is exported with candidates
        as an input; others score all items."""

    def for_export(self) -> "Model":
        """A copy of the model without what an exported program does not need; default the model itself."""

    def attention_weights(
        self, interaction: Any, item: Tensor, user_features: dict[str, Tensor]
    ) -> AttentionWeights | None:
        """Attention weights behind the score of an item, id [1], for one request; `None` if there are none to show."""


# -------------------------------------------------------------------- training; `model` is a class or an instance


def example_kind(model: Any) -> str:
    """`Model.example_kind`."""
    return getattr(model, "example_kind", "prefix")


def min_history(model: Any) -> int:
    """`Model.min_history`."""
    return int(getattr(model, "min_history", 1))


def accepts_empty_history(model: Any) -> bool:
    """Whether the key `min_history` may be 0; RecBole's pointwise models (DIN) can score the target alone, too."""
    return getattr(model, "min_history", int(input_type(model) != InputType.POINTWISE)) == 0


def input_type(model: Any) -> InputType | None:
    """RecBole's `input_type`, or `None` for a model whose key `loss_type` decides."""
    return getattr(model, "input_type", None)


def predicts_probabilities(model_class: type) -> bool:
    """`Model.predicts_probabilities`, which subclasses inherit.

    By default, RecBole's context-aware models, decision trees and `PROBABILITY_MODELS` predict probabilities.
    """
    declared = getattr(model_class, "predicts_probabilities", None)
    if declared is not None:
        return bool(declared)
    if getattr(model_class, "type", None) in CLICK_MODELS:
        return True
    return any(is_known(cls) and cls.__name__ in PROBABILITY_MODELS for cls in model_class.__mro__)


def structural_keys(model: Any) -> tuple[str, ...]:
    """`Model.structural_keys`; for RecBole's models, those that most of them have."""
    return getattr(model, "structural_keys", ("n_heads", "hidden_act"))


def takes_whole_batches(model: Any) -> bool:
    """`Model.takes_whole_batches`."""
    return bool(getattr(model, "takes_whole_batches", False))


def validators(model_class: Any) -> dict[str, Validator]:
    """`Model.validators`."""
    return getattr(model_class, "validators", {})


def check_config(model_class: Any, config: Any) -> Sequence[str]:
    """Let the model check its keys. Returns the keys that have no effect with these values. Raises `InputError`."""
    checked = model_class.check_config(config) if hasattr(model_class, "check_config") else None
    return getattr(checked, "without_effect", ())


# -------------------------------------------------------------------- serving


def reads_times(model: Any) -> bool:
    """`Model.reads_times`."""
    declared = getattr(model, "reads_times", None)
    return not type(model).__module__.startswith("recbole.") if declared is None else bool(declared)


def reads_request_time(model: Any) -> bool:
    """`Model.reads_request_time`."""
    return reads_times(model) and bool(getattr(model, "reads_request_time", True))


def context_features(model: Any) -> list[str]:
    """`Model.context_features`."""
    return list(getattr(model, "context_features", ()))


def history_features(model: Any) -> list[str]:
    """`Model.history_features`."""
    return list(getattr(model, "history_features", ()))


def user_features(model: Any) -> list[str]:
    """`Model.user_features`."""
    return list(getattr(model, "user_features", ()))


def reads_user_id(model: Any) -> bool:
    """`Model.reads_user_id`."""
    return bool(getattr(model, "reads_user_id", False))


def item_scorer(model: Any) -> ItemScorer | None:
    """The model if it has `prepare` and `score_items`."""
    return model if isinstance(model, ItemScorer) else None


def scores_all_items(model: Any) -> bool:
    """Whether the model has RecBole's `full_sort_predict`, which otherwise only raises an error."""
    return type(model).full_sort_predict is not AbstractRecommender.full_sort_predict


def has_item_table(model: Any) -> bool:
    """Whether the model has `Model.item_table`."""
    return hasattr(model, "item_table")


def attention_weights(
    model: Any, interaction: Any, item: Tensor, user_features: dict[str, Tensor]
) -> AttentionWeights | None:
    """`Model.attention_weights`; `None` for models without it."""
    if not hasattr(model, "attention_weights"):
        return None
    return model.attention_weights(interaction, item, user_features)


# -------------------------------------------------------------------- export


def scores_candidates(model: Any) -> bool:
    """Whether the model has `Model.score_candidates`."""
    return hasattr(model, "score_candidates")


def needs_full_width(model: Any) -> bool:
    """`Model.needs_full_width`."""
    return bool(getattr(model, "needs_full_width", False))


def for_export(model: Any) -> Any:
    """`Model.for_export`."""
    return model.for_export() if hasattr(model, "for_export") else model
