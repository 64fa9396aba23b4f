"""What can be taken out of the model, by name. Torch-free.

``head:3.2`` head 2 of layer 3 · ``layer:5`` · ``no-rotation`` · ``no-mask`` · ``hidden-scale``
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from engine.errors import InvalidRequest
from engine.inference.model.config import ModelConfig

MAX_ABLATIONS = 64


class AblationKind(StrEnum):
    """``HEAD``: what a head mixes is zero. ``LAYER``: attention and MLP of a layer add nothing.
    ``ROTATION``: queries and keys are not turned, so nothing tells the order of tokens.
    ``MASK``: tokens see those after them. ``SCALE``: scores are divided by the root of the model's
    width instead of the head's."""

    HEAD = "head"
    LAYER = "layer"
    ROTATION = "no-rotation"
    MASK = "no-mask"
    SCALE = "hidden-scale"


@dataclass(frozen=True, slots=True)
class Ablation:
    """One change. ``layer`` and ``head`` are set where the kind is about one."""

    kind: AblationKind
    layer: int | None = None
    head: int | None = None

    @property
    def name(self) -> str:
        """The canonical name, which ``parse_ablation`` reads."""
        if self.layer is None:
            return self.kind.value
        return f"{self.kind}:{self.layer}" + ("" if self.head is None else f".{self.head}")

    def check(self, config: ModelConfig) -> None:
        """Check against a model.

        Raises:
            InvalidRequest: it has no such layer, head or rotation (field "ablations").
        """
        field = "ablations"
        layers, heads = config.num_layers, config.num_attention_heads
        if self.layer is not None and self.layer >= layers:
            raise InvalidRequest(f"layers count from 0 to {layers - 1}", field=field)
        if self.head is not None and self.head >= heads:
            raise InvalidRequest(f"heads count from 0 to {heads - 1}", field=field)
        if self.kind is AblationKind.ROTATION and config.rope_theta is None:
            raise InvalidRequest(
                "this model turns no queries and keys: its positions are learned vectors",
                field=field,
            )


_NAME = re.compile(
    r"head:(?P<head_layer>\d{1,4})\.(?P<head>\d{1,4})|layer:(?P<layer>\d{1,4})"
    r"|no-rotation|no-mask|hidden-scale"
)


def parse_ablation(name: str) -> Ablation:
    """Read a name as the module's first lines list them.

    Raises:
        InvalidRequest: no such ablation (field "ablations").
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise InvalidRequest(
            "choose head:LAYER.HEAD, layer:LAYER, no-rotation, no-mask or hidden-scale",
            field="ablations",
        )
    kind = AblationKind(name.partition(":")[0])
    layer, head = match["head_layer"] or match["layer"], match["head"]
    return Ablation(
        kind, None if layer is None else int(layer), None if head is None else int(head)
    )
