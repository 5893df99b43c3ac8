"""Writes a Llama folder of Hugging Face as GGUF files: bfloat16, and Q4_0 by llama.cpp's own quantiser.

The format: github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors import safe_open

_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_OTHER_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(name: str) -> str:
    """The GGUF name of a tensor of a Hugging Face Llama model."""
    stem, _, suffix = name.rpartition(".")
    if stem in _OTHER_NAMES:
        return f"{_OTHER_NAMES[stem]}.{suffix}"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{_LAYER_NAMES[rest]}.{suffix}"


def interleave_rotary_rows(weights: torch.Tensor, heads: int) -> torch.Tensor:
    """Llama's rotary pairs are rows i and i + half of a head in Hugging Face's files and neighbours in GGUF."""
    rows, inputs = weights.shape
    return weights.reshape(heads, 2, rows // heads // 2, inputs).transpose(1, 2).reshape(rows, inputs)


def export(folder: Path, out: Path) -> None:
    """Writes the bfloat16 GGUF file of a folder with one safetensors file."""
    config = json.loads((folder / "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_vocab_size(config["vocab_size"])
    _add_tokenizer(writer, folder, config["vocab_size"])
    with safe_open(folder / "model.safetensors", "pt") as file:
        for name in sorted(file.keys()):
            tensor = file.get_tensor(name)
            if "q_proj" in name:
                tensor = interleave_rotary_rows(tensor, heads)
            elif "k_proj" in name:
                tensor = interleave_rotary_rows(tensor, kv_heads)
            if tensor.ndim == 1:
                writer.add_tensor(gguf_name(name), tensor.float().numpy())
                continue
            raw = tensor.to(torch.bfloat16).contiguous().view(torch.uint8).numpy()
            writer.add_tensor(gguf_name(name), raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: gguf.GGUFWriter, folder: Path, vocab_size: int) -> None:
    """A byte-level BPE tokenizer, as tokenizer.json describes it."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokens = [f"[PAD{i}]" for i in range(vocab_size)]
    types = np.full(vocab_size, gguf.TokenType.UNUSED, dtype=np.int32)
    for token, index in tokenizer["model"]["vocab"].items():
        tokens[index], types[index] = token, gguf.TokenType.NORMAL
    for added in tokenizer["added_tokens"]:
        tokens[added["id"]], types[added["id"]] = added["content"], gguf.TokenType.CONTROL
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(types.tolist())
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)


def quantize(source: Path, out: Path, threads: int) -> None:
    """Q4_0 with llama.cpp's defaults (the output layer, which is the embedding here, as Q6_K)."""
    import llama_cpp

    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.nthread = threads
    parameters.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0
    code = llama_cpp.llama_model_quantize(str(source).encode(), str(out).encode(), parameters)
    if code != 0:
        raise RuntimeError(f"llama_model_quantize gave {code}")


def ensure(folder: Path, threads: int) -> dict[str, Path]:
    """The two files of a model folder, made beside it now if they are not there."""
    paths = {kind: folder.with_name(f"{folder.name}-{kind}.gguf") for kind in ("bf16", "q4_0")}
    for kind, path in paths.items():
        if path.exists():
            continue
        unfinished = path.with_suffix(".tmp")
        if kind == "bf16":
            export(folder, unfinished)
        else:
            quantize(paths["bf16"], unfinished, threads)
        unfinished.rename(path)
    return paths


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    for path in ensure(options.folder, options.threads).values():
        print(path)
