"""How a checkpoint stores its weights: "torch_dtype" and "quantization_config" as formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from engine.catalog.importing.document import ConfigDocument
from engine.catalog.importing.kept import Kept, Part, read_kept
from engine.catalog.importing.stored import StoredWeights

_DTYPES = {
    "bfloat16": "bf16", "float16": "fp16", "float32": "fp32",
    "torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32",
}  # fmt: skip
_KEY = "quantization_config"
_MAX_GROUP = 2**16

# Methods quantize the matrices of layers. Embeddings and the head stay, and so does the router,
# which is a handful of columns.
_LINEAR = frozenset({Part.MIXER, Part.DENSE_MLP, Part.SHARED_EXPERTS, Part.EXPERTS})


def read_weights(document: ConfigDocument, text: ConfigDocument, num_layers: int) -> StoredWeights:
    """The formats of a checkpoint's weights; bf16 where nothing is said.

    Raises:
        InvalidRequest: a value has the wrong type (names the key).
        UnsupportedModel: the quantization is not understood (names the key).
    """
    outside, inside = _dtype(document), _dtype(text)
    others = outside or inside or "bf16"
    holder = document if _KEY in document else text
    quantization = holder.inner(_KEY)
    if quantization is None:
        text.expect("expert_dtype")
        return StoredWeights(others, others)
    method = quantization.text("quant_method", tuple(METHODS))
    stored = METHODS[method](quantization, others, num_layers)
    quantization.done()
    return _with_expert_dtype(text, stored)


def _dtype(document: ConfigDocument) -> str | None:
    found = None
    for key in ("torch_dtype", "dtype"):
        if key in document:
            found = _DTYPES[document.text(key, tuple(_DTYPES))]
    return found


def _with_expert_dtype(text: ConfigDocument, stored: StoredWeights) -> StoredWeights:
    """DeepSeek-V4 stores its experts in 4-bit floats, an 8-bit scale for 32 along the input."""
    if "expert_dtype" not in text:
        return stored
    dtype = text.text("expert_dtype", ("fp4", "fp8"))
    return replace(stored, experts="mxfp4") if dtype == "fp4" else stored


def _kept(document: ConfigDocument, key: str, num_layers: int) -> tuple[Kept, ...]:
    found: list[Kept] = []
    for entry in document.texts(key) or ():
        kept = read_kept(entry, num_layers)
        if kept is None:
            document.refuse(key, "a module in this list is not one that is understood")
        found.append(kept)
    return tuple(dict.fromkeys(found))


def _fp8(document: ConfigDocument, others: str, num_layers: int) -> StoredWeights:
    """8-bit floats with a 32-bit scale for each block of 128 by 128, or for each tensor."""
    document.text("fmt", ("e4m3", "float8_e4m3fn"), default="e4m3")
    document.text("activation_scheme", ("dynamic", "static"), default="dynamic")
    document.ignore(("scale_fmt",))
    block = document.sizes("weight_block_size", _MAX_GROUP)
    if block is not None and block != (128, 128):
        document.refuse("weight_block_size", "only blocks of 128 by 128 are understood")
    return StoredWeights(
        "fp8" if block is None else "fp8-b128",
        others,
        _LINEAR,
        _kept(document, "modules_to_not_convert", num_layers),
        activations="fp8",
    )


# How the numbers were found and which kernels run them: the stored bits are the same.
_HOW_IT_WAS_MADE = (
    "desc_act", "damp_percent", "static_groups", "true_sequential", "version", "backend",
    "dataset", "batch_size", "exllama_config", "max_input_length", "model_seqlen",
    "module_name_preceding_first_block", "pad_token_id", "tokenizer", "use_cuda_fp16",
    "use_exllama", "cache_block_outputs", "block_name_to_quantize", "checkpoint_format", "meta",
    "quant_type", "do_fuse", "modules_to_fuse", "fuse_max_seq_len", "sym", "zero_point",
)  # fmt: skip


def _grouped(document: ConfigDocument, others: str, num_layers: int) -> StoredWeights:
    """AWQ and GPTQ: integers in groups along the input, with a scale and room for a zero."""
    bits = document.size("bits", 8)
    group = document.size("group_size", _MAX_GROUP)
    document.expect("lm_head", False)
    document.ignore(_HOW_IT_WAS_MADE)
    return StoredWeights(
        _grouped_name(document, "bits", bits, group, symmetric=bits == 8),
        others,
        _LINEAR,
        _kept(document, "modules_to_not_convert", num_layers),
    )


def _grouped_name(
    document: ConfigDocument, key: str, bits: int, group: int, *, symmetric: bool
) -> str:
    name = f"int{bits}-g{group}" + ("-sym" if symmetric and bits == 4 else "")
    known = ("int4-g32", "int4-g64", "int4-g128", "int8-g32", "int8-g64", "int8-g128")
    if name.removesuffix("-sym") not in known or (bits == 8 and not symmetric):
        document.refuse(key, f"only {', '.join(known)} are understood")
    return name


def _mxfp4(document: ConfigDocument, others: str, num_layers: int) -> StoredWeights:
    """gpt-oss: the experts alone."""
    kept = _kept(document, "modules_to_not_convert", num_layers)
    return StoredWeights("mxfp4", others, frozenset({Part.EXPERTS}), kept)


def _compressed(document: ConfigDocument, others: str, num_layers: int) -> StoredWeights:
    """compressed-tensors, and ModelOpt's files of the same form: one group of all matrices."""
    document.ignore(
        ("quantization_status", "format", "producer", "global_compression_ratio", "version")
    )
    document.text("quant_algo", ("FP8", "NVFP4"), default="")
    for key in ("sparsity_config", "transform_config"):
        document.expect(key, {})
    groups = document.inner("config_groups")
    group = None if groups is None else groups.inner("group_0")
    if groups is None or group is None:
        document.refuse("config_groups", "only one group, group_0, is understood")
    groups.done()
    if group.texts("targets") != ("Linear",):
        group.refuse("targets", 'only "Linear" is understood')
    group.ignore(("format", "output_activations"))
    name = _scheme(group, "weights")
    if name is None:
        group.refuse("weights", "is missing")
    activations = _scheme(group, "input_activations")
    group.done()
    kept = _kept(document, "ignore", num_layers)
    with_head = _LINEAR | {Part.HEAD}
    return StoredWeights(
        name, others, with_head, kept, activations=activations, kv=_scheme(document, _KV)
    )


