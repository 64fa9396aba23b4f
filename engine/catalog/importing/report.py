"""An imported model as a document, the same for the command line and the REST interface."""

from __future__ import annotations

from dataclasses import asdict
from typing import cast

from engine.catalog.importing.imported import ImportedModel
from engine.catalog.importing.kept import Part, part_sizes
from engine.catalog.precision import Number, get_format, whole

Document = dict[str, object]


def import_document(found: ImportedModel) -> Document:
    """What was understood of a config.json: structure, sizes, stored weights, and every key.

    Counts are of numbers, sizes of bytes; ``bits`` hold scales and zeros.
    """
    spec = found.spec
    return {
        "model": {
            "id": spec.id,
            "family": spec.family,
            "arch": spec.arch,
            "model_type": found.model_type,
            "num_layers": spec.num_layers,
            "hidden_size": spec.hidden_size,
            "num_attention_heads": spec.num_attention_heads,
            "num_kv_heads": spec.num_kv_heads,
            "head_dim": spec.head_dim,
            "intermediate_size": spec.intermediate_size,
            "vocab_size": spec.vocab_size,
            "tied_embeddings": spec.tied_embeddings,
            "max_context": spec.max_context,
            "mlp": spec.mlp.value,
            "qkv_bias": spec.qkv_bias,
            "attention": {"type": spec.attention.kind, **_plain(asdict(spec.attention))},
            "moe": None if spec.moe is None else asdict(spec.moe),
            "mla": None if spec.mla is None else asdict(spec.mla),
            "extras": _plain(asdict(spec.extras)),
            "kind": "imported",
            "source": spec.source,
        },
        "parameters": _parameters(found),
        "kv_cache": {
            "bytes_per_token": spec.kv_bytes_per_token(_kv_bits(found)),
            "format": found.weights.kv or "bf16",
            "state_bytes_per_sequence": spec.state_bytes_per_sequence,
            "bytes_at_max_context": spec.kv_cache_bytes(spec.max_context, _kv_bits(found)),
        },
        "weights": _weights(found),
        "understood": list(found.understood),
        "ignored": list(found.ignored),
        "defaults": dict(found.defaults),
        "left_out": list(found.left_out),
        "assumptions": _assumptions(found),
    }


def _plain(values: dict[str, object]) -> Document:
    """Tuples as lists, as JSON has them."""
    return {
        key: list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value
        for key, value in values.items()
    }


def _parameters(found: ImportedModel) -> Document:
    spec, count = found.spec, found.spec.parameters
    parts = part_sizes(spec, ())
    inside = {part.value: sum(parts[part]) for part in Part if part not in _ENDS}
    return {
        "total": count.total,
        "active": count.active,
        "embedding": count.embedding,
        "positions": count.positions,
        "lm_head": count.lm_head,
        **inside,
        # Norms between the parts, biases of experts, hyper-connections.
        "rest": count.layers + count.final_norm - sum(inside.values()),
    }


_ENDS = (Part.EMBEDDING, Part.HEAD)


def _kv_bits(found: ImportedModel) -> float:
    return get_format(found.weights.kv or "bf16").bits


def _weights(found: ImportedModel) -> Document:
    spec, weights = found.spec, found.weights
    size: Number = weights.weight_bytes(spec)
    return {
        "format": weights.format,
        "others": weights.others,
        "experts": weights.experts or None,
        "quantized": sorted(weights.quantized),
        "average_bits": float(whole(weights.bits(spec) / spec.num_parameters)),
        "bytes": size,
        "simulate_as": {
            "weights": weights.format_for(spec),
            "activations": weights.activations,
            "kv": weights.kv or "bf16",
        },
    }


def _assumptions(found: ImportedModel) -> list[str]:
    weights, spec = found.weights, found.spec
    lines = [
        "What absent keys mean is what transformers 5.24 takes for this type of model; each one "
        "is listed under defaults.",
        "Keys under ignored say nothing about what a step costs: names, training, sampling, "
        "numerics, the frequencies of positions.",
    ]
    if weights.quantized:
        lines.append(
            f"Matrices of {', '.join(sorted(weights.quantized))} are stored in {weights.format}"
            + (f", routed experts in {weights.experts}" if weights.experts else "")
            + f", all else in {weights.others}. A simulation takes one format for all weights: "
            "the one with their average bits."
        )
    if found.left_out:
        lines.append(f"Only the language model is counted, without {', '.join(found.left_out)}.")
    if spec.extras.mtp_layers:
        lines.append("Layers that predict further tokens are not counted and not run.")
    return lines
