"""What is measured: the engines, the cases, and the prompts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Engine:
    """One worker process: an engine with a model in one precision."""

    label: str
    script: str
    load: dict[str, Any]  #: Arguments of the worker's `load`; {model}, {bf16}, {q4_0} and {draft} stand for paths.
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One thing to measure, on those engines of a stage that are named, in this order."""

    name: str
    method: str
    engines: tuple[str, ...]
    prompt: str  #: A key of PROMPTS, or the number of tokens to take of the long text.
    arguments: dict[str, Any] = field(default_factory=dict)
    rounds: int | None = None  #: At most so many.


@dataclass(frozen=True)
class Stage:
    """A model, and what is loaded together and measured in turn."""

    model: str
    engines: tuple[Engine, ...]
    cases: tuple[Case, ...]


KWKER4, KWKER16, AVX2 = "Kwker int4", "Kwker bf16", "Kwker int4, AVX2"
LLAMA4, LLAMA16 = "llama.cpp Q4_0", "llama.cpp bf16"
OPENVINO, TRANSFORMERS = "OpenVINO GenAI Q4_0", "Transformers bf16"

_CONTEXT = 1024
_LONG = 4096
_ROWS = [1, 2, 4, 9, 16]


def _kwker(label: str, precision: str, context: int, **more: Any) -> Engine:
    """`more`: `draft`, the path of a draft model; `isa`, the highest level that may be used."""
    environment = {"KWKER_MAX_ISA": more.pop("isa")} if "isa" in more else {}
    load = {"model": "{model}", "precision": precision, "context": context, **more}
    return Engine(label, "worker_kwker.py", load, environment)


def _llama(label: str, path: str, context: int) -> Engine:
    return Engine(label, "worker_llama_cpp.py", {"model": path, "context": context, "flash_attention": True})


def stages() -> tuple[Stage, ...]:
    """The whole comparison."""
    drafted = {"draft": "{draft}"}
    large = Stage(
        "target1700",
        (
            _kwker(KWKER4, "int4", _CONTEXT, **drafted),
            _llama(LLAMA4, "{q4_0}", _CONTEXT),
            Engine(OPENVINO, "worker_openvino.py", {"model": "{q4_0}"}),
            _kwker(KWKER16, "bf16", _LONG + 64, **drafted),
            _llama(LLAMA16, "{bf16}", _CONTEXT),
            Engine(TRANSFORMERS, "worker_transformers.py", {"model": "{model}", **drafted}),
            _kwker(AVX2, "int4", _CONTEXT, isa="avx2"),
        ),
        (
            Case(
                "decode",
                "decode",
                (KWKER4, LLAMA4, OPENVINO, KWKER16, LLAMA16, TRANSFORMERS, AVX2),
                "64",
                {"tokens": 32},
            ),
            Case("rows", "steps", (KWKER4, LLAMA4, KWKER16, LLAMA16), "64", {"rows": _ROWS, "repeats": 5}),
            Case("rows", "steps", (AVX2,), "64", {"rows": [1, 4], "repeats": 5}),
            Case("prefill", "prefill", (KWKER4, LLAMA4, OPENVINO, KWKER16, LLAMA16, TRANSFORMERS), "512"),
            Case("cache 64", "decode", (KWKER16,), "64", {"tokens": 16}),
            Case("cache 4096", "decode", (KWKER16,), "4096", {"tokens": 16}),
            *(
                Case(f"{text}, {mode}", "generate", engines, text, {"tokens": 64, "mode": mode}, rounds=1)
                for text in ("code edit", "summary", "open")
                for mode in ("plain", "lookup", "draft")
                for engines in [(KWKER4, KWKER16, TRANSFORMERS)]
            ),
        ),
    )
    small = Stage(
        "smol135",
        (
            _kwker(KWKER4, "int4", _CONTEXT),
            _llama(LLAMA4, "{q4_0}", _CONTEXT),
            Engine(OPENVINO, "worker_openvino.py", {"model": "{q4_0}"}),
        ),
        tuple(
            Case(f"context {length}", "decode", (KWKER4, LLAMA4, OPENVINO), length, {"tokens": 32})
            for length in ("40", "183", "926")
        ),
    )
    return large, small


CODE = '''def total_price(items, tax_rate):
    """Sum the prices of the items and add tax."""
    total = 0
    for item in items:
        if item.quantity > 0:
            total += item.price * item.quantity
    return total * (1 + tax_rate)


def print_receipt(items, tax_rate):
    """Print one line per item and the total."""
    for item in items:
        print(item.name, item.quantity, item.price * item.quantity)
    print("Total:", total_price(items, tax_rate))
'''

ARTICLE = """\
The harbour of the old town was rebuilt last year after a storm had destroyed two of its three piers. The city
council chose a design with wider piers, which are made of concrete instead of wood, and with a breakwater that
is forty metres longer than before. Fishermen had asked for more room to unload their boats, and the ferry
company for a place to turn. The work took eleven months and cost nine million, a fifth more than planned,
because the ground was softer than the survey had shown. Since the harbour was opened again in May, the number
of ferry passengers has grown by a third, and the fish market, which had moved to the next town, has come back.
Some residents complain about the noise of the trucks in the early morning. The council has promised to build a
second road to the harbour within two years."""

#: Instructions; the chat template is put around them.
PROMPTS = {
    "code edit": f"Repeat this code, but rename the variable total to amount:\n\n{CODE}",
    "summary": f"Summarise this text, quoting its most important sentences:\n\n{ARTICLE}",
    "open": "Write a short story about a lighthouse keeper who finds a letter in a bottle.",
}
