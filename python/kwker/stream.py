"""A generation whose tokens are taken one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kwker._core import Generation

__all__ = ["TokenStream"]


class TokenStream(Iterator[int]):
    """Iterates over new tokens as they are made; at most one step runs ahead of what was taken.

    While it is open it occupies its decoder. `close`, the end of the text, or dropping the last reference free it.
    """

    def __init__(self, generation: Generation, advance: Callable[[Generation], list[int]]) -> None:
        self._generation: Generation | None = generation
        self._advance = advance
        self._pending: deque[int] = deque()

    @property
    def open(self) -> bool:
        """Whether there may be more work to do."""
        return self._generation is not None

    def __next__(self) -> int:
        while not self._pending:
            generation = self._generation
            if generation is None:
                raise StopIteration
            try:
                if not generation.done:
                    self._pending.extend(self._advance(generation))
            except BaseException:
                self.close()
                raise
            if generation.done:
                self._generation = None
        return self._pending.popleft()

    def close(self) -> None:
        """Stops the work; nothing more comes out."""
        self._generation = None
        self._pending.clear()

    def __enter__(self) -> TokenStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
