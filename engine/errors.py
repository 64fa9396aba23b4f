"""Every error that the engine raises on purpose.

    EngineError
    ├── InvalidRequest        a value that was asked for is wrong; names the field and the fix
    │   └── UnknownName       no model, hardware, … of that name
    ├── CapacityError         the engine cannot take this work
    │   ├── NeverFits         … not now and not later: too large for the context or the cache
    │   ├── QueueFull         … not now: as many wait as may wait
    │   └── LanesFull         … not now: as many forms of the model are in use as may be
    ├── FileFormatError       a weights, tokenizer or catalogue file is malformed or refused
    ├── UnsupportedModel      a well-formed file describes what the engine does not run
    ├── TemplateError         a chat template could not be rendered safely
    ├── StepFailed            an executor raised in the middle of a step
    └── EngineUnavailable     the engine's worker process is starting, restarting or gone

``code`` is the stable, machine-readable name of the kind; ``field`` is the name of the input at
fault, where there is one; ``reason`` and ``values`` say the message in a form that can be
translated (see ``engine.refusals``), where it has one. Messages never repeat the offending input.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self


class EngineError(Exception):
    """Root of the tree. ``message`` says what is wrong and what to do instead."""

    code: ClassVar[str] = "engine_error"

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        reason: str | None = None,
        values: Mapping[str, int | str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.reason = reason
        self.values = dict(values or {})

    def at(self, field: str | None) -> Self:
        """The same error with another input at fault."""
        return type(self)(self.message, field=field, reason=self.reason, values=self.values)

    def document(self) -> dict[str, object]:
        """What another process needs to raise the same error again."""
        return {
            "code": self.code,
            "message": self.message,
            "field": self.field,
            "reason": self.reason,
            "values": self.values,
        }


class InvalidRequest(EngineError):
    """A value is out of range, of the wrong type, or does not go with another one."""

    code = "invalid_request"


class UnknownName(InvalidRequest):
    """A name that is not in the catalogue it was looked up in."""

    code = "unknown_name"


class CapacityError(EngineError):
    """The engine cannot take this work."""

    code = "capacity"


class NeverFits(CapacityError):
    """The request is larger than the context or the whole KV cache: waiting would not help."""

    code = "never_fits"


class QueueFull(CapacityError):
    """As many requests wait as are allowed to wait: try again later."""

    code = "queue_full"


class LanesFull(CapacityError):
    """As many forms of the model are open and in use as may be: try again later."""

    code = "lanes_full"


class FileFormatError(EngineError):
    """A file is truncated, malformed, or outside the limits of the hardened readers."""

    code = "file_format"


class UnsupportedModel(EngineError):
    """The file is well-formed, but the model in it has a part that the engine does not run."""

    code = "unsupported_model"


class TemplateError(EngineError):
    """A chat template is invalid, reaches outside its sandbox, or exceeds its limits."""

    code = "template"


class StepFailed(EngineError):
    """An executor raised while running a step; the requests of that step end with an error."""

    code = "step_failed"


class EngineUnavailable(EngineError):
    """The engine's worker process is not ready: starting, restarting after a crash, or stopped."""

    code = "engine_unavailable"
