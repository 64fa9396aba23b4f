"""Predicted: what a small cache costs 16 people, in answers that were put back into the queue."""

import os

import httpx2

with httpx2.Client(base_url=os.environ["SERVICE"], timeout=60) as service:
    for blocks in (400, 100, 60):
        question = {
            "model": "llama-3.1-8b",
            "hardware": "h100-sxm",
            "engine": {"kv_blocks": blocks},
            "workload": {
                "kind": "drawn",
                "requests": 64,
                "arrivals": {"kind": "closed-loop", "clients": 16},
                "prompts": {"kind": "fixed", "tokens": 100},
                "outputs": {"kind": "fixed", "tokens": 64},
            },
        }
        found = service.post("/api/v1/serve", json=question).raise_for_status().json()
        rate = found["throughput"]["output_tokens_per_s"]["label"]
        print(blocks, "blocks:", found["requests"]["preemptions"]["value"], "preemptions,", rate)
