"""``python -m engine quality``: what fewer bits cost, on a text that no method has seen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from engine.commands.progress import stderr_report
from engine.commands.refusing import refuse
from engine.errors import EngineError
from engine.inference.lane_settings import KVSettings, WeightSettings, parse_kv, parse_weights

if TYPE_CHECKING:
    from engine.inference.quantization.report import LaneReport, QualityReport

_HEADINGS = ("weights", "KV cache", "MB", "bits", "KL", "KL p99", "top-1", "perplexity", "tok/s")


FEW_TOKENS = 256
"""Below so many positions, differences between formats are mostly chance: a warning says so."""


def quality(
    weights: Annotated[
        list[str] | None, typer.Option(help="float32, bfloat16, file, int4-g32-awq …; repeatable.")
    ] = None,
    kv: Annotated[
        list[str] | None, typer.Option(help="paged-int8 …, with float32 weights; repeatable.")
    ] = None,
    model: Annotated[str, typer.Option(help="auto, tiny, a GGUF file or a model folder.")] = "auto",
    dtype: Annotated[str, typer.Option(help="Activations: float32 or bfloat16.")] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of the held-out text.")] = 4_096,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Compare formats of weights and KV cache with the file's own weights in float32."""
    try:
        lanes = [(parse_weights(name), KVSettings()) for name in weights or []]
        lanes += [(parse_weights("float32"), parse_kv(name)) for name in kv or []]
        if not lanes:
            lanes = [(parse_weights(name), KVSettings()) for name in ("int8-channel", "int4-g32")]
        report = _run(lanes, model, dtype, device, tokens)
    except EngineError as error:
        refuse(error, {"kv_cache": "--kv"})
    if report.num_tokens < FEW_TOKENS:
        typer.echo(
            f"warning: {report.num_tokens} tokens are too few to tell formats apart; judge on "
            f"{FEW_TOKENS} or more",
            err=True,
        )
    if as_json:
        typer.echo(json.dumps(report.to_document(), ensure_ascii=False))
    else:
        typer.echo(_for_people(report))


def _run(
    lanes: list[tuple[WeightSettings, KVSettings]], model: str, dtype: str, device: str, tokens: int
) -> QualityReport:
    # Imported here: torch takes a second to load, and a wrong option should not wait for it.
    from engine.inference.device import open_device, resolve_dtype
    from engine.inference.loading import find_model
    from engine.inference.quantization.report import report_quality

    source = find_model(model)
    opened = open_device(device)
    return report_quality(
        source.open(),
        lanes,
        device=opened.torch_device,
        activations=resolve_dtype(dtype, opened.kind),
        num_tokens=tokens,
        random_weights=source.random_weights,
        say=lambda line: typer.echo(line, err=True),
        report=stderr_report(),
    )


def _for_people(report: QualityReport) -> str:
    rows = [_HEADINGS, *(_row(lane) for lane in report.lanes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return "\n".join([*_about(report), "", *table, "", *_texts(report)])


def _about(report: QualityReport) -> list[str]:
    reference = report.lanes[0].quality.reference_perplexity
    lines = [
        f"{report.model}, measured over {report.num_tokens:,} held-out tokens, activations in "
        f"{report.activations}.",
        f"Reference: the file's weights in float32, perplexity {reference:.3f}. The file's own "
        f"format is {report.source_format}: "
        "what that had rounded away before is in no number here.",
        "KL in nats a token; bits with scales; tok/s of one sequence, beside whatever else ran.",
    ]
    if report.random_weights:
        lines.append("These weights are random: the texts are noise.")
    return lines


def _row(lane: LaneReport) -> tuple[str, ...]:
    result, speed = lane.quality, lane.decode_tokens_per_s
    return (
        lane.weights,
        lane.kv,
        f"{lane.weight_bytes / 1e6:.1f}",
        f"{lane.bits_per_weight:.2f}",
        f"{result.mean_kl:z.5f}",
        f"{result.p99_kl:z.4f}",
        f"{result.top1_agreement:.1%}",
        f"{result.perplexity:.3f}",
        "—" if speed is None else f"{speed:.1f}",
    )


def _texts(report: QualityReport) -> list[str]:
    lines: list[str] = []
    for index, reference in enumerate(report.reference_samples):
        lines.append(reference.prompt)
        lines.append(f"  float32: {reference.text!r}")
        lines += [
            f"  {lane.weights}, {lane.kv}: {lane.samples[index].text!r}" for lane in report.lanes
        ]
    return lines
