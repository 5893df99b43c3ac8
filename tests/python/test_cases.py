"""What users of other engines met, each as a test of its kind. The docstrings name the reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM, MistralConfig, MistralForCausalLM

import kwker.cpu_backend as scb
from kwker.decode import KwkDecoder
from tiny import SHAPE, tiny_llama

PRECISIONS = ["bfloat16", "int4"]
COPY = [5, 17, 40, 8, 99, 3, 61] * 4  # prompt lookup finds something in it at every step


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Steps of models this small cost less than waking a thread on a busy machine."""
    before = scb.num_threads()
    scb.set_num_threads(1)
    yield
    scb.set_num_threads(before)


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    # Small weights: a text that repeats itself, so that proposals are accepted as well as rejected.
    return tiny_llama(seed=3, scale=2.0)


@pytest.fixture(scope="module", params=PRECISIONS)
def target(request: pytest.FixtureRequest, model: LlamaForCausalLM) -> KwkDecoder:
    return KwkDecoder(model, max_cache_len=256, precision=request.param)


@pytest.fixture(scope="module")
def near(model: LlamaForCausalLM) -> KwkDecoder:
    """A draft that is often right: the same weights with noise."""
    noisy = LlamaForCausalLM(model.config)
    noisy.load_state_dict(model.state_dict())
    torch.manual_seed(4)
    with torch.no_grad():
        for parameter in noisy.parameters():
            parameter.add_(0.15 * parameter.std() * torch.randn_like(parameter))
    return KwkDecoder(noisy, max_cache_len=256)


@pytest.fixture(scope="module")
def stranger() -> KwkDecoder:
    """A draft that is never right but by chance."""
    return KwkDecoder(tiny_llama(seed=9, num_hidden_layers=1), max_cache_len=256)


def new_tokens(decoder: KwkDecoder, prompt: list[int], count: int, **how: Any) -> list[int]:
    how.setdefault("eos_token_id", None)
    return decoder.generate(prompt, max_new_tokens=count, **how)[0, len(prompt) :].tolist()


def plain(decoder: KwkDecoder, prompt: list[int], count: int, **how: Any) -> list[int]:
    return new_tokens(decoder, prompt, count, lookup=0, **how)


def ways(*drafts: KwkDecoder, lengths: tuple[int, ...] = (1, 4, 9)) -> list[dict[str, Any]]:
    """Lookup, each draft and both, with each number of proposals."""
    return [
        {"lookup": lookup, "draft": draft, "draft_tokens": length}
        for length in lengths
        for lookup in (0, length)
        for draft in (None, *drafts)
        if lookup or draft
    ]


# --- output differs from plain decoding


def test_depth_changes_no_text(target: KwkDecoder, near: KwkDecoder) -> None:
    """P01, openvino.genai#4476: with a draft the text differed from some depth of the cache on."""
    for depth in (1, 15, 16, 17, 31, 63, 64, 65, 127, 200):
        prompt = (COPY * 8)[:depth]
        expected = plain(target, prompt, 40)
        for how in ways(near, lengths=(3,)):
            assert new_tokens(target, prompt, 40, **how) == expected, (depth, how)


@pytest.mark.parametrize("length", range(1, 17))
def test_every_number_of_proposals(target: KwkDecoder, near: KwkDecoder, stranger: KwkDecoder, length: int) -> None:
    """P03, llama.cpp#23302: right with two proposals, wrong with three. Every count meets another kernel tile."""
    expected = plain(target, COPY, 60)
    for how in ways(near, stranger, target, lengths=(length,)):
        assert new_tokens(target, COPY, 60, **how) == expected, how


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_full_sliding_window(precision: str) -> None:
    """P05, mlx-lm#1423: the text changed once the window of the attention was full."""
    torch.manual_seed(5)
    mistral = MistralForCausalLM(MistralConfig(**SHAPE, head_dim=16, sliding_window=32)).eval()
    decoder = KwkDecoder(mistral, max_cache_len=256, precision=precision)
    expected = plain(decoder, COPY, 100)
    for how in ways(decoder, lengths=(3, 8)):
        assert new_tokens(decoder, COPY, 100, **how) == expected, how
    ids = COPY + expected
    rows = decoder.logits(ids, chunk=1)
    for chunk in (7, 33, len(ids)):
        assert torch.equal(decoder.logits(ids, chunk=chunk).view(torch.int32), rows.view(torch.int32)), chunk
    if precision == "bfloat16":
        with torch.no_grad():
            given = mistral(torch.tensor([ids])).logits[0]
        assert (rows - given).abs().max() < 0.02 * given.abs().max()


