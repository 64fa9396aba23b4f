"""Configurations as their makers published them, for tests."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parents[3] / "golden" / "released_configs.json"
RELEASED: dict[str, dict[str, Any]] = json.loads(_FILE.read_text(encoding="utf-8"))["models"]


def released(model_id: str, **changes: Any) -> dict[str, Any]:
    """A copy of a published configuration, with some of its keys changed."""
    return {**deepcopy(RELEASED[model_id]["config"]), **changes}
