"""How much one request may ask for, whoever asks: the command line and the websocket alike.

Torch-free. The engine itself could do more of most of these; beyond them nothing is of use, and
one request could hold up everyone else.
"""

from __future__ import annotations

from engine.inference.protocol.to_worker import Generate
from engine.refusals import refused

MAX_TOKENS = 8_192
MAX_SAMPLES = 8
MAX_TEMPERATURE = 5.0
MAX_TOP_K = 1_000
MAX_TOP_LOGPROBS = 20
MAX_STOP_STRINGS = 8
MAX_STOP_CHARS = 64
MAX_STOP_IDS = 16  # of the websocket: the command line has no option for them
MAX_BIASED_IDS = 300

# Far beyond what is of use, and small enough that no logit overflows.
MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY = 0.1, 10.0

# As OpenAI's API reference has them, so that its clients' values mean the same here.
MAX_COUNT_PENALTY = 2.0
MAX_BIAS = 100.0


def check_request_limits(generate: Generate) -> None:
    """Refuse what is beyond these limits; ``SamplingParams`` checks what is left.

    Raises:
        InvalidRequest: naming the field.
    """
    _check_integer("max_tokens", generate.max_tokens, 1, MAX_TOKENS)
    _check_integer("min_tokens", generate.min_tokens, 0, MAX_TOKENS)
    _check_integer("n", generate.n, 1, MAX_SAMPLES)
    _check_integer("top_k", generate.top_k, 0, MAX_TOP_K)
    _check_integer("top_logprobs", generate.top_logprobs, 0, MAX_TOP_LOGPROBS)
    # Written so that NaN, which compares as false, is refused.
    if not 0 <= generate.temperature <= MAX_TEMPERATURE:
        high = f"{MAX_TEMPERATURE:g}"
        field = "temperature"
        raise refused("number_range", field=field, name=field, low="0", high=high)
    if len(generate.stop) > MAX_STOP_STRINGS:
        raise refused("too_many_stops", field="stop", high=MAX_STOP_STRINGS)
    if any(not 1 <= len(stop) <= MAX_STOP_CHARS for stop in generate.stop):
        raise refused("stop_length", field="stop", high=MAX_STOP_CHARS)
    if len(generate.logit_bias) > MAX_BIASED_IDS:
        raise refused("too_many_biases", field="logit_bias", high=MAX_BIASED_IDS)


def _check_integer(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise refused("integer_range", field=name, name=name, low=low, high=high)
