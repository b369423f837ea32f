"""Draw the figures of the documentation: `python docs/figures.py` writes SVG files to docs/images. Needs matplotlib.

Measurements are read from the tables in benchmarks/results. `python docs/figures.py why.csv` also draws an explanation,
from the file that `explain --out=why.csv --item_names=...` writes.
"""

import csv
import re
import sys
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
RESULTS = ROOT / "benchmarks" / "results"


def save(figure, name: str) -> None:
    """Write a figure in the same bytes on every run."""
    figure.savefig(IMAGES / name, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def table_rows(text: str, first_cell: str) -> list[list[str]]:
    """Cells of the Markdown table whose header begins with `first_cell`, without the header."""
    lines = text[text.index(f"| {first_cell} |") :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def draw_kernels() -> None:
    """MEANTIME's relative kernels of the gap between two events, at three of their frequencies (paper, eq. 5 to 7)."""
    days = np.linspace(0, 14, 300)
    formulas = {"sin": np.sin, "exp": lambda scaled: np.exp(-scaled), "log": np.log1p}
    figure, axes = pyplot.subplots(1, 3, figsize=(9, 2.8), layout="constrained")
    for axis, (name, formula) in zip(axes, formulas.items(), strict=True):
        for frequency in (2, 1, 0.25):
            axis.plot(days, formula(frequency * days), label=f"w = {frequency} / day")
        axis.set(title=f"{name} kernel", xlabel="days between two events")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("feature")
    axes[2].legend()
    save(figure, "kernels.svg")


def draw_attention_growth() -> None:
    """Time and memory of a training step against the length of histories, for each kind of attention."""
    text = (RESULTS / "attention_growth.md").read_text(encoding="utf-8")
    lengths = [int(cell) for cell in re.search(r"\| L \| (.*) \|", text)[1].split(" | ")]
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for axis, part, label in zip(axes, text.split("Peak memory, MiB:"), ("seconds", "peak memory, MiB"), strict=True):
        for name, *values in table_rows(part, "L"):
            ours = name == "low_rank, decoupled positions"
            label_of_line = f"{name} (LightSANs)" if ours else name
            axis.plot(lengths, [float(value) for value in values], marker=".", label=label_of_line, linewidth=1 + ours)
        axis.set(xlabel="length of histories", ylabel=label, ylim=(0, None))
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize="small")
    save(figure, "attention_growth.svg")


def draw_search_trials() -> None:
    """The trials of a search: best validation score against epochs trained."""
    rows = table_rows((RESULTS / "search.md").read_text(encoding="utf-8"), "trial")
    figure, axis = pyplot.subplots(figsize=(9, 3.2), layout="constrained")
    for status, marker in (("finished", "o"), ("stopped", "x")):
        trials = [row for row in rows if row[2] == status]
        axis.scatter([int(row[3]) for row in trials], [float(row[1]) for row in trials], marker=marker, label=status)
    default = next(row for row in rows if row[0] == "1")
    axis.annotate("defaults", (int(default[3]), float(default[1])), (-8, -3), textcoords="offset points", ha="right")
    axis.set(xlabel="epochs trained", ylabel="best validation NDCG@10", ylim=(0, None))
    axis.grid(alpha=0.3)
    axis.legend(loc="lower right")
    save(figure, "search_trials.svg")


def draw_explanation(table: Path) -> None:
    """The file that `explain --out` writes: the effect of each event, and the attention of each kernel."""
    with table.open(encoding="utf-8", newline="") as file:
        events = list(csv.DictReader(file))
    kernels = [name for name in events[0] if name.startswith("attention_")]
    titles = [event["item_name"] for event in events]
    figure, (bars, heat) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained", width_ratios=(3, 2))
    effects = [float(event["effect"]) for event in events]
    bars.barh(titles, effects, color=["#3f51b5" if effect > 0 else "#d1495b" for effect in effects])
    bars.axvline(0, color="#222", linewidth=0.8)
    bars.set(title="effect of each event on the score", xlabel="score minus score without the event")
    weights = [[float(event[kernel]) for kernel in kernels] for event in events]
    image = heat.pcolormesh(weights, cmap="Blues", vmin=0)
    heat.set_xticks(np.arange(len(kernels)) + 0.5, [kernel.removeprefix("attention_") for kernel in kernels])
    heat.set_yticks([])
    heat.set(title="attention of each kernel", ylabel="older events below")
    figure.colorbar(image, ax=heat)
    save(figure, "explain.svg")


if __name__ == "__main__":
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "recbole_ext", "font.size": 9})
    draw_kernels()
    draw_attention_growth()
    draw_search_trials()
    for argument in sys.argv[1:]:
        draw_explanation(Path(argument))
