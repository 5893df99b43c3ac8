"""Checks of what callers pass, each with a message that names what was expected and what was got."""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import torch

    InputIds: TypeAlias = torch.Tensor | Sequence[int]
    EosTokenId: TypeAlias = int | Sequence[int] | EllipsisType | None

_INT32_MAX = 2**31 - 1


def integer(name: str, value: object) -> int:
    """`value` as an int, if it is one of any kind; a bool or float is none."""
    if isinstance(value, bool):
        raise ValueError(f"{name} must be an integer, got {value}")
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}") from None


def count(name: str, value: object, *, minimum: int, maximum: int = _INT32_MAX) -> int:
    """`value` as an int between the bounds."""
    number = integer(name, value)
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {number}")
    if number > maximum:
        raise ValueError(f"{name} must be at most {maximum}, got {number}")
    return number


def token_list(input_ids: InputIds, vocab_size: int) -> list[int]:
    """The prompt as a list, from a tensor [T] or [1, T] or a sequence of ints."""
    tokens = _listed(input_ids)
    for token in tokens:
        if not 0 <= token < vocab_size:
            raise ValueError(f"token id {token} is outside the vocabulary, 0 to {vocab_size - 1}")
    return tokens


def _listed(input_ids: object) -> list[int]:
    torch = sys.modules.get("torch")  # a tensor cannot be here before torch is
    if torch is not None and isinstance(input_ids, torch.Tensor):
        if input_ids.dtype == torch.bool or input_ids.is_floating_point() or input_ids.is_complex():
            raise TypeError(f"input_ids must be a tensor of integers, got {input_ids.dtype}")
        if input_ids.dim() == 2 and input_ids.shape[0] != 1:
            raise ValueError(f"input_ids must hold one sequence, [T] or [1, T], got {list(input_ids.shape)}")
        if input_ids.dim() not in (1, 2):
            raise ValueError(f"input_ids must have the shape [T] or [1, T], got {list(input_ids.shape)}")
        if input_ids.is_meta:
            raise ValueError("input_ids must be a tensor with values, got one on the meta device")
        return [int(token) for token in input_ids.flatten().tolist()]
    if isinstance(input_ids, Sequence) and not isinstance(input_ids, (str, bytes)):
        return [integer("a token id", token) for token in input_ids]
    hint = "; pass its input_ids" if hasattr(input_ids, "input_ids") else ""
    raise TypeError(f"input_ids must be a tensor or a list of ints, got {type(input_ids).__name__}{hint}")


def eos_list(eos_token_id: EosTokenId) -> list[int] | None:
    """None for the model's own, an empty list for no end."""
    if eos_token_id is ...:
        return None
    if eos_token_id is None:
        return []
    ids = eos_token_id if isinstance(eos_token_id, (list, tuple)) else [eos_token_id]
    return [count("eos_token_id", token, minimum=0) for token in ids]