_KV = "kv_cache_scheme"
_FLOATS: Mapping[tuple[int, int | None], str] = {
    (8, None): "fp8",
    (8, 32): "mxfp8",
    (4, 16): "nvfp4",
    (4, 32): "mxfp4",
}


def _scheme(document: ConfigDocument, key: str) -> str | None:
    """The format of a description such as {"num_bits": 4, "type": "float", "group_size": 16}."""
    scheme = document.inner(key)
    if scheme is None:
        return None
    bits = scheme.size("num_bits", 16)
    kind = scheme.text("type", ("float", "int"))
    group = scheme.optional_size("group_size", _MAX_GROUP)
    symmetric = scheme.flag("symmetric", default=True)
    strategies = ("tensor", "channel", "token", "group", "tensor_group", "block")
    strategy = scheme.text("strategy", strategies, default="group" if group else "tensor")
    block = scheme.sizes("block_structure", _MAX_GROUP)
    scheme.ignore(("dynamic", "observer", "observer_kwargs", "actorder", "scale_dtype", "zp_dtype"))
    scheme.done()
    if strategy == "block":
        if (bits, kind, block) != (8, "float", (128, 128)):
            scheme.refuse("block_structure", "only 8-bit floats in 128 by 128 are understood")
        return "fp8-b128"
    if kind == "float":
        name = _FLOATS.get((bits, group))
        if name is None:
            scheme.refuse("num_bits", "floats of these bits and groups are not understood")
        return name
    if group is not None:
        return _grouped_name(scheme, "num_bits", bits, group, symmetric=symmetric)
    if bits not in (4, 8):
        scheme.refuse("num_bits", "only integers of 4 or 8 bits are understood")
    return f"int{bits}"


METHODS: Mapping[str, Callable[[ConfigDocument, str, int], StoredWeights]] = {
    "fp8": _fp8,
    "awq": _grouped,
    "gptq": _grouped,
    "mxfp4": _mxfp4,
    "compressed-tensors": _compressed,
    "modelopt": _compressed,
}
