"""Kwker."""

from __future__ import annotations

import time
from typing import Any

from kwker import KwkDecoder, cpu_backend
from protocol import median, serve

_PROBE_MEGABYTES = 512


class Kwker:
    def load(self, model: str, precision: str, context: int, threads: int, draft: str | None = None) -> dict[str, Any]:
        cpu_backend.set_num_threads(threads)
        precision = {"int4": "int4", "bf16": "bfloat16"}[precision]
        self._decoder = KwkDecoder(model, context, precision, prefix_cache=False)
        self._draft = KwkDecoder(draft, context, "int4") if draft else None
        return {"weight_bytes": self._decoder.weight_bytes, "isa": cpu_backend.isa()}

    def probe(self) -> dict[str, float]:
        """Bytes a second that the machine reads."""
        return {"bytes_per_s": cpu_backend.read_bandwidth(_PROBE_MEGABYTES) * 1e9}

    def decode(self, prompt: list[int], tokens: int) -> dict[str, Any]:
        """Seconds per token of greedy decoding, between the first token and the last, and the bandwidth beside it."""
        read = self.probe()["bytes_per_s"]
        text = list(self._decoder.stream(prompt, tokens + 1, lookup=0, eos_token_id=None))
        stats = self._decoder.stats
        seconds = stats.decode_s / tokens
        return {"seconds": seconds, "share": self._decoder.weight_bytes / seconds / read, "tokens": text}

    def prefill(self, prompt: list[int]) -> dict[str, float]:
        """Seconds until the logits of the last token of a prompt are there."""
        list(self._decoder.stream(prompt, 1, lookup=0, eos_token_id=None))
        return {"seconds": self._decoder.stats.prefill_s}

    def steps(self, prompt: list[int], rows: list[int], repeats: int) -> dict[str, float]:
        """Median seconds of a step of each number of rows after the prompt, in turn; every row gets its logits."""
        core = self._decoder._core
        core.logits(prompt, 0)
        seconds: dict[int, list[float]] = {m: [] for m in rows}
        for _ in range(repeats):
            for m in rows:
                start = time.perf_counter()
                core.step(prompt[:m], len(prompt))
                seconds[m].append(time.perf_counter() - start)
        return {str(m): median(values) for m, values in seconds.items()}

    def generate(self, prompt: list[int], tokens: int, mode: str) -> dict[str, Any]:
        """Seconds per token of greedy decoding with `mode` "plain", "lookup" or "draft", and the tokens."""
        lookup, draft = (8 if mode == "lookup" else 0), (self._draft if mode == "draft" else None)
        text = list(self._decoder.stream(prompt, tokens + 1, lookup=lookup, draft=draft, eos_token_id=None))
        stats = self._decoder.stats
        accepted = stats.accepted / stats.proposed if stats.proposed else 0.0
        return {"seconds": stats.decode_s / tokens, "tokens": text, "accepted": accepted}


if __name__ == "__main__":
    serve(Kwker())
