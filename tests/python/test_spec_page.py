"""The example of the users' page "Faster generation", as it stands there, prints what the page says."""

from __future__ import annotations

import subprocess
import sys

EXAMPLE = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM
import kwker.cpu_backend as scb
from kwker.decode import KwkDecoder, runner_unsupported

def tiny(layers, hidden):
    cfg = LlamaConfig(vocab_size=1000, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=layers,
                      num_attention_heads=2, num_key_value_heads=1)
    return LlamaForCausalLM(cfg).eval()

big, small = tiny(4, 256), tiny(1, 64)             # in practice: from_pretrained(...) of a large and a small model
if scb.decoder_available() and runner_unsupported(big, 128) is None:
    dec = KwkDecoder(big, max_cache_len=128, precision="int4")
    draft = KwkDecoder(small, max_cache_len=128, precision="int4")
    prompt = torch.tensor([[1, 5, 7, 9]])
    fast = dec.generate(prompt, max_new_tokens=16, draft=draft)
    print(torch.equal(fast, dec.generate(prompt, max_new_tokens=16)))
"""


def test_the_example_prints_true() -> None:
    result = subprocess.run([sys.executable, "-c", EXAMPLE], capture_output=True, text=True, timeout=300, check=False)
    assert (result.stdout, result.returncode) == ("True\n", 0), result.stderr
