"""How many requests, and how long ones, a deployment holds: found by inverting the true curve.

Nothing is linearised: whole blocks, windows, states, replicated heads and the activations of the
largest step all count, and the answer n fits where n + 1 does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.simulator.deployment import Deployment
from engine.simulator.features import Features
from engine.simulator.placement import Load, Placement, largest
from engine.simulator.run import Batch, drafting

MOST_REQUESTS = 2**20
MOST_CONTEXT = 2**26


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the fullest device of a deployment holds with a batch, in bytes, and the limits.

    ``largest_batch`` counts requests of the batch's lengths, of all groups together;
    ``longest_context`` the positions that each of the batch's requests may reach with as many
    output tokens; None beyond ``MOST_CONTEXT``. 0: not even one fits.
    """

    placement: Placement
    load: Load
    largest_batch: int
    longest_context: int | None

    @property
    def fits(self) -> bool:
        return self.placement.fits(self.load)


def load_of(batch: Batch, features: Features, groups: int) -> Load:
    """What one group holds at its peak: the whole context of all, and the largest step.

    Prompts run in one step, or as many tokens of them as a chunk has. The last sampled token is
    never fed back, so its position is not cached.
    """
    sequences = batch.of_group(groups)
    tokens = batch.prompt_tokens + batch.output_tokens - 1
    step = sequences * batch.prompt_tokens
    if features.chunk_tokens is not None:
        step = min(step, features.chunk_tokens + sequences)
    return Load(sequences, tokens, step)


def capacity(deployment: Deployment, batch: Batch, features: Features) -> Capacity:
    """The batch's load and the limits around it.

    Raises:
        UnknownName, InvalidRequest, UnsupportedModel: as for ``Deployment.cost_model``.
    """
    drafts = drafting(deployment, features)
    drafter = None if drafts is None else drafts.placement()
    placement, groups = replace(deployment.placement(), drafter=drafter), deployment.layout.data
    output, room = batch.output_tokens, placement.usable - placement.weights

    def holds(requests: int, context: int) -> bool:
        tried = Batch(requests, context - output + 1, output)
        return placement.beside_weights(load_of(tried, features, groups)) <= room

    positions = batch.prompt_tokens + output - 1
    most_a_group = largest(
        lambda sequences: holds(sequences * groups, positions), MOST_REQUESTS // groups
    )
    longest = largest(lambda prompt: holds(batch.requests, prompt + output - 1), MOST_CONTEXT)
    return Capacity(
        placement,
        load_of(batch, features, groups),
        most_a_group * groups,
        None if longest == MOST_CONTEXT else longest and longest + output - 1,
    )
