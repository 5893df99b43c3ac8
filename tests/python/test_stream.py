"""Streams: the tokens of generate, one by one, and who may use the decoder meanwhile."""

from __future__ import annotations

import gc

import pytest
import torch

import kwker
from kwker import KwkDecoder

PROMPT = [1, 5, 7, 9]


@pytest.mark.parametrize("lookup", [0, 8])
def test_a_stream_gives_what_generate_returns(decoder: KwkDecoder, lookup: int) -> None:
    expected = decoder.generate(PROMPT, 30, eos_token_id=None)[0, 4:].tolist()
    tokens = list(decoder.stream(PROMPT, 30, lookup=lookup, eos_token_id=None))
    assert tokens == expected
    assert all(type(token) is int for token in tokens)
    assert decoder.stats.tokens == 30
    assert decoder.stats.finish_reason == "length"


def test_an_empty_stream(decoder: KwkDecoder) -> None:
    assert list(decoder.stream(PROMPT, 0)) == []
    assert decoder.generate(PROMPT, 1).shape == (1, 5)


def test_arguments_are_checked_at_once(decoder: KwkDecoder) -> None:
    with pytest.raises(ValueError, match="empty"):
        decoder.stream([], 4)


def test_an_open_stream_occupies_the_decoder(decoder: KwkDecoder) -> None:
    stream = decoder.stream(PROMPT, 30, lookup=0, eos_token_id=None)
    for _ in range(2):  # before its first token and after
        for call in (
            lambda: decoder.generate(PROMPT, 2),
            lambda: decoder.stream(PROMPT, 2),
            lambda: decoder.logits([1]),
        ):
            with pytest.raises(kwker.Error, match="busy with an open stream"):
                call()
        next(stream)
    stream.close()
    assert list(stream) == []
    assert decoder.stats.tokens == 2
    assert decoder.stats.finish_reason is None
    assert decoder.generate(PROMPT, 2).shape == (1, 6)


def test_dropping_a_stream_frees_the_decoder(decoder: KwkDecoder) -> None:
    expected = decoder.generate(PROMPT, 8)
    for started in (False, True):
        stream = decoder.stream(PROMPT, 30)
        if started:
            next(stream)
        del stream
        gc.collect()
        assert torch.equal(decoder.generate(PROMPT, 8), expected)


def test_the_end_of_the_text_frees_the_decoder(decoder: KwkDecoder) -> None:
    stream = decoder.stream(PROMPT, 5)
    tokens = [next(stream) for _ in range(5)]
    assert decoder.generate(PROMPT, 5)[0, 4:].tolist() == tokens
    assert list(stream) == []


def test_a_stream_as_a_context(decoder: KwkDecoder) -> None:
    with decoder.stream(PROMPT, 30) as stream:
        next(stream)
    assert list(stream) == []
    assert decoder.generate(PROMPT, 1).shape == (1, 5)


def test_a_streaming_decoder_may_be_a_draft(decoder: KwkDecoder, tiny_model: torch.nn.Module) -> None:
    other = KwkDecoder(tiny_model, 64, "int4")
    expected = decoder.generate(PROMPT, 20, eos_token_id=None)
    streamed = list(other.stream(PROMPT, 20, eos_token_id=None))
    found = []
    for token in other.stream(PROMPT, 20, lookup=0, eos_token_id=None):
        found.append(token)
        assert torch.equal(decoder.generate(PROMPT, 20, draft=other, eos_token_id=None), expected)
    assert found == streamed


def test_a_stream_outlives_its_decoder(tiny_model: torch.nn.Module) -> None:
    stream = KwkDecoder(tiny_model, 64).stream(PROMPT, 10, eos_token_id=None)
    gc.collect()
    assert len(list(stream)) == 10
