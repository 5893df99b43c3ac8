"""The surface of the package: what may be passed, what comes back, what each error says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BatchEncoding, GPT2Config, GPT2LMHeadModel, LlamaForCausalLM, LlamaModel

import kwker
import kwker.cpu_backend as scb
from kwker import KwkDecoder
from kwker.decode import GenerateStats, runner_unsupported
from tiny import tiny_llama

PROMPT = [1, 5, 7, 9]


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )


# --- the package


def test_importing_does_not_import_torch(tiny_folder: Path) -> None:
    code = (
        "import sys, kwker, kwker.cpu_backend, kwker.decode, kwker.cli\n"
        "assert kwker.cpu_backend.decoder_available()\n"
        f"text = list(kwker.KwkDecoder({str(tiny_folder)!r}, 32).stream([1, 2, 3], 4))\n"
        "print(len(text), 'torch' in sys.modules)"
    )
    result = run_python(code)
    assert result.stdout.split() == ["4", "False"], result.stderr


def test_version_and_names() -> None:
    assert kwker.__version__ == kwker._core.__version__
    assert {"KwkDecoder", "Error", "__version__"} <= set(dir(kwker))
    assert issubclass(kwker.Error, RuntimeError)
    assert f"{kwker.Error.__module__}.{kwker.Error.__qualname__}" == "kwker.Error"
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = kwker.no_such_name


# --- the machine


def test_isa_levels() -> None:
    levels = scb.isa_levels()
    assert scb.decoder_available()
    assert levels[0] == "portable"
    assert scb.isa() in levels
    for level in levels:
        with scb.use_isa(level):
            assert scb.isa() == level
    assert scb.isa() in levels


def test_use_isa_restores_the_level_after_an_error() -> None:
    before = scb.isa()
    with pytest.raises(ZeroDivisionError), scb.use_isa("portable"):
        raise ZeroDivisionError
    assert scb.isa() == before
    with pytest.raises(ValueError, match=r"sse9.*expected one of portable, avx2"), scb.use_isa("sse9"):
        pass


def test_max_isa_caps_the_levels() -> None:
    code = "import kwker.cpu_backend as scb; print(scb.isa(), *scb.isa_levels())"
    assert run_python(code, KWKER_MAX_ISA="portable").stdout.split() == ["portable", "portable"]
    code = "import kwker.cpu_backend as scb; print(scb.decoder_available())"
    assert run_python(code, KWKER_MAX_ISA="sse9").stdout.split() == ["False"]  # never raises


def test_decoder_available_without_the_extension() -> None:
    code = (
        "import sys; sys.modules['kwker._core'] = None\nimport kwker.cpu_backend as scb; print(scb.decoder_available())"
    )
    assert run_python(code).stdout.split() == ["False"]


def test_threads_and_bandwidth() -> None:
    before = scb.num_threads()
    assert before >= 1
    try:
        scb.set_num_threads(3)
        assert scb.num_threads() == 3
    finally:
        scb.set_num_threads(before)
    for wrong in (0, -1, 1025, True):
        with pytest.raises(ValueError, match=r"\bn must be"):
            scb.set_num_threads(wrong)
    assert scb.read_bandwidth(32) > 0
    with pytest.raises(ValueError, match="megabytes must be at least 1, got 0"):
        scb.read_bandwidth(0)


# --- what can run


def test_runner_unsupported_gives_one_sentence(tiny_model: LlamaForCausalLM, tiny_folder: Path, tmp_path: Path) -> None:
    assert runner_unsupported(tiny_model, 128) is None
    assert runner_unsupported(tiny_folder, 128) is None
    assert runner_unsupported(str(tiny_folder), 128) is None
    assert "null byte" in str(runner_unsupported("a\0b", 128))
    gpt2 = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=100))
    adapted = tiny_llama()
    adapted.model.layers[0].adapter = torch.nn.Linear(2, 2)
    cases: list[tuple[Any, Any, str]] = [
        (gpt2, 128, "gpt2"),
        (LlamaModel(tiny_model.config), 128, "LlamaModel has no output layer"),
        (tiny_llama(attention_bias=True), 128, "bias"),
        (tiny_llama(hidden_act="gelu"), 128, "gelu"),
        (adapted, 128, r"has the parameter model\.layers\.0\.adapter"),
        (tiny_llama().double(), 128, "float64|Double"),
        (tiny_llama().to("meta"), 128, "meta"),
        (tiny_model, 0, "max_cache_len must be at least 1, got 0"),
        (tiny_model, "128", "max_cache_len must be an integer, got str"),
        (3, 128, "got int"),
        (tmp_path, 128, r"config\.json"),
    ]
    for model, max_cache_len, reason in cases:
        said = runner_unsupported(model, max_cache_len)
        assert said is not None
        assert "\n" not in said
        assert re.search(reason, said), said


def test_decoder_raises_the_reason() -> None:
    biased = tiny_llama(attention_bias=True)
    with pytest.raises(ValueError, match="bias") as raised:
        KwkDecoder(biased)
    assert str(raised.value) == runner_unsupported(biased, 2048)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"precision": "int5"}, "'int4' or 'bfloat16', got 'int5'"),
        ({"max_cache_len": 0}, "max_cache_len must be at least 1, got 0"),
        ({"max_batch": 0}, "max_batch must be at least 1, got 0"),
        ({"group_size": 48, "precision": "int4"}, "32, 64 or 128, got 48"),
        ({"num_threads": 0}, "num_threads must be at least 1, got 0"),
    ],
)
def test_wrong_options(tiny_model: LlamaForCausalLM, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KwkDecoder(tiny_model, **arguments)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("precision", ["int4", "bfloat16"])
def test_weights_that_are_not_finite(value: float, precision: str) -> None:
    model = tiny_llama()
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 5] = value
    with pytest.raises(ValueError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        KwkDecoder(model, precision=precision)


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(kwker.Error, match="nothing does not exist"):
        KwkDecoder(tmp_path / "nothing")


def test_progress_is_told_and_may_stop_the_loading(tiny_model: LlamaForCausalLM) -> None:
    told: list[tuple[int, int]] = []
    KwkDecoder(tiny_model, 32, progress=lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1] > 0
    assert [done for done, _ in told] == sorted(done for done, _ in told)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        KwkDecoder(tiny_model, 32, progress=stop)


def test_properties(tiny_model: LlamaForCausalLM) -> None:
    decoder = KwkDecoder(tiny_model, 40, "int4", max_batch=3)
    assert (decoder.max_cache_len, decoder.max_batch, decoder.precision) == (40, 3, "int4")
    assert decoder.memory_bytes >= decoder.weight_bytes > 0
    assert (decoder.config.vocab_size, decoder.config.num_kv_heads) == (256, 2)
    assert decoder.stats == GenerateStats()
    with pytest.raises(AttributeError):
        decoder.max_batch = 2  # type: ignore[misc]


def test_the_model_may_be_deleted() -> None:
    model = tiny_llama()
    decoder = KwkDecoder(model, 64)
    expected = decoder.generate(PROMPT, 8).tolist()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    del model
    assert decoder.generate(PROMPT, 8, lookup=0).tolist() == expected


# --- the prompt


def test_forms_of_the_prompt(decoder: KwkDecoder) -> None:
    expected = decoder.generate(torch.tensor([PROMPT]), 8)
    assert expected.dtype == torch.int64
    assert expected.shape == (1, len(PROMPT) + 8)
    assert expected[0, : len(PROMPT)].tolist() == PROMPT
    forms: list[Any] = [
        torch.tensor(PROMPT),
        torch.tensor(PROMPT, dtype=torch.int32),
        torch.tensor([[9, 0, 7, 0, 5, 0, 1]]).flip(1)[:, ::2],
        PROMPT,
        tuple(PROMPT),
    ]
    for form in forms:
        assert torch.equal(decoder.generate(form, 8), expected)


@pytest.mark.parametrize(
    ("prompt", "error", "message"),
    [
        ([], ValueError, "empty"),
        (torch.empty(1, 0, dtype=torch.long), ValueError, "empty"),
        ([1, 256], ValueError, "token id 256 is outside the vocabulary"),
        ([-1], ValueError, "token id -1 is outside the vocabulary"),
        ([2**40], ValueError, "outside the vocabulary"),
        ([2**80], ValueError, "outside the vocabulary"),
        ([1] * 65, ValueError, "65.*64"),
        (torch.tensor([[1, 2], [3, 4]]), ValueError, r"one sequence.*got \[2, 2\]"),
        (torch.tensor(1), ValueError, r"shape \[T\] or \[1, T\], got \[\]"),
        (torch.tensor([[[1]]]), ValueError, r"got \[1, 1, 1\]"),
        (torch.tensor([1.0, 2.0]), TypeError, "torch.float32"),
        (torch.tensor([True]), TypeError, "torch.bool"),
        (torch.empty(3, dtype=torch.long, device="meta"), ValueError, "meta"),
        ([1.5], TypeError, "got float"),
        ([True], ValueError, "got True"),
        ([[1, 2]], TypeError, "got list"),
        ("text", TypeError, "got str"),
        (None, TypeError, "got NoneType"),
        (7, TypeError, "got int"),
        (BatchEncoding({"input_ids": [1, 2]}), TypeError, "pass its input_ids"),
    ],
)
def test_wrong_prompts(decoder: KwkDecoder, prompt: Any, error: type[Exception], message: str) -> None:
    expected = decoder.generate(PROMPT, 4)
    for call in (lambda p: decoder.generate(p, 4), lambda p: decoder.stream(p, 4), decoder.logits):
        with pytest.raises(error, match=message):
            call(prompt)
    assert torch.equal(decoder.generate(PROMPT, 4), expected)


# --- the other arguments


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"max_new_tokens": -1}, ValueError, "max_new_tokens must be at least 0, got -1"),
        ({"max_new_tokens": True}, ValueError, "max_new_tokens must be an integer, got True"),
        ({"max_new_tokens": 2.0}, TypeError, "max_new_tokens must be an integer, got float"),
        ({"lookup": -1}, ValueError, "lookup must be at least 0, got -1"),
        ({"lookup": 65}, ValueError, "lookup must be at most 64, got 65"),
        ({"lookup": None}, TypeError, "lookup must be an integer, got NoneType"),
        ({"draft_tokens": -1}, ValueError, "draft_tokens must be at least 0, got -1"),
        ({"draft": "small"}, TypeError, "draft must be a KwkDecoder or None, got str"),
        ({"eos_token_id": -1}, ValueError, "eos_token_id must be at least 0, got -1"),
        ({"eos_token_id": "</s>"}, TypeError, "eos_token_id must be an integer, got str"),
        ({"no_such": 1}, TypeError, "no_such"),
    ],
)
def test_wrong_arguments(decoder: KwkDecoder, arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    expected = decoder.generate(PROMPT, 4)
    for call in (decoder.generate, decoder.stream):
        with pytest.raises(error, match=message):
            call(PROMPT, **{"max_new_tokens": 4, **arguments})
    assert torch.equal(decoder.generate(PROMPT, 4), expected)


def test_wrong_chunks(decoder: KwkDecoder) -> None:
    for wrong in (0, -1, True):
        with pytest.raises(ValueError, match="chunk must be"):
            decoder.logits(PROMPT, chunk=wrong)


def test_max_new_tokens(decoder: KwkDecoder) -> None:
    assert decoder.generate(PROMPT, 0).tolist() == [PROMPT]
    assert decoder.stats.tokens == 0
    full = decoder.generate(PROMPT, eos_token_id=None)
    assert full.shape == (1, 64)
    assert decoder.stats.finish_reason == "length"
    for count in (1, 2, 3, 4):
        assert torch.equal(decoder.generate(PROMPT, count, eos_token_id=None), full[:, : 4 + count])


def test_eos(decoder: KwkDecoder) -> None:
    text = decoder.generate(PROMPT, 12, eos_token_id=None)[0, 4:].tolist()
    last = next(i for i in range(4, 12) if text[i] not in text[:i]) if len(set(text)) > 4 else text.index(text[-1])
    expected = text[: last + 1]
    for eos in (text[last], [text[last]], (255 if 255 not in text else 0, text[last])):
        for lookup in (0, 8):
            assert decoder.generate(PROMPT, 12, eos_token_id=eos, lookup=lookup)[0, 4:].tolist() == expected
            assert decoder.stats.finish_reason == "eos"
    assert decoder.generate(PROMPT, 12, eos_token_id=[])[0, 4:].tolist() == text


def test_the_models_own_eos(tmp_path: Path) -> None:
    model = tiny_llama()
    plain = KwkDecoder(model, 64).generate(PROMPT, 12, eos_token_id=None)[0, 4:].tolist()
    model.generation_config.eos_token_id = [plain[2], 99999]
    model.config.eos_token_id = 0
    model.save_pretrained(tmp_path)
    expected = plain[: plain.index(plain[2]) + 1]
    for source in (model, tmp_path):
        decoder = KwkDecoder(source, 64)
        assert decoder.generate(PROMPT, 12)[0, 4:].tolist() == expected
        assert decoder.stats.finish_reason == "eos"


# --- lookup and drafts


def test_drafts(tiny_model: LlamaForCausalLM, decoder: KwkDecoder) -> None:
    expected = decoder.generate(PROMPT, 40, lookup=0, eos_token_id=None)
    other = KwkDecoder(tiny_llama(seed=1, num_hidden_layers=1), 32, "int4")
    twin = KwkDecoder(tiny_model, 64, "int4")
    for draft in (other, twin, decoder):
        for lookup in (0, 8):
            text = decoder.generate(PROMPT, 40, lookup=lookup, draft=draft, draft_tokens=3, eos_token_id=None)
            assert torch.equal(text, expected)
            assert decoder.stats.max_proposed <= max(3, lookup)


def test_a_decoder_as_its_own_draft_is_always_right(decoder: KwkDecoder) -> None:
    decoder.generate(PROMPT, 21, lookup=0, draft=decoder, draft_tokens=4, eos_token_id=None)
    counts = decoder.stats.by_proposer["draft"]
    assert counts.accepted == counts.proposed > 0
    assert decoder.stats.max_proposed == 4


def test_a_draft_stays_alive_while_it_is_used(decoder: KwkDecoder) -> None:
    stream = decoder.stream(PROMPT, 20, draft=KwkDecoder(tiny_llama(seed=1), 64), eos_token_id=None)
    assert len(list(stream)) == 20


def test_a_draft_with_another_vocabulary(decoder: KwkDecoder) -> None:
    # A few rows more or less are padding; this is another tokenizer.
    with pytest.raises(ValueError, match=r"vocabulary"):
        decoder.generate(PROMPT, 4, draft=KwkDecoder(tiny_llama(vocab_size=2048), 64))


def test_stats(decoder: KwkDecoder) -> None:
    decoder.generate([7, 8, 9] * 5, 30, eos_token_id=None)
    stats = decoder.stats
    assert stats.tokens == 30
    assert 0 < stats.steps <= 30
    assert stats.accepted <= stats.proposed
    assert stats.proposed == sum(counts.proposed for counts in stats.by_proposer.values())
    assert stats.tokens_per_s > 0
    assert stats.prefill_s > 0


# --- threads and interrupts


def test_calls_from_several_threads_take_turns(decoder: KwkDecoder) -> None:
    prompts = [[n, n + 1, n + 2] for n in range(1, 9)]
    expected = [decoder.generate(prompt, 20, eos_token_id=None).tolist() for prompt in prompts]
    found: list[Any] = [None] * len(prompts)

    def work(index: int) -> None:
        for _ in range(5):
            found[index] = decoder.generate(prompts[index], 20, draft=decoder, eos_token_id=None).tolist()

    run_all([lambda i=i: work(i) for i in range(len(prompts))])
    assert found == expected


def test_two_decoders_may_share_a_draft(tiny_model: LlamaForCausalLM) -> None:
    draft = KwkDecoder(tiny_llama(seed=1), 64, "int4")
    decoders = [KwkDecoder(tiny_model, 64) for _ in range(2)]
    expected = decoders[0].generate(PROMPT, 40, eos_token_id=None).tolist()
    found: list[Any] = [None, None]

    def work(index: int) -> None:
        for _ in range(10):
            found[index] = decoders[index].generate(PROMPT, 40, draft=draft, eos_token_id=None).tolist()

    run_all([lambda i=i: work(i) for i in range(2)])
    assert found == [expected, expected]


def run_all(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_an_interrupt_leaves_the_decoder_usable(tiny_model: LlamaForCausalLM) -> None:
    decoder = KwkDecoder(tiny_model, 1 << 14)
    expected = decoder.generate(PROMPT, 8).tolist()
    timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        decoder.generate(PROMPT, (1 << 14) - 4, lookup=0, eos_token_id=None)
    assert decoder.generate(PROMPT, 8).tolist() == expected
