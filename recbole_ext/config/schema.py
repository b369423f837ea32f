"""What kind of value each key takes: one table for RecBole's own keys and ours.

Keys of a single model are held against the kind of their default in the model's property file. The table says nothing
about which model reads a key: see `keys.known_keys`.
"""

from typing import Any

from recbole.evaluator import metrics_dict

from recbole_ext.errors import InputError
from recbole_ext.utils.validators import (
    Either,
    Encoding,
    Kind,
    ListOf,
    Mapping,
    Maybe,
    Misfit,
    Number,
    OneOf,
    Text,
    Truth,
    TwoMoments,
    whole,
)

LEARNERS = ("adam", "adamw", "sgd", "adagrad", "rmsprop", "sparse_adam")
TRANSFORMS = ("mask_itemseq", "inverse_itemseq", "crop_itemseq", "reorder_itemseq")
BOUND = r"[-+]?(?:inf|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+)"
INTERVAL = rf"[\[(]\s*{BOUND}\s*,\s*{BOUND}\s*[\])]"

truth, text, positive, share = Truth(), Text(), whole("[1, inf)"), Number("[0, 1)")
maybe_text, names = Maybe(text), ListOf(text)
INTERVALS = rf"\s*{INTERVAL}(\s*;\s*{INTERVAL})*\s*"
intervals = Text(INTERVALS, "an interval such as '[5,inf)' or '(0,1];[3,4)'")
in_values = Text(INTERVALS, "an interval such as '[3,inf)' for a number, or a list of values for a token")
device = Text(r"\s*[\w-]+\s*(,\s*[\w-]+\s*)*", "the number of a GPU, e.g. 0")
columns = Mapping(each=ListOf(text, may_be_empty=True))
ratios = ListOf(Number("[0, inf)"), count=3)
eval_mode = Text(
    r"full|labeled|(uni|pop)[1-9]\d{0,8}", "full, labeled, or uniN or popN with a whole number N, e.g. uni100"
)


class MetricName(Kind):
    """A metric of RecBole, or one that `register_metric` has made known."""

    textual = True

    def fit(self, value: Any) -> str:
        try:
            return OneOf(*sorted(metric.__name__ for metric in metrics_dict.values())).fit(value)
        except Misfit as misfit:
            raise Misfit(value, f"{misfit.wanted}, or a class that register_metric was given before") from None


