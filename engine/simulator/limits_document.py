"""What the fullest device holds, and the limits of batch and context, as a document."""

from __future__ import annotations

from fractions import Fraction

from engine.catalog.precision import whole
from engine.catalog.units import bytes_label
from engine.simulator.capacity import MOST_CONTEXT, Capacity
from engine.simulator.quantity import Document, Sources, quantity
from engine.simulator.run import BatchRun


def write_limits(found: Capacity, run: BatchRun, sources: Sources) -> Document:
    """Bytes of the fullest device, and the largest batch and longest context that fit."""
    placement, load = found.placement, found.load
    needed, usable = placement.needed(load), placement.usable
    source = sources.structure
    batch, chunk = run.batch, run.features.chunk_tokens

    def held(value: Fraction, formula: str) -> Document:
        return quantity(whole(value), "B", formula, source)

    step = "all prompts in one step" if chunk is None else f"chunks of {chunk:,} tokens"
    return {
        "usable": held(
            usable,
            f"{placement.utilization:g} of {bytes_label(placement.memory)}: the rest is left to "
            "the driver and the engine",
        ),
        "needed": held(needed, "weights + requests × cache + activations, of the fullest device"),
        "weights": held(placement.weights, _weights_words(found)),
        "cache_per_request": held(
            placement.kv_bytes(load.tokens),
            f"{load.tokens:,} positions in blocks of {placement.block_size}, and states; "
            f"{load.sequences:,} requests in each of {run.deployment.layout.data} groups",
        ),
        "activations": held(
            placement.activations(load.step_tokens, load.sequences),
            f"a step of {load.step_tokens:,} tokens",
        ),
        "fits": quantity(
            found.fits,
            "bool",
            f"{bytes_label(float(needed))} {'≤' if found.fits else '>'} "
            f"{bytes_label(float(usable))}, of the part of the memory that may be filled",
            source,
        ),
        "largest_batch": quantity(
            found.largest_batch,
            "requests",
            f"the most requests of {batch.prompt_tokens:,} + {batch.output_tokens:,} tokens that "
            f"fit, {step}: one more in a group does not",
            source,
        ),
        "longest_context": quantity(
            found.longest_context,
            "positions",
            f"more than {MOST_CONTEXT:,}"
            if found.longest_context is None
            else f"the most that each of {batch.requests:,} requests may hold, {step}: one more "
            "does not fit",
            source,
        ),
    }


def _weights_words(found: Capacity) -> str:
    placement = found.placement
    layout, layers = placement.layout, placement.step.model.num_layers
    words = ["what this device keeps of all matrices"]
    if layout.tensor > 1:
        words.append(f"divided over {layout.tensor}, norms and down-projections whole")
    if layout.owners > 1:
        words.append(f"a part in {layout.owners} of the routed experts")
    if layout.stages > 1:
        words.append(f"{-(-layers // layout.stages)} of {layers} layers and the larger end")
    if placement.drafter is not None:
        words.append(f"and those of {placement.drafter.step.model.id}, which drafts")
    return ", ".join(words)
