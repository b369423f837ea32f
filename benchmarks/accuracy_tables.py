"""The accuracy tables: for each, its title, the arguments of all its rows, and those of each row."""

from dataclasses import dataclass

SPLIT = "--eval_args={'split': {'LS': 'valid_and_test'}, 'group_by': 'user', 'order': 'TO', 'mode': 'full'}"
UNSEEN = "--exclude_history=True"  # general models rank no other items
UNKNOWN = "--query_time=last"
LONG = ["--train_window=100", "--train_batch_size=128"]  # of the masked objective
COUNTED = "--model=CountedPairs"  # a row of benchmarks/counted_pairs.py


@dataclass(frozen=True)
class Table:
    """A table of runs.

    Attributes:
        title: what is measured, with the protocol.
        common: arguments of all rows.
        rows: arguments of each row by its name.
        metrics: of the test data; the rows are compared by the first one.
        valid: metric of the validation data.
    """

    title: str
    common: list[str]
    rows: dict[str, list[str]]
    metrics: tuple[str, ...] = ("NDCG@10", "Recall@10")
    valid: str = "NDCG@10"


def next_item(
    dataset: str, *common: str, preset: list[str], length: int, cloze: list[str], lightsans: list[str]
) -> Table:
    """All models that predict the next item, without seen items.

    Args:
        dataset: its name.
        common: further arguments of all rows.
        preset: of MEANTIME with `objective: next`, and keys that differ from it.
        length: of histories.
        cloze: further arguments of MEANTIME with the paper's objective.
        lightsans: arguments of LightSANs.
    """
    cut = f"--MAX_ITEM_LIST_LENGTH={length}"
    next_event = ["--model=MEANTIME", f"--config_files={preset[0]}", *preset[1:]]
    position = ["--absolute_kernels=[position]", "--relative_kernels=[]"]
    masked = ["--model=MEANTIME", cut, *cloze]
    low_rank = ["--model=LightSANs", *lightsans]
    sequential = {
        "MEANTIME, next, time of the target known": next_event,
        "MEANTIME, next, time of the target unknown": [*next_event, UNKNOWN],
        "MEANTIME, next, position alone": [*next_event, UNKNOWN, *position],
        "MEANTIME, cloze, time of the target known": masked,
        "MEANTIME, cloze, time of the target unknown": [*masked, UNKNOWN],
        "TiSASRec": ["--model=TiSASRec", cut, f"--train_window={length - 1}"],
        "LightSANs": low_rank,
        "RecBole's form of LightSANs": [*low_rank, "--recbole_compat=True"],
        "counted pairs, forward": [COUNTED, "--directions=forward"],
        "counted pairs, both directions": [COUNTED, "--directions=both"],
        "counted pairs, both directions, also of validation events": [
            COUNTED, "--directions=both", "--counted_events=valid",
        ],
    }  # fmt: skip
    return Table(
        f"{dataset}: next item, leave-one-out in time order, all items ranked but seen ones",
        [f"--dataset={dataset}", SPLIT, "--valid_metric=NDCG@10", *common],
        {**{name: [*row, UNSEEN] for name, row in sequential.items()}, "popularity": ["--model=Pop"]},
    )


# RecBole's models learn from one example per event, MEANTIME from windows: with histories of 20 and 10 epochs they take
# the time that MEANTIME takes, and twice that
SHORT = ["--MAX_ITEM_LIST_LENGTH=20", "--train_batch_size=256", "--epochs=10"]
CLICKS = ["--min_history=0", "--MAX_ITEM_LIST_LENGTH=20"]
CONTEXT = "--context_features=[tab, duration_ms]"
EXP_LOG = "--relative_kernels=['exp','log']"

LIGHTSANS = [
    "--MAX_ITEM_LIST_LENGTH=50", "--train_batch_size=512", "--learning_rate=0.0015", "--ema_decay=0.99",
    "--hidden_dropout_prob=0.2", "--attn_dropout_prob=0.2",
]  # fmt: skip
# LightSANs learns from one event at a time: an epoch of all events of ML-1M would take ten times as long, of ml-100k
# five times; SASRec of RecBole does so, too, and has no row: MEANTIME with the position kernel alone is much like it
FEWER_TARGETS = "--targets_per_user=20"