def test_rows_of_a_step_do_not_meet(target: KwkDecoder) -> None:
    """P07, transformers#39421: the logits of one row depended on how many rows the matrix product had."""
    ids = (COPY * 2)[:40]
    alone = target.logits(ids, chunk=1).view(torch.int32)
    for rows in (2, 3, 4, 7, 8, 16, 17):
        assert torch.equal(target.logits(ids, chunk=rows).view(torch.int32), alone), rows


def test_a_cached_prefix(model: LlamaForCausalLM, target: KwkDecoder, near: KwkDecoder) -> None:
    """P09, am17an/llama.cpp#38, llama.cpp#4902: the same request gave another text over a cached prefix."""
    fresh = KwkDecoder(model, max_cache_len=256, precision=target.precision, prefix_cache=False)
    for prompt in (COPY, COPY[:9], [*COPY, 1], [*COPY[:9], 200], [7]):
        expected = plain(fresh, prompt, 30)
        for how in (*ways(near, lengths=(3,)), {"lookup": 0}):
            for _ in range(3):
                assert new_tokens(target, prompt, 30, **how) == expected, (prompt, how)


def test_the_first_proposal_is_checked(target: KwkDecoder, stranger: KwkDecoder) -> None:
    """P13, lattice#243: the first proposed token was committed unchecked."""
    for token in range(0, 256, 16):
        prompt = [token] * 3
        expected = int(target.logits(prompt)[-1].argmax())
        for how in ways(stranger, lengths=(1,)):
            assert new_tokens(target, prompt, 2, **how)[0] == expected, (token, how)


# --- edges: the end of the text, its length, the context


@pytest.mark.parametrize("place", [1, 2, 5, 7, 12])
def test_the_end_inside_a_block(target: KwkDecoder, near: KwkDecoder, place: int) -> None:
    """P23, transformers#47912: an end-of-text token was accepted inside a block and the text went on."""
    prompt = [1, 2, 3]
    text = plain(target, prompt, 40)
    eos = text[place - 1]
    expected = text[: text.index(eos) + 1]
    for eos_token_id in (eos, [eos, 255 if eos != 255 else 254]):
        for how in ways(near, target):
            assert new_tokens(target, prompt, len(expected) + 5, eos_token_id=eos_token_id, **how)[: len(expected)] == (
                expected
            )
            if eos_token_id == eos:
                assert new_tokens(target, prompt, 40, eos_token_id=eos, **how) == expected
                assert target.stats.finish_reason == "eos"


def test_exactly_as_many_tokens_as_asked_for(target: KwkDecoder, near: KwkDecoder) -> None:
    """P25, transformers#46993: more tokens than max_new_tokens with lookup."""
    text = plain(target, COPY, 12)
    for count in range(13):
        for how in ways(near, target):
            assert new_tokens(target, COPY, count, **how) == text[:count], (count, how)
            assert target.stats.tokens == count


@pytest.mark.parametrize("room", [1, 2, 3, 8])
def test_proposals_end_with_the_context(
    model: LlamaForCausalLM, target: KwkDecoder, near: KwkDecoder, room: int
) -> None:
    """P27, vllm#42533: tokens were proposed past the end of the context."""
    short = KwkDecoder(model, max_cache_len=len(COPY) + room, precision=target.precision)
    expected = plain(target, COPY, room)
    for how in ways(near, target):
        for count in (None, 100):
            assert short.generate(COPY, max_new_tokens=count, eos_token_id=None, **how)[0].tolist() == COPY + expected
            assert short.stats.finish_reason == "length"


@pytest.mark.parametrize("context", [1, 20, len(COPY), len(COPY) + 1, 64])
def test_a_draft_with_a_shorter_context(model: LlamaForCausalLM, target: KwkDecoder, context: int) -> None:
    """P29, llama.cpp#22554: a crash where the context of the draft ended before that of the target."""
    draft = KwkDecoder(model, max_cache_len=context)
    expected = plain(target, COPY, 200)
    for how in ways(draft):
        assert new_tokens(target, COPY, 200, **how) == expected, how


