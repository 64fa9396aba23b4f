"""A batch of equal requests on a deployment, with an engine's features, in closed form.

    deployment = Deployment("llama-3.1-8b", "h100-sxm", times="typical")
    features = Features(chunk_tokens=2048, speculation=Speculation(4, 0.7))
    run = run_batch(deployment, Batch(8, 512, 128), features)
    run.ttft, run.tpot, run.e2e, run.tokens_per_s        seconds, tokens/s of all devices
    run.prefill, run.decode, run.restored, run.transfer  what they are made of

``engine.simulator.estimates`` puts intervals around typical times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from engine.catalog.inline import model_from
from engine.catalog.units import GB
from engine.errors import InvalidRequest
from engine.simulator.cost_model import CostModel
from engine.simulator.deployment import Deployment
from engine.simulator.features import Disaggregation, Features, Offload
from engine.simulator.phases import Decode, Prefill, Prompts, decode, prefill
from engine.simulator.pipeline import PipelinedCostModel
from engine.simulator.typical import TypicalCostModel


@dataclass(frozen=True, slots=True)
class Batch:
    """``requests`` equal ones that arrive together, dealt out evenly over the groups."""

    requests: int
    prompt_tokens: int
    output_tokens: int

    def of_group(self, groups: int) -> int:
        """Requests of the fullest group of data parallelism."""
        return math.ceil(self.requests / groups)


@dataclass(frozen=True, slots=True)
class Restored:
    """A cache that comes back from the host, against computing it again.

    ``tokens`` of each request, ``bytes`` over each device's link, times in s. ``in_ttft``: the
    prefix was found there, so that its way back is part of the time to the first token.
    """

    tokens: int
    bytes: float
    bring_back: float
    recompute: float
    in_ttft: bool


@dataclass(frozen=True, slots=True)
class Transfer:
    """Caches that go from the prefill group to the decode group after the first token.

    ``bytes`` of one request over all ``links``, ``time`` in s of all that arrive together.
    ``groups`` prefill groups keep one decode group busy (None: nothing is decoded).
    """

    bytes: float
    links: int
    time: float
    groups: float | None


@dataclass(frozen=True, slots=True)
class BatchRun:
    """Times in s; ``tpot`` and ``decode`` are None with one output token.

    ``ttft`` is the mean over the requests, ``e2e`` the time until the last of them is done.
    ``first_token`` is what the host adds to a first token.
    """

    deployment: Deployment
    batch: Batch
    features: Features
    prompts: Prompts
    prefill: Prefill
    decode: Decode | None
    first_token: float
    restored: Restored | None
    transfer: Transfer | None

    @property
    def group_requests(self) -> int:
        """Requests of one group of data parallelism."""
        return self.prompts.sequences

    @property
    def prefill_deployment(self) -> Deployment:
        """What runs the prompts: the deployment, or a group of its own."""
        split = self.features.disaggregation
        return self.deployment if split is None else _prefill_group(self.deployment, split)

    @property
    def device_seconds(self) -> tuple[float, float]:
        """Seconds of all devices for the prompts and for the rest.

        A prefill group of its own is taken to be busy with other prompts while these decode.
        """
        before = self.before_prefill + self.prefill.total
        return (
            self.prefill_deployment.layout.devices * before,
            self.deployment.layout.devices * self.decode_time,
        )

    @property
    def before_prefill(self) -> float:
        """Seconds before the first prompt token is computed."""
        bringing = self.restored.bring_back if self.restored and self.restored.in_ttft else 0.0
        return self.first_token + bringing

    @property
    def ttft(self) -> float:
        return self.before_prefill + self.prefill.mean

    @property
    def decode_time(self) -> float:
        """Seconds from the last request's first token to its last, a transfer included."""
        if self.decode is None:
            return 0.0
        moving = self.transfer.time if self.transfer else 0.0
        return moving + (self.batch.output_tokens - 1) * self.decode.tpot

    @property
    def tpot(self) -> float | None:
        if self.decode is None:
            return None
        return self.decode_time / (self.batch.output_tokens - 1)

    @property
    def e2e(self) -> float:
        return self.before_prefill + self.prefill.total + self.decode_time

    @property
    def tokens_per_s(self) -> float:
        """Output tokens of all requests over the time until the last."""
        return self.batch.requests * self.batch.output_tokens / self.e2e


