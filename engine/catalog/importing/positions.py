"""How positions are rotated: no part in what a step costs, but only of kinds that are known.

The kinds and their keys are those of transformers 5.24 (``modeling_rope_utils``), "su", as the
first releases of Phi-3 call "longrope", and "mrope", which is the plain one wherever there is only
text. Other kinds might well change the model, so they are refused.
"""

from __future__ import annotations

from engine.catalog.importing.document import ConfigDocument

KINDS = ("default", "linear", "dynamic", "yarn", "longrope", "su", "llama3", "proportional",
    "mrope")  # fmt: skip
_FREQUENCIES = (
    "rope_theta", "partial_rotary_factor", "factor", "original_max_position_embeddings",
    "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate",
    "finetuned", "short_factor", "long_factor", "short_mscale", "long_mscale", "low_freq_factor",
    "high_freq_factor", "mrope_section", "mrope_interleaved",
)  # fmt: skip
# Layers of each kind may turn at frequencies of their own.
_PARTS = ("full_attention", "sliding_attention", "main", "compress")


def read_positions(document: ConfigDocument) -> None:
    """Accept "rope_scaling", "rope_parameters" and "rope_type" of known kinds.

    Raises:
        InvalidRequest: one of them is of the wrong type (names the key).
        UnsupportedModel: the kind is another, or a key in it is not known (names the key).
    """
    _kind(document, "rope_type")
    for key in ("rope_scaling", "rope_parameters"):
        scaling = document.inner(key)
        if scaling is None:
            continue
        parts = [scaling.inner(part) for part in _PARTS]
        for part in (scaling, *parts):
            if part is not None:
                _read(part)


def _read(scaling: ConfigDocument) -> None:
    for key in ("rope_type", "type"):
        _kind(scaling, key)
    scaling.ignore(_FREQUENCIES)
    scaling.done()


def _kind(document: ConfigDocument, key: str) -> None:
    if key in document:
        document.text(key, KINDS)
