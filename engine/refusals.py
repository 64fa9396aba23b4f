"""Why the engine refuses what was asked for: one stable code, one sentence and its values.

The sentences are English. Whoever shows them in another language translates them by their code,
fills in the same values, and needs to know nothing of what was refused.
"""

from __future__ import annotations

from engine.errors import EngineError, InvalidRequest
from engine.refusals_of_predictions import REFUSED_PREDICTIONS

Value = int | str

REFUSALS: dict[str, str] = {
    # numbers and texts of a request
    "integer_range": "{name} must be a whole number from {low} to {high}",
    "number_range": "{name} must be a number from {low} to {high}",
    "above_zero": "{name} must be above 0; 1 keeps all tokens",
    "at_least_one_token": "at least one token must be asked for",
    "min_tokens_above_max": "min_tokens must be from 0 to {high}, which is max_tokens",
    "too_many_stops": "at most {high} stop strings",
    "stop_length": "a stop string has 1 to {high} characters",
    "bias_pairs": "logit_bias must be pairs of a token id and a number",
    "too_many_biases": "at most {high} tokens can have a bias",
    "bias_ids": "the token ids of logit_bias must be whole numbers below {high}",
    "bias_twice": "a token has two values in logit_bias",
    "empty_prompt": "the prompt is empty; write at least one character",
    "no_prompt_tokens": "the prompt has no tokens; write at least one",
    "prompt_or_messages": "give either prompt or messages",
    "token_ids_or_text": "give only one of token_ids, text and messages",
    "lone_surrogates": "the text has lone surrogates",
    "text_too_long": "at most {high} characters are taken",
    "message_count": "give 1 to {high} messages",
    "roles": "a role is one of {choices}",
    "no_chat_template": "this model has no chat template; send a plain prompt",
    "token_count": "give from 1 to {high} tokens",
    "token_ids": "token ids are from 0 to {high}",
    "no_byte_merges": "this model's tokenizer does not merge bytes by rank: nothing to replay",
    "probe_memory": "to look inside this text takes {needed}, and {most} may be held: shorten it",
    "nothing_to_add": "give at least one to add",
    "sum_is_nothing": "these cancel out: nothing is left to be near to",
    "word_unknown": "word {number} is not among the {known} that have a vector",
    "three_words": "a map needs three different words",
    "id_in_use": "this id is in use; choose another",
    # forms of the model
    "weights_choices": (
        "choose float32, bfloat16, file, int8 or int4; the last two take -tensor, -channel, -g32, "
        "-g64 or -g128 and then -rtn, -awq or -gptq"
    ),
    "kv_choices": (
        "choose paged, contiguous or off; the first two take -int8 or -int4 and then -window-W, "
        "which takes -sinks-S"
    ),
    "kv_off_keeps_nothing": "with the cache off there is nothing to quantise and no window to keep",
    "sinks_need_window": "sinks need a window",
    "window_range": "choose a window of at most {high} positions, and fewer sinks than that",
    "weights_not_made": (
        "these weights take minutes to make and were never made here: run a prompt with them first"
    ),
    "one_kv_cache": "a lane has one KV cache",
    "prefix_cache_contiguous": (
        "prefix caching needs blocks that sequences can share: a contiguous cache gives every "
        "sequence one slab of its own; choose a paged cache"
    ),
    "prefix_cache_off": (
        "prefix caching needs blocks that sequences can share: with the cache off nothing is kept "
        "that could be shared; choose a paged cache"
    ),
    "samples_contiguous": (
        "more than one sample of a prompt needs blocks that sequences can share: a contiguous "
        "cache gives every sequence one slab of its own; choose a paged cache"
    ),
    "samples_off": (
        "more than one sample of a prompt needs blocks that sequences can share: with the cache "
        "off nothing is kept that could be shared; choose a paged cache"
    ),
    "file_blocks_type": (
        "the file keeps weights as {stored}; only blocks of {usable} can be used as they are"
    ),
    "file_blocks_mixed": (
        "layer {layer} mixes {types} in matrices that are computed as one, so the file's blocks "
        "cannot be used as they are"
    ),
    "lane_memory": (
        "this lane would take about {needed}; {free} are free, and {kept} have to stay free: "
        "choose weights of fewer bits, or a lane that is open"
    ),
    # drafts
    "drafts_need_cache": (
        "drafts are verified against kept keys and values; switch the cache on, or speculation off"
    ),
    "exit_layer_range": "exit_layer must be from 1 to {high}, below the model's {layers} layers",
    "exit_layer_method": "exit_layer goes with early-exit only",
    "no_draft_model": "no draft model is loaded here; choose ngram or early-exit",
    # room
    "context": (
        "{prompt} prompt tokens and {answer} more exceed the context of {context}; shorten the "
        "prompt or the answer"
    ),
    "cache_blocks": (
        "{tokens} tokens need {needed} KV blocks and the cache has {usable}; shorten the prompt or "
        "the answer"
    ),
    "session_blocks": (
        "{tokens} tokens need {needed} KV blocks and a session may have {usable}; shorten the "
        "prompt or the answer"
    ),
    "queue_full": "{waiting} requests are waiting; try again in a moment",
    "session_queue_full": "{waiting} of your requests are waiting; let one of them finish first",
    "prompts_at_once": "too many prompts came at once; try again in a moment",
    "probes_at_once": "too many probes came at once; try again in a moment",
    "lane_queue_full": "too many prompts wait for these engine settings; try again in a moment",
    "lanes_full": "too many different engine settings are in use; try again in a moment",
    # faults
    "fault": "the engine could not take this request; the fault was logged",
    "step_failed": "the model failed while running this step; run the prompt again",
}
"""English sentences by code; ``{name}`` is filled in with the value of that name."""


def refused(
    reason: str,
    *,
    kind: type[EngineError] = InvalidRequest,
    field: str | None = None,
    **values: Value,
) -> EngineError:
    """The error of a code of ``REFUSALS`` or ``REFUSED_PREDICTIONS``. ``values`` are what its
    sentence has blanks for: whole numbers, or text that stays as it is in every language;
    ``{field}`` is the field's name.

    Raises:
        KeyError: there is no such reason, or a value for a blank is missing.
    """
    message = sentence(reason).format_map({"field": field, **values})
    return kind(message, field=field, reason=reason, values=values)


def sentence(reason: str) -> str:
    """The English sentence of a code.

    Raises:
        KeyError: there is no such code.
    """
    return REFUSALS[reason] if reason in REFUSALS else REFUSED_PREDICTIONS[reason]
