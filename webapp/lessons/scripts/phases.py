"""TTFT against the prompt's length and ITL against the answer's, predicted for one GPU."""

import os

import httpx2

with httpx2.Client(base_url=os.environ["SERVICE"]) as service:
    for prompt, answer in ((512, 64), (4096, 64), (512, 512)):
        run = {
            "model": "llama-3.1-8b",
            "hardware": "h100-sxm",
            "times": "typical",
            "prompt_tokens": prompt,
            "output_tokens": answer,
        }
        found = service.post("/api/v1/estimate", json=run).raise_for_status().json()
        times = {name: found[name]["value"] * 1e3 for name in ("ttft", "itl")}
        print(f"prompt {prompt}, answer {answer}: ", end="")
        print(f"TTFT {times['ttft']:.1f} ms, ITL {times['itl']:.2f} ms")
