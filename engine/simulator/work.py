"""What a batch asks of the operators whose work is not linear in its tokens.

A measure reduces a ragged batch to three counts: query-key pairs, cached entries read, and tokens.
An entry that several queries of a sequence see is read once a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from engine.scheduling.plan import SequenceShape
from engine.simulator.attention_shape import causal_pairs, compressed_pairs, visible_positions

MOST_ABSORBED_TOKENS = 8
"""A sequence with a past and at most this many new tokens decodes (drafts to verify included)."""


class Work(NamedTuple):
    """Counts of one step, of one layer and head."""

    pairs: int
    reads: int
    tokens: int


class Measure(Protocol):
    """Counts the work of a batch; ``entry`` names what is read from the cache, for people."""

    entry: ClassVar[str]

    def count(self, shapes: Sequence[SequenceShape]) -> Work: ...


@dataclass(frozen=True, slots=True)
class CausalWork:
    """Every query sees its past, or the last ``window`` positions of it."""

    entry: ClassVar[str] = "cached positions"
    window: int | None = None

    def count(self, shapes: Sequence[SequenceShape]) -> Work:
        pairs = positions = tokens = 0
        window = self.window
        for shape in shapes:
            new, prefix = shape.new_tokens, shape.prefix_tokens
            tokens += new
            end = prefix + new
            if window is None:
                pairs += new * end - new * (new - 1) // 2
                positions += end
            elif new == 1:
                seen = end if end < window else window
                pairs += seen
                positions += seen
            else:
                pairs += causal_pairs(prefix, new, window)
                positions += visible_positions(prefix, new, window)
        return Work(pairs, positions, tokens)


def is_decode(shape: SequenceShape) -> bool:
    """Few new tokens over a past: latent attention leaves the past compressed."""
    return shape.prefix_tokens > 0 and shape.new_tokens <= MOST_ABSORBED_TOKENS


@dataclass(frozen=True, slots=True)
class LatentWork:
    """The sequences that decode (``absorbed``), or those that run a chunk of their prompt."""

    entry: ClassVar[str] = "cached latents"
    absorbed: bool

    def count(self, shapes: Sequence[SequenceShape]) -> Work:
        pairs = positions = tokens = 0
        for shape in shapes:
            new, prefix = shape.new_tokens, shape.prefix_tokens
            if is_decode(shape) is not self.absorbed:
                continue
            end = prefix + new
            pairs += new * end - new * (new - 1) // 2
            positions += end
            tokens += new
        return Work(pairs, positions, tokens)


@dataclass(frozen=True, slots=True)
class EntryWork:
    """Entries of ``ratio`` positions each, beside a window of single positions.

    A query sees the last ``window`` positions and every complete entry, or the ``most`` entries
    that an indexer picks. How many different ones the queries of a sequence pick is not known
    before: the fewest reads are counted that serve them, all of the entries at most.
    """

    entry: ClassVar[str] = "cached entries"
    ratio: int
    most: int | None = None
    window: int = 0

    def count(self, shapes: Sequence[SequenceShape]) -> Work:
        pairs = reads = tokens = 0
        ratio, most, window = self.ratio, self.most, self.window
        for shape in shapes:
            new, prefix = shape.new_tokens, shape.prefix_tokens
            end = prefix + new
            tokens += new
            entries = end // ratio
            if new == 1:
                # A decoding query reads what it sees: the usual case, and called every step.
                seen = entries if most is None or entries < most else most
                if window:
                    seen += end if end < window else window
                pairs += seen
                reads += seen
                continue
            seen = compressed_pairs(prefix, new, ratio, most)
            pairs += seen
            reads += min(entries, seen)
            if window:
                pairs += causal_pairs(prefix, new, window)
                reads += visible_positions(prefix, new, window)
        return Work(pairs, reads, tokens)


@dataclass(frozen=True, slots=True)
class StateWork:
    """One state a sequence, however long it is."""

    entry: ClassVar[str] = "sequences"

    def count(self, shapes: Sequence[SequenceShape]) -> Work:
        return Work(0, len(shapes), sum([shape.new_tokens for shape in shapes]))
