"""What a generation did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kwker._core import StatsDict

__all__ = ["GenerateStats", "ProposerStats"]


@dataclass(frozen=True)
class ProposerStats:
    """Tokens one proposer proposed and how many of them the model accepted."""

    proposed: int
    accepted: int


@dataclass(frozen=True)
class GenerateStats:
    """Counts and times of one call; zeros before the first."""

    steps: int = 0  #: Steps after the prompt.
    tokens: int = 0  #: New tokens.
    proposed: int = 0
    accepted: int = 0
    max_proposed: int = 0  #: Most tokens proposed in one step.
    cached: int = 0  #: Prompt tokens found in the cache.
    by_proposer: dict[str, ProposerStats] = field(default_factory=dict)
    prefill_s: float = 0.0  #: Seconds for the prompt, the first token included.
    decode_s: float = 0.0  #: Seconds for everything after.
    tokens_per_s: float = 0.0  #: Tokens after the first, over decode_s.
    finish_reason: str | None = None  #: "eos", "length", or None where the text was not finished.

    @classmethod
    def from_core(cls, stats: StatsDict) -> GenerateStats:
        by_proposer = {name: ProposerStats(*counts) for name, counts in stats["by_proposer"].items()}
        return cls(**{**stats, "by_proposer": by_proposer})  # type: ignore[arg-type]
