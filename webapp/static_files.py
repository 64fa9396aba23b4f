"""Static files: an address that carries a version may be kept for a year, others are checked."""

from __future__ import annotations

from starlette.datastructures import QueryParams
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

IMMUTABLE = "public, max-age=31536000, immutable"
REVALIDATE = "no-cache"


class VersionedStaticFiles(StaticFiles):
    """``?v=<hash>`` marks an address whose content never changes."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        versioned = "v" in QueryParams(scope["query_string"])
        response.headers["cache-control"] = IMMUTABLE if versioned else REVALIDATE
        return response
