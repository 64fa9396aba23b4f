"""From what a person asked for to what the scheduler takes: checked, seeded, tokenized."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

from engine.errors import InvalidRequest
from engine.inference.loading import LoadedModel
from engine.inference.messages import Generate
from engine.inference.sampling import SamplingParams
from engine.inference.stop_strings import StopStringMatcher
from engine.inference.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request that has been checked and tokenized, on whatever thread, but not queued yet."""

    generate: Generate
    received: float
    tokenize_seconds: float
    dtype: str
    sampling: SamplingParams
    prompt_token_ids: tuple[int, ...]
    prompt_pieces: tuple[str, ...]
    stop_token_ids: frozenset[int]
    notices: tuple[str, ...]


def prepare_request(model: LoadedModel, generate: Generate, received: float) -> PreparedRequest:
    """Check and tokenize a request. ``received``: seconds on the clock that TTFT counts on.

    Raises:
        InvalidRequest: a field is wrong; it names which.
        TemplateError: the chat template cannot take these messages.
    """
    dtype = model.default_dtype if generate.dtype == "auto" else generate.dtype
    if dtype not in model.executors:
        raise InvalidRequest(f"choose one of auto, {', '.join(model.executors)}", field="dtype")
    sampling = _sampling(generate)
    sampling.validate(model.config.vocab_size)
    StopStringMatcher(generate.stop)  # refuses what is no stop string
    start = time.perf_counter()
    prompt_token_ids = tuple(_tokenize(model.tokenizer, generate))
    tokenize_seconds = time.perf_counter() - start
    return PreparedRequest(
        generate=generate,
        received=received,
        tokenize_seconds=tokenize_seconds,
        dtype=dtype,
        sampling=sampling,
        prompt_token_ids=prompt_token_ids,
        prompt_pieces=tuple(map(model.tokenizer.piece, prompt_token_ids)),
        stop_token_ids=frozenset((*model.config.eos_token_ids, *generate.stop_token_ids)),
        notices=_notices(model.tokenizer, generate),
    )


def _sampling(generate: Generate) -> SamplingParams:
    # 31 bits, so that every client can show the seed exactly, JavaScript included.
    seed = secrets.randbits(31) if generate.seed is None else generate.seed
    return SamplingParams(
        temperature=generate.temperature,
        top_k=generate.top_k,
        top_p=generate.top_p,
        min_p=generate.min_p,
        seed=seed,
    )


def _tokenize(tokenizer: Tokenizer, generate: Generate) -> list[int]:
    if (generate.prompt is None) == (generate.messages is None):
        raise InvalidRequest("give either prompt or messages", field="prompt")
    if generate.prompt is not None:
        return tokenizer.encode_prompt(generate.prompt)
    turns = [{"role": turn.role, "content": turn.content} for turn in generate.messages or ()]
    return tokenizer.encode_chat(turns)


def _notices(tokenizer: Tokenizer, generate: Generate) -> tuple[str, ...]:
    texts = [generate.prompt or "", *(turn.content for turn in generate.messages or ())]
    left_out = any(tokenizer.unspellable(text) for text in texts)
    return ("characters_left_out",) if left_out else ()
