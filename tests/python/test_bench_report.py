"""The page of the comparison is made from the raw figures alone, so it can be checked without measuring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import plan
import protocol
import report


def _text(seconds: float, *tokens: int) -> dict[str, Any]:
    return {"seconds": seconds, "tokens": list(tokens)}


def results() -> dict[str, Any]:
    """Two rounds: llama.cpp takes twice and then three times as long as Kwker."""
    decode = {
        plan.KWKER4: [{"seconds": 0.1, "share": 0.9}, {"seconds": 0.2, "share": 0.8}],
        plan.LLAMA4: [{"seconds": 0.2}, {"seconds": 0.6}],
    }
    lookup = {
        plan.KWKER4: [{"seconds": 0.05, "tokens": [1, 2]}],
        plan.TRANSFORMERS: [{"seconds": 0.1, "tokens": [1, 3]}],
    }
    plain = {plan.KWKER4: [{"seconds": 0.1, "tokens": [1, 2]}], plan.TRANSFORMERS: [{"seconds": 0.4, "tokens": [1, 2]}]}
    machine = {"cpu": "a CPU", "features": ["avx2"], "cpus": 2, "date": "2026-12-04", "versions": {"torch": "1"}}
    values = {"decode": decode, "open, plain": plain, "open, lookup": lookup}
    return {"machine": machine, "threads": 2, "stages": {report.LARGE: {"facts": {}, "values": values}}}


def test_ratios_are_formed_within_a_round() -> None:
    lines = {name: got for name, _, got in report.targets(results())}
    assert lines["int4 decoding, times llama.cpp Q4_0"] == "2.50 (2.00 to 3.00)"
    assert lines["int4 decoding, share of the read bandwidth"] == "0.85 (0.80 to 0.90)"


def test_what_was_not_measured_is_left_out() -> None:
    names = [name for name, _, _ in report.targets(results())]
    assert not any("prefill" in name for name in names)


def test_other_tokens_are_named() -> None:
    page = report.markdown(results())
    assert "20.0 (2.00x) |" in page
    assert "10.0 (4.00x), **other tokens** |" in page


def test_median() -> None:
    assert protocol.median([3, 1, 2]) == 2
    assert protocol.median([4, 1, 2, 3]) == 2.5


def test_every_case_names_engines_of_its_stage() -> None:
    for stage in plan.stages():
        labels = {engine.label for engine in stage.engines}
        for case in stage.cases:
            assert set(case.engines) <= labels
            assert case.prompt in plan.PROMPTS or case.prompt.isdigit()


def test_chart(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    import chart

    chart.draw(results(), tmp_path / "decode.png")
    assert (tmp_path / "decode.png").stat().st_size > 1000
