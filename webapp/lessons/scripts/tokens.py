"""Tokens, merges and languages: the numbers of the lesson on tokens, over REST."""

import json
import os
import urllib.request

SERVICE = os.environ["SERVICE"]


def ask(path, body=None):
    """The answer of the service; a body makes it a POST."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        SERVICE + path, data, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


tokens = ask("/api/v1/tokenizers/r50k/encode", {"text": "How does inference work?"})
print([token["id"] for token in tokens["tokens"]])

word = ask("/api/v1/tokenizers/r50k/merges", {"text": "unhappiness"})["words"][0]
for merge in word["merges"]:
    print(merge["rank"], merge["token"]["piece"])

learned = ask("/api/v1/tokenizers/train", {"text": "low lower lowest " * 3, "merges": 5})
for merge in learned["merges"]:
    print(merge["count"], merge["left"], merge["right"])

for language in ask("/api/v1/tokenizers/languages?article=1")["languages"]:
    times = language["relative"]["smollm2"]
    print(f"{language['name']:12} {language['counts']['smollm2']:4} tokens  x{times:.2f}")
