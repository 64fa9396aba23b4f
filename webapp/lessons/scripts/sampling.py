"""A thousand draws from one run. SERVICE in the environment is this service's address."""

import base64
import math
import os
import random
import struct
from collections import Counter

import httpx2

temperature, top_p = 0.8, 0.9

service = httpx2.Client(base_url=os.environ["SERVICE"], timeout=60)
question = {"text": "I opened the door and saw", "position": 5, "k": 12}
answer = service.post("/api/v1/probes/next-token", json=question).raise_for_status().json()
packed = base64.b64decode(answer["logits"]["data"])
logits = [value for (value,) in struct.iter_unpack("<f", packed)]

highest = max(logits)
weights = [math.exp((logit - highest) / temperature) for logit in logits]
ranked = sorted(range(len(weights)), key=lambda token: -weights[token])
kept, reached = [], 0.0
total = sum(weights)
for token in ranked:
    if reached >= top_p * total:
        break
    kept.append(token)
    reached += weights[token]

draws = Counter(random.choices(kept, [weights[token] for token in kept], k=1000))
print(f"{len(kept)} of {len(weights)} tokens left")
for shown in answer["top"]:
    expected = 1000 * weights[shown["id"]] / reached if shown["id"] in kept else 0
    print(f"{shown['piece']!r:14} expected {expected:6.1f}  drawn {draws[shown['id']]:4}")
