"""Kinds of bugs that systems like this one had, and which of them are tests here.

A test that reproduces one and asserts the right behaviour bears the mark ``kind`` with its number,
wherever it lives; ``test_all_there`` finds out whether every kind has one. The tests in this folder
take the way that a person's prompt takes: websocket, worker process, engine.
"""

from __future__ import annotations

KINDS: dict[str, str] = {
    "O01": "the bytes of one character come in several tokens and are shown one by one",
    "O02": "the beginning of a stop string has left before the rest of it comes",
    "O03": "markers that a person types become control tokens",
    "O04": "tokens are made on after their reader has gone",
    "O05": "blocks are lost when requests end in one of the many ways",
    "O06": "a prompt that the cache can never hold blocks all others",
    "O07": "the prefix cache hands over blocks of another text with the same hash",
    "O08": "a temperature that is no number stops the engine",
    "O09": "a top-p of 1 always takes the likeliest token",
    "O10": "a seeded request changes with its batch mates",
    "O11": "log-probabilities move with temperature and top-p",
    "O12": "the usage is one short of the limit",
    "O13": "a limit beyond the context hangs",
    "O14": "an empty prompt stops the engine",
    "O15": "a space too many after a special token, or whitespace lost",
    "O16": "one long word takes ages to tokenize",
    "O35": "ids above the tokenizer's last one are sampled",
    "O36": "the scaling of rotary embeddings is ignored, which shows far out only",
    "O37": "a file without its pre-tokenizer's name is cut badly, without a word",
    "O38": "one of two tied weights is silently not loaded",
    "O39": "a quantised KV cache goes wrong past a length or a window's edge",
    "O43": "a log-probability of minus infinity breaks the answer",
    "O48": "a stream stalls because its task was collected, or crashed in silence",
    "O49": "a penalty makes repeats likelier where logits are negative",
}
