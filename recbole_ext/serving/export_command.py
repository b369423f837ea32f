"""`recbole-ext export`: a checkpoint to a program that torch alone serves."""

import os
from typing import Any

from recbole_ext.errors import InputError
from recbole_ext.serving.exporting import export, target_file

OPTIONS = ("checkpoint", "out", "device")


def export_model(given: dict[str, Any]) -> str:
    """Carry out the command.

    Args:
        given: its options and the texts of their values.

    Returns:
        a line that says what was written, and how far it differs from the model.

    Raises:
        InputError: an option is unknown, missing or wrong.
    """
    unknown = [option for option in given if option not in OPTIONS]
    if unknown:
        raise InputError(f"export has no option --{unknown[0]}; its options are --{', --'.join(OPTIONS)}.")
    for option in ("checkpoint", "out"):
        if not isinstance(given.get(option), str):
            raise InputError(f"--{option} is missing; give it the name of a file.")
    out = target_file(given["out"])
    difference = export(given["checkpoint"], out, given.get("device", "cpu"))
    size = os.path.getsize(out) / 2**20
    return f"{out}: {size:.1f} MiB; largest difference from the model on random requests: {difference:.1e}"
