"""Hugging Face models, folders and objects: whether the decoder can run one, and an object's weights as views."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kwker import _core

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

_EMBEDDING, _OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
_LAYER_PARTS = (
    *(f"self_attn.{name}_proj" for name in "qkvo"),
    *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
    "input_layernorm",
    "post_attention_layernorm",
)


def read_configs(folder: Path) -> tuple[str, str | None]:
    """config.json and, where there is one, generation_config.json."""
    generation_config = folder / "generation_config.json"
    return (
        (folder / "config.json").read_text(encoding="utf-8"),
        generation_config.read_text(encoding="utf-8") if generation_config.exists() else None,
    )


def object_configs(model: Any) -> tuple[str, str | None]:
    """The same of a model object."""
    generation_config = getattr(model, "generation_config", None)
    return _config_json(model), None if generation_config is None else generation_config.to_json_string(use_diff=False)


def unsupported_folder(folder: Path) -> str | None:
    """The reason why the decoder cannot run the model in a folder, or None."""
    try:
        return _core.unsupported_reason(read_configs(folder)[0])
    except (OSError, ValueError) as error:
        return f"the configuration in {folder} cannot be read: {error}"


def unsupported_object(model: Any) -> str | None:
    """The reason why the decoder cannot run a model object, or None."""
    if not callable(getattr(model, "named_parameters", None)) or not hasattr(model, "config"):
        return f"expected a Hugging Face model or the path of one, got {type(model).__name__}"
    reason = _core.unsupported_reason(_config_json(model))
    if reason is not None:
        return reason
    if getattr(model, "lm_head", None) is None:
        return f"{type(model).__name__} has no output layer; expected a causal language model (LlamaForCausalLM)"
    parameters = dict(model.named_parameters())
    expected = _parameter_names(model)
    for name in sorted(expected ^ parameters.keys()):  # an adapter adds some, a quantised layer hides some
        return f"the model {'lacks' if name in expected else 'has'} the parameter {name}, unlike a plain Llama"
    for name, parameter in parameters.items():
        reason = _unsupported_parameter(name, parameter)
        if reason is not None:
            return reason
    return None


def weights(model: Any) -> dict[str, CapsuleType]:
    """Views of the parameters of a supported model by name; each keeps its tensor alive."""
    from kwker import _torch

    return {name: _torch.view(parameter) for name, parameter in model.named_parameters()}


def _config_json(model: Any) -> str:
    """The model's config.json, corrected by what the model does: its weights tell whether the embeddings are tied and
    whether they are quantised (one that was read from a quantised file still says so)."""
    config = json.loads(model.config.to_json_string(use_diff=False))
    config["tie_word_embeddings"] = _is_tied(model)
    config.pop("quantization_config", None)
    return json.dumps(config)


def _is_tied(model: Any) -> bool:
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return _OUTPUT in parameters and parameters[_OUTPUT] is parameters.get(_EMBEDDING)


def _parameter_names(model: Any) -> set[str]:
    layers = range(model.config.num_hidden_layers)
    names = {f"model.layers.{layer}.{part}.weight" for layer in layers for part in _LAYER_PARTS}
    return names | {_EMBEDDING, "model.norm.weight"} | (set() if _is_tied(model) else {_OUTPUT})


def _unsupported_parameter(name: str, parameter: Any) -> str | None:
    import torch

    from kwker import _torch

    if type(parameter.data) is not torch.Tensor:  # quantised, sharded, fake: not the numbers it seems to hold
        return f"the parameter {name} is a {type(parameter.data).__name__}, not a plain tensor"
    try:
        _torch.view(parameter)
    except (TypeError, ValueError) as error:
        return f"the parameter {name} cannot be read: {error}"
    return None
