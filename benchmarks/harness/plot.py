"""Lines over a logarithmic axis as SVG, readable on light and on dark pages. Needs matplotlib."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

# Mid tones keep their contrast on white and on black; the first is ours.
COLOURS = ("#d9480f", "#1c7ed6", "#2f9e44", "#9c36b5", "#868e96", "#e8590c", "#0c8599")
GREY = "#868e96"


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis.

    Attributes:
        label: what it shows, with the unit.
        ticks: value and text of each tick.
    """

    label: str
    ticks: Mapping[float, str]


def draw_lines(
    lines: Mapping[str, Sequence[tuple[float, float]]], horizontal: Axis, vertical: Axis, path: Path
) -> None:
    """Draw a line for each name through its points, on a transparent ground, and write it as SVG.

    Args:
        lines: for each name its points.
        horizontal: the axis of the first coordinate.
        vertical: the axis of the second.
        path: where the SVG goes.
    """
    # Text stays text, and ids come from a fixed salt: the same figures give the same file.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "dataset-rt"}):
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axes = figure.subplots()
        axes.set_xscale("log")
        axes.set_yscale("log")
        for (name, points), colour in zip(lines.items(), COLOURS, strict=False):
            axes.plot(*zip(*points, strict=True), marker="o", markersize=4, color=colour, label=name)
        for scale, axis in ((axes.xaxis, horizontal), (axes.yaxis, vertical)):
            texts = dict(axis.ticks)
            scale.set_ticks(list(texts), minor=False)
            scale.set_ticks([], minor=True)
            scale.set_major_formatter(FuncFormatter(lambda value, _, texts=texts: nearest(texts, value)))
            scale.set_label_text(axis.label, color=GREY)
        axes.tick_params(colors=GREY)
        axes.grid(visible=True, color=GREY, alpha=0.25)
        for spine in axes.spines.values():
            spine.set_color(GREY)
        axes.legend(frameon=False, labelcolor=GREY)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None})


def nearest(texts: Mapping[float, str], value: float) -> str:
    """Give the text of the tick at a value."""
    return texts[min(texts, key=lambda tick: abs(tick - value))]
