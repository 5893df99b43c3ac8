"""Weights from model objects and folders: every form a Llama comes in gives the logits that Transformers gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

import kwker
from kwker import KwkDecoder
from tiny import tiny_llama

IDS = torch.randint(0, 250, (1, 40), generator=torch.Generator().manual_seed(0))

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "grouped heads": {},
    "full heads": {"num_key_value_heads": 4},
    "one kv head": {"num_key_value_heads": 1},
    "tied": {"tie_word_embeddings": True},
    "head_dim given": {"head_dim": 24},
    "odd sizes": {
        "hidden_size": 72,
        "intermediate_size": 88,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "vocab_size": 999,
    },
    "llama3 rope": {"rope_parameters": LLAMA3_ROPE},
    "linear rope": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    "another theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    "another epsilon": {"rms_norm_eps": 1e-2},
}


@torch.no_grad()
def reference(model: LlamaForCausalLM) -> torch.Tensor:
    logits: torch.Tensor = model(IDS).logits[0].float()
    return logits


def assert_close(logits: torch.Tensor, expected: torch.Tensor, model: LlamaForCausalLM) -> None:
    """As close to fp32 as bfloat16 arithmetic gets: not worse than Transformers' own, with room for luck."""
    own = (reference(model.to(torch.bfloat16)) - expected).pow(2).mean().sqrt()
    error = (logits - expected).pow(2).mean().sqrt()
    assert error <= 1.25 * own, (error.item(), own.item())
    assert error < 0.05 * expected.std()


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(variant: str) -> None:
    model = tiny_llama(scale=2.0, **VARIANTS[variant])
    expected = reference(model)
    logits = KwkDecoder(model, 64).logits(IDS)
    assert logits.dtype == torch.float32
    assert logits.shape == expected.shape
    assert_close(logits, expected, model)


def test_rope_scaling_matters() -> None:
    """Or the test above could not tell."""
    plain, scaled = reference(tiny_llama()), reference(tiny_llama(rope_parameters=LLAMA3_ROPE))
    assert (plain - scaled).abs().max() > 0.05 * plain.std()


@pytest.mark.parametrize("precision", ["bfloat16", "int4"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_dtype_of_the_object_does_not_matter(dtype: torch.dtype, precision: str) -> None:
    """bfloat16 values are what they are in any wider type (these have few bits and no tiny values)."""
    model = tiny_llama().to(torch.bfloat16)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.where(parameter.abs() < 1e-3, torch.zeros_like(parameter), parameter))
    expected = KwkDecoder(model, 64, precision).logits(IDS)
    assert torch.equal(KwkDecoder(model.to(dtype), 64, precision).logits(IDS), expected)


@pytest.mark.parametrize("precision", ["bfloat16", "int4"])
def test_strides_do_not_matter(precision: str) -> None:
    model = tiny_llama()
    expected = KwkDecoder(model, 64, precision).logits(IDS)
    for number, parameter in enumerate(model.parameters()):
        data = parameter.data
        if data.dim() == 1:
            parameter.data = data.repeat_interleave(3)[::3]
        elif number % 2:
            parameter.data = data.t().contiguous().t()
        else:
            parameter.data = torch.cat([data, data], dim=1)[:, : data.shape[1]]
        assert not parameter.data.is_contiguous()
    assert torch.equal(KwkDecoder(model, 64, precision).logits(IDS), expected)


def test_what_is_tied_is_seen_in_the_object() -> None:
    """Whoever replaces the output layer may leave the configuration as it was."""
    tied = tiny_llama(tie_word_embeddings=True)
    expected = KwkDecoder(tied, 64).logits(IDS)
    assert KwkDecoder(tied, 64).config.tie_word_embeddings
    tied.lm_head.weight = torch.nn.Parameter(tied.model.embed_tokens.weight.detach() * 2)
    untied = KwkDecoder(tied, 64)
    assert not untied.config.tie_word_embeddings
    assert torch.equal(untied.logits(IDS), expected * 2)


def test_a_leftover_quantization_config_is_no_obstacle() -> None:
    model = tiny_llama()
    expected = KwkDecoder(model, 64).logits(IDS)
    model.config.quantization_config = {"quant_method": "gguf"}
    assert torch.equal(KwkDecoder(model, 64).logits(IDS), expected)


@pytest.mark.parametrize("precision", ["bfloat16", "int4"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("shard", ["5GB", "60KB"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_folder_is_the_object(tmp_path: Path, precision: str, tied: bool, shard: str, dtype: torch.dtype) -> None:
    model = tiny_llama(tie_word_embeddings=tied).to(dtype)
    model.save_pretrained(tmp_path, max_shard_size=shard)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (shard == "60KB")
    expected = KwkDecoder(model, 64, precision).logits(IDS)
    assert torch.equal(KwkDecoder(tmp_path, 64, precision).logits(IDS), expected)


def test_an_output_layer_of_its_own_is_believed(tmp_path: Path) -> None:
    model = tiny_llama(tie_word_embeddings=False)
    model.save_pretrained(tmp_path)
    expected = KwkDecoder(tmp_path, 64).logits(IDS)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"tie_word_embeddings": false', '"tie_word_embeddings": true'))
    assert '"tie_word_embeddings": true' in config.read_text()
    assert torch.equal(KwkDecoder(tmp_path, 64).logits(IDS), expected)


def test_a_damaged_folder(tmp_path: Path) -> None:
    tiny_llama().save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(kwker.Error, match=r"model\.safetensors"):
        KwkDecoder(tmp_path, 64)
    weights.unlink()
    with pytest.raises(kwker.Error, match="safetensors"):
        KwkDecoder(tmp_path, 64)


@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_int4_groups(group_size: int) -> None:
    model = tiny_llama(scale=2.0)
    logits = KwkDecoder(model, 64, "int4", group_size=group_size).logits(IDS)
    expected = reference(model)
    assert torch.isfinite(logits).all()
    cosine = torch.nn.functional.cosine_similarity(logits, expected, dim=-1)
    assert cosine.min() > 0.9
