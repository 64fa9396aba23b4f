"""Attention by hand: the weights of one query, from its q and the keys."""

import base64
import math
import os
import struct

import httpx2


def rows(packed: dict) -> list[tuple[float, ...]]:
    """A packed array of little-endian float16 or float32 as rows."""
    letter = "e" if packed["dtype"] == "float16" else "f"
    row = struct.Struct(f"<{packed['shape'][1]}{letter}")
    return list(row.iter_unpack(base64.b64decode(packed["data"])))


question = {"text": "The capital of France is Paris.", "layer": 1, "head": 0, "query": 5}
answer = httpx2.post(
    os.environ["SERVICE"] + "/api/v1/probes/attention-detail", json=question, timeout=60
)
answer.raise_for_status()
detail = answer.json()

q = detail["q_rotated"]
scores = [
    sum(a * b for a, b in zip(q, key, strict=True)) / math.sqrt(len(q))
    for key in rows(detail["keys_rotated"])
]
powers = [
    math.exp(score) if seen else 0.0
    for score, seen in zip(scores, detail["visible"], strict=True)
]
for token, power, weight in zip(detail["tokens"], powers, detail["weights"], strict=True):
    print(f"{token['piece']!r:12} computed {power / sum(powers):.3f}  the model {weight:.3f}")