TABLES = {
    "ml-100k": next_item(
        "ml-100k", preset=["MEANTIME-next"], length=200, cloze=LONG,
        lightsans=[*LIGHTSANS, FEWER_TARGETS, "--epochs=100"],
    ),
    "ml-1m": next_item(
        "ml-1m", preset=["MEANTIME-next", "--train_batch_size=64", "--epochs=36"], length=200, cloze=LONG,
        lightsans=[*LIGHTSANS, FEWER_TARGETS, "--epochs=24", "--eval_step=2"],
    ),
    # the order of the public file that published figures are for
    "amazon-beauty": next_item(
        "amazon-beauty", "--tie_break=item", preset=["MEANTIME-next-sparse", "--stopping_step=6"], length=50, cloze=[],
        lightsans=["--config_files=LightSANs-sparse", "--MAX_ITEM_LIST_LENGTH=50"],
    ),  # fmt: skip
    "ml-100k-seen": Table(
        "ml-100k: next item, leave-one-out, all items ranked",
        ["--dataset=ml-100k"],
        {
            "MEANTIME, time of the target known": ["--model=MEANTIME"],
            "MEANTIME, time of the target unknown": ["--model=MEANTIME", UNKNOWN],
            "SASRec": ["--model=SASRec", *SHORT],
            "BERT4Rec": ["--model=BERT4Rec", *SHORT],
            "LightSANs": ["--model=LightSANs", *SHORT],
            "LightSANs of RecBole": ["--model=recbole.LightSANs", *SHORT],
            "BST, features of users and items": [
                "--model=BST", "--epochs=10", "--config_files=BST-next-item ml-100k-features",
            ],
        },
        ("NDCG@10", "Recall@10", "MRR@10"),
    ),
    "ml-100k-labels": Table(
        "ml-100k: is a rating 4 or more, split in time order over all users",
        [
            "--dataset=ml-100k", "--config_files=clicks ml-100k-features", "--mlp_hidden_size=[1024, 512, 256]",
            "--train_batch_size=256", "--threshold={'rating': 4}", "--epochs=10", "--stopping_step=3", "--learner=adam",
            "--learning_rate=0.001", "--metrics=[AUC, GAUC, LogLoss]",
        ],
        {"BST": ["--model=BST"], "DIN": ["--model=DIN"]},
        ("AUC", "GAUC", "LogLoss"), "AUC",
    ),
    "kuairand": Table(  # DIN and WideDeep choose their columns themselves
        "Clicks of KuaiRand-Pure, 14 days",
        [
            "--dataset=kuairand-pure-14d", "--embedding_size=16", "--train_batch_size=1024", "--eval_batch_size=8192",
            "--stopping_step=3",
        ],
        {
            "BST": ["--model=BST", *CLICKS, CONTEXT, "--epochs=10"],
            "BST with user ids": ["--model=BST", *CLICKS, CONTEXT, "--config_files=BST-user-id"],
            "BST without time gaps": ["--model=BST", *CLICKS, CONTEXT, "--time_gap=none", "--epochs=10"],
            "DIN": ["--model=DIN", *CLICKS, "--epochs=10"],
            "WideDeep": ["--model=WideDeep", "--epochs=10"],
            "WideDeep, regularised": ["--model=WideDeep", "--weight_decay=1e-3", "--epochs=10"],
        },
        ("AUC", "GAUC", "LogLoss"), "AUC",
    ),
    # a search takes the best of many single runs, and some of them are lucky: run it with seeds that no search has used
    "search-seeds": Table(
        "The best points of the paper's grid on ml-100k, with seeds that the searches did not see",
        ["--model=MEANTIME", "--dataset=ml-100k", "--valid_metric=NDCG@10"],
        {
            "defaults": [],
            "H 128, exp and log": [
                "--hidden_size=128", EXP_LOG, "--learning_rate=0.00100078", "--weight_decay=1e-5",
            ],
            "H 64, exp and log": [EXP_LOG, "--learning_rate=0.00110761"],
        },
    ),
}  # fmt: skip
