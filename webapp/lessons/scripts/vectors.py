"""Position as a turn: the angles of the first pairs, and the model with and without them."""

import os

import httpx2

service = httpx2.Client(base_url=os.environ["SERVICE"], timeout=60)
prompt = "The cat sat on the mat because the cat was tired."


def probe(kind, **arguments):
    answer = service.post(f"/api/v1/probes/{kind}", json=arguments)
    answer.raise_for_status()
    return answer.json()


# How far each pair of dimensions turns from one position to the next, in radians.
for pair in probe("rotation", text=prompt, layer=0, position=1)["pairs"][:4]:
    print(pair["dimensions"], round(pair["step"], 4))

# The model with and without these turns.
both = probe("comparison", text=prompt, ablations=["no-rotation"], max_tokens=12)
print("with   ", both["as_it_is"]["text"])
print("without", both["ablated"]["text"])
