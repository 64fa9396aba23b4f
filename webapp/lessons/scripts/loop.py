"""The loop by hand. SERVICE in the environment is this service's address."""

import os
from typing import Any

import httpx2

service = httpx2.Client(base_url=os.environ["SERVICE"], timeout=60)


def ask(question: str, **body: object) -> dict[str, Any]:
    answer = service.post(f"/api/v1/{question}", json=body)
    return answer.raise_for_status().json()


def look(ids: list[int]) -> dict[str, Any]:
    return ask("probes/next-token", token_ids=ids, position=len(ids) - 1, k=10)


tokens = ask("tokenize", text="Once upon a time, there was a")["tokens"]
ids = [token["id"] for token in tokens]

# ── the loop ──
while len(ids) < 20:
    scores = look(ids)  # run
    token = scores["top"][0]  # choose
    ids.append(token["id"])  # append
    written = ask("detokenize", ids=ids)
    print(written["text"])
    if written["tokens"][-1]["special"]:  # end
        break
