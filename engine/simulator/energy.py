"""Energy a token: a heuristic, not a measurement.

A device's power is taken to rise linearly from an idle share of its TDP to all of it with how busy
its busier part is:

    P = TDP (idle + (1 - idle) max(MFU, MBU))

MFU and MBU are the step's FLOPs and bytes over what the device could do in its time. The form is
usual (power follows utilization, as for servers in Fan, Weber and Barroso 2007, "Power
provisioning for a warehouse-sized computer"); the idle share is an assumption that can be set. The
host, cooling and network are left out. TDP all of the time is given beside it as an upper bound.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.refusals import refused
from engine.scheduling.plan import SequenceShape
from engine.simulator.deployment import Deployment, ideal_model
from engine.simulator.run import BatchRun
from engine.simulator.step_shape import repeated_shape

IDLE_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class PhaseEnergy:
    """One phase: utilizations between 0 and 1, W of one device, J a token and J at TDP."""

    mfu: float
    mbu: float
    power: float
    per_token: float
    at_most: float


@dataclass(frozen=True, slots=True)
class Energy:
    """``prompt`` is of a prompt token, ``output`` of a decoded one (None if there is none)."""

    tdp: float
    idle_share: float
    prompt: PhaseEnergy
    output: PhaseEnergy | None


def energy(run: BatchRun, idle_share: float = IDLE_SHARE) -> Energy | None:
    """The run's energy a token; None where the device's TDP is not known.

    Raises:
        InvalidRequest: ``idle_share`` is no share.
    """
    if not 0 <= idle_share <= 1:
        raise refused("choose_number", field="idle_share", low=0, high=1)
    tdp = run.deployment.hardware_spec.tdp
    if tdp is None:
        return None
    batch, prompts = run.batch, run.prompts

    def phase(
        deployment: Deployment, shape: SequenceShape, step: float, seconds: float, tokens: int
    ) -> PhaseEnergy:
        mfu, mbu = _utilizations(deployment, run.group_requests, shape, step)
        power = tdp * (idle_share + (1 - idle_share) * max(mfu, mbu))
        paid = deployment.layout.devices * seconds / tokens
        return PhaseEnergy(mfu, mbu, power, power * paid, tdp * paid)

    prompt = phase(
        run.prefill_deployment,
        SequenceShape(prompts.cached, prompts.new, True),
        run.prefill.total,
        run.prefill.total,
        batch.requests * batch.prompt_tokens,
    )
    output = None
    if run.decode is not None:
        drafts = 0 if run.features.speculation is None else run.features.speculation.drafts
        middle = batch.prompt_tokens + batch.output_tokens // 2
        output = phase(
            run.deployment,
            SequenceShape(middle, 1 + drafts, True, drafts),
            run.decode.step + run.decode.drafting,
            run.decode_time,
            batch.requests * (batch.output_tokens - 1),
        )
    return Energy(tdp, idle_share, prompt, output)


def _utilizations(
    deployment: Deployment, sequences: int, shape: SequenceShape, seconds: float
) -> tuple[float, float]:
    """MFU and MBU of a step of so many sequences on one group that takes so long."""
    model, layout = deployment.cost_model(), deployment.layout
    cost = model.cost_of(repeated_shape(model.step, [(sequences, shape)]))
    roofline = ideal_model(model).roofline
    could = seconds * layout.tensor * layout.stages
    return (
        min(cost.flops / (could * roofline.matmul), 1.0),
        min(cost.bytes / (could * roofline.bandwidth), 1.0),
    )
