"""KwkDecoder: a packed copy of a model that generates text on the CPU."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kwker import _core, _hf_model
from kwker._arguments import count, eos_list, token_list
from kwker.stats import GenerateStats, ProposerStats
from kwker.stream import TokenStream

if TYPE_CHECKING:
    import torch

    from kwker._arguments import EosTokenId, InputIds

__all__ = ["GenerateStats", "KwkDecoder", "ProposerStats", "TokenStream", "runner_unsupported"]

_MAX_PROPOSED = 64  # a step of more rows than this costs more than any text gains


def runner_unsupported(model: Any, max_cache_len: int) -> str | None:
    """None if KwkDecoder can run `model` (a Hugging Face model object, or the path of a model folder) with a cache of
    `max_cache_len` positions; else the reason, in one sentence."""
    try:
        count("max_cache_len", max_cache_len, minimum=1)
    except (TypeError, ValueError) as error:
        return str(error)
    if isinstance(model, (str, os.PathLike)):
        return _hf_model.unsupported_folder(Path(model))
    return _hf_model.unsupported_object(model)


class KwkDecoder:
    """Generates text with a model whose weights it copies once and packs; the model may be deleted afterwards.

    `model` is a Hugging Face model object or the path of a folder with config.json and safetensors. Calls from several
    threads take turns. Whatever makes generation faster (`lookup`, `draft`, threads, the prefix cache) never changes
    the tokens.
    """

    def __init__(
        self,
        model: Any,
        max_cache_len: int = 2048,
        precision: str = "bfloat16",
        *,
        max_batch: int = 1,
        group_size: int = 32,
        num_threads: int | None = None,
        prefix_cache: bool = True,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        """`max_cache_len` is the longest text, prompt included; `precision` is "int4" or "bfloat16"; `group_size` (32,
        64, 128) is how many int4 weights share a scale; `num_threads` defaults to `cpu_backend.num_threads()`;
        `prefix_cache` lets a prompt that starts like the last text reuse what was computed for it; `progress(done,
        total)` is called while the weights are packed.

        Raises ValueError with the reason of `runner_unsupported` if the model cannot run, and for wrong arguments;
        kwker.Error for files that are missing or damaged.
        """
        options: dict[str, Any] = {
            "precision": precision,
            "max_cache_len": count("max_cache_len", max_cache_len, minimum=1),
            "max_batch": count("max_batch", max_batch, minimum=1),
            "group_size": count("group_size", group_size, minimum=1),
            "num_threads": 0 if num_threads is None else count("num_threads", num_threads, minimum=1, maximum=1024),
            "prefix_cache": bool(prefix_cache),
            "progress": progress,
        }
        if isinstance(model, (str, os.PathLike)):
            self._core = _core.Decoder.from_folder(os.fspath(model), **options)
        else:
            reason = runner_unsupported(model, max_cache_len)
            if reason is not None:
                raise ValueError(reason)
            configs, weights = _hf_model.object_configs(model), _hf_model.weights(model)
            self._core = _core.Decoder.from_tensors(*configs, weights, **options)
        self._lock = threading.Lock()  # held while the decoder works
        self._stream: weakref.ref[TokenStream] | None = None  # the last one, which may be open
        self._stats = GenerateStats()

    @property
    def config(self) -> _core.ModelConfig:
        """The shape of the model."""
        return self._core.config

    @property
    def max_cache_len(self) -> int:
        return self._core.max_cache_len

    @property
    def max_batch(self) -> int:
        return self._core.max_batch

    @property
    def precision(self) -> str:
        return self._core.precision

    @property
    def memory_bytes(self) -> int:
        """Bytes of the packed weights and the cache."""
        return self._core.memory_bytes

    @property
    def weight_bytes(self) -> int:
        """Bytes of the packed weights."""
        return self._core.weight_bytes

    @property
    def stats(self) -> GenerateStats:
        """Statistics of the last call of `generate` or `stream`."""
        return self._stats

    def generate(
        self,
        input_ids: InputIds,
        max_new_tokens: int | None = None,
        *,
        lookup: int = 8,
        draft: KwkDecoder | None = None,
        draft_tokens: int = 4,
        eos_token_id: EosTokenId = ...,
    ) -> torch.Tensor:
        """The prompt and the text after it, a LongTensor [1, prompt + new].

        `input_ids` is a LongTensor [T] or [1, T] or a list of ints. The text ends after `max_new_tokens`, with the
        cache full, or with a token of `eos_token_id` (an int or a list; None for none; left out, the model's own).
        `lookup` is the most tokens that prompt lookup proposes per step, `draft` a decoder of a smaller model with the
        same tokenizer, which proposes up to `draft_tokens`.
        """
        import torch

        with self._lock:
            generation = self._start(input_ids, max_new_tokens, lookup, draft, draft_tokens, eos_token_id)
            while not generation.done:
                generation.advance()  # between steps Python handles signals, an interrupt for one
            self._stats = GenerateStats.from_core(generation.stats)
        return torch.tensor([generation.tokens], dtype=torch.long)

    def stream(
        self,
        input_ids: InputIds,
        max_new_tokens: int | None = None,
        *,
        lookup: int = 8,
        draft: KwkDecoder | None = None,
        draft_tokens: int = 4,
        eos_token_id: EosTokenId = ...,
    ) -> TokenStream:
        """An iterator over the new tokens, each as soon as it is known; the arguments are those of `generate`.

        Until it ends, is closed or dropped, it occupies the decoder: other calls raise kwker.Error.
        """
        with self._lock:
            generation = self._start(input_ids, max_new_tokens, lookup, draft, draft_tokens, eos_token_id)
            stream = TokenStream(generation, self._locked_advance)
            self._stream = weakref.ref(stream)
        return stream

    def logits(self, input_ids: InputIds, chunk: int | None = None) -> torch.Tensor:
        """The logits of every position, a FloatTensor [T, vocab]; `chunk` rows per step give the same bits for any
        chunk."""
        import torch

        rows = 0 if chunk is None else count("chunk", chunk, minimum=1)
        tokens = token_list(input_ids, self.config.vocab_size)
        with self._lock:
            self._check_free()
            return torch.from_numpy(self._core.logits(tokens, rows))

    def _start(
        self,
        input_ids: InputIds,
        max_new_tokens: int | None,
        lookup: int,
        draft: KwkDecoder | None,
        draft_tokens: int,
        eos_token_id: EosTokenId,
    ) -> _core.Generation:
        """A generation on this decoder, whose lock the caller holds."""
        self._check_free()
        if draft is not None and not isinstance(draft, KwkDecoder):
            raise TypeError(f"draft must be a KwkDecoder or None, got {type(draft).__name__}")
        generation = _core.Generation(
            self._core,
            token_list(input_ids, self.config.vocab_size),
            max_new_tokens=None if max_new_tokens is None else count("max_new_tokens", max_new_tokens, minimum=0),
            lookup=count("lookup", lookup, minimum=0, maximum=_MAX_PROPOSED),
            draft=None if draft is None else draft._core,
            draft_tokens=count("draft_tokens", draft_tokens, minimum=0, maximum=_MAX_PROPOSED),
            eos_token_ids=eos_list(eos_token_id),
        )
        self._stats = GenerateStats.from_core(generation.stats)
        return generation

    def _check_free(self) -> None:
        stream = None if self._stream is None else self._stream()
        if stream is not None and stream.open:
            raise _core.Error("the decoder is busy with an open stream; close it or use another decoder")

    def _locked_advance(self, generation: _core.Generation) -> list[int]:
        with self._lock:
            tokens = generation.advance()
            self._stats = GenerateStats.from_core(generation.stats)
            return tokens
