"""How fast a decoder decodes, against what memory bandwidth allows, and how much proposals gain."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from kwker import cpu_backend

if TYPE_CHECKING:
    from kwker.decode import KwkDecoder

__all__ = ["DecodeSpeed", "ProposalSpeed", "decode_speed", "proposal_speed", "table"]

_PROBE_MEGABYTES = 512


@dataclass(frozen=True)
class DecodeSpeed:
    """Medians over steps of one row each, and over the bandwidth probes between them."""

    precision: str
    ms_per_token: float
    weight_gb: float
    gb_per_s: float  #: Of weights.
    read_gb_per_s: float  #: That the machine reads.
    share: float  #: gb_per_s / read_gb_per_s


@dataclass(frozen=True)
class ProposalSpeed:
    """Whole generations, plain and with proposals."""

    precision: str
    lookup: int
    draft: bool
    tokens: int
    plain_tokens_per_s: float
    tokens_per_s: float
    speedup: float
    accepted: float  #: Share of the proposed tokens.
    equal: bool


def decode_speed(decoder: KwkDecoder, prompt: Sequence[int], *, rounds: int = 9, steps: int = 8) -> DecodeSpeed:
    """Alternates bandwidth probes with `steps` decode steps, because what a machine gives changes within seconds."""
    step_s: list[float] = []
    probes: list[float] = []
    # What is timed starts after one step, which warms up what it uses.
    with decoder.stream(prompt, 2 + rounds * steps, lookup=0, eos_token_id=None) as stream:
        next(stream), next(stream)
        for _ in range(rounds):
            probes.append(cpu_backend.read_bandwidth(_PROBE_MEGABYTES))
            for _ in range(steps):
                start = time.perf_counter()
                next(stream)
                step_s.append(time.perf_counter() - start)
    seconds, gb = median(step_s), decoder.weight_bytes / 1e9
    rate, read = gb / seconds, median(probes)
    return DecodeSpeed(decoder.precision, seconds * 1e3, gb, rate, read, rate / read)


def proposal_speed(
    decoder: KwkDecoder, prompt: Sequence[int], tokens: int, *, lookup: int, draft: KwkDecoder | None, rounds: int = 3
) -> ProposalSpeed:
    """Alternates plain generation with generation that proposes; medians of both."""
    plain: list[float] = []
    faster: list[float] = []
    equal = True
    for _ in range(rounds):
        expected = list(decoder.stream(prompt, tokens, lookup=0, eos_token_id=None))
        plain.append(decoder.stats.tokens_per_s)
        equal &= list(decoder.stream(prompt, tokens, lookup=lookup, draft=draft, eos_token_id=None)) == expected
        faster.append(decoder.stats.tokens_per_s)
    stats = decoder.stats
    accepted = stats.accepted / stats.proposed if stats.proposed else 0.0
    speedup = median(faster) / median(plain)
    return ProposalSpeed(
        decoder.precision,
        lookup,
        draft is not None,
        stats.tokens,
        median(plain),
        median(faster),
        speedup,
        accepted,
        equal,
    )


def table(speeds: Sequence[DecodeSpeed], gains: Sequence[ProposalSpeed]) -> list[str]:
    """The measurements as lines for people."""
    lines = ["precision    ms/token  tokens/s  weights GB   GB/s  machine GB/s  share"]
    for speed in speeds:
        lines.append(
            f"{speed.precision:<10} {speed.ms_per_token:10.2f} {1e3 / speed.ms_per_token:9.1f} {speed.weight_gb:11.3f}"
            f" {speed.gb_per_s:6.1f} {speed.read_gb_per_s:13.1f} {speed.share:6.0%}"
        )
    for gain in gains:
        how = " and ".join([f"lookup {gain.lookup}"] * (gain.lookup > 0) + ["draft"] * gain.draft)
        lines.append(
            f"{gain.precision}, {how}: {gain.plain_tokens_per_s:.1f} -> {gain.tokens_per_s:.1f} tokens/s"
            f" ({gain.speedup:.2f}x), {gain.accepted:.0%} accepted, {'same' if gain.equal else 'OTHER'} tokens"
        )
    return lines
