"""A progress bar on stderr for what takes seconds; on no terminal it stays silent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["loading_bar"]


@contextmanager
def loading_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Gives the `progress` argument of KwkDecoder for the block."""
    from tqdm import tqdm

    with tqdm(desc=title, leave=False, disable=None, bar_format="{desc} {bar} {percentage:3.0f}%") as bar:

        def update(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield update
