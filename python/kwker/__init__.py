"""Kwker: text generation on CPUs, where every way of going faster gives the same tokens.

Importing this package loads neither torch nor the extension modules; the names below are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kwker._core import Error, __version__
    from kwker.decode import KwkDecoder

__all__ = ["Error", "KwkDecoder", "__version__"]

_HOMES = {"Error": "kwker._core", "KwkDecoder": "kwker.decode", "__version__": "kwker._core"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'kwker' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
