"""The chart of the comparison: decoding speed of each engine, bar by bar."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

from plan import KWKER4, KWKER16, LLAMA4, LLAMA16, OPENVINO, TRANSFORMERS
from protocol import median
from report import LARGE, SMALL, rounds, seconds

matplotlib.use("Agg")
from matplotlib import pyplot

_OURS, _OTHERS = "#0b6e4f", "#b8b8b8"


def _rates(results: dict[str, Any], model: str, case: str, engines: tuple[str, ...]) -> list[tuple[str, float]]:
    found = [(engine, rounds(results, model, case, engine)) for engine in engines]
    return [(engine, 1 / median([seconds(value) for value in values])) for engine, values in found if values]


def draw(results: dict[str, Any], path: Path) -> None:
    """Three panels: 1.7B int4 and bf16, and the 135M model at a long context."""
    panels = (
        ("1.7B-sized, 4-bit weights", LARGE, "decode", (KWKER4, LLAMA4, OPENVINO)),
        ("1.7B-sized, bfloat16", LARGE, "decode", (KWKER16, LLAMA16, TRANSFORMERS)),
        ("135M, 4-bit, 926 tokens of context", SMALL, "context 926", (KWKER4, LLAMA4, OPENVINO)),
    )
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 2.6), constrained_layout=True)
    for axis, (title, model, case, engines) in zip(axes, panels, strict=True):
        bars = _rates(results, model, case, engines)[::-1]
        colors = [_OURS if name.startswith("Kwker") else _OTHERS for name, _ in bars]
        drawn = axis.barh([name for name, _ in bars], [rate for _, rate in bars], color=colors)
        axis.bar_label(drawn, fmt="%.1f", padding=3)
        axis.set_title(title, fontsize=10, loc="left")
        axis.set_xlabel("tokens a second")
        axis.margins(x=0.15)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
