"""What is collected here."""

from __future__ import annotations

import os

# Measures the default model at long contexts for half an hour: asked for by name.
collect_ignore = [] if "FIRSTTOKEN_KV_QUALITY" in os.environ else ["test_real_model.py"]
