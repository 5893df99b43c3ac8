#!/usr/bin/env python3
"""Turns results.json into README.md and decode.png: `report.py FOLDER`. Nothing here measures."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plan import AVX2, KWKER4, KWKER16, LLAMA4, LLAMA16, OPENVINO, TRANSFORMERS
from protocol import median

Results = dict[str, Any]
Pick = Callable[[Any], float]

LARGE, SMALL = "target1700", "smol135"
#: Bytes that a position of target1700's cache holds: keys and values, 30 layers, 32 heads of 64, bfloat16.
_CACHE_BYTES = 2 * 30 * 32 * 64 * 2


_PROPOSALS = (
    "Tokens a second, and times the engine's own plain decoding. The draft is the 135M model (int4 for Kwker, bfloat16 "
    "for Transformers). **Other tokens**: the text is not that of the engine's own plain decoding."
)
_METHOD = (
    "- Each engine runs in a process of its own, loaded before the first round; the others sleep meanwhile. In every "
    "round each case runs once on each engine, one after the other; lookup and drafts in the first round only.",
    "- Decoding is greedy; its time runs from the first new token to the last. Prompts are token ids, the same for "
    "all.",
    "- llama.cpp is built for this CPU, with flash attention and batches of 512; only `llama_decode` and the choice of "
    "the best token are timed. Its AMX path works here because a compiler barrier is added (see "
    "benchmarks/compare/tile_barrier.h). Q4_0 is made with llama.cpp's defaults, which keep the output layer in Q6_K.",
    "- OpenVINO GenAI reads the same Q4_0 file, with its CPU defaults.",
    "- Transformers runs in bfloat16 with its default attention (SDPA); lookup is `prompt_lookup_num_tokens=8`, the "
    "draft `assistant_model` with its defaults.",
    "- A share is bytes of packed weights per token, over the time of a token, over "
    "`kwker.cpu_backend.read_bandwidth()` measured straight before.",
)


@dataclass(frozen=True)
class Measure:
    """The median of a figure over rounds, with the smallest and the largest."""

    value: float
    low: float
    high: float

    def text(self, digits: int) -> str:
        return f"{self.value:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"


def measure(values: Iterable[float]) -> Measure | None:
    """None if there are no values."""
    listed = list(values)
    return Measure(median(listed), min(listed), max(listed)) if listed else None


def rounds(results: Results, model: str, case: str, engine: str) -> list[Any]:
    """What the engine returned in each round; empty if it was not measured."""
    found: list[Any] = results["stages"].get(model, {}).get("values", {}).get(case, {}).get(engine, [])
    return found


def ratio(over: list[Any], under: list[Any], pick: Pick, pick_under: Pick | None = None) -> Measure | None:
    """Of two measurements, round by round."""
    return measure(pick(a) / (pick_under or pick)(b) for a, b in zip(over, under, strict=False))


def seconds(value: Any) -> float:
    return float(value["seconds"])


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _table(head: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> list[str]:
    return [_line(*head), _line(*["---"] * len(head)), *(_line(*line) for line in lines), ""]


def targets(results: Results) -> list[tuple[str, str, str]]:
    """What Kwker set itself, and what it reaches."""

    def large(case: str, engine: str) -> list[Any]:
        return rounds(results, LARGE, case, engine)

    def share(value: Any) -> float:
        return float(value["share"])

    def rows(engine: str, count: int) -> Measure | None:
        return measure(value[str(count)] / value["1"] for value in large("rows", engine))

    growth = None
    short, long = large("cache 64", KWKER16), large("cache 4096", KWKER16)
    if short and long:
        weights = results["stages"][LARGE]["facts"][KWKER16]["weight_bytes"]
        growth = measure(
            # share = weights / seconds / read, so this is what reading the cache takes.
            (b["seconds"] - a["seconds"]) / (4032 * _CACHE_BYTES / (weights / a["seconds"] / a["share"]))
            for a, b in zip(short, long, strict=False)
        )
    lines: list[tuple[str, str, Measure | None]] = [
        ("int4 decoding, share of the read bandwidth", "at least 0.90", measure(map(share, large("decode", KWKER4)))),
        (
            "int4 decoding, times llama.cpp Q4_0",
            "at least 1.20",
            ratio(large("decode", LLAMA4), large("decode", KWKER4), seconds),
        ),
        ("bf16 decoding, share of the read bandwidth", "at least 0.92", measure(map(share, large("decode", KWKER16)))),
        ("step of 9 rows over 1 row, int4", "at most 1.20", rows(KWKER4, 9)),
        ("the same, llama.cpp Q4_0", "", rows(LLAMA4, 9)),
        ("step of 9 rows over 1 row, bf16", "at most 1.12", rows(KWKER16, 9)),
        ("the same, llama.cpp bf16", "", rows(LLAMA16, 9)),
        ("step of 16 rows over 1 row, int4", "at most 1.40", rows(KWKER4, 16)),
        (
            "prefill of 512 tokens, int4, times llama.cpp Q4_0",
            "at least 5",
            ratio(large("prefill", LLAMA4), large("prefill", KWKER4), seconds),
        ),
        (
            "prefill of 512 tokens, bf16, times Transformers bf16",
            "at least 2",
            ratio(large("prefill", TRANSFORMERS), large("prefill", KWKER16), seconds),
        ),
        (
            "135M model, int4 decoding, times llama.cpp Q4_0",
            "at least 1.6",
            ratio(rounds(results, SMALL, "context 40", LLAMA4), rounds(results, SMALL, "context 40", KWKER4), seconds),
        ),
        ("4,096 positions over 64, bf16: growth over reading the cache", "at most 1.3", growth),
        (
            "135M model, int4, speed at 926 tokens of context over 40",
            "at least 0.75",
            ratio(rounds(results, SMALL, "context 40", KWKER4), rounds(results, SMALL, "context 926", KWKER4), seconds),
        ),
        (
            "the same, llama.cpp Q4_0",
            "",
            ratio(rounds(results, SMALL, "context 40", LLAMA4), rounds(results, SMALL, "context 926", LLAMA4), seconds),
        ),
        ("AVX2 only: int4 decoding, share", "at least 0.85", measure(map(share, large("decode", AVX2)))),
        ("AVX2 only: step of 4 rows over 1 row", "at most 1.6", rows(AVX2, 4)),
    ]
    return [(name, goal, got.text(2)) for name, goal, got in lines if got is not None]


def speeds(results: Results, model: str, cases: dict[str, int]) -> list[tuple[str, ...]]:
    """Tokens a second of every engine; `cases` maps a case to the tokens it takes."""
    lines = []
    for engine in (KWKER4, LLAMA4, OPENVINO, KWKER16, LLAMA16, TRANSFORMERS, AVX2):
        cells = []
        for case, tokens in cases.items():
            got = measure(tokens / seconds(value) for value in rounds(results, model, case, engine))
            cells.append("" if got is None else f"{got.value:.1f}")
        if any(cells):
            lines.append((engine, *cells))
    return lines


def proposals(results: Results) -> list[tuple[str, ...]]:
    """Prompt lookup and drafts: tokens a second, times plain, and whether the tokens are those of plain decoding."""
    lines = []
    for text in ("code edit", "summary", "open"):
        for engine in (KWKER4, KWKER16, TRANSFORMERS):
            plain = rounds(results, LARGE, f"{text}, plain", engine)
            if not plain:
                continue
            cells = [text, engine, f"{1 / median([seconds(value) for value in plain]):.1f}"]
            for mode in ("lookup", "draft"):
                faster = rounds(results, LARGE, f"{text}, {mode}", engine)
                gain = ratio(plain, faster, seconds)
                if gain is None:
                    cells.append("")
                    continue
                same = all(a["tokens"] == b["tokens"] for a, b in zip(plain, faster, strict=False))
                rate = 1 / median([seconds(value) for value in faster])
                cells.append(f"{rate:.1f} ({gain.value:.2f}x){'' if same else ', **other tokens**'}")
            lines.append(tuple(cells))
    return lines


def markdown(results: Results) -> str:
    """The page."""
    about = results["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    count = max(
        (len(r) for s in results["stages"].values() for c in s["values"].values() for r in c.values()), default=0
    )
    lines = [
        "# Kwker beside other engines",
        "",
        f"Measured on {about['date']} with `make bench`: {about['cpu']}, {results['threads']} threads,"
        f" {', '.join(about['features'])}; {versions}. {count} rounds; medians, in brackets the lowest and the highest"
        " round. Ratios are formed within a round. The raw figures are in [results.json](results.json).",
        "",
        "![Decoding speed](decode.png)",
        "",
        "## What Kwker set itself",
        "",
        *_table(("measure", "asked", "got"), targets(results)),
        "## Tokens a second, 1.7B-sized model",
        "",
        *_table(
            ("engine", "decoding", "prefill of 512"),
            speeds(results, LARGE, {"decode": 1, "prefill": 512}),
        ),
        "## Tokens a second, 135M model, int4, by tokens of context",
        "",
        *_table(
            ("engine", "40", "183", "926"),
            speeds(results, SMALL, {f"context {n}": 1 for n in (40, 183, 926)}),
        ),
        "## Prompt lookup and a draft model, 1.7B-sized model",
        "",
        _PROPOSALS,
        "",
        *_table(("text", "engine", "plain", "lookup of 8", "draft"), proposals(results)),
        "## How it was measured",
        "",
        *_METHOD,
        "",
    ]
    return "\n".join(lines)


def write(results: Results, folder: Path) -> None:
    """README.md and decode.png in a folder."""
    (folder / "README.md").write_text(markdown(results))
    import chart

    chart.draw(results, folder / "decode.png")


if __name__ == "__main__":
    place = Path(sys.argv[1])
    write(json.loads((place / "results.json").read_text()), place)