@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_no_more_proposals_than_asked_for(target: KwkDecoder, near: KwkDecoder, length: int) -> None:
    """P31, transformers#40739: the requested number of proposals was silently not passed on."""
    for how in ways(near, lengths=(length,)):
        new_tokens(target, COPY, 60, **how)
        assert 0 < target.stats.max_proposed <= length, how
    new_tokens(target, COPY, 60, lookup=0, draft=near, draft_tokens=0)
    assert target.stats.proposed == 0


def test_the_target_as_its_own_draft(model: LlamaForCausalLM, target: KwkDecoder) -> None:
    """P33, llama.cpp#10174: one token and then nothing."""
    twin = KwkDecoder(model, max_cache_len=256, precision=target.precision)
    for draft in (target, twin):
        for count in (3, 4, 5, 64):
            assert new_tokens(target, [9], count, lookup=0, draft=draft, draft_tokens=4) == plain(target, [9], count)
            new_tokens(target, [9], count, lookup=0, draft=draft, draft_tokens=4)
            assert target.stats.accepted == target.stats.proposed > 0


# --- the draft's vocabulary and cache


def padded(model: LlamaForCausalLM, vocab_size: int) -> LlamaForCausalLM:
    """The same model with rows of the vocabulary dropped, or added as trained models have them: unused ones."""
    config = model.config.__class__(**{**model.config.to_dict(), "vocab_size": vocab_size})
    other = LlamaForCausalLM(config).eval()
    state, weights = other.state_dict(), model.state_dict()
    for name, tensor in weights.items():
        if tensor.shape != state[name].shape:
            shared = min(vocab_size, tensor.shape[0])
            state[name].zero_()
            state[name][:shared] = tensor[:shared]
        else:
            state[name].copy_(tensor)
    return other


@pytest.mark.parametrize("difference", [-128, -1, 1, 128])
def test_a_draft_with_a_padded_vocabulary(model: LlamaForCausalLM, target: KwkDecoder, difference: int) -> None:
    """P35, transformers#45307, vllm#10913: vocabularies that differ in padding alone were refused, or crashed."""
    draft = KwkDecoder(padded(model, model.config.vocab_size + difference), max_cache_len=256)
    for prompt in (COPY, [1, 2, 3], [255, 254, 250]):
        expected = plain(target, prompt, 60)
        for how in ways(draft):
            assert new_tokens(target, prompt, 60, **how) == expected, how
    # And the other way round, so that the larger one is proposed to.
    expected = plain(draft, COPY, 60)
    assert new_tokens(draft, COPY, 60, draft=target) == expected


def test_a_draft_of_another_tokenizer(target: KwkDecoder) -> None:
    """P37, transformers#46936: a draft with another tokenizer crashed. Here it is refused, and nothing is broken."""
    draft = KwkDecoder(tiny_llama(vocab_size=999), max_cache_len=256)
    before = plain(target, COPY, 20)
    with pytest.raises(ValueError, match=r"vocabulary.*999.*256|vocabulary.*256.*999"):
        target.generate(COPY, max_new_tokens=20, draft=draft)
    assert plain(target, COPY, 20) == before
    assert len(plain(draft, COPY, 5)) == 5


def test_rejections_do_not_wear_a_draft_out(model: LlamaForCausalLM, target: KwkDecoder, stranger: KwkDecoder) -> None:
    """P39, mlxcel#994: the draft's cache was rewound too far after each rejection, and acceptance fell."""
    draft = KwkDecoder(model, max_cache_len=256, precision=target.precision)
    expected = plain(target, COPY, 100)
    for _ in range(2):
        # The stranger rejects nearly all the draft says; then lookup's rejections come between the draft's proposals.
        new_tokens(stranger, COPY, 60, lookup=0, draft=draft, draft_tokens=5)
        assert stranger.stats.accepted < stranger.stats.proposed
        assert new_tokens(target, COPY, 100, lookup=3, draft=draft, draft_tokens=3) == expected
        assert new_tokens(target, COPY, 100, lookup=0, draft=draft, draft_tokens=5) == expected
        assert target.stats.accepted == target.stats.proposed > 0


def test_a_draft_from_a_folder(model: LlamaForCausalLM, target: KwkDecoder, tmp_path: Path) -> None:
    """A draft is the same whether it was read from a folder or taken from an object."""
    model.save_pretrained(tmp_path)
    from_folder = KwkDecoder(tmp_path, max_cache_len=256, precision=target.precision)
    new_tokens(target, COPY, 40, lookup=0, draft=from_folder)
    assert target.stats.accepted == target.stats.proposed > 0
