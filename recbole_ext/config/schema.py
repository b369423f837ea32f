"""The validator of each configuration key: one table for RecBole's keys and ours.

The `validators` of a model's class take precedence. A key without a validator is checked by the type of its default.
`known_keys` finds which model reads which key.
"""

from typing import Any

from recbole.evaluator import metrics_dict

from recbole_ext.utils.validators import (
    Bool,
    Encoding,
    Int,
    ListOf,
    MappingOf,
    Number,
    OneOf,
    OrNone,
    Str,
    TimeRange,
    UnionOf,
    ValidationError,
    Validator,
)

LEARNERS = ("adam", "adamw", "sgd", "adagrad", "rmsprop", "sparse_adam")
TRANSFORMS = ("mask_itemseq", "inverse_itemseq", "crop_itemseq", "reorder_itemseq")
BOUND = r"[-+]?(?:inf|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+)"
INTERVAL = rf"[\[(]\s*{BOUND}\s*,\s*{BOUND}\s*[\])]"

boolean, string, positive, share = Bool(), Str(), Int("[1, inf)"), Number("[0, 1)")
optional_string, names = OrNone(string), ListOf(string)
INTERVALS = rf"\s*{INTERVAL}(\s*;\s*{INTERVAL})*\s*"
intervals = Str(INTERVALS, "an interval such as '[5,inf)' or '(0,1];[3,4)'")
in_values = Str(INTERVALS, "an interval such as '[3,inf)' for a number, or a list of values for a token")
device = Str(r"\s*[\w-]+\s*(,\s*[\w-]+\s*)*", "the number of a GPU, e.g. 0")
columns = MappingOf(values=ListOf(string, may_be_empty=True))
ratios = ListOf(Number("[0, inf)"), count=3)
eval_mode = Str(
    r"full|labeled|(uni|pop)[1-9]\d{0,8}(-unseen)?",
    "full, labeled, or uniN, popN, uniN-unseen or popN-unseen with a whole number N, e.g. uni100",
)


class MetricName(Validator):
    """A metric of RecBole, or of `register_metric`."""

    raw_text = True

    def validate(self, value: Any) -> str:
        try:
            return OneOf(*sorted(metric.__name__ for metric in metrics_dict.values())).validate(value)
        except ValidationError as error:
            raise ValidationError(value, f"{error.expected}, or a metric added by register_metric") from None


