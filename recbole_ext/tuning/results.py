"""What a search leaves behind: best.yaml, trials.csv, the checkpoint and the test of the best trial."""

import contextlib
import csv
import io
import os
import shlex
import shutil
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from recbole_ext.errors import InputError, SearchError
from recbole_ext.quick_start import load_data_and_model
from recbole_ext.training.trainer import get_trainer
from recbole_ext.tuning.journal import Journal, Record, ranked
from recbole_ext.tuning.report.page import page

if TYPE_CHECKING:
    from recbole_ext.tuning.plan import Plan

BEST, TABLE, REPORT = "best.yaml", "trials.csv", "report.html"


def finish(plan: "Plan", journal: Journal) -> dict[str, Any]:
    """Choose the best trial, write the files of the search, and test that trial once.

    Raises:
        SearchError: no trial came to a result; the message has the reasons.
        InputError: the checkpoint of the best trial is gone or damaged.
    """
    records = journal.records()
    write_table(journal, sorted(records, key=lambda record: record["trial"]), list(plan.space))
    best = ranked(records, plan.mode == "max")
    if not best:
        write_report(plan, journal, records, None)
        raise SearchError(no_result(records, plan))
    journal.drop_checkpoints({record["trial"] for record in best[: plan.options.keep_checkpoints]})
    first = best[0]
    keys = {**plan.keys, **first["keys"]}
    metric = plan.config["valid_metric"]
    comment = (
        f"# Trial {first['trial']} of {len(records)}: {metric} {first['best_score']} on the validation data, after "
        f"epoch {first['best_epoch']}.\n"
    )
    journal.write_yaml(BEST, {"model": plan.name, "dataset": plan.config.dataset, **keys}, comment)
    checkpoint = journal.checkpoint(first["trial"])
    try:
        config, test_result = _test(plan, checkpoint)
    except InputError as error:
        write_report(plan, journal, records, None)
        again = f"train it again with --config_files={shlex.quote(journal.path(BEST))}"
        raise InputError(f"trial {first['trial']} is the best, but {str(error).rstrip('.')}; {again}.") from error
    write_report(plan, journal, records, test_result)
    return {
        "best_valid_score": first["best_score"], "valid_score_bigger": plan.mode == "max",
        "best_valid_result": first["best_metrics"], "test_result": test_result, "checkpoint": checkpoint,
        "config": config.to_dict(), "trial": first["trial"], "keys": first["keys"], "trials": records,
        "folder": journal.folder,
    }  # fmt: skip


def _test(plan: "Plan", checkpoint: str) -> tuple[Any, dict[str, float]]:
    """Evaluate the checkpoint on the test data."""
    own = None if isinstance(plan.model, str) else plan.model
    config, network, _, train_data, _, test_data = load_data_and_model(
        checkpoint, None, own, {"use_gpu": plan.config["use_gpu"]}
    )
    trainer = get_trainer(config)(config, network)
    trainer.eval_collector.data_collect(train_data)  # for metrics that need its counts
    found = trainer.evaluate(test_data, load_best_model=False, show_progress=config["show_progress"])
    trainer.tensorboard.close()  # RecBole begins a record of the training; there is none
    shutil.rmtree(trainer.tensorboard.log_dir, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(trainer.tensorboard.log_dir))
    return config, found


def write_report(plan: "Plan", journal: Journal, records: list[Record], test_result: dict[str, float] | None) -> None:
    """report.html, with the trials in the order in which they ended."""
    title, metric = f"{plan.name} on {plan.config.dataset}", plan.config["valid_metric"]
    journal.write(REPORT, page(title, records, plan.space, metric, plan.mode == "max", test_result))


def no_result(records: list[Record], plan: "Plan") -> str:
    """Why there is no best trial, each reason once."""
    if not records:
        budget = plan.options.time_budget
        within = f" in {budget:g} seconds (time_budget)" if budget else ""
        return f"no trial came to a validation{within}."
    reasons = defaultdict(list)
    for record in records:
        reasons[record["reason"] or "it was stopped before its first validation."].append(str(record["trial"]))
    told = "; ".join(f"{reason.rstrip('.')} (trial {', '.join(numbers)})" for reason, numbers in reasons.items())
    return f"all {len(records)} trials failed: {told}."


def write_table(journal: Journal, records: list[Record], keys: list[str]) -> None:
    """trials.csv: a row for each trial that has ended, its keys, score and metrics of the best epoch."""
    metrics = list(dict.fromkeys(name for record in records for name in record["best_metrics"]))
    fields = ["trial", "status", "best_score", "best_epoch", "epochs", "seconds", "machine"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*fields, *keys, *(f"valid {name}" for name in metrics), "reason"])
    for record in records:
        row = [record[field] for field in fields] + [record["keys"].get(key) for key in keys]
        writer.writerow([*row, *(record["best_metrics"].get(name) for name in metrics), record["reason"]])
    journal.write(TABLE, text.getvalue())
