"""How long nothing but the number of tokens changes: steps of plain decoding of the same requests.

A simulation books such a stretch in one go, with the same result as step by step.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.scheduling.blocks import blocks_for
from engine.scheduling.request import Request


def uniform_steps_of(request: Request) -> int:
    """Steps that give a running request its remaining tokens; 0 if it does not plainly decode."""
    output = request.output_token_ids
    known = len(request.prompt_token_ids) + len(output)
    if request.num_computed_tokens + 1 != known or not output:
        return 0
    if request.stop_token_ids or request.speculation is not None:
        return 0
    return request.max_tokens - len(output)


def steps_within(
    running: Sequence[Request], steps: int, num_available: int, block_size: int
) -> int:
    """Of so many uniform steps, those for which there are blocks."""
    if len(running) * blocks_for(steps, block_size) <= num_available:
        return steps  # each needs one block for 16 tokens, wherever its last one ends
    low, high = 0, steps + 1
    while high - low > 1:
        middle = (low + high) // 2
        fits = _blocks_needed(running, middle, block_size) <= num_available
        low, high = (middle, high) if fits else (low, middle)
    return low


def _blocks_needed(running: Sequence[Request], steps: int, block_size: int) -> int:
    return sum(
        max(blocks_for(r.num_computed_tokens + steps, block_size) - len(r.block_table), 0)
        for r in running
    )
