"""The machine the decoders run on: its instruction-set level, its threads, its memory bandwidth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kwker._arguments import count

__all__ = ["decoder_available", "isa", "isa_levels", "num_threads", "read_bandwidth", "set_num_threads", "use_isa"]

# The extension is imported where it is used, so that decoder_available can say that it does not load.


def decoder_available() -> bool:
    """Whether the extension module loads and supports this CPU. Never raises."""
    try:
        return isa() in isa_levels()
    except Exception:
        return False


def isa() -> str:
    """The level in use: "portable", "avx2", "avx512" or "amx"."""
    from kwker import _core

    return _core.isa()


def isa_levels() -> list[str]:
    """The levels this machine can run, lowest first; the environment variable KWKER_MAX_ISA caps them."""
    from kwker import _core

    return _core.isa_levels()


@contextmanager
def use_isa(level: str) -> Iterator[None]:
    """Runs every decoder of this process on `level` inside a `with` block. Tokens are the same on every level.

    Raises ValueError for a name that is no level, kwker.Error for a level this machine cannot run.
    """
    from kwker import _core

    previous = _core.isa()
    _core.set_isa(level)
    try:
        yield
    finally:
        _core.set_isa(previous)


def num_threads() -> int:
    """Threads that decoders use; at first the CPUs this process may really use (affinity, cgroup quota)."""
    from kwker import _core

    return _core.num_threads()


def set_num_threads(n: int) -> None:
    """Sets the threads that decoders use. Tokens are the same for any number."""
    from kwker import _core

    _core.set_num_threads(count("n", n, minimum=1, maximum=1024))


def read_bandwidth(megabytes: int = 512) -> float:
    """GB/s that all threads together read from a buffer of `megabytes`, measured now."""
    from kwker import _core

    return _core.read_bandwidth(count("megabytes", megabytes, minimum=1, maximum=1 << 20))
