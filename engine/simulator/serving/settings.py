"""What the serving engine is set to, and what the service promises."""

from __future__ import annotations

from dataclasses import dataclass

from engine.refusals import refused
from engine.scheduling.policies import POLICIES
from engine.simulator.serving.checks import optional_number, whole

UNLIMITED_WAITING = 2**31
"""A simulated queue refuses nobody: what does not get a place waits."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """``max_running`` requests run at once, ``max_step_tokens`` tokens in a step.

    vLLM calls them max_num_seqs and max_num_batched_tokens. With ``chunked_prefill`` prompts are
    split over steps and run beside the others' decoding; without, a step takes whole prompts and
    the others wait meanwhile. ``prefix_caching`` finds the beginnings of prompts again.
    ``kv_blocks`` of one data-parallel group: None takes what the devices have room for.

    Raises:
        InvalidRequest: a value is out of range (names the field).
    """

    max_running: int = 256
    max_step_tokens: int = 8192
    chunked_prefill: bool = True
    prefix_caching: bool = False
    policy: str = "first-come"
    kv_blocks: int | None = None

    def __post_init__(self) -> None:
        whole(self.max_running, 1, 65_536, "max_running")
        whole(self.max_step_tokens, 1, 16_777_216, "max_step_tokens")
        if self.policy not in POLICIES:
            raise refused("choose_one", field="policy", choices=", ".join(POLICIES))
        if self.kv_blocks is not None:
            whole(self.kv_blocks, 1, 2**31, "kv_blocks")


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """Limits in seconds that a good request keeps, each of them if it is given.

    ``tpot_s`` is judged on the mean gap of a request; with one output token there is none.

    Raises:
        InvalidRequest: a limit is out of range (names the field).
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("ttft_s", "tpot_s", "e2e_s"):
            optional_number(getattr(self, name), 1e-9, 1e9, name)

    @property
    def is_given(self) -> bool:
        return not (self.ttft_s is None and self.tpot_s is None and self.e2e_s is None)

    def kept_by(self, ttft: float, tpot: float | None, e2e: float) -> bool:
        """Whether a request with these times keeps every limit."""
        return (
            (self.ttft_s is None or ttft <= self.ttft_s)
            and (self.tpot_s is None or tpot is None or tpot <= self.tpot_s)
            and (self.e2e_s is None or e2e <= self.e2e_s)
        )
