#!/usr/bin/env python3
"""Measures Kwker and other engines in turn, on the same models and prompts, and writes what came out.

    compare.py [--rounds N] [--engines PATTERN] [--cases PATTERN] [--models PATTERN] [--out FOLDER]

In every round each case runs once on each of its engines, one after the other; ratios are formed within a round, so
that a machine whose speed changes disturbs them little. OUT gets results.json, README.md and decode.png.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

import gguf_export
import plan
import report
from protocol import HERE, Worker

ROOT = HERE.parents[1]
LOGS = ROOT / "build" / "logs"


def text_tokens(tokenizer: Any, prompt: str, round_index: int) -> list[int]:
    """The tokens of a prompt of plan.PROMPTS in the chat template, or that many of a text long enough. The text starts
    elsewhere in each round: an engine that keeps prompts would have nothing left to do."""
    if prompt in plan.PROMPTS:
        messages = [{"role": "user", "content": plan.PROMPTS[prompt]}]
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return list(tokenizer(text)["input_ids"])
    count = int(prompt)
    tokens: list[int] = []
    while len(tokens) < round_index + count:
        tokens += tokenizer(plan.ARTICLE + "\n\n" + plan.CODE)["input_ids"]
    return tokens[round_index : round_index + count]


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    flags = Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*:\s*(.*)", flags)
    packages = ("llama-cpp-python", "openvino-genai", "transformers", "torch")
    return {
        "cpu": model.group(1) if model else platform.processor(),
        "features": [name for name in ("avx2", "avx512_vnni", "amx_int8") if name in flags],
        "cpus": len(os.sched_getaffinity(0)),
        "date": date.today().isoformat(),
        "versions": {name: version(name) for name in packages},
    }


class Run:
    """A stage under way: its workers and what they measured."""

    def __init__(self, stage: plan.Stage, options: argparse.Namespace) -> None:
        self._stage = stage
        self._options = options
        self._tokenizer = AutoTokenizer.from_pretrained(options.model_root / stage.model)
        self._workers: dict[str, Worker] = {}
        self.facts: dict[str, Any] = {}
        #: values[case][engine] has what the worker returned, one entry a round.
        self.values: dict[str, dict[str, list[Any]]] = {}

    def start(self) -> None:
        folder = self._options.model_root / self._stage.model
        files = gguf_export.ensure(folder, self._options.threads)
        paths = {"model": folder, "draft": self._options.model_root / "smol135", **files}
        LOGS.mkdir(parents=True, exist_ok=True)
        for engine in self._stage.engines:
            if not self._options.engines.search(engine.label):
                continue
            _say(f"{self._stage.model}: loading {engine.label}")
            log = LOGS / f"compare-{re.sub('[^a-z0-9]+', '-', engine.label.lower())}.log"
            worker = Worker(engine.script, sys.executable, engine.environment, log)
            load = {k: v.format_map(paths) if isinstance(v, str) else v for k, v in engine.load.items()}
            self.facts[engine.label] = worker.call("load", threads=self._options.threads, **load)
            self._workers[engine.label] = worker

    def round(self, index: int) -> None:
        for case in self._stage.cases:
            if not self._options.cases.search(case.name) or index >= (case.rounds or index + 1):
                continue
            prompt = text_tokens(self._tokenizer, case.prompt, index)
            for label in case.engines:
                if label in self._workers:
                    start = time.perf_counter()
                    value = self._workers[label].call(case.method, prompt=prompt, **case.arguments)
                    self.values.setdefault(case.name, {}).setdefault(label, []).append(value)
                    took = time.perf_counter() - start
                    short = {k: v for k, v in value.items() if k != "tokens"}
                    _say(f"  round {index + 1}, {case.name}, {label}: {short} ({took:.1f} s)")

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engines", type=re.compile, default=re.compile(""), help="only labels that match")
    parser.add_argument("--cases", type=re.compile, default=re.compile(""), help="only names that match")
    parser.add_argument("--models", type=re.compile, default=re.compile(""), help="only models that match")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--model-root", type=Path, default=ROOT / ".models")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks")
    options = parser.parse_args()
    results: dict[str, Any] = {"machine": machine(), "threads": options.threads, "stages": {}}
    for stage in plan.stages():
        if not options.models.search(stage.model):
            continue
        run = Run(stage, options)
        run.start()
        for index in range(options.rounds):
            run.round(index)
        run.close()
        results["stages"][stage.model] = {"facts": run.facts, "values": run.values}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    report.write(results, options.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
