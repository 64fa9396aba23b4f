"""``python -m engine generate``: one prompt through the real engine, in this process."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from statistics import median
from typing import Annotated

import typer

from engine.commands.progress import stderr_report
from engine.commands.refusing import refuse
from engine.errors import EngineError, InvalidRequest
from engine.inference.lane_settings import LaneSettings, parse_kv, parse_weights
from engine.inference.messages import Accepted, ChatTurn, Done, Failed, Generate, Message, Token
from engine.inference.options import EngineOptions
from engine.inference.request_limits import check_request_limits
from engine.scheduling.scheduler import SchedulerLimits
from engine.scheduling.speculation import (
    DEFAULT_DRAFT_TOKENS,
    SpeculationMethod,
    SpeculationSettings,
)


def generate(
    prompt: Annotated[str, typer.Option(help="The text to go on from, or the user's message.")],
    chat: Annotated[bool, typer.Option("--chat", help="Wrap it in the chat template.")] = False,
    system: Annotated[str | None, typer.Option(help="System message, with --chat.")] = None,
    model: Annotated[str, typer.Option(help="auto, tiny, a GGUF file or a model folder.")] = "auto",
    weights: Annotated[
        str | None,
        typer.Option(
            help="auto, float32, bfloat16, file, int8 or int4 (-tensor, -channel, -g32, -g64, "
            "-g128; -rtn, -awq, -gptq).",
        ),
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="The same as --weights.")] = None,
    kv_cache: Annotated[
        str,
        typer.Option(
            help="paged, contiguous or off (-int8, -int4; -window-W, -sinks-S), such as "
            "paged-int8-window-256-sinks-4."
        ),
    ] = "paged",
    prefix_cache: Annotated[
        bool, typer.Option("--prefix-cache", help="Find known beginnings of prompts again.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    max_tokens: Annotated[int, typer.Option(help="The most tokens to generate.")] = 64,
    temperature: Annotated[float, typer.Option(help="0 always takes the likeliest token.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="Keep the k likeliest; 0 keeps all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Keep the likeliest up to this mass.")] = 1.0,
    min_p: Annotated[float, typer.Option(help="Keep those at least this share of the best.")] = 0.0,
    seed: Annotated[int | None, typer.Option(help="Repeats a sampled answer.")] = None,
    n: Annotated[int, typer.Option(help="Samples; sample i has the seed plus i.")] = 1,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1: fewer repeats.")] = 1.0,
    presence_penalty: Annotated[float, typer.Option(help="Taken off every token used.")] = 0.0,
    frequency_penalty: Annotated[float, typer.Option(help="Taken off once for each use.")] = 0.0,
    logit_bias: Annotated[
        list[str] | None, typer.Option(help="ID=NUMBER, added to a token's logit; repeatable.")
    ] = None,
    top_logprobs: Annotated[int, typer.Option(help="Likeliest tokens told at each place.")] = 0,
    min_tokens: Annotated[int, typer.Option(help="No end before so many tokens.")] = 0,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Go on at an end.")] = False,
    speculation: Annotated[str, typer.Option(help="off, ngram or early-exit.")] = "off",
    draft_tokens: Annotated[
        int | None, typer.Option(help="Tokens drafted a step, with --speculation; 4 if left out.")
    ] = None,
    exit_layer: Annotated[
        int | None, typer.Option(help="Layers that draft, with early-exit.")
    ] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End at this text; repeatable.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Run a prompt on the real model and print the answer with its measured times."""
    messages: tuple[ChatTurn, ...] | None = None
    if chat:
        turns = [ChatTurn("system", system)] if system is not None else []
        messages = (*turns, ChatTurn("user", prompt))
    elif system is not None:
        raise typer.BadParameter("needs --chat", param_hint="--system")
    if weights is not None and dtype is not None:
        raise typer.BadParameter("says the same as --weights: give one", param_hint="--dtype")
    options = {
        "weights": "--weights" if dtype is None else "--dtype",
        "method": "--speculation",
        "messages": "--prompt",
    }
    try:
        request = Generate(
            request_id="cli",
            prompt=None if chat else prompt,
            messages=messages,
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            seed=seed,
            stop=tuple(stop or ()),
            weights=weights or dtype or "auto",
            kv_cache=kv_cache,
            prefix_cache=prefix_cache,
            speculation=_speculation(speculation, draft_tokens, exit_layer),
            n=n,
            repetition_penalty=repetition_penalty,
            presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
            logit_bias=tuple(map(_bias, logit_bias or ())),
            top_logprobs=top_logprobs,
            min_tokens=min_tokens,
            ignore_eos=ignore_eos,
        )
        heard = _run(request, EngineOptions(model=model, device=device, calibrate="never"))
    except EngineError as error:
        refuse(error, options)
    typer.echo(json.dumps(_document(heard)) if as_json else _for_people(heard))


def _speculation(
    method: str, draft_tokens: int | None, exit_layer: int | None
) -> SpeculationSettings | None:
    if method not in ("off", SpeculationMethod.NGRAM, SpeculationMethod.EARLY_EXIT):
        raise InvalidRequest("choose off, ngram or early-exit", field="speculation")
    if method == "off":
        for field, value in (("draft_tokens", draft_tokens), ("exit_layer", exit_layer)):
            if value is not None:
                raise InvalidRequest("needs --speculation", field=field)
        return None
    count = DEFAULT_DRAFT_TOKENS if draft_tokens is None else draft_tokens
    return SpeculationSettings(SpeculationMethod(method), count, exit_layer)


