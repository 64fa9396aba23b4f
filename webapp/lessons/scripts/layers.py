"""The logit lens: the likeliest next token after every layer."""

import math
import os

import httpx2

text = "The capital of France is Paris. The capital of Italy is"
with httpx2.Client(base_url=os.environ["SERVICE"], timeout=60) as service:
    tokens = service.post("/api/v1/tokenize", json={"text": text}).raise_for_status().json()
    question = {"text": text, "position": len(tokens["tokens"]) - 1, "k": 1}
    answer = service.post("/api/v1/probes/logit-lens", json=question).raise_for_status().json()

for row in answer["rows"]:
    name = "embedding" if row["layer"] < 0 else f"layer {row['layer']}"
    (best,) = row["top"]
    print(f"{name:10} {best['piece']!r:16} {math.exp(best['logprob']):6.1%}")
