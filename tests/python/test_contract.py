"""The contract on a real model: the same logits, bit for bit, and the same tokens, however they are computed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

import kwker.cpu_backend as scb
from kwker.decode import KwkDecoder

PROMPTS = Path(__file__).resolve().parent.parent / "data" / "spec_bench_sample.jsonl"
# By default each prompt meets a few of the settings, all of them over all prompts; KWKER_FULL_TESTS=1 runs every pair.
FULL = os.environ.get("KWKER_FULL_TESTS") == "1"
PRECISIONS = ["bfloat16", "int4"]


@pytest.fixture(scope="module")
def tokenizer(smol135: Path) -> object:
    return AutoTokenizer.from_pretrained(smol135)


@pytest.fixture(scope="module")
def prompts(tokenizer: Callable[..., dict[str, list[int]]]) -> list[list[int]]:
    """Prompts of the categories that repeat their input most, as token ids, cut to 400."""
    records = [json.loads(line) for line in PROMPTS.read_text().splitlines()]
    chosen = [r["turns"][0] for r in records if r["category"] in ("coding", "summarization", "rag")]
    assert len(chosen) >= 15
    return [tokenizer(text)["input_ids"][-400:] for text in chosen]


@pytest.fixture(scope="module", params=PRECISIONS)
def decoder(request: pytest.FixtureRequest, smol135: Path) -> KwkDecoder:
    return KwkDecoder(smol135, max_cache_len=512, precision=request.param)


@pytest.fixture(scope="module")
def drafts(smol135: Path) -> dict[str, KwkDecoder]:
    config = LlamaConfig.from_pretrained(smol135)
    config.num_hidden_layers, config.hidden_size, config.intermediate_size = 1, 64, 128
    config.num_attention_heads = config.num_key_value_heads = 2
    config.head_dim = 32
    torch.manual_seed(0)
    stranger = LlamaForCausalLM(config)
    return {
        "bfloat16": KwkDecoder(smol135, max_cache_len=512, precision="bfloat16"),
        "int4": KwkDecoder(smol135, max_cache_len=512, precision="int4"),
        "random": KwkDecoder(stranger, max_cache_len=512, precision="int4"),
    }


def bits(logits: torch.Tensor) -> torch.Tensor:
    return logits.view(torch.int32)


def test_same_bits_for_any_chunk(decoder: KwkDecoder, prompts: list[list[int]]) -> None:
    ids = prompts[0][:100]
    reference = bits(decoder.logits(ids))
    for chunk in (1, 2, 3, 7, 8, 9, 16, 17, 64, len(ids)):
        assert torch.equal(bits(decoder.logits(ids, chunk=chunk)), reference), chunk


def test_same_bits_for_any_number_of_threads(decoder: KwkDecoder, prompts: list[list[int]]) -> None:
    ids = prompts[1][:60]
    reference = bits(decoder.logits(ids))
    before = scb.num_threads()
    try:
        for threads in (1, 2, 3):
            scb.set_num_threads(threads)
            for chunk in (1, 9, 60):
                assert torch.equal(bits(decoder.logits(ids, chunk=chunk)), reference), (threads, chunk)
    finally:
        scb.set_num_threads(before)


@pytest.mark.parametrize("level", ["portable", "avx2", "avx512", "amx"])
def test_same_bits_on_any_level(decoder: KwkDecoder, prompts: list[list[int]], level: str) -> None:
    if level not in scb.isa_levels():
        pytest.skip(f"this machine has no {level}")
    count = 8 if level == "portable" else 80  # plain C++ takes a second a token
    ids = prompts[2][:count]
    reference = bits(decoder.logits(ids))
    with scb.use_isa(level):
        assert scb.isa() == level
        for chunk in (5,) if level == "portable" else (1, 9, 64):
            assert torch.equal(bits(decoder.logits(ids, chunk=chunk)), reference), chunk


def settings(drafts: dict[str, KwkDecoder], target: KwkDecoder) -> Iterator[dict[str, object]]:
    for lookup in range(1, 17):
        yield {"lookup": lookup}
    for name, draft in (*drafts.items(), ("itself", target)):
        for lookup, tokens in ((0, 4), (0, 3), (8, 6), (0, 16)):
            if name != "random" or tokens > 3:
                yield {"lookup": lookup, "draft": draft, "draft_tokens": tokens}


def test_lookup_and_drafts_change_no_token(
    decoder: KwkDecoder, drafts: dict[str, KwkDecoder], prompts: list[list[int]]
) -> None:
    everything = list(settings(drafts, decoder))
    used, proposed, accepted = set(), 0, 0
    for number, prompt in enumerate(prompts):
        plain = decoder.generate(prompt, max_new_tokens=40, lookup=0)
        for index, setting in enumerate(everything):
            if not FULL and (index + number) % 7 != 0:
                continue
            text = decoder.generate(prompt, max_new_tokens=40, **setting)
            assert torch.equal(text, plain), (number, setting)
            used.add(index)
            proposed += decoder.stats.proposed
            accepted += decoder.stats.accepted
    assert used == set(range(len(everything)))
    assert 0 < accepted < proposed


def test_long_prompts_with_a_draft_of_three(smol135: Path, prompts: list[list[int]]) -> None:
    text = [token for prompt in prompts for token in prompt]
    target = KwkDecoder(smol135, max_cache_len=2048 + 256, precision="int4")
    draft = KwkDecoder(smol135, max_cache_len=2048 + 256, precision="int4")
    for length in (512, 2048):
        prompt = text[:length]
        plain = target.generate(prompt, max_new_tokens=256, lookup=0, eos_token_id=None)
        assert plain.shape == (1, length + 256)
        fast = target.generate(prompt, max_new_tokens=256, lookup=0, draft=draft, draft_tokens=3, eos_token_id=None)
        assert torch.equal(fast, plain)
        assert target.stats.accepted == target.stats.proposed > 0


def test_the_cached_prefix_changes_nothing(smol135: Path, prompts: list[list[int]]) -> None:
    cached = KwkDecoder(smol135, max_cache_len=512, precision="int4")
    fresh = KwkDecoder(smol135, max_cache_len=512, precision="int4", prefix_cache=False)
    for prompt in prompts[:4]:
        expected = fresh.generate(prompt, max_new_tokens=24)
        for repeat in range(3):
            assert torch.equal(cached.generate(prompt, max_new_tokens=24), expected)
            if repeat:
                assert cached.stats.cached == len(prompt) - 1
        # A text that shares half of the prompt, and then the prompt again.
        other = prompt[: len(prompt) // 2] + prompts[5][:20]
        assert torch.equal(cached.generate(other, max_new_tokens=8), fresh.generate(other, max_new_tokens=8))
        assert torch.equal(cached.generate(prompt, max_new_tokens=24), expected)
