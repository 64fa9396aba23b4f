"""A smaller model with the same tokens, as the drafter (Leviathan et al. 2023, arXiv 2211.17192).

It has a KV cache of its own, with blocks that belong to requests and not to the scheduler: a
preempted request keeps its drafts' keys and values, and one that has not drafted for the longest
time loses them when others need room. Nothing that happens here changes what is said, only how many
drafts there are and how good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.errors import StepFailed, UnsupportedModel
from engine.inference.kv_cache.make import make_cache
from engine.inference.lane_settings import KVSettings
from engine.inference.model.transformer import Transformer
from engine.inference.model_steps import ModelSteps
from engine.inference.speculation.in_step import SampleNext, draft_with
from engine.inference.tokenizer import Tokenizer
from engine.scheduling.blocks import DEFAULT_BLOCK_SIZE, BlockPool, blocks_for
from engine.scheduling.plan import Phase, ScheduledSequence, StepPlan

# Of a text that is new here, so much is read at once: enough for full speed, and bounded in memory.
_CHUNK = 512


def check_same_tokens(tokenizer: Tokenizer, draft_tokenizer: Tokenizer) -> None:
    """Refuse a drafter whose ids stand for other texts.

    Raises:
        UnsupportedModel: an id of one means something else in the other.
    """
    same = tokenizer.vocab_size == draft_tokenizer.vocab_size and all(
        tokenizer.token_bytes(token) == draft_tokenizer.token_bytes(token)
        for token in range(tokenizer.vocab_size)
    )
    if not same:
        raise UnsupportedModel("the draft model has another tokenizer: its drafts are other words")


@dataclass(slots=True)
class _Text:
    """What of a request's text the drafter's cache holds.

    ``computed`` positions of it, and after them the drafts ``fed``, of which those count that
    became text.
    """

    table: list[int] = field(default_factory=list[int])
    computed: int = 0
    fed: list[int] = field(default_factory=list[int])

    def catch_up(self, known: Sequence[int]) -> None:
        """Compare the drafts with the text as it is now; one token of it is left to compute."""
        for token in self.fed:
            if self.computed >= len(known) or known[self.computed] != token:
                break
            self.computed += 1
        self.fed = []
        self.computed = min(self.computed, len(known) - 1)


class DraftModel:
    """Drafts by a model of its own, in the same order of token ids."""

    def __init__(
        self,
        transformer: Transformer,
        *,
        vocab_size: int,
        num_blocks: int,
        block_size: int = DEFAULT_BLOCK_SIZE,
    ) -> None:
        """``vocab_size``: of the model that verifies. ``num_blocks``: of the drafter's cache.

        Raises:
            UnsupportedModel: the two vocabularies differ in size.
        """
        if transformer.config.vocab_size != vocab_size:
            raise UnsupportedModel(
                f"the draft model has {transformer.config.vocab_size} tokens and the model "
                f"{vocab_size}: drafts need the same vocabulary"
            )
        self._transformer = transformer
        self._pool = BlockPool(num_blocks, block_size)
        self._cache = make_cache(
            transformer.config,
            KVSettings(),
            num_blocks=num_blocks,
            dtype=transformer.dtype,
            device=transformer.device,
            block_size=block_size,
        )
        self._model = ModelSteps(transformer, self._cache, num_tokens=vocab_size)
        # In the order in which they drafted last.
        self._texts: dict[str, _Text] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of its weights and its cache."""
        return self._model.weight_bytes + self._cache.nbytes

    @property
    def num_used_blocks(self) -> int:
        """Blocks of its cache that belong to some request."""
        return self._pool.num_used

    def draft(self, sequences: Sequence[ScheduledSequence], sample: SampleNext) -> list[list[int]]:
        """No drafts for a sequence for which there is no room."""
        in_step = {sequence.request_id for sequence in sequences}
        feeds: dict[str, ScheduledSequence] = {}
        for sequence in sequences:
            feed = self._prepare(sequence, in_step)
            if feed is not None:
                feeds[sequence.request_id] = feed
        able = [sequence for sequence in sequences if sequence.request_id in feeds]
        try:
            rest = [self._read_ahead(feeds[sequence.request_id]) for sequence in able]
            made = draft_with(self._model, rest, able, sample)
        except StepFailed:
            tables = (block for text in self._texts.values() for block in text.table)
            self._cache.zero(self._cache.not_finite(tables))
            raise
        drafts: dict[str, list[int]] = {}
        for sequence, tokens in zip(able, made, strict=True):
            drafts[sequence.request_id] = tokens
            text = self._texts[sequence.request_id]
            # The last draft was sampled and not read.
            text.computed, text.fed = sequence.start + 1, tokens[:-1]
        return [drafts.get(sequence.request_id, []) for sequence in sequences]

    def release(self, request_id: str) -> None:
        text = self._texts.pop(request_id, None)
        if text is not None:
            self._pool.release(reversed(text.table))

    def _prepare(self, sequence: ScheduledSequence, in_step: set[str]) -> ScheduledSequence | None:
        """What the model has to read of a text, with room for the drafts; None without room."""
        known = [*sequence.prompt_token_ids, *sequence.output_token_ids]
        # The last draft is not read.
        length = len(known) + sequence.num_drafts - 1
        limit = min(self._transformer.max_positions, self._transformer.config.max_context)
        text = self._texts.pop(sequence.request_id, _Text())
        self._texts[sequence.request_id] = text
        missing = blocks_for(length, self._pool.block_size) - len(text.table)
        if length > limit or not self._make_room(missing, in_step):
            return None
        text.table += self._pool.allocate(max(0, missing))
        text.catch_up(known)
        return ScheduledSequence(
            sequence.request_id,
            Phase.PREFILL,
            text.computed,
            known[text.computed :],
            text.table,
            samples=True,
        )

    def _make_room(self, num_blocks: int, in_step: set[str]) -> bool:
        """Take blocks from those that have not drafted for the longest time, if need be."""
        for request_id in [name for name in self._texts if name not in in_step]:
            if num_blocks <= self._pool.num_available:
                break
            self.release(request_id)
        return num_blocks <= self._pool.num_available

    def _read_ahead(self, feed: ScheduledSequence) -> ScheduledSequence:
        """Read all but the last chunk of what a text has to be caught up with."""
        while feed.num_tokens > _CHUNK:
            chunk = feed._replace(token_ids=feed.token_ids[:_CHUNK], samples=False)
            self._model.logits(StepPlan(0, (chunk,)))
            feed = feed._replace(start=feed.start + _CHUNK, token_ids=feed.token_ids[_CHUNK:])
        return feed
