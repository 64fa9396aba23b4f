"""The engine's state as a document, for REST and for ``hello``."""

from __future__ import annotations

from dataclasses import asdict

from webapp.live.engine_port import EnginePort
from webapp.prediction import StepPredictor
from webapp.schemas.engine import EngineDocument, EngineInfoDocument


def engine_document(engine: EnginePort, predictor: StepPredictor) -> EngineDocument:
    """What runs here, or why nothing does."""
    info = engine.info
    return EngineDocument(
        state=str(engine.state),
        reason=engine.reason,
        restarts=engine.restarts,
        calibrated=predictor.calibrated(info),
        info=None if info is None else EngineInfoDocument.model_validate(asdict(info)),
    )
