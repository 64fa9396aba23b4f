"""Which devices calibrate and which are held out: a rule that looks at no result.

Devices, by the id of their specification, are put in segments; in each they are sorted by their
number of usable rows, then by id, and dealt out in turn: the first calibrates, the second is held
out. Rows of one device are never on both sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from engine.simulator.intervals import segment
from engine.simulator.validation.plans import Plan


@dataclass(frozen=True, slots=True)
class Split:
    """Ids of devices on either side."""

    calibration: frozenset[str]
    held_out: frozenset[str]


def split_devices(plans: Sequence[Plan]) -> Split:
    """The two sides, by the rule above."""
    deals = dealt(plans, 2)
    return Split(deals[0], deals[1])


def dealt(plans: Sequence[Plan], hands: int) -> tuple[frozenset[str], ...]:
    """Devices dealt out to ``hands``, segment by segment."""
    counts = Counter(plan.case.hardware.id for plan in plans)
    segments = {plan.case.hardware.id: segment(plan.case.hardware) for plan in plans}
    found: list[set[str]] = [set() for _ in range(hands)]
    for name in sorted(set(segments.values())):
        members = [device for device in counts if segments[device] == name]
        members.sort(key=lambda device: (-counts[device], device))
        for place, device in enumerate(members):
            found[place % hands].add(device)
    return tuple(frozenset(hand) for hand in found)
