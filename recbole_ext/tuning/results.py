"""The output files of a search (best.yaml, trials.csv, report.html) and the test of the best trial."""

import csv
import io
import shlex
from collections import Counter, defaultdict
from typing import Any

from recbole_ext.errors import InputError, SearchError
from recbole_ext.quick_start import evaluate_checkpoint, validate_checkpoint
from recbole_ext.tuning import figures
from recbole_ext.tuning.journal import Journal, Record, ranked
from recbole_ext.tuning.plan import Plan
from recbole_ext.tuning.space import Space, format_value
from recbole_ext.utils.html import render

BEST, TABLE, REPORT = "best.yaml", "trials.csv", "report.html"


def finish(plan: Plan, journal: Journal) -> dict[str, Any]:
    """Select the best trial, write the output files, and test the best trial once.

    Returns:
        the result of `search`.

    Raises:
        SearchError: no trial has a result; the message has the reasons.
        InputError: the checkpoint of the best trial is missing or damaged.
    """
    records = journal.records()
    write_table(journal, sorted(records, key=lambda record: record["trial"]), list(plan.space))
    ranking = ranked(records, plan.mode == "max")
    if not ranking:
        write_report(plan, journal, records, None)
        raise SearchError(no_result(records, plan.options.time_budget))
    journal.drop_checkpoints({record["trial"] for record in ranking[: plan.options.keep_checkpoints]})
    best = ranking[0]
    comment = (
        f"# Trial {best['trial']} of {len(records)}: {plan.config['valid_metric']} {best['best_score']} on "
        f"{plan.measured}, after epoch {best['best_epoch']}.\n"
    )
    keys = {"model": plan.name, "dataset": plan.config.dataset, **plan.keys, **best["keys"]}
    journal.write_yaml(BEST, keys, comment)
    checkpoint = journal.checkpoint(best["trial"])
    try:
        model_class = None if isinstance(plan.model, str) else plan.model
        device = {"use_gpu": plan.config["use_gpu"]}
        config, test_result, _ = evaluate_checkpoint(checkpoint, model_class, device)
        score, valid_result, sample = best["best_score"], best["best_metrics"], None
        if plan.user_sample is not None:
            sample = plan.user_sample.describe(valid_result)
            score, valid_result = validate_checkpoint(checkpoint, model_class, device)
    except InputError as error:
        write_report(plan, journal, records, None)
        command = f"train it again with --config_files={shlex.quote(journal.path(BEST))}"
        raise InputError(f"trial {best['trial']} is the best, but {str(error).rstrip('.')}; {command}.") from error
    write_report(plan, journal, records, test_result)
    return {
        "best_valid_score": score, "valid_score_bigger": plan.mode == "max", "best_valid_result": valid_result,
        "test_result": test_result, "valid_sample": sample, "checkpoint": checkpoint,
        "config": config.to_dict(), "trial": best["trial"], "keys": best["keys"], "trials": records,
        "folder": journal.folder,
    }  # fmt: skip


def no_result(records: list[Record], time_budget: float | None) -> str:
    """Why there is no best trial, each reason once."""
    if not records:
        limit = f" in {time_budget:g} seconds (time_budget)" if time_budget else ""
        return f"no trial reached a validation{limit}."
    trials = defaultdict(list)
    for record in records:
        trials[record["reason"] or "it was stopped before its first validation."].append(str(record["trial"]))
    reasons = "; ".join(f"{reason.rstrip('.')} (trial {', '.join(numbers)})" for reason, numbers in trials.items())
    return f"all {len(records)} trials failed: {reasons}."


# ---------------------------------------------------------------------- trials.csv and report.html


def write_table(journal: Journal, records: list[Record], keys: list[str]) -> None:
    """Write trials.csv: for each trial its keys, its best score, and the metrics of that epoch."""
    metrics = list(dict.fromkeys(name for record in records for name in record["best_metrics"]))
    fields = ["trial", "status", "best_score", "best_epoch", "epochs", "seconds", "machine"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*fields, *keys, *(f"valid {name}" for name in metrics), "reason"])
    for record in records:
        row = [record[field] for field in fields] + [record["keys"].get(key) for key in keys]
        writer.writerow([*row, *(record["best_metrics"].get(name) for name in metrics), record["reason"]])
    journal.write(TABLE, text.getvalue())


def write_report(plan: Plan, journal: Journal, records: list[Record], test_result: dict[str, float] | None) -> None:
    title = f"{plan.name} on {plan.config.dataset}"
    metric = plan.config["valid_metric"]
    page = report_page(title, records, plan.space, metric, plan.mode == "max", test_result, plan.measured)
    journal.write(REPORT, page)


def report_page(
    title: str,
    records: list[Record],
    space: Space,
    metric: str,
    bigger: bool,
    test_result: dict[str, float] | None,
    measured: str = "the validation data",
) -> str:
    """The content of report.html.

    Args:
        title: of the page.
        records: of all trials, in the order in which they ended.
        space: distributions of the keys.
        metric: name of the score.
        bigger: whether a bigger score is better.
        test_result: metrics of the best trial on the test data, if it was tested.
        measured: what the scores are measured on.
    """
    best = next(iter(ranked(records, bigger)), None)
    return render(
        "tuning/report.html",
        title,
        figures.all_figures(records, space, metric, bigger) if best else {},
        records=sorted(records, key=lambda record: record["trial"]),
        best=best,
        keys=list(space),
        metric=metric,
        measured=measured,
        test_result=test_result or {},
        statuses=Counter(record["status"] for record in records),
        epochs=sum(record["epochs"] for record in records),
        minutes=sum(record["seconds"] for record in records) / 60,
        format_value=format_value,
    )
