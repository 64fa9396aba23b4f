"""Lanes side by side on the held-out text: size, distance from the reference, text and speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch

from engine.inference.executor import TorchExecutor
from engine.inference.lane_orders import Report, no_report
from engine.inference.lane_settings import KVSettings, WeightSettings, parse_weights
from engine.inference.quantization.calibration_text import HELD_OUT, token_windows
from engine.inference.quantization.lane import (
    GreedyRun,
    Lane,
    go_on,
    logits_through_cache,
    open_lane,
)
from engine.inference.quantization.quality import Judge, Quality
from engine.inference.weights.checkpoint import Checkpoint
from engine.scheduling.blocks import DEFAULT_BLOCK_SIZE, blocks_for

DEFAULT_TOKENS = 4_096
PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "Water boils at a lower temperature on a mountain because",
)
TEXT_TOKENS = 32

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sample:
    """How a prompt goes on greedily. ``text`` is without the prompt."""

    prompt: str
    text: str


@dataclass(frozen=True, slots=True)
class LaneReport:
    """``decode_tokens_per_s``: measured, one sequence, the median step of the samples; None where
    they ended at once.
    ``bits_per_weight``: of the quantised matrices, scales and offsets included. ``weight_bytes``:
    all weights in memory."""

    weights: str
    kv: str
    weight_bytes: int
    bits_per_weight: float
    kv_bytes_per_token: int
    quality: Quality
    samples: tuple[Sample, ...]
    decode_tokens_per_s: float | None


@dataclass(frozen=True, slots=True)
class QualityReport:
    """``source_format``: what the weights had been rounded to before anything here touched them:
    the reference is that file, expanded to float32."""

    model: str
    source_format: str
    random_weights: bool
    activations: str
    num_tokens: int
    reference_samples: tuple[Sample, ...]
    lanes: tuple[LaneReport, ...]

    def to_document(self) -> dict[str, Any]:
        """JSON values only."""
        return asdict(self)


def report_quality(
    checkpoint: Checkpoint,
    lanes: Sequence[tuple[WeightSettings, KVSettings]],
    *,
    device: torch.device,
    activations: torch.dtype = torch.float32,
    num_tokens: int = DEFAULT_TOKENS,
    random_weights: bool = False,
    say: Say = lambda line: None,
    report: Report = no_report,
    lane_done: Callable[[LaneReport], None] = lambda report: None,
) -> QualityReport:
    """Judge every lane against the file's own weights in float32 with a plain cache.

    ``activations``: the dtype that quantised lanes compute in. ``num_tokens``: of the held-out
    text, or all it has.

    Raises:
        InvalidRequest, UnsupportedModel: see ``open_lane``.
    """
    windows = token_windows(HELD_OUT, checkpoint.tokenizer(), checkpoint.config, num_tokens)
    windows = [window for window in windows if len(window) > 1]
    longest = max(map(len, windows))
    say("reference: float32")
    float32 = parse_weights("float32")
    reference = open_lane(checkpoint, float32, activations=torch.float32, device=device)
    reports: list[LaneReport] = []
    reference_logits = logits_through_cache(reference.transformer, KVSettings(), longest=longest)
    with Judge(reference_logits, windows) as judge:
        reference_runs = _runs(checkpoint, _executor(checkpoint, reference, KVSettings()))
        del reference, reference_logits
        for weights, kv in lanes:
            say(f"{weights.name}, {kv.name}")
            lane = open_lane(
                checkpoint, weights, activations=activations, device=device, report=report
            )
            quality = judge.judge(logits_through_cache(lane.transformer, kv, longest=longest))
            reports.append(_lane_report(checkpoint, lane, (weights, kv), quality))
            lane_done(reports[-1])
    return QualityReport(
        model=checkpoint.config.name,
        source_format=checkpoint.source_format,
        random_weights=random_weights,
        activations=str(activations).removeprefix("torch."),
        num_tokens=sum(map(len, windows)),
        reference_samples=_samples(checkpoint, reference_runs),
        lanes=tuple(reports),
    )


def _lane_report(
    checkpoint: Checkpoint,
    lane: Lane,
    settings: tuple[WeightSettings, KVSettings],
    quality: Quality,
) -> LaneReport:
    weights, kv = settings
    executor = _executor(checkpoint, lane, kv)
    runs = _runs(checkpoint, executor)
    return LaneReport(
        weights=weights.name,
        kv=kv.name,
        weight_bytes=lane.weight_bytes,
        bits_per_weight=lane.bits_per_weight,
        kv_bytes_per_token=executor.kv_bytes_per_token,
        quality=quality,
        samples=_samples(checkpoint, runs),
        decode_tokens_per_s=_tokens_per_s(runs),
    )


def _executor(checkpoint: Checkpoint, lane: Lane, kv: KVSettings) -> TorchExecutor:
    """Just large enough for the prompts and their texts."""
    tokenizer = checkpoint.tokenizer()
    longest = max(len(tokenizer.encode_prompt(prompt)) for prompt in PROMPTS) + TEXT_TOKENS
    return TorchExecutor(
        lane.transformer,
        num_blocks=blocks_for(longest, DEFAULT_BLOCK_SIZE),
        num_tokens=tokenizer.vocab_size,
        unknown_ids=tokenizer.unknown_ids(tokenizer.vocab_size),
        kv=kv,
    )


def _runs(checkpoint: Checkpoint, executor: TorchExecutor) -> list[GreedyRun]:
    tokenizer = checkpoint.tokenizer()
    stop = frozenset(checkpoint.config.eos_token_ids)
    return [
        go_on(executor, tokenizer.encode_prompt(prompt), TEXT_TOKENS, stop) for prompt in PROMPTS
    ]


def _samples(checkpoint: Checkpoint, runs: Sequence[GreedyRun]) -> tuple[Sample, ...]:
    texts = [checkpoint.tokenizer().decode(run.token_ids) for run in runs]
    return tuple(map(Sample, PROMPTS, texts))


def _tokens_per_s(runs: Sequence[GreedyRun]) -> float | None:
    seconds = [step for run in runs for step in run.step_seconds]
    return 1 / median(seconds) if seconds else None
