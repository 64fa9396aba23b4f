"""Slow to start, or slow to stream? Two measured times, held against what is typical."""

import os

import httpx2

question = {
    "cell": {
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "times": "typical",
        "prompt_tokens": 300,
        "output_tokens": 200,
    },
    "observations": [{"ttft": 2.5, "itl": 0.007}],
}
with httpx2.Client(base_url=os.environ["SERVICE"]) as service:
    found = service.post("/api/v1/diagnose", json=question).raise_for_status().json()
    print(found["verdict"])
    for cause in found["causes"]:
        if cause["probability"] is not None:
            print(f"  {cause['probability']:.0%}  {cause['words']}")