def run_batch(deployment: Deployment, batch: Batch, features: Features) -> BatchRun:
    """The batch in closed form.

    Raises:
        UnknownName, InvalidRequest, UnsupportedModel: as for ``Deployment.cost_model``, and for
            the draft model (field "speculation.draft_model").
    """
    model = deployment.cost_model()
    sequences = batch.of_group(deployment.layout.data)
    cached = features.cached_tokens(batch.prompt_tokens, deployment.block_size)
    prompts = Prompts(sequences, cached, batch.prompt_tokens - cached, features.chunk_tokens)
    split = features.disaggregation
    prefiller = model if split is None else _prefill_group(deployment, split).cost_model()
    steps = batch.output_tokens - 1
    done = prefill(prefiller, prompts)
    decoding = None
    if steps:
        drafts = drafting(deployment, features)
        drafter = None if drafts is None else drafts.cost_model()
        start = batch.prompt_tokens
        decoding = decode(model, sequences, start, steps, features.speculation, drafter)
    restored = transfer = None
    if features.offload is not None:
        restored = _restored(deployment, prefiller, prompts, features.offload)
    if split is not None:
        transfer = _transfer(deployment, batch, prompts, split, done, decoding)
    first = first_token_overhead(model)
    return BatchRun(deployment, batch, features, prompts, done, decoding, first, restored, transfer)


def first_token_overhead(model: CostModel) -> float:
    """Seconds that a serving engine's host adds to a first token; ideal times have none."""
    whole = model.whole if isinstance(model, PipelinedCostModel) else model
    return whole.first_token_overhead if isinstance(whole, TypicalCostModel) else 0.0


def _prefill_group(deployment: Deployment, split: Disaggregation) -> Deployment:
    if split.devices is None:
        return deployment
    return replace(deployment, layout=replace(deployment.layout, tensor=split.devices))


def drafting(deployment: Deployment, features: Features) -> Deployment | None:
    """The draft model on the devices of one stage; None where no model drafts.

    Raises:
        UnknownName, InvalidRequest, UnsupportedModel: of the model (field
            "speculation.draft_model").
    """
    speculation = features.speculation
    if speculation is None or speculation.draft_model is None:
        return None
    try:
        model = model_from(speculation.draft_model)
    except InvalidRequest as error:
        raise error.at("speculation.draft_model") from None
    layout = replace(deployment.layout, stages=1, experts=False)
    return replace(deployment, model=model, layout=layout)


def _restored(
    deployment: Deployment, model: CostModel, prompts: Prompts, offload: Offload
) -> Restored:
    """The found prefix's way back; without one, that of a whole prompt that was swapped out."""
    found = prompts.cached > 0
    tokens = prompts.cached if found else prompts.tokens
    moved = prompts.sequences * float(deployment.placement().kv_bytes(tokens))
    again = prefill(model, Prompts(prompts.sequences, 0, tokens, prompts.chunk))
    return Restored(tokens, moved, moved / (offload.link_gb_s * GB), again.total, found)


def _transfer(
    deployment: Deployment,
    batch: Batch,
    prompts: Prompts,
    split: Disaggregation,
    done: Prefill,
    decoding: Decode | None,
) -> Transfer:
    """One copy of the cache, over the links of the smaller group; none of it is overlapped."""
    model, kv = deployment.model_spec, deployment.cost_model().step.formats.kv
    moved = float(model.kv_cache_bytes(batch.prompt_tokens, kv.bits, deployment.block_size))
    layout = deployment.layout
    links = layout.stages * min(layout.tensor, split.devices or layout.tensor)
    time = prompts.sequences * moved / (links * split.link_gb_s * GB)
    busy = (batch.output_tokens - 1) * decoding.tpot if decoding else 0.0
    return Transfer(moved, links, time, done.total / busy if busy else None)
