"""How a checkpoint stores its weights: "torch_dtype" and "quantization_config" as a format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.catalog.importing.document import ConfigDocument
from engine.catalog.precision import get_format

_DTYPES = {
    "bfloat16": "bf16", "float16": "fp16", "float32": "fp32",
    "torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32",
}  # fmt: skip
_KEY = "quantization_config"


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """The number format of the quantized matrices, and the one of all others.

    ``kept`` are the modules that a checkpoint leaves in ``others``, as its file lists them.
    """

    format: str
    others: str
    kept: tuple[str, ...] = ()


def read_weights(document: ConfigDocument, text: ConfigDocument) -> StoredWeights:
    """The formats of a checkpoint's weights; bf16 where nothing is said.

    Raises:
        InvalidRequest: a value has the wrong type (names the key).
        UnsupportedModel: the quantization is not understood (names the key).
    """
    others = _dtype(document) or _dtype(text) or "bf16"
    holder = document if _KEY in document else text
    quantization = holder.inner(_KEY)
    if quantization is None:
        return StoredWeights(others, others)
    method = quantization.text("quant_method", tuple(_METHODS))
    stored = _METHODS[method](quantization, others)
    quantization.done()
    get_format(stored.format)
    return stored


def _dtype(document: ConfigDocument) -> str | None:
    found = None
    for key in ("torch_dtype", "dtype"):
        if key in document:
            found = _DTYPES[document.text(key, tuple(_DTYPES))]
    return found


def _fp8(document: ConfigDocument, others: str) -> StoredWeights:
    """8-bit floats with a 32-bit scale for each block of 128 × 128, or for each tensor."""
    document.text("fmt", ("e4m3", "float8_e4m3fn"), default="e4m3")
    document.ignore(("activation_scheme", "scale_fmt"))
    block = document.sizes("weight_block_size", 2**16)
    if block is not None and block != (128, 128):
        document.refuse("weight_block_size", "only blocks of 128 by 128 are understood")
    kept = document.texts("modules_to_not_convert") or ()
    return StoredWeights("fp8" if block is None else "fp8-b128", others, kept)


def _grouped_int(document: ConfigDocument, others: str, symmetric: str) -> StoredWeights:
    """AWQ and GPTQ: integers in groups along the input, each with a scale and a zero."""
    bits = document.size("bits", 8)
    group = document.size("group_size", 2**16)
    name = f"int{bits}-g{group}"
    if name not in _GROUPED:
        document.refuse("bits", f"only {', '.join(_GROUPED)} are understood")
    document.ignore((symmetric, *_HOW_IT_WAS_MADE))
    kept = document.texts("modules_to_not_convert") or ()
    return StoredWeights(name, others, ("lm_head", *kept))


# How the numbers were found and which kernels run them: the stored bits are the same.
_HOW_IT_WAS_MADE = (
    "desc_act", "damp_percent", "static_groups", "true_sequential", "version", "backend",
    "dataset", "batch_size", "exllama_config", "max_input_length", "model_seqlen",
    "module_name_preceding_first_block", "pad_token_id", "tokenizer", "use_cuda_fp16",
    "use_exllama", "cache_block_outputs", "block_name_to_quantize", "checkpoint_format", "meta",
    "quant_type", "do_fuse", "modules_to_fuse", "fuse_max_seq_len",
)  # fmt: skip
_GROUPED = ("int4-g32", "int4-g64", "int4-g128", "int8-g128")


def _awq(document: ConfigDocument, others: str) -> StoredWeights:
    return _grouped_int(document, others, "zero_point")


def _gptq(document: ConfigDocument, others: str) -> StoredWeights:
    document.expect("lm_head", False)
    return _grouped_int(document, others, "sym")


def _mxfp4(document: ConfigDocument, others: str) -> StoredWeights:
    return StoredWeights("mxfp4", others, document.texts("modules_to_not_convert") or ())


_METHODS: Mapping[str, Callable[[ConfigDocument, str], StoredWeights]] = {
    "fp8": _fp8,
    "awq": _awq,
    "gptq": _gptq,
    "mxfp4": _mxfp4,
}
