"""A row of the model's weights rounded to four bits: what shares a scale, and what that loses."""

import os

import httpx2

with httpx2.Client(base_url=os.environ["SERVICE"], timeout=120) as service:
    for weights in ("int4-tensor", "int4-channel", "int4-g128", "int4-g32"):
        question = {"matrix": "layers.0.q", "row": 7, "weights": weights}
        answer = service.post("/api/v1/probes/weight-row", json=question)
        answer.raise_for_status()
        found = answer.json()
        print(f"{weights}: {found['bits_per_weight']:.2f} bits, moved by {found['error']:.1%}")
