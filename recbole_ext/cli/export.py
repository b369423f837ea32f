"""`recbole-ext export`: a checkpoint to a program that torch alone serves."""

import os
from typing import Any

from recbole_ext.cli.options import check_options
from recbole_ext.serving.exporter import target_file
from recbole_ext.serving.recommender import Recommender
from recbole_ext.utils.paths import check_outputs

OPTIONS = {
    "checkpoint": "the name of a file", "out": "the name of a file that ends in .pt2",
    "device": "the name of a device, e.g. cpu",
}  # fmt: skip


def export_model(given: dict[str, Any]) -> str:
    """Carry out the command.

    Args:
        given: its options and the texts of their values.

    Returns:
        a line that says what was written, and how far it differs from the model.

    Raises:
        InputError: an option is unknown, missing or wrong.
    """
    check_options("export", given, OPTIONS, ("checkpoint", "out"))
    check_outputs({"--out": given["out"]}, {"--checkpoint": given["checkpoint"]})
    out = target_file(given["out"])
    difference = Recommender.load(given["checkpoint"], given.get("device", "cpu")).export(out)
    size = os.path.getsize(out) / 2**20
    return f"{out}: {size:.1f} MiB; largest difference from the model on random requests: {difference:.1e}"
