#!/usr/bin/env python3
"""How far a decoder's predictions are from those of the same weights in fp32 Transformers: mean KL divergence (nats)
and top-1 agreement over the positions of a text, beside Transformers' own bfloat16.

usage: quality.py MODEL [--text FILE.jsonl] [--tokens 4000] [--json]
The text is the prompts of FILE, as plain text, cut into chunks of at most 512 tokens.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from kwker.decode import KwkDecoder

CHUNK = 512
DEFAULT_TEXT = Path(__file__).resolve().parent.parent / "tests" / "data" / "spec_bench_sample.jsonl"


@dataclass
class Agreement:
    """Sums over positions of the divergence from the reference and of equal top-1 tokens."""

    name: str
    kl_sum: float = 0.0
    kl_square_sum: float = 0.0
    equal: int = 0
    positions: int = 0
    megabytes: float = field(default=0.0)

    def add(self, reference: torch.Tensor, logits: torch.Tensor) -> None:
        p, q = reference.double().log_softmax(-1), logits.double().log_softmax(-1)
        kl = (p.exp() * (p - q)).sum(-1)
        self.kl_sum += float(kl.sum())
        self.kl_square_sum += float(kl.square().sum())
        self.equal += int((reference.argmax(-1) == logits.argmax(-1)).sum())
        self.positions += len(kl)

    @property
    def kl(self) -> float:
        return self.kl_sum / self.positions

    @property
    def kl_error(self) -> float:
        """Standard error of the mean divergence."""
        variance = self.kl_square_sum / self.positions - self.kl**2
        return math.sqrt(max(variance, 0.0) / self.positions)

    @property
    def top1(self) -> float:
        return self.equal / self.positions


def chunks(text: Path, tokenizer: PreTrainedTokenizerBase, tokens: int) -> Iterator[list[int]]:
    """Token sequences of the prompts in the order of the file's categories in turn, `tokens` in all."""
    by_category: dict[str, list[str]] = {}
    for line in text.read_text().splitlines():
        record = json.loads(line)
        by_category.setdefault(record["category"], []).append(record["turns"][0])
    prompts = [p for group in zip(*(_cycled(v, 100) for v in by_category.values()), strict=True) for p in group]
    left = tokens
    for prompt in dict.fromkeys(prompts):
        ids = tokenizer(prompt)["input_ids"][: min(CHUNK, left)]
        if len(ids) > 1:
            yield ids
            left -= len(ids)
        if left <= 1:
            return


def _cycled(items: list[str], count: int) -> list[str]:
    return [items[i % len(items)] for i in range(count)]


def measure(folder: Path, text: Path, tokens: int) -> list[Agreement]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    half = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()

    def transformers_logits(model: torch.nn.Module) -> Callable[[list[int]], torch.Tensor]:
        return lambda ids: model(torch.tensor([ids])).logits[0].float()

    decoders = {p: KwkDecoder(folder, max_cache_len=CHUNK, precision=p) for p in ("bfloat16", "int4")}
    runs: list[tuple[Agreement, Callable[[list[int]], torch.Tensor]]] = [
        (Agreement("Transformers bfloat16"), transformers_logits(half)),
        *((Agreement(f"kwker {p}", megabytes=d.weight_bytes / 1e6), d.logits) for p, d in decoders.items()),
    ]
    with torch.inference_mode():
        for ids in chunks(text, tokenizer, tokens):
            expected = transformers_logits(reference)(ids)
            for agreement, logits in runs:
                agreement.add(expected, logits(ids))
    return [agreement for agreement, _ in runs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a Hugging Face folder")
    parser.add_argument("--text", type=Path, default=DEFAULT_TEXT)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = measure(arguments.model, arguments.text, arguments.tokens)
    if arguments.json:
        json.dump([asdict(r) | {"kl": r.kl, "kl_error": r.kl_error, "top1": r.top1} for r in results], sys.stdout)
        return
    print(f"{results[0].positions} positions against Transformers fp32")
    print(f"{'':24}{'KL divergence':>22}{'top-1 equal':>14}")
    for r in results:
        print(f"{r.name:24}{r.kl:>13.5f} ± {r.kl_error:.5f}{r.top1:>13.2%}")


if __name__ == "__main__":
    main()
