#!/usr/bin/env python3
"""A model writes text: plainly, with prompt lookup, with a draft. The tokens are the same each time, the speed is not.

Without arguments it takes SmolLM2-135M-Instruct from an installed package, so it needs no network.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import kwker
from kwker import KwkDecoder, cpu_backend
from kwker.hub import find_model

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

PLAIN = {"lookup": 0}
OPEN_QUESTION = "Why is the sky blue, and why is it red in the evening? Explain it to a curious child."
CODE_EDIT = '''Rename the variable `r` to `radius` in this program and change nothing else:

```python
import math

def circle_area(r):
    """The area of a circle."""
    return math.pi * r * r

def circle_length(r):
    """The length of the outline of a circle."""
    return 2 * math.pi * r

def sphere_area(r):
    """The area of the surface of a sphere."""
    return 4 * math.pi * r * r

def sphere_volume(r):
    """The volume of a sphere."""
    return 4 / 3 * math.pi * r ** 3
```'''


@dataclass(frozen=True)
class Result:
    """What a section measured; `plain_tokens_per_s` is None where the section itself was plain."""

    name: str
    tokens_per_s: float
    accepted: str
    plain_tokens_per_s: float | None
    equal: bool


class Demo:
    def __init__(self, console: Console, tokenizer: Any, max_new_tokens: int) -> None:
        self._console = console
        self._tokenizer = tokenizer
        self._max_new_tokens = max_new_tokens
        self.results: list[Result] = []

    def section(self, title: str, question: str, decoder: KwkDecoder, **how: Any) -> None:
        """Answers a question on the screen as it is written; then, if proposals helped, plainly to compare."""
        self._console.rule(f"[bold]{title}")
        self._print(question, "cyan")
        self._print("\n\n")
        prompt = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, return_dict=False
        )
        written = self._write(decoder, prompt, **how)
        stats = decoder.stats
        self._print("\n\n")
        self._console.print(
            f"[green]{stats.tokens} tokens, {stats.tokens_per_s:.1f} tokens/s[/], "
            f"{stats.steps} steps, first token after {stats.prefill_s * 1e3:.0f} ms\n"
        )
        accepted = f"{stats.accepted / stats.proposed:.0%} of {stats.proposed}" if stats.proposed else "-"
        plain, equal = None, True
        if how != PLAIN:
            with self._console.status("the same once more, plainly ..."):
                equal = list(decoder.stream(prompt, self._max_new_tokens, **PLAIN)) == written
            plain = decoder.stats.tokens_per_s
        self.results.append(Result(title, stats.tokens_per_s, accepted, plain, equal))

    def _write(self, decoder: KwkDecoder, prompt: list[int], **how: Any) -> list[int]:
        from tokenizers.decoders import DecodeStream

        decode, tokens = DecodeStream(ids=prompt, skip_special_tokens=True), []
        for token in decoder.stream(prompt, self._max_new_tokens, **how):
            tokens.append(token)
            self._print(decode.step(self._tokenizer.backend_tokenizer, token) or "")
        return tokens

    def _print(self, text: str, style: str | None = None) -> None:
        self._console.print(text, style=style, end="", markup=False, highlight=False, soft_wrap=True)

    def summary(self) -> bool:
        """Prints the table and returns whether all tokens were equal."""
        table = Table(title="Tokens per second")
        table.add_column("", no_wrap=True)
        for heading in ("", "plain", "speedup", "proposals accepted", "tokens"):
            table.add_column(heading, justify="right")
        for r in self.results:
            row = [r.name, f"{r.tokens_per_s:.1f}", "", "", r.accepted, ""]
            if r.plain_tokens_per_s:
                row[2] = f"{r.plain_tokens_per_s:.1f}"
                row[3] = f"{r.tokens_per_s / r.plain_tokens_per_s:.2f}x"
                row[5] = "equal" if r.equal else "[red]DIFFERENT"
            table.add_row(*row)
        self._console.print(table)
        equal = all(r.equal for r in self.results)
        self._console.print(
            "[bold green]Every text has exactly the tokens that plain decoding gives."
            if equal
            else "[bold red]Tokens differ from plain decoding: please report this as a bug."
        )
        return equal


@contextmanager
def loading(console: Console, title: str) -> Iterator[Callable[[int, int], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def load(console: Console, model: Path, precision: str) -> KwkDecoder:
    with loading(console, f"packing {model.name} in {precision}") as progress:
        return KwkDecoder(model, 2048, precision, progress=progress)


def default_model(console: Console) -> Path:
    from transformers.utils import logging

    import make_models

    logging.disable_progress_bar()
    with console.status("preparing SmolLM2-135M-Instruct (the first time only) ..."):
        return make_models.ensure("smol135")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model folder or a name on the Hub (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--draft", help="a smaller model with the same tokenizer (default: the model itself in int4)")
    parser.add_argument("--max-new-tokens", type=int, default=200)
    options = parser.parse_args()
    console = Console(soft_wrap=True)

    console.print(
        f"[bold]Kwker {kwker.__version__}[/], {cpu_backend.isa()}, {cpu_backend.num_threads()} threads, "
        f"memory read at {cpu_backend.read_bandwidth():.1f} GB/s\n"
    )
    model = find_model(options.model) if options.model else default_model(console)
    decoder = load(console, model, "bfloat16")
    small = load(console, model, "int4")
    # The same weights in fewer bits agree often enough for one proposal a step; a smaller model is cheaper to ask.
    draft, draft_tokens = (load(console, find_model(options.draft), "int4"), 4) if options.draft else (small, 1)
    with console.status("loading the tokenizer ..."):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(model)
    console.print()

    demo = Demo(console, tokenizer, options.max_new_tokens)
    start = time.perf_counter()
    demo.section("plain, bfloat16", OPEN_QUESTION, decoder, **PLAIN)
    demo.section("plain, int4", OPEN_QUESTION, small, **PLAIN)
    demo.section("prompt lookup, bfloat16", CODE_EDIT, decoder, lookup=8)
    demo.section("prompt lookup, int4", CODE_EDIT, small, lookup=8)
    demo.section("draft, bfloat16", OPEN_QUESTION, decoder, lookup=0, draft=draft, draft_tokens=draft_tokens)
    equal = demo.summary()
    console.print(f"{time.perf_counter() - start:.0f} s")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
