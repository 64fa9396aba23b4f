"""The page of the quality table, from its JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_HEAD = (
    "| weights | KV cache | bits a weight | MB | KL, nats | KL, 99th percentile | same top token "
    "| perplexity | tokens/s |\n|---|---|---|---|---|---|---|---|---|"
)
_TEXTS_OF = (
    "int8-channel-rtn",
    "int4-g32-gptq",
    "int4-g128-rtn",
    "int4-g128-awq",
    "int4-tensor-rtn",
)


def to_markdown(document: Mapping[str, Any]) -> str:
    """Conditions, the table, KV caches by context, texts side by side."""
    parts = ["# What fewer bits cost"]
    lanes = document["lanes"]
    if lanes:
        parts += [
            _conditions(document),
            "\n".join([_HEAD, *map(_row, lanes)]),
            *method_notes(lanes),
        ]
    if "kv_contexts" in document:
        parts += _kv_contexts(document)
    if lanes and "reference_samples" in document:
        parts += _texts(document)
    return "\n\n".join(parts) + "\n"


def _conditions(document: Mapping[str, Any]) -> str:
    lanes = document["lanes"]
    reference = lanes[0]["quality"]["reference_perplexity"]
    positions = lanes[0]["quality"]["num_positions"]
    return (
        f"Measured on {document['date']} by `python -m tests.benchmarks.quality`: "
        f"{document['model']} on {document['device_name']} ({document['device']}), Python "
        f"{document['python']}, torch {document['torch']}, over {positions:,} positions of the "
        "held-out text in windows of 512, activations in float32.\n\n"
        f"**The weights were 4-bit before we began**: the file keeps most of them as "
        f"{document['source_format']}. The reference is that file, expanded to float32 "
        f"(perplexity {reference:.3f}); what the file had rounded away before is in no number "
        "here, and 4-bit groups of 32 find the file's own levels again."
    )


def _row(lane: Mapping[str, Any]) -> str:
    quality, speed = lane["quality"], lane["decode_tokens_per_s"]
    cells = (
        lane["weights"],
        lane["kv"],
        f"{lane['bits_per_weight']:.2f}",
        f"{lane['weight_bytes'] / 1e6:.1f}",
        f"{quality['mean_kl']:z.5f}",
        f"{quality['p99_kl']:.3f}",
        f"{quality['top1_agreement']:.1%}",
        _perplexity(quality["perplexity"]),
        "—" if speed is None else f"{speed:.1f}",
    )
    return f"| {' | '.join(cells)} |"


def _perplexity(value: float) -> str:
    return f"{value:.2f}" if value < 10_000 else f"{value:.0e}"


def method_notes(lanes: Sequence[Mapping[str, Any]]) -> list[str]:
    """AWQ and GPTQ against rounding to nearest at the same bits, in words made of the numbers."""
    by_name = {
        lane["weights"]: lane["quality"]["mean_kl"] for lane in lanes if lane["kv"] == "paged"
    }
    lines = []
    for name, kl in by_name.items():
        scheme, _, method = name.rpartition("-")
        plain = by_name.get(f"{scheme}-rtn")
        if method in ("awq", "gptq") and plain:
            worse = f", which is {kl - plain:.5f} nats worse" if kl > plain else ""
            lines.append(f"- {scheme}: {method.upper()} {kl / plain:.2f} of it{worse}")
    if not lines:
        return []
    return ["KL as a part of that of rounding to nearest with the same bits:", "\n".join(lines)]


def _kv_contexts(document: Mapping[str, Any]) -> list[str]:
    section = document["kv_contexts"]
    rows = section["rows"]
    contexts = list(rows[0]["at"])
    head = [
        "KV cache", "beside", "KL, nats", "99th percentile",
        *(f"at {int(context):,}" for context in contexts),
        "at edges", "elsewhere", "within a block",
    ]  # fmt: skip
    table = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        edge, jump = max(row["edges"].items(), key=lambda item: item[1])
        cells = [
            row["kv"], row["against"], f"{row['mean']:.5f}", f"{row['p99']:.4f}",
            *(f"{row['at'][context]:.5f}" for context in contexts),
            f"{jump:.2f}x (at {int(edge):,})", f"{row['elsewhere']:.2f}x",
            f"{row['block_offset']:.2f}x",
        ]  # fmt: skip
        table.append(f"| {' | '.join(cells)} |")
    about = (
        f"Measured on {section['date']} by `python -m tests.benchmarks.quality --kv`: one text of "
        f"{rows[0]['num_positions']:,} tokens in steps of 512, weights and activations in float32, "
        "each cache beside the same one that keeps float32, so that what a window leaves out is in "
        f"no number. *At {int(contexts[0]):,}* and so on: the mean over the 128 positions before "
        "that length. A jump would show in the last columns, which compare medians with that of "
        "all positions: *at edges*, the worst 32 positions around the end of a step or of the "
        "window, beside the worst 32 *elsewhere*, where there is nothing but text; *within a "
        "block*, the worst of the 16 places that a position can have in its block."
    )
    return ["## KV caches by length of the text", about, "\n".join(table)]


def _texts(document: Mapping[str, Any]) -> list[str]:
    lanes = {lane["weights"]: lane for lane in document["lanes"] if lane["kv"] == "paged"}
    parts = ["## Texts, each token the likeliest"]
    for index, reference in enumerate(document["reference_samples"]):
        lines = [f"**{reference['prompt']}**", "", f"- float32:{_quoted(reference['text'])}"]
        lines += [
            f"- {name}:{_quoted(lanes[name]['samples'][index]['text'])}"
            for name in _TEXTS_OF
            if name in lanes
        ]
        parts.append("\n".join(lines))
    return parts


def _quoted(text: str) -> str:
    return f" `{text.replace('`', chr(39)).replace(chr(10), ' ⏎ ').strip()}`"
