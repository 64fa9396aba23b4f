"""Which number formats a simulated step stores and multiplies."""

from __future__ import annotations

from dataclasses import dataclass

from engine.catalog.device import ComputeRate, HardwareSpec
from engine.catalog.precision import NumberFormat, get_format
from engine.refusals import refused

# Formats whose weights are usually multiplied as they are. Others are widened to bf16 on the fly.
_SAME_ACTIVATIONS = frozenset({"fp32", "tf32", "bf16", "fp16", "fp8", "fp8-b128", "mxfp8", "int8"})
_WIDE = frozenset({"fp32", "tf32"})


@dataclass(frozen=True, slots=True)
class StorageFormats:
    """Formats of weights, KV cache and activations: bytes follow from them."""

    weights: NumberFormat
    kv: NumberFormat
    activations: NumberFormat

    @property
    def stored_activations(self) -> NumberFormat:
        """What is written to memory between operators: 16 bits even where products take 8."""
        if self.activations.name in _WIDE:
            return get_format("fp32")
        return get_format("fp16" if self.activations.name == "fp16" else "bf16")


@dataclass(frozen=True, slots=True)
class StepFormats(StorageFormats):
    """The formats, and the rates that follow from the activations' on a device.

    ``matmul`` is the rate of products with weights, ``attention`` that of the attention core.
    """

    matmul: ComputeRate
    attention: ComputeRate

    @property
    def storage(self) -> StorageFormats:
        """The formats alone, the same on every device."""
        return StorageFormats(self.weights, self.kv, self.activations)


def resolve_formats(
    hardware: HardwareSpec, weights: str, kv: str, activations: str | None = None
) -> StepFormats:
    """Look the formats up and find the rate of each kind of product on the device.

    Without ``activations``, 32-, 16- and 8-bit weights are multiplied in their own format and
    all others in bf16. Formats that differ in their scales only, such as nvfp4, take the rate of
    their numbers; what a device does without units for a format is ``HardwareSpec.compute_rate``.

    Raises:
        UnknownName: a format is unknown (field "weights", "kv" or "activations").
        InvalidRequest: no matrix unit multiplies the activations' format.
    """
    weight_format = get_format(weights, "weights")
    kv_format = get_format(kv, "kv")
    if activations is None:
        name = weight_format.name
        activations = name if name in _SAME_ACTIVATIONS else "bf16"
    name = get_format(activations, "activations").multiplied_as
    if name is None:
        choices = "fp32, tf32, bf16, fp16, fp8, int8, fp4, nvfp4, mxfp4, mxfp8, int4"
        raise refused("not_multiplied", field="activations", choices=choices)
    # Scores and softmax need 16 bits: 8-bit models run their attention core in them.
    attention = name if name in _WIDE or name == "fp16" else "bf16"
    return StepFormats(
        weights=weight_format,
        kv=kv_format,
        activations=get_format(name),
        matmul=hardware.compute_rate(name),
        attention=hardware.compute_rate(attention),
    )
