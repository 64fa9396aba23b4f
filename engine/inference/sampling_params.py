"""How one request is to be sampled: plain numbers, checked. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

from engine.inference.request_limits import (
    MAX_BIAS,
    MAX_COUNT_PENALTY,
    MAX_REPETITION_PENALTY,
    MAX_TOP_LOGPROBS,
    MIN_REPETITION_PENALTY,
)
from engine.refusals import refused

MAX_TEMPERATURE = 100.0
MAX_SEED = 2**63 - 1
MAX_BIASED_TOKENS = 1_024


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Every default leaves the model's own distribution as it is, and greedy.

    ``temperature`` 0 always takes the likeliest token. ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 cut
    nothing off. ``repetition_penalty`` (1: none) makes tokens of the prompt and the answer less
    likely, ``presence_penalty`` and ``frequency_penalty`` (0: none) those of the answer; values on
    the other side of neutral make them likelier. ``logit_bias``: pairs of a token id and what is
    added to its logit. ``top_logprobs``: likeliest tokens to tell beside each token.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    top_logprobs: int = 0

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token (after penalties and biases) is always taken."""
        return self.temperature == 0

    @property
    def penalises(self) -> bool:
        """Whether the text so far changes the logits."""
        penalties = (self.presence_penalty, self.frequency_penalty)
        return self.repetition_penalty != 1 or any(penalties)

    @property
    def shapes(self) -> bool:
        """Whether single tokens' logits change before temperature."""
        return self.penalises or bool(self.logit_bias)

    def validate(self, vocab_size: int | None = None) -> None:
        """Check all ranges; ``top_k`` and the ids of ``logit_bias`` against the vocabulary where
        its size is given.

        Raises:
            InvalidRequest: naming the field. NaN is outside every range.
        """
        most = MAX_SEED if vocab_size is None else vocab_size
        _check_number("temperature", self.temperature, 0.0, MAX_TEMPERATURE)
        _check_number("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0:
            raise refused("above_zero", field="top_p", name="top_p")
        _check_number("min_p", self.min_p, 0.0, 1.0)
        _check_integer("top_k", self.top_k, most)
        _check_integer("seed", self.seed, MAX_SEED)
        _check_number(
            "repetition_penalty",
            self.repetition_penalty,
            MIN_REPETITION_PENALTY,
            MAX_REPETITION_PENALTY,
        )
        for field in ("presence_penalty", "frequency_penalty"):
            _check_number(field, getattr(self, field), -MAX_COUNT_PENALTY, MAX_COUNT_PENALTY)
        _check_integer("top_logprobs", self.top_logprobs, MAX_TOP_LOGPROBS)
        _check_bias(self.logit_bias, most)


def _check_number(field: str, value: float, low: float, high: float) -> None:
    # Written so that NaN, which compares as false, is refused.
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise refused("number_range", field=field, name=field, low=f"{low:g}", high=f"{high:g}")


def _check_integer(field: str, value: int, high: int) -> None:
    if type(value) is not int or not 0 <= value <= high:
        raise refused("integer_range", field=field, name=field, low=0, high=high)


def _check_bias(pairs: object, vocab_size: int) -> None:
    field = "logit_bias"
    if not isinstance(pairs, tuple) or any(
        not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs
    ):
        raise refused("bias_pairs", field=field)
    if len(pairs) > MAX_BIASED_TOKENS:
        raise refused("too_many_biases", field=field, high=MAX_BIASED_TOKENS)
    for token, bias in pairs:
        if type(token) is not int or not 0 <= token < vocab_size:
            raise refused("bias_ids", field=field, high=vocab_size)
        _check_number(field, bias, -MAX_BIAS, MAX_BIAS)
    if len({token for token, _ in pairs}) < len(pairs):
        raise refused("bias_twice", field=field)
