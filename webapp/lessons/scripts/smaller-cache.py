"""How far four caches are from the plain one, on a text that no method was fitted to."""

import os

import httpx2

with httpx2.Client(base_url=os.environ["SERVICE"], timeout=120) as service:
    for cache in ("paged-int8", "paged-int4", "paged-window-16", "paged-window-16-sinks-4"):
        question = {"weights": "float32", "kv_cache": cache, "held_out": 96}
        answer = service.post("/api/v1/probes/fidelity", json=question)
        answer.raise_for_status()
        found = answer.json()
        print(f"{cache}: {found['kv_bytes_per_token']} B a token, KL {found['mean_kl']:.4f} nats")
