"""How much one probe may ask for, whoever asks. Torch-free."""

from __future__ import annotations

MAX_TOKENS = 768
"""Two float32 arrays of so many tokens squared still fit into one line of the worker."""

MAX_ROWS = 64
"""Rows of the embedding table."""

MAX_TOP = 50
"""Likeliest tokens, nearest neighbours, largest activations."""

MAX_CONTINUATION = 32
"""Tokens that a comparison goes on for: each runs both texts again."""

MAX_MERGED_CHARS = 64
"""A text whose merges are replayed: the slow way takes a word's length squared."""

MAX_DECODED_IDS = 8_192
"""Ids that are turned into text."""

MAX_HELD_OUT = 512
"""Tokens of the held-out text that a form of the model is judged on: one window of it."""
