"""``GET /ws/generate``."""

from __future__ import annotations

from fastapi import APIRouter, WebSocket

from webapp.live.hub import LiveHub

router = APIRouter()


@router.websocket("/ws/generate", name="ws_generate")
async def generate(websocket: WebSocket) -> None:
    """Prompts in, tokens and steps out; see ``PROTOCOL.md``."""
    hub: LiveHub = websocket.app.state.live
    await hub.serve(websocket)