VALIDATORS: dict[str, Validator] = {
    "model": Validator(), "dataset": Validator(), "config_files": Validator(), "allow_unknown": boolean,
    # environment
    "gpu_id": OrNone(UnionOf(device, ListOf(device))), "use_gpu": boolean,
    "worker": Int("[0, inf)"), "seed": Int("[0, 4294967295]"), "reproducibility": boolean, "shuffle": boolean,
    "state": OrNone(OneOf("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")), "show_progress": boolean,
    "data_path": string, "checkpoint_dir": string, "log_dir": string, "encoding": Encoding(), "log_wandb": boolean,
    "wandb_project": string,
    "save_dataset": boolean, "save_dataloaders": boolean,
    "dataset_save_path": optional_string, "dataloaders_save_path": optional_string,
    # training
    "epochs": Int("[0, inf)"), "train_batch_size": positive, "learner": OneOf(*LEARNERS),
    "checkpoint_minutes": OrNone(Number("(0, inf)")), "targets_per_user": OrNone(positive),
    "learning_rate": Number("(0, 1e6]"), "weight_decay": Number("[0, inf)"), "eval_step": Int("[0, inf)"),
    "stopping_step": Int("[0, inf)"), "loss_decimal_place": OrNone(Int("[0, 20]")), "require_pow": boolean,
    "enable_amp": boolean, "enable_scaler": boolean, "transform": OrNone(OneOf(*TRANSFORMS)), "loss_type": string,
    "clip_grad_norm": OrNone(MappingOf({
        "max_norm": Number("(0, inf)"), "norm_type": Number("(0, inf)"), "error_if_nonfinite": boolean,
        "foreach": OrNone(boolean),
    }, required="max_norm")),
    "train_neg_sample_args": OrNone(MappingOf({
        "distribution": OrNone(OneOf("uniform", "popularity")), "sample_num": OrNone(positive),
        "alpha": OrNone(Number("[0, inf)")), "dynamic": boolean, "candidate_num": Int("[0, inf)"),
    })),
    # evaluation
    "eval_args": MappingOf({
        "split": MappingOf({
            "RS": ratios, "TS": ratios, "LS": OneOf("valid_and_test", "valid_only", "test_only"),
            "date": TimeRange(),
        }, one_key=True),
        "group_by": OrNone(OneOf("user", "none")), "order": OneOf("RO", "TO"),
        "mode": UnionOf(eval_mode, MappingOf({"valid": eval_mode, "test": eval_mode})),
    }),
    "repeatable": boolean, "metrics": ListOf(MetricName()),
    "topk": ListOf(positive), "valid_metric": string, "valid_metric_bigger": boolean, "eval_batch_size": positive,
    "eval_users": OrNone(positive),
    "metric_decimal_place": Int("[0, 15]"), "eval_memory_mb": OrNone(Number("(0, 1e12]")),
    # files and columns
    "min_history": OrNone(Int("[0, inf)")), "time_unit": OneOf("s", "ms", "us", "ns", "D"),
    "tie_break": OneOf("file", "item"), "history": OneOf("all", "positive"), "exclude_history": boolean,
    "ema_decay": Number("[0, 1)"), "data_cache": boolean,
    "field_separator": string, "seq_separator": string, "USER_ID_FIELD": optional_string,
    "ITEM_ID_FIELD": optional_string, "RATING_FIELD": optional_string, "TIME_FIELD": optional_string,
    "LABEL_FIELD": string, "NEG_PREFIX": string,
    "ITEM_LIST_LENGTH_FIELD": string, "LIST_SUFFIX": string, "POSITION_FIELD": string,
    "MAX_ITEM_LIST_LENGTH": positive,
    "seq_len": OrNone(MappingOf(values=positive)), "threshold": OrNone(MappingOf(values=Number(), one_key=True)),
    "numerical_features": ListOf(string, may_be_empty=True), "load_col": OrNone(columns),
    "unload_col": OrNone(columns), "unused_col": OrNone(columns), "additional_feat_suffix": OrNone(names),
    "benchmark_filename": OrNone(ListOf(string)), "item_names": optional_string,
    "rm_dup_inter": OrNone(OneOf("first", "last")),
    "val_interval": OrNone(MappingOf(values=UnionOf(in_values, names))),
    "filter_inter_by_user_or_item": boolean, "user_inter_num_interval": OrNone(intervals),
    "item_inter_num_interval": OrNone(intervals), "entity_kg_num_interval": OrNone(intervals),
    "relation_kg_num_interval": OrNone(intervals),
    "alias_of_user_id": OrNone(names), "alias_of_item_id": OrNone(names), "alias_of_entity_id": OrNone(names),
    "alias_of_relation_id": OrNone(names), "normalize_field": OrNone(names),
    "normalize_all": OrNone(boolean), "preload_weight": OrNone(MappingOf(values=string)),
    "discretization": OrNone(
        MappingOf(values=MappingOf({"method": OneOf("ED", "LD"), "bucket": positive}, required="method"))
    ),
    "kg_reverse_r": boolean,
    # hyper-parameters that several models share
    **dict.fromkeys(("hidden_size", "inner_size", "embedding_size", "n_heads"), positive),
    **dict.fromkeys(("hidden_dropout_prob", "attn_dropout_prob", "dropout_prob"), share),
    "n_layers": Int("[0, inf)"), "layer_norm_eps": Number("(0, inf)"), "initializer_range": Number("[0, inf)"),
    "mask_ratio": Number("(0, 1]"), "selected_features": names, "item_attribute": string,
    "teacher": Str(r"[A-Za-z]\w*", "the name of a class"),  # RecBole evaluates the text as Python
    **dict.fromkeys(("reranker_CAN_NUM", "use_proj_bias", "xgb_verbose_eval"), Validator()),  # several types
}  # fmt: skip


def validator_of(key: str, default: Any, ours: bool) -> Validator:
    """The validator of a key.

    Args:
        key: the key.
        default: its default value. For a key that is not in the table, its type determines the validator.
        ours: whether the default is from a property file of this package. RecBole also writes 0 for 0.0 and False.
    """
    if key in VALIDATORS:
        return VALIDATORS[key]
    if isinstance(default, bool):
        return boolean
    if isinstance(default, int) and ours:
        return Int()
    if isinstance(default, (int, float)):
        return Number()
    if isinstance(default, str):
        return optional_string
    if isinstance(default, list) and default and all(isinstance(member, (int, float)) for member in default):
        return ListOf(Number(), may_be_empty=True)
    if isinstance(default, list) and (ours or (default and all(isinstance(member, str) for member in default))):
        return OrNone(ListOf(string, may_be_empty=True))
    return Validator()
