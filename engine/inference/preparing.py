"""From what a person asked for to what the scheduler takes: checked, seeded, tokenized."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace

from engine.inference.kv_cache.capabilities import CacheCapabilities
from engine.inference.lane_settings import LaneSettings, parse_kv, parse_weights
from engine.inference.loading import LoadedModel
from engine.inference.messages import Generate
from engine.inference.model.config import ModelConfig
from engine.inference.request_limits import check_request_limits
from engine.inference.sampling_params import MAX_SEED, SamplingParams
from engine.inference.stop_strings import StopStringMatcher
from engine.inference.tokenizer import Tokenizer
from engine.refusals import refused
from engine.scheduling.speculation import SpeculationMethod


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request that has been checked and tokenized, on whatever thread, but not queued yet."""

    generate: Generate
    received: float
    tokenize_seconds: float
    lane: LaneSettings
    sampling: SamplingParams
    prompt_token_ids: tuple[int, ...]
    prompt_pieces: tuple[str, ...]
    stop_token_ids: frozenset[int]
    notices: tuple[str, ...]
    opening_seconds: float = 0.0

    @property
    def sample_ids(self) -> tuple[str, ...]:
        """Ids of the request's samples, of which the first has the request's own."""
        request_id = self.generate.request_id
        return (request_id, *(f"{request_id}#{i}" for i in range(1, self.generate.n)))

    def sampling_of(self, sample: int) -> SamplingParams:
        """How one sample is drawn: as a request of its own with the seed plus its number."""
        return replace(self.sampling, seed=(self.sampling.seed + sample) % (MAX_SEED + 1))

    def with_lane_opened(self) -> PreparedRequest:
        """The same request, on whose clock the wait for its lane does not count."""
        now = time.perf_counter()
        waited = now - self.received - self.tokenize_seconds
        return replace(self, received=now - self.tokenize_seconds, opening_seconds=waited)


def prepare_request(model: LoadedModel, generate: Generate, received: float) -> PreparedRequest:
    """Check and tokenize a request. ``received``: seconds on the clock that TTFT counts on.

    Raises:
        InvalidRequest: a field is wrong; it names which.
        TemplateError: the chat template cannot take these messages.
    """
    lane = _lane(model, generate)
    check_request_limits(generate)
    check_choices(model.config, lane, generate)
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
        lane=lane,
        sampling=sampling,
        prompt_token_ids=prompt_token_ids,
        prompt_pieces=tuple(map(model.tokenizer.piece, prompt_token_ids)),
        stop_token_ids=frozenset((*model.config.eos_token_ids, *generate.stop_token_ids)),
        notices=_notices(model.tokenizer, generate),
    )


def _lane(model: LoadedModel, generate: Generate) -> LaneSettings:
    weights = model.default_dtype if generate.weights == "auto" else generate.weights
    return LaneSettings(parse_weights(weights), parse_kv(generate.kv_cache), generate.prefix_cache)


def check_choices(config: ModelConfig, lane: LaneSettings, generate: Generate) -> None:
    """Refuse what cannot work together, before anything is loaded for it.

    Raises:
        InvalidRequest: naming the field and the way out.
    """
    cache = CacheCapabilities.of(lane.kv)
    if lane.prefix_cache:
        cache.require_shared_blocks("prefix_cache")
    if generate.n > 1:
        cache.require_shared_blocks("samples")
    if not 0 <= generate.min_tokens <= generate.max_tokens:
        raise refused("min_tokens_above_max", field="min_tokens", high=generate.max_tokens)
    speculation = generate.speculation
    if speculation is None:
        return
    if not cache.keeps_computed:
        raise refused("drafts_need_cache", field="speculation")
    if speculation.exit_layer is not None and speculation.exit_layer >= config.num_layers:
        layers = config.num_layers
        field = "speculation.exit_layer"
        raise refused("exit_layer_range", field=field, high=layers - 1, layers=layers)
    if speculation.method is SpeculationMethod.DRAFT:
        raise refused("no_draft_model", field="speculation.method")


def _sampling(generate: Generate) -> SamplingParams:
    # 31 bits, so that every client can show the seed exactly, JavaScript included.
    seed = secrets.randbits(31) if generate.seed is None else generate.seed
    return SamplingParams(
        temperature=generate.temperature,
        top_k=generate.top_k,
        top_p=generate.top_p,
        min_p=generate.min_p,
        seed=seed,
        repetition_penalty=generate.repetition_penalty,
        presence_penalty=generate.presence_penalty,
        frequency_penalty=generate.frequency_penalty,
        logit_bias=generate.logit_bias,
        top_logprobs=generate.top_logprobs,
    )


def _tokenize(tokenizer: Tokenizer, generate: Generate) -> list[int]:
    if (generate.prompt is None) == (generate.messages is None):
        raise refused("prompt_or_messages", field="prompt")
    if generate.prompt is not None:
        return tokenizer.encode_prompt(generate.prompt)
    turns = [{"role": turn.role, "content": turn.content} for turn in generate.messages or ()]
    return tokenizer.encode_chat(turns)


def _notices(tokenizer: Tokenizer, generate: Generate) -> tuple[str, ...]:
    texts = [generate.prompt or "", *(turn.content for turn in generate.messages or ())]
    left_out = any(tokenizer.unspellable(text) for text in texts)
    return ("characters_left_out",) if left_out else ()