KINDS: dict[str, Kind] = {
    "model": Kind(), "dataset": Kind(), "config_files": Kind(), "allow_unknown": truth,
    # environment
    "gpu_id": Maybe(Either(device, ListOf(device))), "use_gpu": truth,
    "worker": whole("[0, inf)"), "seed": whole("[0, 4294967295]"), "reproducibility": truth, "shuffle": truth,
    "state": Maybe(OneOf("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")), "show_progress": truth,
    "data_path": text, "checkpoint_dir": text, "log_dir": text, "encoding": Encoding(), "log_wandb": truth,
    "wandb_project": text,
    "save_dataset": truth, "save_dataloaders": truth,
    "dataset_save_path": maybe_text, "dataloaders_save_path": maybe_text,
    # training
    "epochs": whole("[0, inf)"), "train_batch_size": positive, "learner": OneOf(*LEARNERS),
    "learning_rate": Number("(0, 1e6]"), "weight_decay": Number("[0, inf)"), "eval_step": whole("[0, inf)"),
    "stopping_step": whole("[0, inf)"), "loss_decimal_place": Maybe(whole("[0, 20]")), "require_pow": truth,
    "enable_amp": truth, "enable_scaler": truth, "transform": Maybe(OneOf(*TRANSFORMS)), "loss_type": text,
    "clip_grad_norm": Maybe(Mapping({
        "max_norm": Number("(0, inf)"), "norm_type": Number("(0, inf)"), "error_if_nonfinite": truth,
        "foreach": Maybe(truth),
    }, needs="max_norm")),
    "train_neg_sample_args": Maybe(Mapping({
        "distribution": Maybe(OneOf("uniform", "popularity")), "sample_num": Maybe(positive),
        "alpha": Maybe(Number("[0, inf)")), "dynamic": truth, "candidate_num": whole("[0, inf)"),
    })),
    # evaluation
    "eval_args": Mapping({
        "split": Mapping({
            "RS": ratios, "TS": ratios, "LS": OneOf("valid_and_test", "valid_only", "test_only"),
            "date": TwoMoments(),
        }, single=True),
        "group_by": Maybe(OneOf("user", "none")), "order": OneOf("RO", "TO"),
        "mode": Either(eval_mode, Mapping({"valid": eval_mode, "test": eval_mode})),
    }),
    "repeatable": truth, "metrics": ListOf(MetricName()),
    "topk": ListOf(positive), "valid_metric": text, "valid_metric_bigger": truth, "eval_batch_size": positive,
    "metric_decimal_place": whole("[0, 15]"), "eval_memory_mb": Maybe(Number("(0, inf)")),
    # files and columns
    "min_history": Maybe(whole("[0, inf)")), "time_unit": OneOf("s", "ms", "us", "ns", "D"),
    "history": OneOf("all", "positive"), "exclude_history": truth,
    "field_separator": text, "seq_separator": text, "USER_ID_FIELD": maybe_text, "ITEM_ID_FIELD": maybe_text,
    "RATING_FIELD": maybe_text, "TIME_FIELD": maybe_text, "LABEL_FIELD": text, "NEG_PREFIX": text,
    "ITEM_LIST_LENGTH_FIELD": text, "LIST_SUFFIX": text, "POSITION_FIELD": text, "MAX_ITEM_LIST_LENGTH": positive,
    "seq_len": Maybe(Mapping(each=positive)), "threshold": Maybe(Mapping(each=Number(), single=True)),
    "numerical_features": ListOf(text, may_be_empty=True), "load_col": Maybe(columns), "unload_col": Maybe(columns),
    "unused_col": Maybe(columns), "additional_feat_suffix": Maybe(names),
    "benchmark_filename": Maybe(ListOf(text)), "item_names": maybe_text,
    "rm_dup_inter": Maybe(OneOf("first", "last")), "val_interval": Maybe(Mapping(each=Either(in_values, names))),
    "filter_inter_by_user_or_item": truth, "user_inter_num_interval": Maybe(intervals),
    "item_inter_num_interval": Maybe(intervals), "entity_kg_num_interval": Maybe(intervals),
    "relation_kg_num_interval": Maybe(intervals), "alias_of_user_id": Maybe(names), "alias_of_item_id": Maybe(names),
    "alias_of_entity_id": Maybe(names), "alias_of_relation_id": Maybe(names), "normalize_field": Maybe(names),
    "normalize_all": Maybe(truth), "preload_weight": Maybe(Mapping(each=text)),
    "discretization": Maybe(Mapping(each=Mapping({"method": OneOf("ED", "LD"), "bucket": positive}, needs="method"))),
    "kg_reverse_r": truth,
    # of several models
    "hidden_size": positive, "inner_size": positive, "embedding_size": positive, "n_heads": positive,
    "n_layers": whole("[0, inf)"), "hidden_dropout_prob": share, "attn_dropout_prob": share, "dropout_prob": share,
    "layer_norm_eps": Number("(0, inf)"), "initializer_range": Number("[0, inf)"), "mask_ratio": Number("(0, 1]"),
    "selected_features": names, "item_attribute": text,
    "cross_features": Maybe(ListOf(ListOf(text, count=2), may_be_empty=True)),
    "teacher": Text(r"[A-Za-z]\w*", "the name of a class"),  # RecBole evaluates the text as Python
    "reranker_CAN_NUM": Kind(), "use_proj_bias": Kind(), "xgb_verbose_eval": Kind(),
}  # fmt: skip


def kind_of(key: str, default: Any, ours: bool) -> Kind:
    """The kind of value that a key takes.

    Args:
        key: its name.
        default: its default, from which the kind follows where the table does not know the key.
        ours: whether the default stands in a property file of this package. RecBole writes 0 for 0.0 and for False.
    """
    if key in KINDS:
        return KINDS[key]
    if isinstance(default, bool):
        return truth
    if isinstance(default, int) and ours:
        return whole()
    if isinstance(default, (int, float)):
        return Number()
    if isinstance(default, str):
        return maybe_text
    if isinstance(default, list) and default and all(isinstance(member, (int, float)) for member in default):
        return ListOf(Number(), may_be_empty=True)
    if isinstance(default, list) and (ours or (default and all(isinstance(member, str) for member in default))):
        return Maybe(ListOf(text, may_be_empty=True))
    return Kind()


def fit(key: str, value: Any, kind: Kind) -> Any:
    """Hold a value against its kind.

    Raises:
        InputError: names the key, the value, and what would be right.
    """
    try:
        return kind.fit(value)
    except Misfit as misfit:
        where, found = f"{key}{misfit.inside}", f"{misfit.verb} {misfit.value!r}"
        raise InputError(f"key '{where}' {found}; it should be {misfit.wanted}.") from None
