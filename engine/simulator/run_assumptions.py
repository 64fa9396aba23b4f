"""What a run with features, stages or groups takes for granted, in words."""

from __future__ import annotations

from engine.catalog.units import count, si_label
from engine.simulator.pipeline import Pipeline
from engine.simulator.run import BatchRun


def run_assumptions(run: BatchRun) -> list[str]:
    """Lines for what the run has."""
    return [*_arrival(run), *_groups(run), *_stages(run), *_features(run), *_caches(run)]


def _arrival(run: BatchRun) -> list[str]:
    prompts = run.prompts
    if prompts.chunk is None:
        how = "all prompts of a group in one step"
    else:
        how = (
            f"{prompts.chunk:,} prompt tokens a step at most, first come, first served; those that "
            "are done decode beside the others' chunks, half of them on average, and what a last "
            "chunk leaves free is not filled"
        )
    return [
        f"{count(run.batch.requests, 'request')}, all there from the start: {how}; then all decode "
        "together to the end. Times are closed forms of the steps' costs: contexts that grow are "
        "integrated at two points.",
        "The prefill section shows the largest step of the prompts, the decode section the middle "
        "step of decoding.",
    ]


def _groups(run: BatchRun) -> list[str]:
    layout = run.deployment.layout
    lines: list[str] = []
    if layout.data > 1:
        lines.append(
            f"{layout.data} groups share the requests; the fullest has {run.group_requests:,}, and "
            "its times are given. FLOPs, bytes and memory are of one group."
        )
    if layout.owners > 1:
        lines.append(
            f"The groups share out the routed experts: each token goes to its experts' groups and "
            f"back. The busiest group does {layout.imbalance:g} times the mean"
            + (" (routing is uniform)." if layout.imbalance == 1 else ".")
        )
    if layout.per_node is not None and layout.devices > layout.per_node:
        lines.append(
            f"{layout.per_node} devices are a node; between nodes each device has "
            f"{run.deployment.network.type} at {si_label(run.deployment.network.bandwidth, 'B/s')}."
        )
    return lines


def _stages(run: BatchRun) -> list[str]:
    layout = run.deployment.layout
    if layout.stages == 1:
        return []
    pipeline = Pipeline(layout.stages, run.deployment.model_spec.num_layers)
    parts = pipeline.microbatches(run.group_requests)
    return [
        f"{layout.stages} stages of whole layers; a step is divided into {parts} equal parts, one "
        "a stage at most, each of which reads the weights again. Prompts find the pipeline empty, "
        "decode steps find it full. One request alone is not divided and gains no time. The steps "
        "shown are of one part on its way through all stages.",
    ]


def _features(run: BatchRun) -> list[str]:
    features = run.features
    lines: list[str] = []
    if features.prefix_hit_rate:
        lines.append(
            f"{run.prompts.cached:,} tokens of each prompt are found in the cache, whole blocks of "
            f"{run.deployment.block_size}; the last token is always computed. Every request keeps "
            "its cache to itself: memory is not shared."
        )
    speculation = features.speculation
    if speculation is not None:
        drafter = (
            f"{speculation.draft_model} on the same devices, one pass a draft; the limits count "
            "its weights and cache too"
            if speculation.draft_model is not None
            else f"{speculation.draft_fraction:g} of a plain step for each draft"
        )
        lines.append(
            f"Speculation: {speculation.drafts} drafts a step, each right by a chance of "
            f"{speculation.acceptance:g} on its own; they cost {drafter}. Verifying is a step of "
            f"{speculation.drafts + 1} positions a request."
        )
    return lines


def _caches(run: BatchRun) -> list[str]:
    lines: list[str] = []
    if run.restored is not None:
        where = (
            "before the prompt's rest is computed"
            if run.restored.in_ttft
            else ("if the requests were swapped out and came back; no part of the times above")
        )
        lines.append(
            "The cache lies in the host's memory and comes back over each device's own link at "
            f"its full rate, {where}."
        )
    if run.transfer is not None:
        lines.append(
            "Prompts run on a group of their own; one copy of each cache travels at the links' "
            "full rate after the first token and is waited for. The second token's gap holds it."
        )
    return lines
