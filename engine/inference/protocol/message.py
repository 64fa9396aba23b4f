"""What every message of the worker's protocol can do. Torch-free."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Message:
    """Base: every message has a ``type`` and converts to and from one JSON object."""

    type: ClassVar[str] = ""

    def to_json(self) -> str:
        return json.dumps({"type": self.type, **asdict(self)}, allow_nan=False)
