"""llama.cpp through llama-cpp-python's low-level interface: llama_decode is what is timed."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import llama_cpp
import numpy as np

from protocol import median, serve

_BATCH = 512


class LlamaCpp:
    def load(self, model: str, context: int, threads: int, flash_attention: bool) -> dict[str, Any]:
        llama_cpp.llama_backend_init()
        parameters = llama_cpp.llama_model_default_params()
        self._model = llama_cpp.llama_model_load_from_file(model.encode(), parameters)
        options = llama_cpp.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch = context, _BATCH, _BATCH
        options.n_threads = options.n_threads_batch = threads
        options.flash_attn_type = int(flash_attention)
        options.no_perf = True
        self._context = llama_cpp.llama_init_from_model(self._model, options)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._batch = llama_cpp.llama_batch_init(_BATCH, 0, 1)
        return {"system": llama_cpp.llama_print_system_info().decode()}

    def _decode(self, tokens: list[int], position: int, all_logits: bool = False) -> None:
        for i, token in enumerate(tokens):
            self._batch.token[i] = token
            self._batch.pos[i] = position + i
            self._batch.n_seq_id[i] = 1
            self._batch.seq_id[i][0] = 0
            self._batch.logits[i] = all_logits or i == len(tokens) - 1
        self._batch.n_tokens = len(tokens)
        code = llama_cpp.llama_decode(self._context, self._batch)
        if code != 0:
            raise RuntimeError(f"llama_decode gave {code}")

    def _truncate(self, length: int) -> None:
        llama_cpp.llama_memory_seq_rm(self._memory, 0, length, -1)

    def _feed(self, prompt: list[int]) -> None:
        self._truncate(0)
        for start in range(0, len(prompt), _BATCH):
            self._decode(prompt[start : start + _BATCH], start)

    def _best(self) -> int:
        logits = llama_cpp.llama_get_logits_ith(self._context, -1)
        return int(
            np.ctypeslib.as_array(ctypes.cast(logits, ctypes.POINTER(ctypes.c_float)), (self._vocab_size,)).argmax()
        )

    def decode(self, prompt: list[int], tokens: int) -> dict[str, Any]:
        """Seconds per token of greedy decoding, between the first token and the last."""
        self._feed(prompt)
        text = [self._best()]
        start = time.perf_counter()
        for i in range(tokens):
            self._decode(text[-1:], len(prompt) + i)
            text.append(self._best())
        return {"seconds": (time.perf_counter() - start) / tokens, "tokens": text}

    def prefill(self, prompt: list[int]) -> dict[str, float]:
        """Seconds until the logits of the last token of a prompt are there."""
        self._truncate(0)
        start = time.perf_counter()
        self._feed(prompt)
        self._best()
        return {"seconds": time.perf_counter() - start}

    def steps(self, prompt: list[int], rows: list[int], repeats: int) -> dict[str, float]:
        """Median seconds of a step of each number of rows after the prompt, in turn; every row gets its logits."""
        self._feed(prompt)
        seconds: dict[int, list[float]] = {m: [] for m in rows}
        for _ in range(repeats):
            for m in rows:
                self._truncate(len(prompt))
                start = time.perf_counter()
                self._decode(prompt[:m], len(prompt), all_logits=True)
                self._best()
                seconds[m].append(time.perf_counter() - start)
        return {str(m): median(values) for m, values in seconds.items()}


if __name__ == "__main__":
    serve(LlamaCpp())
