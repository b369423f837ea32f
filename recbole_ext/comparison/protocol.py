"""What must agree if runs are compared, and which runs belong to the same row of a comparison."""

import json
from typing import Any

from recbole_ext.comparison.runs import Run
from recbole_ext.errors import InputError

# Keys that change neither training nor test metrics: devices, folders, and what is measured and shown.
WITHOUT_EFFECT = {
    "gpu_id", "use_gpu", "worker", "state", "data_path", "checkpoint_dir", "log_dir", "show_progress", "log_wandb",
    "wandb_project", "save_dataset", "dataset_save_path", "save_dataloaders", "dataloaders_save_path",
    "eval_batch_size", "eval_memory_mb", "item_names", "allow_unknown", "metrics", "topk",
    "metric_decimal_place", "loss_decimal_place", "checkpoint_minutes", "data_cache",
}  # fmt: skip
EVENT_FILTERS = (
    "user_inter_num_interval", "item_inter_num_interval", "val_interval", "filter_inter_by_user_or_item",
    "rm_dup_inter", "threshold", "history", "min_history", "benchmark_filename",
)  # fmt: skip
NOT_STATED = "not stated"


def training_keys(run: Run) -> dict[str, Any]:
    """The keys of a run that change its result; empty if they are unknown."""
    return {key: value for key, value in (run.keys or {}).items() if key not in WITHOUT_EFFECT}


def same_but_seed(run: Run) -> str:
    """A text that is equal for runs that differ in the seed only; for a run without keys, its path."""
    if run.keys is None:
        return run.path
    return json.dumps({key: value for key, value in training_keys(run).items() if key != "seed"}, sort_keys=True)


def protocol(run: Run) -> dict[str, Any]:
    """How a run was evaluated, in the words of docs/evaluation.md; each value is `NOT_STATED` if it is unknown."""
    keys, evaluation = run.keys or {}, (run.keys or {}).get("eval_args") or {}
    split = {name: evaluation.get(name) for name in ("split", "group_by", "order")}
    if "LS" in (split["split"] or {}):
        del split["group_by"]  # not read
    # RecBole's general models, for which `repeatable` is False, never rank items of the training data
    excludes_history = bool(keys.get("exclude_history")) or keys.get("repeatable") is False
    facts = {
        "data set": keys.get("dataset"), "split": split,
        "order of events at the same time": keys.get("tie_break", "file"),
        "candidates": (evaluation.get("mode") or {}).get("test"),
        "events with label 0 are removed": keys.get("history") == "positive" and not _learns_labels(keys),
        "items of the history are ranked": not excludes_history,
        "time of the target is known": keys.get("query_time") == "target",
        **{key: keys.get(key) for key in EVENT_FILTERS},
    }  # fmt: skip
    stated: dict[str, Any] = {name: value if run.keys is not None else NOT_STATED for name, value in facts.items()}
    return {**stated, "number of items": run.test_data["items"] if run.test_data else NOT_STATED}


def _learns_labels(keys: dict[str, Any]) -> bool:
    """Whether training reads labels: with negatives of a sampler or of the loss, each event is a positive."""
    sampler = (keys.get("train_neg_sample_args") or {}).get("distribution")
    return sampler in (None, "none") and not keys.get("loss_type")


def differences(rows: dict[str, list[Run]]) -> list[str]:
    """One sentence for each part of the protocol that differs between rows or that some runs do not state.

    Raises:
        InputError: the candidates differ, so that no metric has the same meaning.
    """
    facts = {name: [protocol(run) for run in runs] for name, runs in rows.items()}
    sentences = []
    for fact in next(iter(facts.values()))[0]:
        values: dict[str, list[str]] = {}
        for name, of_runs in facts.items():
            for value in dict.fromkeys(json.dumps(of_run[fact], sort_keys=True) for of_run in of_runs):
                values.setdefault(value, []).append(name)
        values.pop(json.dumps(NOT_STATED), None)
        if len(values) > 1:
            sides = "; ".join(f"{value.strip(chr(34))} ({', '.join(names)})" for value, names in values.items())
            if fact == "candidates":
                raise InputError(f"the rows cannot be compared, because their candidates differ: {sides}.")
            sentences.append(f"The rows differ in their protocol, {fact}: {sides}.")
    sentences += _seeds_of_candidates(rows)
    unknown = [run.path for runs in rows.values() for run in runs if run.keys is None or run.test_data is None]
    if unknown:
        sentences.append(
            f"The protocol or the test items of {', '.join(unknown)} are not stated; compare the JSON files of --json."
        )
    return sentences


def _seeds_of_candidates(rows: dict[str, list[Run]]) -> list[str]:
    """A sentence if candidates are drawn and the rows have other seeds, on which the draw depends."""
    seeds: dict[str, list[str]] = {}
    for name, runs in rows.items():
        drawn = [(run.keys or {}).get("seed") for run in runs if _draws_candidates(run)]
        if drawn:
            seeds.setdefault(", ".join(sorted(map(str, drawn))), []).append(name)
    if len(seeds) < 2:
        return []
    sides = "; ".join(f"{of_rows} ({', '.join(names)})" for of_rows, names in seeds.items())
    return [f"The rows have other candidates, which are drawn by seed: {sides}; run all of them with the same seeds."]


def _draws_candidates(run: Run) -> bool:
    mode = str(protocol(run)["candidates"])
    return mode.startswith(("uni", "pop"))
