"""The weights of a checkpoint: the formats of its parts, and the bits a number takes on average."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from engine.catalog.importing.kept import Kept, Part, part_sizes
from engine.catalog.model_spec import ModelSpec
from engine.catalog.precision import Number, get_format, mixed_format, whole


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """``quantized`` parts in ``format``, all others in ``others``, 16 bits mostly.

    ``experts`` is the format of routed experts where it is another one. ``activations`` is the
    format that products run in where the checkpoint says one, ``kv`` that of its cache.
    """

    format: str
    others: str
    quantized: frozenset[Part] = frozenset()
    kept: tuple[Kept, ...] = ()
    experts: str = ""
    activations: str | None = None
    kv: str | None = None

    def bits(self, spec: ModelSpec) -> Fraction:
        """Bits of all the model's weights together, scales and zeros included."""
        plain = get_format(self.others).exact_bits
        total = spec.num_parameters * plain
        for part, (count, _) in part_sizes(spec, self.kept).items():
            if part in self.quantized:
                name = self.experts if part is Part.EXPERTS and self.experts else self.format
                total += count * (get_format(name).exact_bits - plain)
        return total

    def weight_bytes(self, spec: ModelSpec) -> Number:
        """Bytes of the model's weights as the checkpoint stores them."""
        return whole(self.bits(spec) / 8)

    def format_for(self, spec: ModelSpec) -> str:
        """The name of a format with the average bits of a weight, for a simulation.

        The name of the format itself where all weights have it.
        """
        if not self.quantized:
            return self.others
        return mixed_format(float(self.bits(spec) / spec.num_parameters)).name
