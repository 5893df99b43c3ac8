"""OpenVINO GenAI, which reads GGUF files itself."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai

from protocol import serve


class OpenVino:
    def load(self, model: str, threads: int) -> dict[str, Any]:
        self._pipeline = genai.LLMPipeline(model, "CPU", INFERENCE_NUM_THREADS=threads)
        return {}

    def _times(self, prompt: list[int], tokens: int) -> tuple[float, list[float]]:
        """When generation began and when each of `tokens` tokens came."""
        config = genai.GenerationConfig(max_new_tokens=tokens, ignore_eos=True, do_sample=False)
        times: list[float] = []

        class Clock(genai.StreamerBase):  # type: ignore[misc]
            def write(self, token: int | list[int]) -> Any:
                times.append(time.perf_counter())
                return genai.StreamingStatus.RUNNING

            def end(self) -> None:
                pass

        start = time.perf_counter()
        self._pipeline.generate(ov.Tensor(np.array([prompt], dtype=np.int64)), config, Clock())
        return start, times

    def decode(self, prompt: list[int], tokens: int) -> dict[str, Any]:
        """Seconds per token of greedy decoding, between the first token and the last."""
        _, times = self._times(prompt, tokens + 1)
        return {"seconds": (times[-1] - times[0]) / (len(times) - 1)}

    def prefill(self, prompt: list[int]) -> dict[str, float]:
        """Seconds until the first token after a prompt is there."""
        start, times = self._times(prompt, 1)
        return {"seconds": times[0] - start}


if __name__ == "__main__":
    serve(OpenVino())
