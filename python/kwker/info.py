"""What a model folder holds, read from its configuration alone."""

from __future__ import annotations

from pathlib import Path

from kwker import _core
from kwker._hf_model import read_configs
from kwker.decode import runner_unsupported

__all__ = ["model_facts"]

_FIELDS = (
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "max_position_embeddings",
    "tie_word_embeddings",
    "eos_token_ids",
)


def model_facts(folder: Path, max_cache_len: int) -> dict[str, object]:
    """Facts by name: the shape of a supported model, the reason why another cannot run."""
    reason = runner_unsupported(folder, max_cache_len)
    facts: dict[str, object] = {"model": str(folder), "supported": reason is None, "reason": reason}
    if reason is None:
        config = _core.parse_config(*read_configs(folder))
        facts |= {name: getattr(config, name) for name in _FIELDS}
        facts["parameters"] = _parameters(config)
    return facts


def _parameters(config: _core.ModelConfig) -> int:
    hidden, queries = config.hidden_size, config.num_heads * config.head_dim
    attention = 2 * hidden * (queries + config.num_kv_heads * config.head_dim)
    layer = attention + 3 * hidden * config.intermediate_size + 2 * hidden
    embeddings = (1 if config.tie_word_embeddings else 2) * config.vocab_size * hidden
    return config.num_layers * layer + embeddings + hidden
