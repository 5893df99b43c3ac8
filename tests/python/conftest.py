"""Models that the tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import LlamaForCausalLM

import make_models
from kwker import KwkDecoder
from tiny import tiny_llama


@pytest.fixture(scope="session")
def smol135() -> Path:
    """The folder of SmolLM2-135M-Instruct."""
    return make_models.ensure("smol135")


@pytest.fixture(scope="session")
def tiny_model() -> LlamaForCausalLM:
    return tiny_llama()


@pytest.fixture(scope="session")
def tiny_folder(tiny_model: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model.save_pretrained(folder)
    return folder


@pytest.fixture
def decoder(tiny_model: LlamaForCausalLM) -> KwkDecoder:
    return KwkDecoder(tiny_model, max_cache_len=64)
