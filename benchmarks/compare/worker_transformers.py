"""Transformers in bfloat16: plain, prompt lookup and assisted generation."""

from __future__ import annotations

import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM, StoppingCriteria, StoppingCriteriaList

from protocol import serve


class _Clock(StoppingCriteria):
    """Never stops; notes when each step of `generate` ended and how long the text was then."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, int]] = []

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **kwargs: Any) -> torch.BoolTensor:
        self.steps.append((time.perf_counter(), input_ids.shape[1]))
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)  # type: ignore[return-value]


class Transformers:
    def load(self, model: str, threads: int, draft: str | None = None) -> dict[str, Any]:
        torch.set_num_threads(threads)
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
        self._draft = AutoModelForCausalLM.from_pretrained(draft, dtype=torch.bfloat16) if draft else None
        return {"attention": self._model.config._attn_implementation}

    def _generate(self, prompt: list[int], tokens: int, **options: Any) -> tuple[float, _Clock, list[int]]:
        clock = _Clock()
        ids = torch.tensor([prompt])
        start = time.perf_counter()
        with torch.inference_mode():
            text = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=tokens,
                min_new_tokens=tokens,
                do_sample=False,
                stopping_criteria=StoppingCriteriaList([clock]),
                **options,
            )
        return start, clock, text[0, len(prompt) :].tolist()

    def decode(self, prompt: list[int], tokens: int) -> dict[str, Any]:
        """Seconds per token of greedy decoding, between the first token and the last."""
        return self.generate(prompt, tokens, "plain")

    def prefill(self, prompt: list[int]) -> dict[str, float]:
        """Seconds until the first token after a prompt is there."""
        start, clock, _ = self._generate(prompt, 1)
        return {"seconds": clock.steps[0][0] - start}

    def generate(self, prompt: list[int], tokens: int, mode: str) -> dict[str, Any]:
        """Seconds per token of greedy decoding with `mode` "plain", "lookup" or "draft", and the tokens."""
        options: dict[str, Any] = {}
        if mode == "lookup":
            options["prompt_lookup_num_tokens"] = 8
        elif mode == "draft":
            options["assistant_model"] = self._draft
        _, clock, text = self._generate(prompt, tokens + 1, **options)
        (first, before), (last, after) = clock.steps[0], clock.steps[-1]
        return {"seconds": (last - first) / (after - before), "tokens": text}


if __name__ == "__main__":
    serve(Transformers())
