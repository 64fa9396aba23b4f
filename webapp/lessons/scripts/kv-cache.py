"""The largest batch that fits on one H100, as the context of Llama-2-13B doubles."""

import os

import httpx2

with httpx2.Client(base_url=os.environ["SERVICE"]) as service:
    for context in (1024, 2048, 4096):
        question = {
            "model": "llama-2-13b",
            "hardware": "h100-sxm",
            "prompt_tokens": context,
            "output_tokens": 1,
            "chunk_tokens": 2048,
        }
        found = service.post("/api/v1/simulate", json=question).raise_for_status().json()
        cache = found["limits"]["cache_per_request"]["label"]
        print(context, cache, found["limits"]["largest_batch"]["value"], sep="\t")