def _bias(pair: str) -> tuple[int, float]:
    token, _, bias = pair.partition("=")
    try:
        return int(token), float(bias)
    except ValueError:
        raise InvalidRequest("write it as ID=NUMBER, such as 42=-100", field="logit_bias") from None


def _run(request: Generate, options: EngineOptions) -> list[Message]:
    # Imported here: torch takes a second to load, and a wrong option should not wait for it.
    from engine.inference.engine import Engine
    from engine.inference.loading import load_model

    check_request_limits(request)
    lane = replace(options, dtypes=_lane_name(request, options.device))
    loaded = load_model(lane, stderr_report())
    heard: list[Message] = []
    limits = SchedulerLimits(
        max_step_tokens=options.max_step_tokens, max_context=loaded.config.max_context
    )
    engine = Engine(loaded, limits, heard.append)
    engine.submit(engine.prepare(request, time.perf_counter()))
    while engine.has_work:
        engine.step()
    for message in heard:
        if isinstance(message, Failed):
            reason, values = message.reason, message.values
            raise EngineError(message.message, field=message.field, reason=reason, values=values)
    return heard


def _lane_name(request: Generate, device: str) -> str:
    """The one lane to open; for weights of the engine's choice, what it would choose."""
    kv = parse_kv(request.kv_cache)
    weights = request.weights
    if weights == "auto":
        from engine.inference.device import open_device

        weights = open_device(device).default_dtype
    return LaneSettings(parse_weights(weights), kv, request.prefix_cache).name


def _document(heard: list[Message]) -> dict[str, object]:
    accepted = next(m for m in heard if isinstance(m, Accepted))
    samples = [_sample(heard, done) for done in _ends(heard)]
    first, *others = samples
    document: dict[str, object] = {
        "model": accepted.model,
        "device": accepted.device,
        "dtype": accepted.dtype,
        "lane": accepted.lane,
        "seed": accepted.seed,
        "prompt_token_ids": list(accepted.prompt_token_ids),
        **first,
    }
    return {**document, "samples": samples} if others else document


def _ends(heard: list[Message]) -> list[Done]:
    return sorted((m for m in heard if isinstance(m, Done)), key=lambda done: done.sample)


def _sample(heard: list[Message], done: Done) -> dict[str, object]:
    tokens = [m for m in heard if isinstance(m, Token) and m.sample == done.sample]
    sample: dict[str, object] = {
        "token_ids": [token.id for token in tokens],
        "logprobs": [token.logprob for token in tokens],
        "text": done.text,
        "finish_reason": done.finish_reason,
        "ttft_ms": done.ttft_ms,
        "itl_ms": list(done.itl_ms),
        "drafted_tokens": done.drafted_tokens,
        "accepted_tokens": done.accepted_tokens,
    }
    if any(token.top for token in tokens):
        sample["top_logprobs"] = [
            [{"id": i, "piece": piece, "logprob": logprob} for i, piece, logprob in token.top]
            for token in tokens
        ]
    return sample


def _for_people(heard: list[Message]) -> str:
    accepted = next(m for m in heard if isinstance(m, Accepted))
    return "\n\n".join(_paragraphs(accepted, done, heard) for done in _ends(heard))


def _paragraphs(accepted: Accepted, done: Done, heard: list[Message]) -> str:
    tokens = [m for m in heard if isinstance(m, Token) and m.sample == done.sample]
    likeliest = "\n".join(map(_likeliest, tokens)) if any(token.top for token in tokens) else ""
    drafts = ""
    if done.drafted_tokens:
        drafts = f" · {done.accepted_tokens} of {done.drafted_tokens} drafts accepted"
    measured = (
        f"measured: TTFT {done.ttft_ms:.1f} ms · {_gaps(done)}{drafts} · "
        f"{accepted.model} · {accepted.lane} on {accepted.device} · "
        f"ended by {done.finish_reason}"
    )
    return "\n\n".join(part for part in (done.text, likeliest, measured) if part)


def _gaps(done: Done) -> str:
    """The usual gap and the mean one. With drafts only the mean says something: accepted ones come
    with another token, after a gap of 0."""
    gaps = done.itl_ms
    if not gaps:
        return "ITL — (one token only)"
    mean = f"TPOT {sum(gaps) / len(gaps):.1f} ms (mean of {len(gaps)})"
    return mean if done.drafted_tokens else f"ITL {median(gaps):.1f} ms (median) · {mean}"


def _likeliest(token: Token) -> str:
    """A token with its log-probability, and the likeliest ones in its place with theirs."""
    top = "  ".join(f"{piece!r} {_logprob(logprob)}" for _, piece, logprob in token.top)
    return f"{token.index:4d}  {token.piece!r} {_logprob(token.logprob)}  likeliest: {top}"


def _logprob(value: float | None) -> str:
    return "—" if value is None else f"{value:z.3f}"
