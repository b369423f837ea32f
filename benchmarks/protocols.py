"""A trained checkpoint, measured by two protocols: all items, and the 100 popular candidates of MEANTIME's paper.

    python benchmarks/protocols.py CHECKPOINT [--data_path FOLDER] [--discounts 0.15 0.3 0.45]

Prints Recall@10 and NDCG@10 on validation and test data: among all items that the user has not had, and among the
target and 100 items that the user has not had, drawn by popularity (`mode: pop100-unseen`). Nothing is trained.

`--discounts` also ranks the 100 candidates by the score less `discount` times the logarithm of an item's number of
training events. Candidates that are drawn by popularity are popular, so a popular candidate is less likely to be the
target than its score says. Choose the discount by the validation data.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch  # noqa: E402

from recbole_ext import get_trainer, load_data_and_model  # noqa: E402

PROTOCOLS = {
    "all unseen items": {"mode": "full", "exclude_history": True},
    "100 popular unseen items": {"mode": "pop100-unseen", "exclude_history": False},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint")
    parser.add_argument("--data_path", help="folder of the data sets, if they have moved")
    parser.add_argument("--discounts", type=float, nargs="*", default=[], help="of the logarithm of popularity")
    options = parser.parse_args()
    print("| candidates | valid Recall@10 | valid NDCG@10 | test Recall@10 | test NDCG@10 |\n|---|---:|---:|---:|---:|")
    for name, keys in PROTOCOLS.items():
        split = {"split": {"LS": "valid_and_test"}, "group_by": "user", "order": "TO", "mode": keys["mode"]}
        changed = {
            "eval_args": split, "exclude_history": keys["exclude_history"], "metrics": ["Recall", "NDCG"], "topk": 10,
            "valid_metric": "NDCG@10", **({"data_path": options.data_path} if options.data_path else {}),
        }  # fmt: skip
        config, model, _, train_data, valid_data, test_data = load_data_and_model(
            options.checkpoint, config_dict=changed
        )
        trainer = get_trainer(config)(config, model)
        for discount in [0.0, *(options.discounts if keys["mode"] != "full" else [])]:
            if discount:
                discount_popularity(model, train_data.dataset, discount)
            found = [trainer.evaluate(data, load_best_model=False) for data in (valid_data, test_data)]
            figures = [f"{result[metric]:.4f}" for result in found for metric in ("recall@10", "ndcg@10")]
            print(f"| {name}{f', discount {discount}' * bool(discount)} | {' | '.join(figures)} |", flush=True)


def discount_popularity(model: Any, dataset: Any, discount: float) -> None:
    """Set the biases of a model whose architecture has none (`architecture: sasrec`)."""
    if model.head is not None:
        sys.exit("--discounts is for checkpoints with architecture: sasrec, whose items have no bias")
    counts = torch.zeros(model.n_items)
    for item, count in dataset.item_counter.items():
        counts[int(item)] = count
    model.item_bias.copy_(-discount * torch.log1p(counts))


if __name__ == "__main__":
    main()
